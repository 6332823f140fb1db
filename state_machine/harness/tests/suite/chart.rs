//! Compares `docs/state-machine.md` with the rendered table of states.

use std::env;
use std::fs;

use harness::chart::{Format, UnknownFormat, render};
use state_machine::connection::PhaseName;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/state-machine.md");

/// The text between these lines is rendered.
const BEGIN: &str = "<!-- rendered from the code, from here -->\n";
const END: &str = "<!-- to here -->\n";

#[test]
fn the_page_shows_what_the_machine_does() {
    let page = fs::read_to_string(PAGE).expect("docs/state-machine.md is part of the repository");
    let (before, rest) = page.split_once(BEGIN).expect("the page marks the begin of the rendering");
    let (_, after) = rest.split_once(END).expect("the page marks the end of the rendering");
    let right = format!("{before}{BEGIN}{}{END}{after}", rendered());
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(PAGE, right).unwrap();
    } else {
        let hint = "the machine changed: `UPDATE_DOCS=1 cargo test -p harness chart` rewrites";
        assert!(page == right, "{hint} docs/state-machine.md");
    }
}

fn rendered() -> String {
    let (diagram, tables) = (render(Format::Mermaid), render(Format::Table));
    format!("\n## The phases\n\n```mermaid\n{diagram}```\n\n## Every transition\n\n{tables}\n")
}

#[test]
fn every_phase_is_drawn_in_every_format() {
    for format in ["mermaid", "dot", "table"] {
        let text = render(format.parse().unwrap());
        for phase in PhaseName::ALL {
            assert!(text.contains(&phase.to_string()), "{phase} is not in {format}");
        }
    }
    assert_eq!("svg".parse::<Format>(), Err(UnknownFormat));
}

#[test]
fn every_phase_answers_every_event_of_the_agent() {
    let tables = render(Format::Table);
    for phase in tables.split("### ").skip(1) {
        for event in [
            "hello",
            "register",
            "ack",
            "nack",
            "ping",
            "urgency",
            "broadcast_subscribe",
            "broadcasts changed",
            "socket closed",
            "replaced",
            "connected elsewhere",
            "shutdown began",
            "time passed",
        ] {
            let has_row = phase.contains(&format!("| {event} |"));
            let is_idle = phase
                .split_once("Without an order")
                .is_some_and(|(_, idle)| idle.contains(&format!("`{event}`")));
            assert!(has_row || is_idle, "{event} in {phase}");
        }
    }
}
