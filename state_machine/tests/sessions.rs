//! Every transcript of `fixtures/sessions` against the pure machine.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use state_machine::invariants::Watched;
use state_machine::transcript::{Ran, Transcript, run};

/// A transcript and the file it is from.
struct Session {
    file: String,
    text: String,
}

#[test]
fn every_session_goes_as_it_is_written() {
    let mut failures = Vec::new();
    for Session { file, text } in sessions() {
        match Transcript::parse(&text) {
            Err(error) => failures.push(format!("{file}:{error}")),
            Ok(transcript) => {
                failures.extend(run(&transcript).err().map(|error| format!("{file}:{error}")));
            }
        }
    }
    assert!(failures.is_empty(), "\n\n{}\n", failures.join("\n\n"));
}

#[test]
fn every_session_keeps_every_rule() {
    for Session { file, text } in sessions() {
        let transcript = Transcript::parse(&text).unwrap();
        let config = Arc::new(transcript.config.clone());
        let mut watched = Watched::new(config, transcript.luck, transcript.start);
        for Ran { at, event, .. } in run(&transcript).unwrap() {
            let kept = watched.step(at, &event);
            assert!(kept.is_ok(), "{file}: {}", kept.unwrap_err());
        }
    }
}

#[test]
fn a_session_printed_as_a_trace_is_the_same_session() {
    for Session { file, text } in sessions() {
        let printed = print(&text);
        assert_eq!(print(&printed), printed, "{file}");
    }
}

#[test]
fn every_title_is_a_sentence_of_its_own() {
    let mut titles: Vec<String> =
        sessions().iter().map(|session| Transcript::parse(&session.text).unwrap().title).collect();
    let wrong: Vec<&String> = titles.iter().filter(|title| !title.ends_with('.')).collect();
    assert_eq!(wrong, Vec::<&String>::new());
    let files = titles.len();
    titles.sort();
    titles.dedup();
    assert_eq!(titles.len(), files);
}

/// Runs a transcript and writes down what happened.
fn print(text: &str) -> String {
    let transcript = Transcript::parse(text).unwrap();
    let ran = run(&transcript).unwrap();
    let steps: Vec<String> = ran.iter().map(|ran| transcript.scribe().ran(ran)).collect();
    transcript.head() + "\n" + &steps.join("")
}

fn sessions() -> Vec<Session> {
    const SESSIONS_MIN: usize = 80;
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/sessions"));
    let entries = fs::read_dir(&folder).expect("fixtures/sessions is part of the repository");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "session"));
    paths.sort();
    assert!(paths.len() >= SESSIONS_MIN, "only {} transcripts in {folder:?}", paths.len());
    let read = |path: PathBuf| Session {
        file: format!("fixtures/sessions/{}", path.file_name().unwrap().to_string_lossy()),
        text: fs::read_to_string(path).unwrap(),
    };
    paths.into_iter().map(read).collect()
}
