//! Which operations fail, and what was done.

use nix::errno::Errno;

/// A kind of operation. The name of a file that is removed or renamed is its former one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Open,
    Read,
    Write,
    Truncate,
    Fsync,
    FsyncDir,
    Create,
    MakeDir,
    Unlink,
    Rename,
    SetMode,
}

impl Op {
    /// All operations that change the disk.
    pub const CHANGES: [Self; 9] = [
        Self::Write,
        Self::Truncate,
        Self::Fsync,
        Self::FsyncDir,
        Self::Create,
        Self::MakeDir,
        Self::Unlink,
        Self::Rename,
        Self::SetMode,
    ];
}

/// An operation of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    pub op: Op,
    pub path: String,
    pub error: Option<Errno>,
}

/// A rule by which operations fail. Without a limit to kinds and to a path, it concerns all of them.
#[derive(Debug, Clone)]
pub struct Fault {
    errno: Errno,
    ops: Vec<Op>,
    part: String,
    /// Matching operations before the first one that fails.
    spared: u64,
    once: bool,
    hits: u64,
}

impl Fault {
    /// Every matching operation fails, until the disk heals.
    pub fn always(errno: Errno) -> Self {
        Self { errno, ops: Vec::new(), part: String::new(), spared: 0, once: false, hits: 0 }
    }

    /// The `nth` operation fails, counted from 1.
    pub fn nth(nth: u64, errno: Errno) -> Self {
        Self { spared: nth - 1, once: true, ..Self::always(errno) }
    }

    /// Only operations of these kinds.
    pub fn of(mut self, ops: &[Op]) -> Self {
        self.ops = ops.to_vec();
        self
    }

    /// Only on paths with this in them.
    pub fn on(mut self, part: &str) -> Self {
        self.part = part.to_owned();
        self
    }

    /// The error of this operation, which is counted, if it fails.
    pub(crate) fn strikes(&mut self, op: Op, path: &str) -> Option<Errno> {
        let concerned =
            (self.ops.is_empty() || self.ops.contains(&op)) && path.contains(&self.part);
        if !concerned || (self.once && self.hits > 0) {
            return None;
        }
        if self.spared > 0 {
            self.spared -= 1;
            return None;
        }
        self.hits += 1;
        Some(self.errno)
    }

    pub(crate) fn has_struck(&self) -> bool {
        self.hits > 0
    }
}
