//! The owner of a file, compared with the user of this process.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use rustix::process::geteuid;

/// The users of a file that belongs to another user than that of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherOwner {
    /// User id of the file.
    pub owner: u32,
    /// Effective user id of this process.
    pub own: u32,
}

impl OtherOwner {
    /// None if the file belongs to the user of this process.
    pub fn of(file: &Metadata) -> Option<Self> {
        let (owner, own) = (file.uid(), geteuid().as_raw());
        (owner != own).then_some(Self { owner, own })
    }
}
