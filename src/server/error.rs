//! Why a server does not start, or did not end well.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use state_machine::NodeId;
use storage::StoreError;

use super::key_fingerprints::KeyFingerprintsError;
use crate::feeds::import::ImporterError;
use crate::http::vapid::OriginError;
use crate::keys::KeysError;
use crate::store::OpenStoreError;

/// Why a server does not start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The data directory cannot be made.
    #[error("cannot make the data directory {}: {source}", .dir.display())]
    DataDir {
        /// The directory.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The database cannot be used.
    #[error(transparent)]
    Open(#[from] OpenStoreError),
    /// Something that a node needs is missing or not allowed.
    #[error("{what}: {problem} (`kalends preflight` shows all checks)")]
    Preflight {
        /// What was tried.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The keys cannot be used.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// A node of several has none, and makes none.
    #[error(
        "there is no keys.toml in {dir}, and a node of several needs that of the others: copy it from the data \
         directory of another node, or make the first one with `kalends keys cluster --data-dir {dir}`",
        dir = .dir.display()
    )]
    NoSharedKeys {
        /// The data directory.
        dir: PathBuf,
    },
    /// A node of several could not sign what it asks of the others.
    #[error(
        "keys.toml in {dir} has no cluster_keys, which nodes sign with what they say to each other: add one \
         with `kalends keys cluster --data-dir {dir}`, and copy the file to every node",
        dir = .dir.display()
    )]
    NoClusterKeys {
        /// The data directory.
        dir: PathBuf,
    },
    /// The keys are not those of the other nodes.
    #[error(transparent)]
    KeyMarks(#[from] KeyFingerprintsError),
    /// Another node has this one's name: which of the two is meant nobody could say.
    #[error(
        "another node answers under router_url {0}: each node needs one of its own, which leads to it and to no other \
         node (where that was this node's last run, which has not ended yet: start again when it has)"
    )]
    RouterUrlTaken(NodeId),
    /// The public URL is none.
    #[error("public_url: {0}")]
    Origin(#[from] OriginError),
    /// The store failed at start or at the end.
    #[error("the store failed: {0}")]
    Store(#[from] StoreError),
    /// The tables of the feeds cannot be made.
    #[error("the tables of the feeds are not there and cannot be made: {0}")]
    FeedTables(StoreError),
    /// The broadcasts cannot be read.
    #[error("cannot read the broadcasts: {0}")]
    Broadcasts(StoreError),
    /// Broadcasts cannot be taken over as the settings say.
    #[error(transparent)]
    Importer(#[from] ImporterError),
    /// Signals cannot be waited for.
    #[error("cannot wait for signals: {0}")]
    Signals(io::Error),
    /// The HTTP server ended by itself.
    #[error("the HTTP server ended: {0}")]
    Server(io::Error),
    /// The store did not finish in time.
    #[error("what was queued for the store was not done in the time that the end may take")]
    Unfinished,
}

impl ServeError {
    /// Whether the next start fails as well, until somebody has mended something beside the server.
    pub fn is_of_configuration(&self) -> bool {
        matches!(
            self,
            Self::Keys(_)
                | Self::NoSharedKeys { .. }
                | Self::NoClusterKeys { .. }
                | Self::KeyMarks(KeyFingerprintsError::Strange(_))
        )
    }

    pub(super) fn listen(address: SocketAddr, source: io::Error) -> Self {
        Self::Listen { address, source }
    }
}
