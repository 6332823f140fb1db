//! Hostile files for `kalends dev replay`.

use harness::scripts::{Language, Script};

use crate::fuzz::fuzz;
use crate::scripts::scripts;

/// The target of each language.
const TARGETS: [(Language, &str); Language::ALL.len()] = [
    (Language::Session, "session_scripts"),
    (Language::Feed, "feed_histories"),
    (Language::Delivery, "delivery_scripts"),
    (Language::Agent, "agent_scripts"),
];

#[test]
fn no_hostile_script_of_any_language_makes_its_replay_panic() {
    for (language, target) in TARGETS {
        let samples: Vec<String> =
            scripts(language).into_iter().map(|script| script.text).collect();
        fuzz(target, &samples, |bytes| {
            let script = Script::parse(language, &String::from_utf8_lossy(bytes));
            let _ = script.map(|script| script.replay(|step| _ = step.to_string()));
        });
    }
}
