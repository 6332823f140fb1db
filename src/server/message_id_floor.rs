//! How far message ids have come, over restarts.
//!
//! Ids begin with the time. If the machine's clock is behind after a restart, new ids would be less than
//! stored ones, and a topic's new message would give way to the old one. So a file in the data
//! directory says how far ids have come, and the next server goes on from there.
//!
//! Not where there are several nodes. What the file says is ahead of the clock after a kill, and ids that are ahead of other
//! nodes' do just that harm: a topic's next message, sent through one of those, gives way to its last one.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use slog::{Logger, warn};
use state_machine::{Span, Time};
use tempfile::NamedTempFile;

use super::maintenance::EVERY;
use crate::settings::{Role, Settings};

/// The file's name in the data directory: milliseconds since the Unix epoch, as text.
const FILE: &str = "clock";

/// Keeps the file.
#[derive(Debug, Clone)]
pub(super) struct IdFloor {
    dir: PathBuf,
}

impl IdFloor {
    /// That of a node; none where there are others.
    pub(super) fn of(role: Role, settings: &Settings) -> Option<Self> {
        (role == Role::Serve).then(|| Self::in_dir(&settings.data_dir))
    }

    fn in_dir(data_dir: &Path) -> Self {
        Self { dir: data_dir.to_owned() }
    }

    /// The time that new ids begin after.
    pub(super) fn floor(&self, log: &Logger) -> Time {
        match fs::read_to_string(self.dir.join(FILE)) {
            Ok(text) => text.trim().parse().map(Time).unwrap_or_else(|_| {
                warn!(log, "the file that says how far message ids have come is damaged, going by the clock");
                Time(0)
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Time(0),
            Err(error) => {
                warn!(log, "cannot read how far message ids have come"; "error" => %error);
                Time(0)
            }
        }
    }

    /// Notes how far ids will have come at most until this is called again: the server may be killed
    /// before, and the call may be late.
    pub(super) fn reserve(&self, now: Time, log: &Logger) {
        let period = u64::try_from(EVERY.as_millis()).unwrap_or(u64::MAX);
        self.keep(now + Span(period.saturating_mul(2)), log);
    }

    /// Notes how far ids have come, at the end.
    pub(super) fn keep(&self, floor: Time, log: &Logger) {
        if let Err(error) = self.write(floor) {
            warn!(log, "cannot note how far message ids have come"; "error" => %error);
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
    fn ids_go_on_after_those_of_the_server_before() {
        let dir = tempfile::tempdir().unwrap();
        let log = Logger::root(Discard, o!());
        let id_floor = IdFloor::in_dir(dir.path());
        assert_eq!(id_floor.floor(&log), Time(0));
        id_floor.keep(Time(5_000_000), &log);
        assert_eq!(id_floor.floor(&log), Time(5_000_000));
        id_floor.reserve(Time(5_000_000), &log);
        assert_eq!(id_floor.floor(&log), Time(5_120_000));
        fs::write(dir.path().join(FILE), "yesterday").unwrap();
        assert_eq!(id_floor.floor(&log), Time(0));
    }
}
