//! Shows the upgrade of a store that a command opens, on standard error: two lines, and the progress between them.

use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

use indicatif::HumanBytes;
use parking_lot::Mutex;
use storage::upgrade::{Upgrade, UpgradeStep, UpgradeWatch};

use super::bar::Bar;
use super::output::Progress;
use crate::system::printable::count;

/// The interval at which a bar on a terminal moves. Lines have one of their own.
const SHOW_EVERY: Duration = Duration::from_millis(100);

/// Opens a store with a watch that shows its upgrade.
pub fn shown<T>(open: impl FnOnce(UpgradeWatch<'_>) -> T) -> T {
    let bar = Mutex::new(Bar::new(stderr().is_terminal()));
    let see = |upgrade: &Upgrade| show(&mut bar.lock(), upgrade);
    let opened = open(UpgradeWatch { every: SHOW_EVERY, see: &see });
    bar.lock().end();
    opened
}

fn show(bar: &mut Bar, upgrade: &Upgrade) {
    match line(upgrade) {
        // Standard error may be closed.
        Some(line) => bar.aside(|| _ = writeln!(stderr(), "kalends: {line}")),
        None => bar.show(&Progress {
            what: "bytes upgraded".to_owned(),
            done: upgrade.done,
            of: Some(upgrade.of),
        }),
    }
}

fn line(upgrade: &Upgrade) -> Option<String> {
    let Upgrade { step, files, bytes, elapsed, .. } = upgrade;
    match step {
        UpgradeStep::Begin => Some(format!(
            "upgrading {} of an older version first, {}",
            count(*files as u64, "file"),
            HumanBytes(*bytes)
        )),
        UpgradeStep::Done => Some(format!("upgraded in {:.1} s", elapsed.as_secs_f64())),
        UpgradeStep::Copy(_) | UpgradeStep::Change(_) => None,
    }
}
