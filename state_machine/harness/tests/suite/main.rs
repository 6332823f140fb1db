//! Verifies the rules of `state_machine` by fixtures, random histories, and models whose every
//! state is searched.

mod bridged_models;
mod broadcasts;
#[path = "../../../tests/support/cases.rs"]
mod cases;
mod chart;
mod feed_models;
mod feeds;
mod fixtures;
#[path = "../../../tests/support/fuzz.rs"]
mod fuzz;
mod histories;
mod hostile_files;
mod invariants;
mod limits;
mod models;
mod overdue;
mod pings;
mod rule_models;
mod script_errors;
mod scripts;
mod search;
mod session_docs;
mod sessions;
mod transcripts;
mod world;
