//! The scripts of all languages in `fixtures`: each runs as it is written.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use harness::scripts::{Language, Script};

use crate::fixtures::{Fixture, fixtures};

/// The folder and the least number of scripts of each language.
const FOLDERS: [(Language, &str, usize); 4] = [
    (Language::Session, "sessions", 80),
    (Language::Feed, "feeds", 27),
    (Language::Delivery, "deliveries", 20),
    (Language::Agent, "agents", 8),
];

/// All scripts of a language, by name.
pub(crate) fn scripts(language: Language) -> Vec<Fixture> {
    let (_, folder, least) = FOLDERS.into_iter().find(|(its, ..)| *its == language).unwrap();
    fixtures(folder, language.extension(), least)
}

fn all() -> impl Iterator<Item = (Language, Fixture)> {
    let of = |language| scripts(language).into_iter().map(move |script| (language, script));
    Language::ALL.into_iter().flat_map(of)
}

#[test]
fn every_script_runs_as_it_is_written() {
    let mut failures = Vec::new();
    for (language, Fixture { file, text }) in all() {
        match Script::parse(language, &text) {
            Err(error) => failures.push(format!("{file}:{error}")),
            Ok(script) => {
                let error = script.replay(|_| ()).err();
                failures.extend(error.map(|error| format!("{file}:{error}")));
            }
        }
    }
    assert!(failures.is_empty(), "\n\n{}\n", failures.join("\n\n"));
}

/// Each line of a script is compared: without one of its effects it does not run, and neither with another one.
#[test]
fn every_effect_of_a_script_is_compared() {
    for (language, Fixture { file, text }) in all() {
        let effect = |line: &str| {
            let head = line.split(' ').next().unwrap_or_default();
            head.ends_with('<') && !head.starts_with('#')
        };
        let lines: Vec<&str> = text.lines().collect();
        for (at, _) in lines.iter().enumerate().filter(|(_, line)| effect(line)) {
            // An effect of several lines cannot be left out by its first one.
            if lines.get(at + 1).is_some_and(|next| next.starts_with(' ')) {
                continue;
            }
            let without = [&lines[..at], &lines[at + 1..]].concat().join("\n");
            let script = Script::parse(language, &without).unwrap();
            assert!(script.replay(|_| ()).is_err(), "{file}:{}", at + 1);
        }
    }
}

#[test]
fn a_script_printed_as_a_trace_is_the_same_script() {
    for (language, Fixture { file, text }) in all() {
        let head: Vec<&str> = text.lines().take_while(|line| !is_input(line)).collect();
        let print = |text: &str| {
            let mut steps = String::new();
            let script = Script::parse(language, text).unwrap();
            script.replay(|step| steps += &format!("\n{step}")).unwrap();
            head.join("\n") + "\n" + &steps
        };
        let printed = print(&text);
        assert_eq!(print(&printed), printed, "{file}");
    }
}

fn is_input(line: &str) -> bool {
    let head = line.split(' ').next().unwrap_or_default();
    !line.starts_with('#') && (head.ends_with('>') || head == "wait")
}

#[test]
fn every_title_is_a_sentence_of_its_own() {
    let title = |(language, script): (Language, Fixture)| {
        Script::parse(language, &script.text).unwrap().title().to_owned()
    };
    let mut titles: Vec<String> = all().map(title).collect();
    let wrong: Vec<&String> = titles.iter().filter(|title| !title.ends_with('.')).collect();
    assert_eq!(wrong, Vec::<&String>::new());
    let files = titles.len();
    titles.sort();
    titles.dedup();
    assert_eq!(titles.len(), files);
}
