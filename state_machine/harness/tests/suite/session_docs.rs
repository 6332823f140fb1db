//! Compares `docs/sessions.md` with the transcript module's documentation.

use std::{env, fs};

const MODULE: &str = include_str!("../../src/transcript/mod.rs");
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sessions.md");

#[test]
fn the_page_on_sessions_says_what_the_code_says() {
    let expected = page();
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(PAGE, &expected).unwrap();
    }
    let page = fs::read_to_string(PAGE).unwrap();
    assert_eq!(page, expected, "run UPDATE_DOCS=1 cargo test -p harness");
}

fn page() -> String {
    let lines = MODULE.lines().map_while(|line| line.strip_prefix("//!"));
    let text: String =
        lines.map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line))).collect();
    let text = text.replace(" ([`bindings`])", "");
    format!(
        "# Session scripts\n\n{text}\n\
         `kalends dev replay FILE...` runs scripts through the state machine and prints the first line that differs.\n\
         With `--trace` it prints every step with its phase and its next deadline. With `--write` it writes the effects\n\
         of the machine into the files, where they are missing or differ: write the inputs of a new script, and read\n\
         what it adds. The tests run those in `fixtures/sessions` against the machine, the actor and a real socket.\n"
    )
}
