//! Sockets that the service manager has opened (`kalends.socket`). New connections wait in them while the server
//! restarts.

use std::collections::HashMap;
use std::io;
use std::net::TcpListener;

use listenfd::ListenFd;

use crate::settings::ListenAddress;
use crate::system::http_port::Listener;

/// The variable with the names of the sockets, separated by colons.
const NAMES: &str = "LISTEN_FDNAMES";

/// The sockets that were inherited, by the names of the ports that they are for.
#[derive(Debug, Default)]
pub struct InheritedSockets {
    public: Option<Listener>,
    others: HashMap<&'static str, TcpListener>,
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
    #[error(
        "the socket of the service manager for the public port is not that of listen = {0}: name the same Unix socket in \
         ListenStream of kalends.socket and in listen, or an address in both"
    )]
    NotOfListen(ListenAddress),
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
            let port = ["router", "metrics", "http"].into_iter().find(|port| *port == name);
            match inherited.add(port, index, &mut sockets) {
                Ok(true) => return Err(SocketError::Twice(name)),
                Ok(false) => {}
                Err(error) => return Err(SocketError::Unusable { name, error }),
            }
        }
        Ok(inherited)
    }

    /// Adds the socket for this port, or for the public one. Returns whether there was one already.
    fn add(
        &mut self,
        port: Option<&'static str>,
        index: usize,
        sockets: &mut ListenFd,
    ) -> io::Result<bool> {
        if port.is_none()
            && let Ok(Some(socket)) = sockets.take_unix_listener(index)
        {
            return Ok(self.public.replace(Listener::Unix(socket)).is_some());
        }
        let socket = sockets.take_tcp_listener(index)?.ok_or(io::ErrorKind::NotFound)?;
        Ok(match port {
            Some(port) => self.others.insert(port, socket).is_some(),
            None => self.public.replace(Listener::Tcp(socket)).is_some(),
        })
    }

    pub fn take_public(&mut self) -> Option<Listener> {
        self.public.take()
    }

    pub fn take(&mut self, port: &str) -> Option<TcpListener> {
        self.others.remove(port)
    }
}
