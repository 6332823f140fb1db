//! The registered channels of one month.

use std::collections::BTreeSet;

use state_machine::{Chid, Month, Uaid};
use storage::store::StoreError;

use crate::client::{PostgresClient, in_month};
use crate::error::{SqlError, if_month};
use crate::sql::{Columns, params};

/// None if the agent is not known in the month, or the month has no tables.
pub(crate) async fn read(
    client: &PostgresClient,
    uaid: Uaid,
    month: Month,
) -> Result<Option<BTreeSet<Chid>>, SqlError> {
    let rows = if_month(client.read_month(month, READ, params![uaid]).await)?.unwrap_or_default();
    let mut channels = None;
    for row in rows {
        let channels = channels.get_or_insert_with(BTreeSet::new);
        if !row.column::<bool>(1)? {
            channels.insert(row.chid(0)?);
        }
    }
    Ok(channels)
}

/// Adds channels; with `if_new` only if the agent is not known in the month.
pub(crate) async fn add(
    client: &PostgresClient,
    uaid: Uaid,
    month: Month,
    channels: BTreeSet<Chid>,
    if_new: bool,
) -> Result<(), StoreError> {
    let channels: Vec<Chid> = channels.into_iter().collect();
    let added = client.write_month(uaid, month, ADD, params![uaid, channels, if_new]).await;
    in_month(month, added.map(drop))
}

pub(crate) async fn remove(
    client: &PostgresClient,
    uaid: Uaid,
    months: &[Month],
    chid: Chid,
) -> Result<(), SqlError> {
    for month in months {
        if_month(client.write_month(uaid, *month, REMOVE, params![uaid, chid]).await)?;
    }
    Ok(())
}

/// The first row is that of the agent, whose channel is none.
const READ: &str = "
    SELECT uaid, true FROM {s}.agents_{m} WHERE uaid = $1
    UNION ALL
    SELECT chid, false FROM {s}.channels_{m} WHERE uaid = $1";

/// Adds channels, or only if the agent is not known.
pub(crate) const ADD: &str = "SELECT {s}.add_channels_{m}($1, $2, $3)";

const REMOVE: &str = "DELETE FROM {s}.channels_{m} WHERE uaid = $1 AND chid = $2";
