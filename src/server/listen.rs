//! The ports of a node: the public one, and a connection node's router port.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use actix_web::body::BoxBody;
use actix_web::dev::{Server, ServerHandle, ServiceRequest, ServiceResponse};
use actix_web::http::ConnectionType;
use actix_web::middleware::{Next, from_fn};
use actix_web::rt::spawn;
use actix_web::web::{self, Data};
use actix_web::{App as HttpApp, Error, HttpServer};
use futures_util::future::join_all;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{sleep, timeout};

use super::{ServeError, accept_drain};
use crate::http::app::{AppState, SharedState};
use crate::http::{request_body_drain, routes};
use crate::peers::inbound::RouterPort;
use crate::settings::{Role, Settings};
use crate::tcp;

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
pub(super) const LAST_ANSWERS_WAIT: Duration = Duration::from_secs(1);

/// Addresses that were taken, on which nobody is answered yet.
pub(super) struct BoundSockets {
    public: TcpListener,
    /// Of a connection node.
    router: Option<TcpListener>,
}

/// Ports of which only that for other nodes is answered on.
pub(super) struct RouterOnly {
    public: TcpListener,
    router: Option<Port>,
}

/// Ports on which requests are answered.
pub(super) struct RunningServers {
    public: Port,
    router: Option<Port>,
}

/// Ports that are being closed.
pub(super) struct ClosingServers(Vec<JoinHandle<io::Result<()>>>);

struct Port {
    address: SocketAddr,
    listener: TcpListener,
    handle: ServerHandle,
    served: JoinHandle<io::Result<()>>,
}

impl BoundSockets {
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

    /// Answers other nodes from now on, where there is a router port.
    pub(super) fn answer_nodes(self, router: Option<RouterPort>) -> Result<RouterOnly, ServeError> {
        let Self { public, router: listener } = self;
        let router = match listener.zip(router) {
            Some((listener, router)) => {
                let bound = address(&listener)?;
                let failed = |source| ServeError::listen(bound, source);
                let handle = listener.try_clone().map_err(failed)?;
                Some(Port::of(bound, handle, router.serve(listener).map_err(failed)?))
            }
            None => None,
        };
        Ok(RouterOnly { public, router })
    }
}

impl RouterOnly {
    /// Answers everybody from now on.
    pub(super) fn answer_all(
        self,
        settings: &Settings,
        node: &AppState,
    ) -> Result<RunningServers, ServeError> {
        let Self { public, router } = self;
        let bound = address(&public)?;
        let handle = public.try_clone().map_err(|source| ServeError::listen(bound, source))?;
        let public = Port::of(bound, handle, server(settings, public, node)?);
        Ok(RunningServers { public, router })
    }
}

impl RunningServers {
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

    /// Refuses connections from now on. What is under way is answered still.
    pub(super) async fn close(self) -> ClosingServers {
        let ports: Vec<Port> = [Some(self.public), self.router].into_iter().flatten().collect();
        for port in &ports {
            // Where that cannot be done, who waits is reset.
            let _ = accept_drain::stop_accepting(&port.listener);
        }
        sleep(accept_drain::WAIT).await;
        ClosingServers(ports.into_iter().map(Port::close).collect())
    }
}

impl ClosingServers {
    /// Ends once everybody was answered and has hung up, or when nobody is waited for any longer.
    pub(super) async fn ended(self, wait: Duration) -> io::Result<()> {
        let ended = timeout(wait, join_all(self.0)).await;
        // Who still holds a connection open loses it with the process.
        ended.unwrap_or_default().into_iter().try_for_each(joined)
    }
}

impl Port {
    /// A server does nothing unless it is polled. The listener is another handle of what it listens on.
    fn of(address: SocketAddr, listener: TcpListener, server: Server) -> Self {
        Self { address, listener, handle: server.handle(), served: spawn(server) }
    }

    /// The order is given when this returns; what is given back is the end.
    fn close(self) -> JoinHandle<io::Result<()>> {
        drop(self.handle.stop(true));
        self.served
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
fn server(
    settings: &Settings,
    listener: TcpListener,
    node: &AppState,
) -> Result<Server, ServeError> {
    let workers = settings.worker_threads();
    let (node, address) = (node.clone(), settings.listen);
    let user_timeout = Duration::from_millis(settings.tcp_user_timeout_ms);
    let server = HttpServer::new(move || {
        // Around a scope and not around the application, whose type is a part of every connection's: 0.4 KiB less.
        let common = Data::clone(&node.common);
        let answer = from_fn(move |request, next| answer(Data::clone(&common), request, next));
        let all = web::scope("").wrap(answer).configure(routes::of(&node));
        HttpApp::new().service(all)
    })
    .workers(workers)
    .max_connections(settings.connections_max.div_ceil(workers))
    .client_request_timeout(Duration::from_millis(settings.request_headers_timeout_ms))
    .keep_alive(HTTP_KEEP_ALIVE)
    .client_disconnect_timeout(LINGER)
    .shutdown_timeout(settings.shutdown_wait_ms.div_ceil(1000))
    .disable_signals()
    .on_connect(move |io, _| tcp::set_options(io, user_timeout))
    .listen(listener)
    .map_err(|source| ServeError::listen(address, source))?;
    Ok(server.run())
}

/// Answers a request. Once the node is to stop, each connection ends with its answer: whoever asks again asks another
/// node.
async fn answer(
    common: Data<SharedState>,
    request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let mut answer = request_body_drain::hold_until_answered(request, next).await?;
    if common.draining.has_begun() {
        answer.response_mut().head_mut().set_connection_type(ConnectionType::Close);
    }
    Ok(answer)
}
