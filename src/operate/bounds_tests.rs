//! The bounds of values that any process of the owner can send through the socket: those of the command line.

use clap::Args;
use serde_json::{Value, json};
use state_machine::access::{AGENTS_MAX, NAME_CHARS_MAX};

use super::access::add::AccessAdd;
use super::access::revoke::AccessRevoke;
use super::access::rotate::AccessRotate;
use super::tables::create::Create;
use super::tables::drop_old::DropOld;
use super::users::drop_inactive::DropInactive;
use crate::command::StoreCommand;

const EXPIRES_S_MAX: u64 = 100 * 365 * 86_400;

/// Replaces a field of a command that has these words on the command line.
fn assert_bounds<C: StoreCommand + Args>(words: &[&str], field: &str, values: &[(Value, bool)]) {
    let parser = C::augment_args(clap::Command::new("test").no_binary_name(true));
    let read = parser.try_get_matches_from(words).unwrap();
    let command = C::from_arg_matches(&read).unwrap();
    assert!(command.is_within_bounds(), "{command:?}");
    for (value, is_within) in values {
        let mut sent = json!(command);
        sent[field] = value.clone();
        let received: C = serde_json::from_value(sent).unwrap();
        assert_eq!(received.is_within_bounds(), *is_within, "{received:?}");
    }
}

fn range(least: u64, most: u64) -> [(Value, bool); 4] {
    [(least - 1, false), (least, true), (most, true), (most + 1, false)]
        .map(|(value, is_within)| (json!(value), is_within))
}

#[test]
fn a_value_beyond_a_bound_of_the_command_line_is_refused_from_the_socket_too() {
    assert_bounds::<DropInactive>(&[], "months", &range(2, 600));
    assert_bounds::<DropInactive>(&[], "rate", &range(1, 100_000));
    assert_bounds::<DropOld>(&[], "keep", &range(1, 600));
    let throughput = |read: u32, write: u32| json!({"read": read, "write": write});
    let throughputs =
        [(throughput(1, 1), true), (throughput(0, 1), false), (throughput(1, 0), false)];
    assert_bounds::<Create>(&[], "lower_prior", &throughputs);
    let names = [
        (json!("a".repeat(NAME_CHARS_MAX)), true),
        (json!("a".repeat(NAME_CHARS_MAX + 1)), false),
        (json!(""), false),
        (json!("a b"), false),
    ];
    let alice = &["alice"];
    assert_bounds::<AccessAdd>(alice, "name", &names);
    assert_bounds::<AccessRotate>(alice, "name", &names);
    assert_bounds::<AccessRevoke>(alice, "name", &names);
    assert_bounds::<AccessAdd>(alice, "expires", &range(1, EXPIRES_S_MAX));
    assert_bounds::<AccessRotate>(alice, "expires", &range(1, EXPIRES_S_MAX));
    let agents_max = u64::from(AGENTS_MAX);
    let agents = [(json!(0), true), (json!(agents_max), true), (json!(agents_max + 1), false)];
    assert_bounds::<AccessAdd>(alice, "agents_max", &agents);
}
