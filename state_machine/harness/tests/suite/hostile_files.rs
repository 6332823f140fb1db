//! Hostile files for `kalends dev replay`.

use harness::feed::transcript::{self as feed, History};
use harness::transcript::{Transcript, replay};

use crate::fixtures::{Fixture, fixtures};
use crate::fuzz::fuzz;

#[test]
fn no_hostile_session_script_makes_its_replay_panic() {
    fuzz("session_scripts", &texts("sessions", "session"), |bytes| {
        let Ok(transcript) = Transcript::parse(&String::from_utf8_lossy(bytes)) else { return };
        let writer = transcript.writer();
        let _ = replay(&transcript, |ran| _ = writer.ran(ran));
    });
}

#[test]
fn no_hostile_feed_history_makes_its_replay_panic() {
    fuzz("feed_histories", &texts("feeds", "feed"), |bytes| {
        let Ok(history) = History::parse(&String::from_utf8_lossy(bytes)) else { return };
        let _ = feed::replay(&history, |ran| _ = ran.to_string());
    });
}

fn texts(folder: &str, extension: &str) -> Vec<String> {
    fixtures(folder, extension, 20).into_iter().map(|Fixture { text, .. }| text).collect()
}
