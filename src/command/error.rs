//! Why a command on a store did not do its work.

use std::io;
use std::path::PathBuf;

use storage::StoreError;

use super::protocol::FILE;
use crate::settings::store::OpenStoreError;
use crate::settings::store::copy_marker::CopyMarkerError;
use crate::system::as_user::as_user;
use crate::system::https_client::ClientError;

/// Why a command did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error(
        "there is no store in {}: name its directory with --data-dir, or start a server, which \
         makes one",
        dir.display()
    )]
    NoStore { dir: PathBuf },
    #[error(
        "there is no keys.toml in {}: put the crypto keys of the other server there first (docs/migrate.md), or name \
         the directory that has it with --data-dir",
        dir.display()
    )]
    NoKeys { dir: PathBuf },
    #[error(
        "a server is running on this store: stop it first, because it gives new ids to agents that are not imported \
         yet"
    )]
    ServerRuns,
    #[error(
        "there is no keys.toml in {}: it opens all endpoints of the store, so copy it from the data directory of a node, \
         or name the directory that has it with --data-dir",
        dir.display()
    )]
    NoKeysOfStore { dir: PathBuf },
    #[error("a server is running on {}: stop it first, or what it writes is not copied", dir.display())]
    ServerUses { dir: PathBuf },
    #[error("{} is not a directory: name that of the store with --data-dir", path.display())]
    NotADirectory { path: PathBuf },
    /// Files that this process would make in it would be closed to its server.
    #[error(
        "the store in {} belongs to uid {owner}, and this runs as uid {own}: run it as that user \
         (as root: `{} kalends ...`)",
        dir.display(), as_user(*owner)
    )]
    NotOurs { dir: PathBuf, owner: u32, own: u32 },
    #[error(transparent)]
    Open(#[from] OpenStoreError),
    #[error(
        "the data directory {} is in use by another process that accepts no commands: a server \
         that starts, stops or has no admin.sock (its log has the reason), or another command; try again",
        dir.display()
    )]
    InUse { dir: PathBuf },
    #[error(
        "not allowed to use {}: run it as the owner of {}",
        dir.join(FILE).display(),
        dir.display()
    )]
    Denied { dir: PathBuf },
    #[error("cannot connect to the server over {}: {error}", dir.join(FILE).display())]
    Unreachable { dir: PathBuf, error: io::Error },
    #[error(
        "the connection to the server broke: {0}; completed steps remain, run it again to continue"
    )]
    Server(io::Error),
    #[error("the server ended; completed steps remain, run it again to continue")]
    ServerGone,
    #[error(
        "the server that holds the store does not answer: try again later, and restart it if it hangs"
    )]
    ServerHangs,
    #[error("the server's answer cannot be read: use the kalends that the server was started with")]
    NoAnswer,
    #[error("the store failed: {0}")]
    Store(#[from] StoreError),
    #[error(transparent)]
    Copy(#[from] CopyMarkerError),
    /// A server that is used over HTTP.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Standard output, a runtime or a socket failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The job failed or was refused.
    #[error("{0}")]
    Job(String),
}
