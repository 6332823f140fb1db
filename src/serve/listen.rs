//! The ports of a node: the public one, and a connection node's router port.

use std::any::Any;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use actix_web::dev::{Server, ServerHandle};
use actix_web::middleware::from_fn;
use actix_web::rt::net::TcpStream;
use actix_web::rt::spawn;
use actix_web::web;
use actix_web::{App as HttpApp, HttpServer};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::task::{JoinError, JoinHandle};

use super::ServeError;
use crate::http::app::Node;
use crate::http::{routes, unread};
use crate::nodes::port::RouterPort;
use crate::settings::{Role, Settings};

/// Connections the kernel holds that were not accepted yet.
const BACKLOG: i32 = 4096;

/// How long an application server's idle connection is kept.
const HTTP_KEEP_ALIVE: Duration = Duration::from_secs(75);

/// How long a socket is read on after its last answer or close frame. Firefox waits for the end of
/// TCP after a close frame; a sender that is refused before its body has come should still hear why.
///
/// actix-http counts from a time that it looks up every 500 ms. A deadline that is over when it is set is never
/// noticed, and the socket stays open: so it is well above that. It is over after half of it to all of it.
const LINGER: Duration = Duration::from_secs(1);

/// How long the last answers may take to go out once nothing is under way any more.
pub(super) const LAST_ANSWERS_WAIT_S: u64 = 1;

/// Addresses that were taken, on which nobody is answered yet.
pub(super) struct Sockets {
    public: TcpListener,
    /// Of a connection node.
    router: Option<TcpListener>,
}

/// Ports on which requests are answered.
pub(super) struct Ports {
    public: Port,
    router: Option<Port>,
}

struct Port {
    address: SocketAddr,
    handle: ServerHandle,
    served: JoinHandle<io::Result<()>>,
}

impl Sockets {
    /// Takes the addresses of a role.
    pub(super) fn bind(role: Role, settings: &Settings) -> Result<Self, ServeError> {
        let public = bind(settings.listen)?;
        let router = (role == Role::Connect).then(|| bind(settings.router_listen)).transpose()?;
        Ok(Self { public, router })
    }

    /// Where the public port is.
    pub(super) fn public_address(&self) -> Result<SocketAddr, ServeError> {
        address(&self.public)
    }

    /// Where the router port is, if there is one.
    pub(super) fn router_address(&self) -> Result<Option<SocketAddr>, ServeError> {
        self.router.as_ref().map(address).transpose()
    }
}

impl Ports {
    /// Answers requests from now on.
    pub(super) fn open(
        settings: &Settings,
        sockets: Sockets,
        node: &Node,
        router: Option<RouterPort>,
    ) -> Result<Self, ServeError> {
        let router = match sockets.router.zip(router) {
            Some((listener, router)) => {
                let bound = address(&listener)?;
                let server = router.serve(listener);
                let server = server.map_err(|source| ServeError::listen(bound, source))?;
                Some(Port::of(bound, server))
            }
            None => None,
        };
        let bound = address(&sockets.public)?;
        let public = Port::of(bound, server(settings, sockets.public, node)?);
        Ok(Self { public, router })
    }

    /// Where the public port is.
    pub(super) fn public_address(&self) -> SocketAddr {
        self.public.address
    }

    /// Where the router port is, if there is one.
    pub(super) fn router_address(&self) -> Option<SocketAddr> {
        self.router.as_ref().map(|router| router.address)
    }

    /// Waits until one of them ends by itself, which none should.
    pub(super) async fn ended(&mut self) -> io::Result<()> {
        match &mut self.router {
            None => joined((&mut self.public.served).await),
            Some(router) => tokio::select! {
                ended = &mut self.public.served => joined(ended),
                ended = &mut router.served => joined(ended),
            },
        }
    }

    /// Takes no more connections on the public port; those that are there stay.
    pub(super) async fn pause(&self) {
        self.public.handle.pause().await;
    }

    /// Ends once what is under way was answered, or after [`LAST_ANSWERS_WAIT_S`].
    pub(super) async fn close(self) -> io::Result<()> {
        let router = async {
            match self.router {
                Some(router) => router.close().await,
                None => Ok(()),
            }
        };
        let (public, router) = tokio::join!(self.public.close(), router);
        public.and(router)
    }
}

impl Port {
    /// A server does nothing unless it is polled.
    fn of(address: SocketAddr, server: Server) -> Self {
        Self { address, handle: server.handle(), served: spawn(server) }
    }

    async fn close(self) -> io::Result<()> {
        self.handle.stop(true).await;
        joined(self.served.await)
    }
}

fn joined(ended: Result<io::Result<()>, JoinError>) -> io::Result<()> {
    ended.unwrap_or_else(|error| Err(io::Error::other(error)))
}

fn address(listener: &TcpListener) -> Result<SocketAddr, ServeError> {
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    listener.local_addr().map_err(|source| ServeError::listen(any, source))
}

/// Takes an address.
fn bind(address: SocketAddr) -> Result<TcpListener, ServeError> {
    let open = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    open().map_err(|source| ServeError::listen(address, source))
}

/// A server on the public port.
fn server(settings: &Settings, listener: TcpListener, node: &Node) -> Result<Server, ServeError> {
    let workers = settings.worker_threads();
    let (node, address) = (node.clone(), settings.listen);
    let user_timeout = Duration::from_millis(settings.tcp_user_timeout_ms);
    let server = HttpServer::new(move || {
        // Around a scope and not around the application, whose type is a part of every connection's: 0.4 KiB less.
        let all = web::scope("").wrap(from_fn(unread::hold)).configure(routes::of(&node));
        HttpApp::new().service(all)
    })
    .workers(workers)
    .max_connections(settings.connections_max.div_ceil(workers))
    .client_request_timeout(Duration::from_millis(settings.request_headers_timeout_ms))
    .keep_alive(HTTP_KEEP_ALIVE)
    .client_disconnect_timeout(LINGER)
    .shutdown_timeout(LAST_ANSWERS_WAIT_S)
    .disable_signals()
    .on_connect(move |io, _| tune(io, user_timeout))
    .listen(listener)
    .map_err(|source| ServeError::listen(address, source))?;
    Ok(server.run())
}

fn tune(io: &dyn Any, user_timeout: Duration) {
    if let Some(stream) = io.downcast_ref::<TcpStream>() {
        let socket = SockRef::from(stream);
        // A socket that is gone by now ends by itself.
        let _ = socket.set_tcp_user_timeout(Some(user_timeout));
        let _ = socket.set_tcp_nodelay(true);
    }
}
