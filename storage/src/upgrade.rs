//! The progress of an upgrade, for the program that opens the store. An upgrade changes files that an older version wrote.

use std::time::Duration;

use crate::data_dir::FileKey;

/// How far an upgrade is. Each file is copied, if copies are wanted, and changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upgrade {
    pub step: UpgradeStep,
    /// The files of an older version, and their size together.
    pub files: usize,
    pub bytes: u64,
    /// The bytes that were copied or changed, and those of all steps. The change of a file counts when it is complete.
    pub done: u64,
    pub of: u64,
    pub elapsed: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpgradeStep {
    Begin,
    Copy(FileKey),
    Change(FileKey),
    Done,
}

/// Follows an upgrade: it sees the begin, the state in each period, from a thread of its own, and the end, unless the
/// upgrade fails. It sees nothing if no file is of an older version.
#[derive(Clone, Copy)]
pub struct UpgradeWatch<'a> {
    pub every: Duration,
    pub see: &'a (dyn Fn(&Upgrade) + Sync),
}

impl UpgradeWatch<'_> {
    pub const NONE: UpgradeWatch<'static> = UpgradeWatch { every: Duration::MAX, see: &|_| {} };
}

impl Upgrade {
    pub fn percent(&self) -> u64 {
        self.done.saturating_mul(100) / self.of.max(1)
    }
}
