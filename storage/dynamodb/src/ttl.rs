//! The TTL of message tables, by the attribute `expiry`.

use aws_sdk_dynamodb::types::{TimeToLiveDescription, TimeToLiveSpecification, TimeToLiveStatus};

use crate::client::DynamoClient;
use crate::error::CallError;
use crate::table_schema::EXPIRY;
use crate::wait::Wait;

/// Enables the TTL if it is off and may be enabled, and waits until it is on.
pub(crate) async fn ensure(
    client: &DynamoClient,
    table: &str,
    may_enable: bool,
    mut wait: Wait<'_>,
) -> Result<(), CallError> {
    loop {
        match ttl_state(client, table).await? {
            TtlState::On => return Ok(()),
            TtlState::Other(what) => return Err(wrong(table, &what)),
            TtlState::Off if !may_enable => return Err(wrong(table, OFF)),
            TtlState::Off => switch_on(client, table).await?,
            TtlState::Changing => {}
        }
        wait.a_while("its TTL is being changed").await?;
    }
}

const OFF: &str = "its TTL is off: switch it on for the attribute expiry";

enum TtlState {
    /// Enabled or about to be.
    On,
    Off,
    /// Being disabled, which cannot be undone before it is done.
    Changing,
    /// On for another attribute, with the error.
    Other(String),
}

async fn ttl_state(client: &DynamoClient, table: &str) -> Result<TtlState, CallError> {
    let request = client.sdk.describe_time_to_live().table_name(table);
    let described = client.call("DescribeTimeToLive", table, request.send()).await?;
    let ttl = described.time_to_live_description.as_ref();
    Ok(match ttl.and_then(TimeToLiveDescription::time_to_live_status) {
        Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling) => {
            match ttl.and_then(TimeToLiveDescription::attribute_name) {
                Some(EXPIRY) | None => TtlState::On,
                Some(other) => TtlState::Other(format!(
                    "its TTL is on for the attribute {other}: switch it on for {EXPIRY}"
                )),
            }
        }
        Some(TimeToLiveStatus::Disabling) => TtlState::Changing,
        _ => TtlState::Off,
    })
}

/// AWS rejects the request if another node just enabled the TTL; the next poll finds it on.
async fn switch_on(client: &DynamoClient, table: &str) -> Result<(), CallError> {
    let specification = TimeToLiveSpecification::builder().enabled(true).attribute_name(EXPIRY);
    let specification = specification.build().expect("both fields are set");
    let request = client.sdk.update_time_to_live().table_name(table);
    let request = request.time_to_live_specification(specification);
    match client.call("UpdateTimeToLive", table, request.send()).await {
        Err(error) if error.code() == Some("ValidationException") => {
            match ttl_state(client, table).await? {
                TtlState::Off => Err(error),
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
