//! Hostile files for `kalends dev replay`.

use harness::script::{Language, Script};

use crate::fuzz::fuzz;
use crate::scripts::scripts;

#[test]
fn no_hostile_session_script_makes_its_replay_panic() {
    fuzz_scripts("session_scripts", Language::Session);
}

#[test]
fn no_hostile_feed_history_makes_its_replay_panic() {
    fuzz_scripts("feed_histories", Language::Feed);
}

#[test]
fn no_hostile_delivery_script_makes_its_replay_panic() {
    fuzz_scripts("delivery_scripts", Language::Delivery);
}

#[test]
fn no_hostile_agent_script_makes_its_replay_panic() {
    fuzz_scripts("agent_scripts", Language::Agent);
}

fn fuzz_scripts(target: &str, language: Language) {
    let samples: Vec<String> = scripts(language).into_iter().map(|script| script.text).collect();
    fuzz(target, &samples, |bytes| {
        let Ok(script) = Script::parse(language, &String::from_utf8_lossy(bytes)) else { return };
        let _ = script.replay(|step| _ = step.to_string());
    });
}
