//! The registered channels of one month.

use std::collections::BTreeSet;

use state_machine::{Chid, Month, Uaid};
use storage::engine_calls;
use storage::networked::ChannelCalls;
use storage::sql::rows::SqlRow;

use crate::client::PostgresClient;
use crate::error::{Result, SqlError, if_month};
use crate::sql::params;

impl ChannelCalls for PostgresClient {
    async fn channels(&self, uaid: Uaid, month: Month) -> Result<Option<BTreeSet<Chid>>> {
        let rows = if_month(self.read(Some(month), READ, params![uaid]).await)?;
        let mut channels = None;
        for row in rows {
            let channels = channels.get_or_insert_with(BTreeSet::new);
            if !row.column::<bool>(1)? {
                channels.insert(row.chid(0)?);
            }
        }
        Ok(channels)
    }

    engine_calls! {
        add_channels(uaid: Uaid, month: Month, channels: BTreeSet<Chid>) -> () = |client| async {
            client.write(uaid, Some(month), ADD, params![uaid, channels, false]).await.map(drop)
        };

        create_channels(uaid: Uaid, month: Month, channels: BTreeSet<Chid>) -> () = |client| async {
            client.write(uaid, Some(month), ADD, params![uaid, channels, true]).await.map(drop)
        };

        remove_channel(uaid: Uaid, months: Vec<Month>, chid: Chid) -> () = |client| async {
            for month in months {
                if_month(client.write(uaid, Some(month), REMOVE, params![uaid, chid]).await)?;
            }
            Ok::<_, SqlError>(())
        };
    }
}

/// The first row is that of the agent, whose channel is none.
const READ: &str = "
    SELECT uaid, true FROM {s}.agents_{m} WHERE uaid = $1
    UNION ALL
    SELECT chid, false FROM {s}.channels_{m} WHERE uaid = $1";

/// Adds channels, or only if the agent is not known.
pub(crate) const ADD: &str = "SELECT {s}.add_channels_{m}($1, $2, $3)";

const REMOVE: &str = "DELETE FROM {s}.channels_{m} WHERE uaid = $1 AND chid = $2";
