//! The errors of [`run`](super::run).

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use state_machine::NodeId;
use storage::StoreError;
use storage::data_dir::DirError;

use super::sockets::SocketError;
use crate::feeds::import::ImporterError;
use crate::monitoring::MetricsPortError;
use crate::push::bridges::BridgesError;
use crate::settings::ListenAddress;
use crate::settings::keys::KeysError;
use crate::settings::keys::add::AddError;
use crate::settings::store::OpenStoreError;
use crate::settings::store::copy_marker::CopyMarkerError;
use crate::settings::store::key_fingerprints::KeyFingerprintsError;
use crate::system::tls::certificate::TlsError;

/// Why a server does not start, or did not stop in order.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Metrics(#[from] MetricsPortError),
    #[error("cannot listen on {address}: {source}")]
    Listen { address: ListenAddress, source: io::Error },
    #[error(
        "cannot listen on {0}: another program listens there. Stop it, or name another port, such as --listen 127.0.0.1:8088"
    )]
    ListenTaken(SocketAddr),
    #[error(
        "cannot listen on {address}: {source}. The directory of the socket must be there, and the user of the server must \
         be able to write in it: RuntimeDirectory=kalends in the unit makes /run/kalends"
    )]
    ListenDirectory { address: ListenAddress, source: io::Error },
    #[error(
        "cannot listen on {0}: a port below 1024 needs the capability CAP_NET_BIND_SERVICE. Add \
         AmbientCapabilities=CAP_NET_BIND_SERVICE to the unit, or run `setcap cap_net_bind_service=+ep` on the program, or \
         set listen and http_listen to other ports"
    )]
    ListenRight(SocketAddr),
    #[error(transparent)]
    Socket(#[from] SocketError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("cannot make the data directory {}: {source}", .dir.display())]
    DataDir { dir: PathBuf, source: io::Error },
    #[error(transparent)]
    Open(#[from] OpenStoreError),
    #[error("{what}: {problem} (`kalends preflight` shows all checks)")]
    Preflight { what: String, problem: String },
    #[error(transparent)]
    Keys(#[from] KeysError),
    #[error("{files}\n{keys}")]
    Access { files: DirError, keys: KeysError },
    #[error(
        "there is no keys.toml in {dir}: copy it from the data directory of another node, or create the first one with \
         `kalends keys cluster --data-dir {dir}`",
        dir = .dir.display()
    )]
    NoSharedKeys { dir: PathBuf },
    #[error(
        "keys.toml in {dir} has no cluster_keys, with which nodes sign their requests: add one with `kalends keys \
         cluster --data-dir {dir}`, and copy the file to every node",
        dir = .dir.display()
    )]
    NoClusterKeys { dir: PathBuf },
    #[error(
        "keys.toml in {dir} has no auth_keys, which make the secrets of user agents behind bridges: add one with \
         `kalends keys auth --data-dir {dir}`, and copy the file to every node",
        dir = .dir.display()
    )]
    NoAuthKeys { dir: PathBuf },
    #[error(
        "user agents behind bridges are registered, and keys.toml in {dir} has no auth_keys, which made their secrets: \
         put those of autoendpoint or of a backup there. With a new one they are refused for good: `kalends keys auth \
         --data-dir {dir}` makes it if they may be lost",
        dir = .dir.display()
    )]
    LostAuthKeys { dir: PathBuf },
    #[error("cannot read the access tokens: {0}")]
    AccessTokens(StoreError),
    #[error(transparent)]
    AddKey(#[from] AddError),
    #[error(transparent)]
    Bridges(#[from] BridgesError),
    #[error(transparent)]
    KeyFingerprints(#[from] KeyFingerprintsError),
    #[error(transparent)]
    Copy(#[from] CopyMarkerError),
    #[error(
        "another node answers at router_url {0}: each node needs a router_url of its own (if the previous process of \
         this node is still stopping, start again when it has ended)"
    )]
    RouterUrlTaken(NodeId),
    #[error("the store failed: {0}")]
    Store(#[from] StoreError),
    #[error("cannot create the tables of the feeds: {0}")]
    FeedTables(StoreError),
    #[error("cannot read the broadcasts: {0}")]
    Broadcasts(StoreError),
    #[error(transparent)]
    Importer(#[from] ImporterError),
    #[error(
        "the limit of open files is {limit}, and {reserved} are needed beside the connections: raise it (LimitNOFILE of \
         systemd, --ulimit of a container, ulimit -n)"
    )]
    OpenFiles { limit: usize, reserved: usize },
    #[error("cannot wait for signals: {0}")]
    Signals(io::Error),
    #[error("the HTTP server ended: {0}")]
    Server(io::Error),
    #[error("the store did not finish its queued writes within shutdown_wait_ms")]
    Unfinished,
}

impl ServeError {
    pub(super) fn listen(address: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::PermissionDenied if address.port() < 1024 => Self::ListenRight(address),
            io::ErrorKind::AddrInUse => Self::ListenTaken(address),
            _ => Self::Listen { address: address.into(), source },
        }
    }

    pub(super) fn listen_unix(path: &Path, source: io::Error) -> Self {
        let address = ListenAddress::Unix(path.to_owned());
        match source.kind() {
            io::ErrorKind::NotFound
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem => Self::ListenDirectory { address, source },
            _ => Self::Listen { address, source },
        }
    }

    /// Whether every start fails until an operator changes keys.toml, the data directory, a mode or a limit, or runs
    /// another version.
    pub fn is_of_configuration(&self) -> bool {
        #[cfg(feature = "postgresql")]
        if let Self::Open(OpenStoreError::PostgreSql { is_final, .. }) = self {
            return *is_final;
        }
        if let Self::Open(OpenStoreError::Sqlite(error)) = self {
            return error.is_final();
        }
        if let Self::Open(OpenStoreError::Dir(DirError::Directory { source, .. })) = self {
            return source.kind() == io::ErrorKind::PermissionDenied;
        }
        matches!(
            self,
            Self::Keys(_)
                | Self::Access { .. }
                | Self::OpenFiles { .. }
                | Self::Open(OpenStoreError::Dir(
                    DirError::OtherOwner { .. }
                        | DirError::ReadOnly { .. }
                        | DirError::Exposed(_)
                        | DirError::Unsynced { .. }
                ))
                | Self::Open(OpenStoreError::NotBuilt(_))
                | Self::NoSharedKeys { .. }
                | Self::NoClusterKeys { .. }
                | Self::NoAuthKeys { .. }
                | Self::LostAuthKeys { .. }
                | Self::Bridges(_)
                | Self::Socket(_)
                | Self::ListenRight(_)
                | Self::ListenDirectory { .. }
                | Self::Tls(_)
                | Self::KeyFingerprints(
                    KeyFingerprintsError::Foreign(_) | KeyFingerprintsError::Newer(_)
                )
                | Self::Copy(
                    CopyMarkerError::Unfinished { .. }
                        | CopyMarkerError::Entry(KeyFingerprintsError::Newer(_))
                )
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_directory_that_is_read_only_is_a_matter_of_configuration() {
        let refused = |kind: io::ErrorKind| {
            let error = DirError::io("/data".as_ref(), kind.into());
            ServeError::from(OpenStoreError::from(error)).is_of_configuration()
        };
        assert!(refused(io::ErrorKind::ReadOnlyFilesystem));
        assert!(refused(io::ErrorKind::PermissionDenied));
        for passing in [io::ErrorKind::StorageFull, io::ErrorKind::Interrupted] {
            assert!(!refused(passing), "{passing}");
        }
    }

    #[test]
    fn a_port_that_needs_a_right_is_refused_with_how_to_get_it() {
        let refused = |port: u16, kind: io::ErrorKind| {
            ServeError::listen(SocketAddr::from(([0, 0, 0, 0], port)), kind.into()).to_string()
        };
        let advice = "AmbientCapabilities=CAP_NET_BIND_SERVICE";
        assert!(refused(443, io::ErrorKind::PermissionDenied).contains(advice));
        assert!(!refused(8443, io::ErrorKind::PermissionDenied).contains(advice));
        let taken = refused(443, io::ErrorKind::AddrInUse);
        assert!(!taken.contains(advice) && taken.contains("another program listens there"));
    }
}
