//! The session transcripts of `fixtures/sessions`, on the client actor and over a real socket.

mod nodes;
mod on_the_actor;
mod over_a_socket;
mod played_step;
mod record;
pub(crate) mod scripted_broadcasts;
mod stage;
mod store;
mod urls;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use harness::transcript::{Mismatch, Transcript};

use crate::clockwork;

/// Plays every session, each in a world of its own, and reports all that differ.
fn play_all<F: Future<Output = Result<(), Mismatch>>>(play: impl Fn(Arc<Transcript>) -> F) {
    let mut failures = Vec::new();
    for path in session_files() {
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap();
        let transcript = Transcript::parse(&text).unwrap_or_else(|error| panic!("{file}:{error}"));
        let played = clockwork::run(play(Arc::new(transcript)));
        failures.extend(played.err().map(|mismatch| format!("{file}:{mismatch}")));
    }
    assert!(failures.is_empty(), "\n\n{}\n", failures.join("\n\n"));
}

fn session_files() -> Vec<PathBuf> {
    const SESSIONS_MIN: usize = 30;
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/sessions"));
    let entries = fs::read_dir(&folder).expect("fixtures/sessions is part of the repository");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "session"));
    paths.sort();
    assert!(paths.len() >= SESSIONS_MIN, "only {} transcripts in {folder:?}", paths.len());
    paths
}
