//! Compares a section of `docs/feeds.md` with the module documentation of the machines, and its
//! history with a fixture.

use std::{env, fs};

use harness::scripts::Language;

use crate::scripts::scripts;
use crate::session_docs::{module_docs, sample};

const PUBLISHER: &str = include_str!("../../../../src/feed/publisher.rs");
const CONSUMER: &str = include_str!("../../../../src/feed/consumer.rs");
const HISTORIES: &str = include_str!("../../../src/feed/transcript/mod.rs");
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/feeds.md");
const HEADING: &str = "## The machine and its fixtures\n";

#[test]
fn the_page_on_feeds_says_of_the_machine_what_the_code_says() {
    let page = fs::read_to_string(PAGE).unwrap();
    let from = page.find(HEADING).expect("docs/feeds.md has the section");
    let behind = from + HEADING.len();
    let to = page[behind..].find("\n## ").map_or(page.len(), |next| behind + next + 1);
    let expected = section();
    if env::var_os("UPDATE_DOCS").is_some() {
        let end = if to < page.len() { "\n" } else { "" };
        let updated = format!("{}{expected}{end}{}", &page[..from], &page[to..]);
        return fs::write(PAGE, updated).unwrap();
    }
    let hint = "run UPDATE_DOCS=1 cargo test -p harness";
    assert_eq!(page[from..to].trim_end(), expected.trim_end(), "{hint}");
}

#[test]
fn the_history_on_the_page_is_a_fixture() {
    let docs = module_docs(HISTORIES);
    let sample = sample(&docs);
    assert!(scripts(Language::Feed).iter().any(|fixture| fixture.text == sample), "{sample}");
}

fn section() -> String {
    let [publisher, consumer, histories] = [PUBLISHER, CONSUMER, HISTORIES].map(module_docs);
    format!(
        "{HEADING}\n\
         Two pure machines in `state_machine/src/feed` decide what a node does with a feed: no IO, no clock. An actor, a\n\
         history on paper and a model checker run the same machines.\n\n\
         ### The publisher\n\n{publisher}\n\
         ### The consumer\n\n{consumer}\n\
         ### Writing a history\n\n{histories}\n\
         `kalends dev replay FILE.feed` runs a history and prints the first line that differs. With `--trace` it prints\n\
         every step with the state after it. The tests run those in `fixtures/feeds`.\n"
    )
}
