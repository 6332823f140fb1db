//! Sockets that the service manager has opened (`kalends.socket`). New connections wait in them while the server
//! restarts.

use std::io;
use std::net::TcpListener;

use listenfd::ListenFd;

/// The variable with the names of the sockets, separated by colons.
const NAMES: &str = "LISTEN_FDNAMES";

/// The sockets that were inherited, by their use.
#[derive(Debug, Default)]
pub struct InheritedSockets {
    pub public: Option<TcpListener>,
    pub router: Option<TcpListener>,
    pub metrics: Option<TcpListener>,
    pub http: Option<TcpListener>,
}

/// Why inherited sockets cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error(
        "the service manager passes two sockets named {0:?}: give each another FileDescriptorName"
    )]
    Twice(String),
    #[error("the socket {name:?} of the service manager cannot be used: {error}")]
    Unusable { name: String, error: io::Error },
}

impl InheritedSockets {
    /// Takes them from the environment. A socket is for the port that it is named after: `router`, `metrics` or `http`;
    /// one with another name is the public port.
    pub fn take() -> Result<Self, SocketError> {
        let names = std::env::var(NAMES).unwrap_or_default();
        Self::sorted(ListenFd::from_env(), &names)
    }

    fn sorted(mut sockets: ListenFd, names: &str) -> Result<Self, SocketError> {
        let mut names = names.split(':').filter(|name| !name.is_empty());
        let mut inherited = Self::default();
        for index in 0..sockets.len() {
            let name = names.next().unwrap_or("public").to_owned();
            let taken = sockets.take_tcp_listener(index);
            let taken =
                taken.and_then(|socket| socket.ok_or_else(|| io::ErrorKind::NotFound.into()));
            let socket =
                taken.map_err(|error| SocketError::Unusable { name: name.clone(), error })?;
            let place = match name.as_str() {
                "router" => &mut inherited.router,
                "metrics" => &mut inherited.metrics,
                "http" => &mut inherited.http,
                _ => &mut inherited.public,
            };
            if place.replace(socket).is_some() {
                return Err(SocketError::Twice(name));
            }
        }
        Ok(inherited)
    }
}
