//! The public port.

use std::any::Any;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use actix_web::dev::Server;
use actix_web::middleware::from_fn;
use actix_web::rt::net::TcpStream;
use actix_web::web::{self, Data};
use actix_web::{App as HttpApp, HttpServer};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::ServeError;
use crate::http::app::{App, routes};
use crate::http::unread;
use crate::settings::Settings;

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

/// Takes the address.
pub(super) fn bind(address: SocketAddr) -> Result<TcpListener, ServeError> {
    let open = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    open().map_err(|source| ServeError::listen(address, source))
}

/// A server on the listener.
pub(super) fn server(
    settings: &Settings,
    listener: TcpListener,
    app: &Data<App>,
) -> Result<Server, ServeError> {
    let workers = settings.worker_threads();
    let (app, address) = (app.clone(), settings.listen);
    let user_timeout = Duration::from_millis(settings.tcp_user_timeout_ms);
    let server = HttpServer::new(move || {
        // Around a scope and not around the application, whose type is a part of every connection's: 0.4 KiB less.
        let all = web::scope("").wrap(from_fn(unread::hold)).configure(routes(&app));
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
