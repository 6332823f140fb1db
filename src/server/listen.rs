//! The ports of a node: the public port, and the router port of a connection node.
//!
//! They open and close in steps, each with its type: [`BoundSockets`], [`RouterOnly`],
//! [`RunningServers`], [`ClosingServers`].

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
use crate::feeds::http::FeedService;
use crate::http::app::{AppState, SharedState};
use crate::http::{request_body_drain, routes};
use crate::peers::inbound::RouterPort;
use crate::settings::{Role, Settings};
use crate::tcp;

/// Connections that the kernel holds until the server accepts them.
const BACKLOG: i32 = 4096;

/// Time for the last responses to be sent once no request is in progress.
pub(super) const LAST_ANSWERS_WAIT: Duration = Duration::from_secs(1);

/// Sockets that are bound and not served yet.
pub(super) struct BoundSockets {
    public: TcpListener,
    router: Option<TcpListener>,
}

/// The router port is served, the public port is bound.
pub(super) struct RouterOnly {
    public: TcpListener,
    router: Option<Port>,
}

/// Both ports are served.
pub(super) struct RunningServers {
    public: Port,
    router: Option<Port>,
}

/// The ports are closed and finish their requests.
pub(super) struct ClosingServers(Vec<JoinHandle<io::Result<()>>>);

struct Port {
    address: SocketAddr,
    listener: TcpListener,
    handle: ServerHandle,
    served: JoinHandle<io::Result<()>>,
}

impl BoundSockets {
    /// Binds the addresses that the role needs.
    pub(super) fn bind(role: Role, settings: &Settings) -> Result<Self, ServeError> {
        let public = bind(settings.listen)?;
        let router =
            (role == Role::Connection).then(|| bind(settings.router_listen)).transpose()?;
        Ok(Self { public, router })
    }

    /// The bound address of the public port.
    pub(super) fn public_address(&self) -> Result<SocketAddr, ServeError> {
        address(&self.public)
    }

    /// The bound address of the router port, on a connection node.
    pub(super) fn router_address(&self) -> Result<Option<SocketAddr>, ServeError> {
        self.router.as_ref().map(address).transpose()
    }

    /// Serves the router port, if there is one.
    pub(super) fn serve_router(self, router: Option<RouterPort>) -> Result<RouterOnly, ServeError> {
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
    /// Serves the public port too.
    pub(super) fn serve_public(
        self,
        settings: &Settings,
        node: &AppState,
        feeds: Option<Data<FeedService>>,
    ) -> Result<RunningServers, ServeError> {
        let Self { public, router } = self;
        let bound = address(&public)?;
        let handle = public.try_clone().map_err(|source| ServeError::listen(bound, source))?;
        let public = Port::of(bound, handle, server(settings, public, node, feeds)?);
        Ok(RunningServers { public, router })
    }
}

impl RunningServers {
    /// The bound address of the public port.
    pub(super) fn public_address(&self) -> SocketAddr {
        self.public.address
    }

    /// The bound address of the router port, on a connection node.
    pub(super) fn router_address(&self) -> Option<SocketAddr> {
        self.router.as_ref().map(|router| router.address)
    }

    /// Waits until a server ends by itself, which is an error.
    pub(super) async fn ended(&mut self) -> io::Result<()> {
        match &mut self.router {
            None => joined((&mut self.public.served).await),
            Some(router) => tokio::select! {
                ended = &mut self.public.served => joined(ended),
                ended = &mut router.served => joined(ended),
            },
        }
    }

    /// Closes the ports to new connections. Requests in progress are finished.
    pub(super) async fn close(self) -> ClosingServers {
        let ports: Vec<Port> = [Some(self.public), self.router].into_iter().flatten().collect();
        for port in &ports {
            // On an error the connections in the backlog are reset.
            let _ = accept_drain::stop_accepting(&port.listener);
        }
        sleep(accept_drain::WAIT).await;
        ClosingServers(ports.into_iter().map(Port::close).collect())
    }
}

impl ClosingServers {
    /// Waits until all connections are closed, at most for `wait`.
    pub(super) async fn ended(self, wait: Duration) -> io::Result<()> {
        let ended = timeout(wait, join_all(self.0)).await;
        // The remaining connections end with the process.
        ended.unwrap_or_default().into_iter().try_for_each(joined)
    }
}

impl Port {
    /// Runs `server`. `listener` is a second handle of its socket.
    fn of(address: SocketAddr, listener: TcpListener, server: Server) -> Self {
        Self { address, listener, handle: server.handle(), served: spawn(server) }
    }

    /// Orders the server to stop; the result is its end.
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

/// The server of the public port.
fn server(
    settings: &Settings,
    listener: TcpListener,
    node: &AppState,
    feeds: Option<Data<FeedService>>,
) -> Result<Server, ServeError> {
    let workers = settings.worker_threads();
    let (node, address) = (node.clone(), settings.listen);
    let user_timeout = Duration::from_millis(settings.tcp_user_timeout_ms);
    let server = HttpServer::new(move || {
        // The middleware wraps a scope and not the application, whose type is part of every
        // connection's state: 0.4 KiB less for each.
        let common = Data::clone(&node.common);
        let answer = from_fn(move |request, next| answer(Data::clone(&common), request, next));
        let all = web::scope("").wrap(answer).configure(routes::of(&node));
        HttpApp::new().service(match &feeds {
            Some(feeds) => all.configure(|service| crate::feeds::http::routes(feeds, service)),
            None => all,
        })
    })
    .workers(workers)
    .max_connections(settings.connections_max.div_ceil(workers))
    .client_request_timeout(Duration::from_millis(settings.request_headers_timeout_ms))
    .keep_alive(tcp::KEEP_ALIVE)
    .client_disconnect_timeout(tcp::LINGER)
    .shutdown_timeout(settings.shutdown_wait_ms.div_ceil(1000))
    .disable_signals()
    .on_connect(move |io, _| tcp::set_options(io, user_timeout))
    .listen(listener)
    .map_err(|source| ServeError::listen(address, source))?;
    Ok(server.run())
}

/// Answers a request. While the node drains, each response closes its connection, so that the
/// client sends its next request to another node.
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
