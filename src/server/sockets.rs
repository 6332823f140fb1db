//! Sockets that the service manager has opened (`kalends.socket`). New connections wait in them while the server
//! restarts.

use std::collections::HashMap;
use std::io;
use std::net::TcpListener;

use listenfd::ListenFd;

/// The variable with the names of the sockets, separated by colons.
const NAMES: &str = "LISTEN_FDNAMES";

/// The sockets that were inherited, by the names of the ports that they are for.
#[derive(Debug, Default)]
pub struct InheritedSockets(HashMap<&'static str, TcpListener>);

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
    pub fn from_env() -> Result<Self, SocketError> {
        let names = std::env::var(NAMES).unwrap_or_default();
        let mut names = names.split(':').filter(|name| !name.is_empty());
        let (mut sockets, mut inherited) = (ListenFd::from_env(), Self::default());
        for index in 0..sockets.len() {
            let name = names.next().unwrap_or("public").to_owned();
            let taken = sockets
                .take_tcp_listener(index)
                .and_then(|socket| socket.ok_or_else(|| io::ErrorKind::NotFound.into()));
            let socket = match taken {
                Ok(socket) => socket,
                Err(error) => return Err(SocketError::Unusable { name, error }),
            };
            let port = ["router", "metrics", "http"].into_iter().find(|port| *port == name);
            if inherited.0.insert(port.unwrap_or("public"), socket).is_some() {
                return Err(SocketError::Twice(name));
            }
        }
        Ok(inherited)
    }

    pub fn take(&mut self, port: &str) -> Option<TcpListener> {
        self.0.remove(port)
    }
}
