//! A lower bound for message ids that survives restarts.
//!
//! An id begins with a time, and of two messages with one topic the store keeps the one with the
//! greater id. If the system clock is behind after a restart, the ids of new messages would be
//! lower than those of stored ones. So a file in the data directory has the floor at which the
//! next server begins.
//!
//! A cluster has no floor. After a kill the floor is ahead of the clock, and ids ahead of those of
//! other nodes do the same harm.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use slog::{Logger, warn};
use state_machine::{Span, Time};
use tempfile::NamedTempFile;

use super::maintenance::EVERY;
use crate::settings::{Role, Settings};

/// File in the data directory: milliseconds since the Unix epoch, as text.
const FILE: &str = "clock";

#[derive(Debug, Clone)]
pub(super) struct IdFloor {
    dir: PathBuf,
}

impl IdFloor {
    /// The floor of a single node; nodes of a cluster have none.
    pub(super) fn of(role: Role, settings: &Settings) -> Option<Self> {
        (role == Role::All).then(|| Self { dir: settings.data_dir.clone() })
    }

    /// The time at which new ids begin.
    pub(super) fn floor(&self, log: &Logger) -> Time {
        match fs::read_to_string(self.dir.join(FILE)) {
            Ok(text) => text.trim().parse().map(Time).unwrap_or_else(|_| {
                warn!(log, "the floor of message ids is damaged, ids begin with the clock");
                Time(0)
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Time(0),
            Err(error) => {
                warn!(log, "cannot read the floor of message ids, ids begin with the clock"; "error" => %error);
                Time(0)
            }
        }
    }

    /// Saves a floor above all ids until the next call: the server may be killed before it, and it
    /// may be late.
    pub(super) fn reserve(&self, now: Time, log: &Logger) {
        let period = u64::try_from(EVERY.as_millis()).unwrap_or(u64::MAX);
        self.save(now + Span(period.saturating_mul(2)), log);
    }

    /// Saves the floor of a server that stops.
    pub(super) fn save(&self, floor: Time, log: &Logger) {
        if let Err(error) = self.write(floor) {
            warn!(log, "cannot save the floor of message ids"; "error" => %error);
        }
    }

    fn write(&self, floor: Time) -> io::Result<()> {
        let mut file = NamedTempFile::new_in(&self.dir)?;
        writeln!(file, "{}", floor.0)?;
        file.persist(self.dir.join(FILE))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use slog::{Discard, o};

    use super::*;

    #[test]
    fn ids_continue_after_those_of_the_previous_server() {
        let dir = tempfile::tempdir().unwrap();
        let log = Logger::root(Discard, o!());
        let id_floor = IdFloor { dir: dir.path().to_owned() };
        assert_eq!(id_floor.floor(&log), Time(0));
        id_floor.save(Time(5_000_000), &log);
        assert_eq!(id_floor.floor(&log), Time(5_000_000));
        id_floor.reserve(Time(5_000_000), &log);
        assert_eq!(id_floor.floor(&log), Time(5_120_000));
        fs::write(dir.path().join(FILE), "yesterday").unwrap();
        assert_eq!(id_floor.floor(&log), Time(0));
    }
}
