//! The TTL of message tables: rows end by their `expiry`.

use aws_sdk_dynamodb::types::{TimeToLiveDescription, TimeToLiveSpecification, TimeToLiveStatus};

use super::error::CallError;
use super::link::Link;
use super::shapes::EXPIRY;
use super::tables::Wait;

/// Switches the TTL on where it is off and tables may be made, and waits until it is on.
pub(super) async fn ensure(link: &Link, table: &str) -> Result<(), CallError> {
    let mut wait = Wait::new(link, "DescribeTimeToLive", table);
    loop {
        match state(link, table).await? {
            State::On => return Ok(()),
            State::Other(what) => return Err(wrong(table, &what)),
            State::Off if !link.options.create_tables => return Err(wrong(table, OFF)),
            State::Off => switch_on(link, table).await?,
            State::Changing => {}
        }
        wait.a_while("its TTL is being changed").await?;
    }
}

/// Looks whether it is on.
pub(super) async fn look_at(link: &Link, table: &str) -> Result<(), CallError> {
    match state(link, table).await? {
        State::On => Ok(()),
        State::Off => Err(wrong(table, OFF)),
        State::Other(what) => Err(wrong(table, &what)),
        State::Changing => Err(wrong(table, "its TTL is being switched off: switch it on again")),
    }
}

const OFF: &str = "its TTL is off: switch it on for the attribute expiry";

enum State {
    /// Or about to be: rows can be written.
    On,
    Off,
    /// On its way to off, which cannot be undone before it is there.
    Changing,
    /// On for another attribute.
    Other(String),
}

async fn state(link: &Link, table: &str) -> Result<State, CallError> {
    let request = link.client.describe_time_to_live().table_name(table);
    let described = link.call("DescribeTimeToLive", table, request.send()).await?;
    let ttl = described.time_to_live_description.as_ref();
    Ok(match ttl.and_then(TimeToLiveDescription::time_to_live_status) {
        Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling) => {
            match ttl.and_then(TimeToLiveDescription::attribute_name) {
                Some(EXPIRY) | None => State::On,
                Some(other) => State::Other(format!(
                    "its TTL is on for the attribute {other}: switch it on for {EXPIRY}"
                )),
            }
        }
        Some(TimeToLiveStatus::Disabling) => State::Changing,
        _ => State::Off,
    })
}

/// AWS refuses to switch on what was just switched on by another node; the next look finds it on.
async fn switch_on(link: &Link, table: &str) -> Result<(), CallError> {
    let specification = TimeToLiveSpecification::builder().enabled(true).attribute_name(EXPIRY);
    let specification = specification.build().expect("both fields are set");
    let request = link.client.update_time_to_live().table_name(table);
    let request = request.time_to_live_specification(specification);
    match link.call("UpdateTimeToLive", table, request.send()).await {
        Err(error) if error.code() == Some("ValidationException") => {
            match state(link, table).await? {
                State::Off => Err(error),
                _ => Ok(()),
            }
        }
        Err(error) if !error.is_table_in_use() => Err(error),
        _ => Ok(()),
    }
}

fn wrong(table: &str, what: &str) -> CallError {
    CallError::unreadable("DescribeTimeToLive", table, what)
}
