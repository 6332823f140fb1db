//! The ports of a node: the public port, and the router port of a connection node.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use actix_server::{Server, ServerHandle};
use actix_web::Error;
use actix_web::body::BoxBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::{ConnectionType, StatusCode};
use actix_web::middleware::{Next, from_fn};
use actix_web::rt::spawn;
use actix_web::web::{self, Data, ServiceConfig};
use futures_util::future::{join_all, select_all};
use slog::debug;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{sleep, timeout};

use super::dev_clock::DevClock;
use super::error::ServeError;
use super::sockets::{InheritedSockets, SocketError};
use super::{accept_drain, dev_clock};
use crate::feeds::http::service::FeedService;
use crate::limits::OPERATOR_CONNECTIONS_MAX;
use crate::push::app::{AppState, SharedState};
use crate::push::registration;
use crate::push::registration::RegistrationService;
use crate::push::request_id::{X_REQUEST_ID, request_id};
use crate::push::{methods, request_body_drain, routes};
use crate::settings::{ListenAddress, Role, Settings};
use crate::system::http_port::{HttpPortLimits, Listener};
use crate::system::tls::Tls;
use crate::system::unix_socket::{SocketFile, SocketPlace};
use crate::system::{http_port, unix_socket};

/// Time for the last responses to be sent once no request is in progress.
pub(super) const LAST_ANSWERS_WAIT: Duration = Duration::from_secs(1);

/// Sockets that are bound and not served yet.
pub(super) struct BoundSockets {
    pub(super) public: BoundSocket,
    pub(super) router: Option<BoundSocket>,
    pub(super) http: Option<BoundSocket>,
}

pub(super) struct BoundSocket {
    pub(super) address: ListenAddress,
    listener: Listener,
    /// That of a Unix socket, unless it is inherited.
    file: Option<SocketFile>,
    /// Whether the service manager holds it too. Then connections wait in it while no server runs.
    is_inherited: bool,
}

/// What a node serves beside pushes, most of it one with endpoints.
#[derive(Clone, Default)]
pub(super) struct PublicApis {
    pub(super) feeds: Option<Data<FeedService>>,
    /// If there are bridges.
    pub(super) registration: Option<Data<RegistrationService>>,
    /// If a test moves the clock.
    pub(super) clock: Option<Data<DevClock>>,
}

pub(super) struct RunningServers {
    pub(super) public: Port,
    pub(super) router: Option<Port>,
    pub(super) http: Option<Port>,
}

pub(super) struct Port {
    pub(super) socket: BoundSocket,
    handle: ServerHandle,
    served: JoinHandle<io::Result<()>>,
}

impl BoundSockets {
    /// Binds the addresses that the role needs, unless their sockets are inherited.
    pub(super) fn bind(
        role: Role,
        settings: &Settings,
        inherited: &mut InheritedSockets,
    ) -> Result<Self, ServeError> {
        let user_timeout = Duration::from_millis(settings.tcp_user_timeout_ms);
        let bind = |address, inherited| BoundSocket::tcp(address, inherited, user_timeout);
        let public = BoundSocket::public(&settings.listen, inherited.take_public(), user_timeout)?;
        let router = (role == Role::Connection)
            .then(|| bind(settings.router_listen, inherited.take("router")));
        let http = settings.http_listen.0.map(|address| bind(address, inherited.take("http")));
        Ok(Self { public, router: router.transpose()?, http: http.transpose()? })
    }
}

impl BoundSocket {
    /// An inherited Unix socket is the one that `listen` names. The address of another one is in place of that of `listen`.
    fn public(
        listen: &ListenAddress,
        inherited: Option<Listener>,
        user_timeout: Duration,
    ) -> Result<Self, ServeError> {
        let address = listen.clone();
        match (listen, inherited) {
            (ListenAddress::Tcp(at), None) => Self::tcp(*at, None, user_timeout),
            (ListenAddress::Tcp(at), Some(Listener::Tcp(socket))) => {
                Self::tcp(*at, Some(socket), user_timeout)
            }
            (ListenAddress::Unix(path), None) => {
                let bound = unix_socket::bind(path);
                let (socket, file) =
                    bound.map_err(|source| ServeError::listen_unix(path, source))?;
                let listener = Listener::Unix(socket);
                Ok(Self { address, listener, file: Some(file), is_inherited: false })
            }
            (ListenAddress::Unix(path), Some(Listener::Unix(socket))) if is_at(&socket, path) => {
                let listener = Listener::Unix(socket);
                Ok(Self { address, listener, file: None, is_inherited: true })
            }
            (_, Some(_)) => Err(SocketError::NotOfListen(address).into()),
        }
    }

    fn tcp(
        address: SocketAddr,
        inherited: Option<TcpListener>,
        user_timeout: Duration,
    ) -> Result<Self, ServeError> {
        let is_inherited = inherited.is_some();
        let listener = match inherited {
            Some(listener) => http_port::prepare(listener, user_timeout),
            None => http_port::bind(address, user_timeout),
        };
        let bound = listener.and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (bound, listener) = bound.map_err(|source| ServeError::listen(address, source))?;
        Ok(Self { address: bound.into(), listener: listener.into(), file: None, is_inherited })
    }

    /// That of a Unix socket.
    pub(super) fn place(&self) -> Option<SocketPlace> {
        match (&self.address, &self.file) {
            (_, Some(file)) => Some(file.place().clone()),
            // The file of an inherited one.
            (ListenAddress::Unix(path), None) => Some(SocketPlace::of(path)),
            (ListenAddress::Tcp(_), None) => None,
        }
    }

    /// Starts a server on the socket, and keeps a second handle of it.
    pub(super) fn serve(
        self,
        start: impl FnOnce(Listener) -> io::Result<Server>,
    ) -> Result<Port, ServeError> {
        let server = self.listener.try_clone().and_then(start);
        let failed = |source| ServeError::Listen { address: self.address.clone(), source };
        let server = server.map_err(failed)?;
        Ok(Port { socket: self, handle: server.handle(), served: spawn(server) })
    }

    /// Lets no new connection in. The server still accepts those in the backlog; on an error they are reset.
    fn stop_accepting(&mut self) {
        if let (Listener::Tcp(listener), false) = (&self.listener, self.is_inherited) {
            let _ = accept_drain::stop_accepting(listener);
        }
        // Without its file no client finds a Unix socket.
        self.file = None;
    }
}

fn is_at(socket: &UnixListener, path: &Path) -> bool {
    socket.local_addr().is_ok_and(|address| address.as_pathname() == Some(path))
}

impl RunningServers {
    pub(super) fn router_address(&self) -> Option<SocketAddr> {
        self.router.as_ref()?.socket.address.tcp()
    }

    /// Waits until a server ends by itself, which is an error.
    pub(super) async fn ended(&mut self) -> io::Result<()> {
        let others = [&mut self.router, &mut self.http].into_iter().flatten();
        let ports = std::iter::once(&mut self.public).chain(others);
        joined(select_all(ports.map(|port| &mut port.served)).await.0)
    }

    /// Closes the ports to new connections. The servers finish the requests in progress; the results
    /// are their ends.
    pub(super) async fn close(self) -> Vec<JoinHandle<io::Result<()>>> {
        let ports = [Some(self.public), self.router, self.http];
        let mut ports: Vec<Port> = ports.into_iter().flatten().collect();
        ports.iter_mut().for_each(|port| port.socket.stop_accepting());
        sleep(accept_drain::WAIT).await;
        let stop = |port: Port| {
            drop(port.handle.stop(true));
            port.served
        };
        ports.into_iter().map(stop).collect()
    }
}

/// Waits until all connections are closed, at most for [`LAST_ANSWERS_WAIT`].
pub(super) async fn ended(closing: Vec<JoinHandle<io::Result<()>>>) -> io::Result<()> {
    let ended = timeout(LAST_ANSWERS_WAIT, join_all(closing)).await;
    // The remaining connections end with the process.
    ended.unwrap_or_default().into_iter().try_for_each(joined)
}

fn joined(ended: Result<io::Result<()>, JoinError>) -> io::Result<()> {
    ended.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// The server of the public port.
pub(super) fn public_server(
    settings: &Settings,
    listener: Listener,
    node: &AppState,
    apis: PublicApis,
    tls: Option<Arc<Tls>>,
) -> io::Result<Server> {
    let user_timeout = Duration::from_millis(settings.tcp_user_timeout_ms);
    let limits = HttpPortLimits {
        workers: settings.worker_threads(),
        // Above it a connection is refused, so that a place is left for an operator.
        worker_connections_max: settings.worker_connections_max() + OPERATOR_CONNECTIONS_MAX,
        headers_timeout: Duration::from_millis(settings.request_headers_timeout_ms),
        shutdown_timeout: Duration::from_millis(settings.shutdown_wait_ms),
        allows_half_closed: true,
        unread_max: settings.listen.is_unix().then_some(user_timeout),
    };
    let (node, counted) = (node.clone(), Arc::clone(&node.common.limits));
    let makes_handshakes = tls.is_some();
    let open = move |peer| counted.open_connection(peer, makes_handshakes);
    http_port::serve(listener, limits, tls, open, move || routes(node.clone(), apis.clone()))
}

fn routes(node: AppState, apis: PublicApis) -> impl FnOnce(&mut ServiceConfig) + Clone {
    move |service| {
        // The middleware wraps a scope and not the application, whose type is part of every
        // connection's state: 0.4 KiB less for each.
        let common = Data::clone(&node.common);
        let answer = from_fn(move |request, next| answer(Data::clone(&common), request, next));
        let all = web::scope("").wrap(answer).configure(routes::of(&node));
        service.service(all.configure(|service| apis.routes(service)));
        // A target without a path, as in `OPTIONS *`, is in no scope.
        service.default_service(methods::nothing_here());
    }
}

impl PublicApis {
    pub(super) fn routes(&self, service: &mut ServiceConfig) {
        if let Some(feeds) = &self.feeds {
            crate::feeds::http::routes(feeds, service);
        }
        // Behind the feeds, whose paths begin with `/v1` too.
        if let Some(registration) = &self.registration {
            registration::routes(registration, service);
        }
        if let Some(clock) = &self.clock {
            dev_clock::routes(clock, service);
        }
    }
}

/// Answers a request. While the node drains, each response closes its connection, so that the
/// client sends its next request to another node.
async fn answer(
    common: Data<SharedState>,
    mut request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let id = common.request_ids.of(request.headers());
    request.headers_mut().insert(X_REQUEST_ID, id.clone());
    let mut answer = request_body_drain::hold_until_answered(request, next).await?;
    let asked = answer.request();
    common.refusals.note(&answer, request_id(asked.headers()), common.clock.now());
    debug!(common.log, "answered a request"; "request" => request_id(asked.headers()),
        "status" => answer.status().as_u16(), "method" => %asked.method());
    if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        answer.headers_mut().insert(X_REQUEST_ID, id);
    }
    if common.is_draining() {
        answer.response_mut().head_mut().set_connection_type(ConnectionType::Close);
    }
    Ok(answer)
}
