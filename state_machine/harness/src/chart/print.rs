//! Renders transitions as diagrams and tables.

use std::collections::{BTreeMap, BTreeSet};

use super::explore::{Transition, Transitions};
use state_machine::connection::PhaseName;

/// Widest line of the Markdown output, in characters.
const COLUMNS: usize = 120;

/// How many events a sentence lists.
const SENTENCE_EVENTS_MAX: usize = 30;

/// The phases for Mermaid.
pub(super) fn mermaid(transitions: &Transitions) -> String {
    let mut text = "stateDiagram-v2\n    [*] --> AwaitingHello\n".to_owned();
    for ((from, to), events) in edges(transitions) {
        text += &format!("    {from} --> {to}: {}\n", events.join(", "));
    }
    text + "    Closed --> [*]\n"
}

/// The phases for Graphviz.
pub(super) fn dot(transitions: &Transitions) -> String {
    let mut text = "digraph connection {\n    node [shape=box];\n".to_owned();
    for ((from, to), events) in edges(transitions) {
        text += &format!("    {from} -> {to} [label=\"{}\"];\n", events.join("\\n"));
    }
    text + "}\n"
}

/// One table per phase. Events without an effect in the phase are listed below its table.
pub(super) fn tables(transitions: &Transitions) -> String {
    PhaseName::ALL.map(|phase| table(phase, transitions)).join("\n")
}

fn table(phase: PhaseName, transitions: &Transitions) -> String {
    let here = || transitions.iter().filter(|(transition, _)| transition.phase == phase);
    let is_idle = |transition: &Transition, effects: &BTreeSet<&str>| {
        transition.after == phase && effects.is_empty()
    };
    let mut text = format!("### {phase}\n\n| event | then | orders |\n|---|---|---|\n");
    for (transition, effects) in here() {
        if !is_idle(transition, effects) {
            let Transition { event, after, .. } = transition;
            let then = if *after == phase { String::new() } else { after.to_string() };
            text += &row(event, &then, &list(effects));
        }
    }
    let idle: Vec<String> = here()
        .filter(|(transition, effects)| is_idle(transition, effects))
        .map(|(transition, _)| format!("`{}`", transition.event))
        .collect();
    if !idle.is_empty() {
        let lists = idle.chunks(SENTENCE_EVENTS_MAX).map(|events| events.join(", "));
        let sentences: Vec<_> = lists.map(|list| format!("Without an order: {list}.")).collect();
        text += &format!("\n{}\n", wrap(&sentences.join(" "), COLUMNS).join("\n"));
    }
    text
}

/// A transition. Orders that do not fit continue in a row without an event.
fn row(event: &str, then: &str, orders: &str) -> String {
    let mut head = format!("| {event} | {then} | ");
    let columns = COLUMNS - head.len() - " |".len();
    let mut rows = String::new();
    for orders in wrap(orders, columns) {
        rows += &format!("{head}{orders} |\n");
        head = "| | | ".to_owned();
    }
    rows
}

/// Breaks a list after its commas into lines of at most `columns` characters.
fn wrap(list: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for item in list.split_inclusive(", ") {
        let line = lines.last_mut().expect("there is always a line");
        if line.len() + item.trim_end().len() <= columns {
            line.push_str(item);
        } else {
            line.truncate(line.trim_end().len());
            lines.push(item.to_owned());
        }
    }
    lines
}

/// Lists effects in the order of one step: the effects that close a connection are last.
fn list(effects: &BTreeSet<&str>) -> String {
    let rank = |effect: &&&str| match **effect {
        "unsubscribe from broadcasts" => 1,
        "deregister" => 2,
        "close" => 3,
        _ => 0,
    };
    let mut effects: Vec<&&str> = effects.iter().collect();
    effects.sort_by_key(rank);
    let effects: Vec<&str> = effects.into_iter().copied().collect();
    effects.join(", ")
}

/// The transitions that change the phase.
pub(super) fn edges(
    transitions: &Transitions,
) -> BTreeMap<(PhaseName, PhaseName), Vec<&'static str>> {
    let mut edges: BTreeMap<_, Vec<&'static str>> = BTreeMap::new();
    for Transition { phase, event, after } in transitions.keys() {
        if phase != after {
            edges.entry((*phase, *after)).or_default().push(event);
        }
    }
    edges
}
