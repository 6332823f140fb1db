//! A lower bound for message ids that survives restarts.
//!
//! An id begins with a time, and messages without a topic are delivered in the order of their ids. If the clock is behind
//! after a restart, ids continue at the floor that the servers before have left in the store. Of two messages with one
//! topic the later one wins without it (docs/decisions/0006-message-ids.md).
//!
//! A single server reserves the time until it writes again, so that a killed one leaves a floor above all its ids. The
//! nodes of a cluster do not: ids ahead of those of the other nodes would be out of their order.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use slog::{Logger, warn};
use state_machine::{Span, Time};
use storage::maintenance::ID_FLOOR_AHEAD_MAX;
use storage::{StoreAdmin, durable};

use crate::push::app::MessageIds;
use crate::settings::Role;

/// File in which earlier builds kept the floor: milliseconds since the Unix epoch, as text.
const FILE: &str = "clock";

/// Period in which the floor is raised.
pub(super) const RAISE_EVERY: Duration = Duration::from_secs(60);

/// The floor of a server that gives ids.
pub(super) struct IdFloor {
    store: Arc<dyn StoreAdmin>,
    /// The floor at the start.
    begin: Time,
    ahead: Span,
}

impl IdFloor {
    /// Reads the floor of the servers before, in the store or in the file of an earlier build, and raises it for this
    /// one. A floor that is further ahead than a clock may be is not used.
    pub(super) async fn reserve(
        role: Role,
        dir: &Path,
        store: Arc<dyn StoreAdmin>,
        now: Time,
        log: &Logger,
    ) -> Self {
        if let Err(error) = adopt_file(dir, &*store).await {
            warn!(log, "cannot take over the floor of message ids from the file clock"; "error" => %error);
        }
        let begin = store.id_floor().await.unwrap_or_else(|error| {
            warn!(log, "cannot read the floor of message ids, ids begin with the clock"; "error" => %error);
            Time(0)
        });
        let is_usable = begin <= now + ID_FLOOR_AHEAD_MAX;
        if !is_usable {
            warn!(log, "the floor of message ids is more than a day ahead, ids begin with the clock: check the clock";
                "ahead_s" => begin.since(now).0 / 1000);
        }
        let ahead = match role {
            Role::All => Span::from_secs(2 * RAISE_EVERY.as_secs()),
            Role::Connection | Role::Endpoint => Span::ZERO,
        };
        let this = Self { store, begin: if is_usable { begin } else { Time(0) }, ahead };
        this.raise(now, log).await;
        this
    }

    /// Ids above the floor.
    pub(super) fn ids(&self) -> MessageIds {
        MessageIds::after(self.begin)
    }

    /// Writes a floor above all ids of this server, and, of a single one, above those until the next call.
    pub(super) async fn raise(&self, now: Time, log: &Logger) {
        let floor = self.begin.max(now + self.ahead) + Span(1);
        if let Err(error) = self.store.raise_id_floor(floor).await {
            warn!(log, "cannot save the floor of message ids"; "error" => %error);
        }
    }
}

/// Takes over the floor of an earlier build, and removes its file.
async fn adopt_file(dir: &Path, store: &dyn StoreAdmin) -> io::Result<()> {
    let path = dir.join(FILE);
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        text => text?,
    };
    // A damaged file has no floor to take over.
    if let Ok(floor) = text.trim().parse() {
        store.raise_id_floor(Time(floor)).await.map_err(io::Error::other)?;
    }
    durable::remove(&path)
}

#[cfg(test)]
mod tests {
    use slog::{Discard, o};
    use tempfile::TempDir;

    use super::*;
    use crate::command::fixture::{Fixture, NOW};

    #[tokio::test]
    async fn a_single_server_reserves_the_ids_of_two_periods_and_a_node_of_a_cluster_none() {
        let log = Logger::root(Discard, o!());
        for (role, ahead_s) in [(Role::All, 120), (Role::Connection, 0), (Role::Endpoint, 0)] {
            let (fixture, dir) = (Fixture::with(&[]).await, TempDir::new().unwrap());
            let store = Arc::clone(&fixture.context.store);
            IdFloor::reserve(role, dir.path(), Arc::clone(&store), NOW, &log).await;
            let floor = store.id_floor().await.unwrap();
            assert_eq!(floor, NOW + Span::from_secs(ahead_s) + Span(1), "{role:?}");
        }
    }

    #[tokio::test]
    async fn a_floor_is_used_up_to_a_day_ahead() {
        let (log, latest) = (Logger::root(Discard, o!()), NOW + ID_FLOOR_AHEAD_MAX);
        for (before, begin) in [(latest, latest), (latest + Span(1), NOW)] {
            let (fixture, dir) = (Fixture::with(&[]).await, TempDir::new().unwrap());
            let store = Arc::clone(&fixture.context.store);
            store.raise_id_floor(before).await.unwrap();
            let floor = IdFloor::reserve(Role::All, dir.path(), store, NOW, &log).await;
            assert_eq!(floor.ids().time(NOW), begin);
        }
    }
}
