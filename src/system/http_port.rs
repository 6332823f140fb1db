//! The server of a port, public or router: HTTP/1 whose upgrades take their sockets with them.

use std::future::ready;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_http::error::DispatchError;
use actix_server::Server;
use actix_service::{Service, ServiceFactory, fn_factory, fn_service};
use actix_web::rt::net::TcpStream;
use actix_web::web::ServiceConfig;
use actors::socket::HttpOptions;
use futures_util::future::Either;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::tls::Tls;
use super::tls::stream::Stream;
use super::unread_request;

/// Time for which an idle HTTP connection is kept. It is longer than that of the clients between
/// nodes (`node_connection_idle_s`), so that none sends a request on a connection just closed.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// Time for which a socket is read after the last response or close frame. Firefox waits for the
/// end of TCP after a close frame, and a client that is rejected before it has sent its body
/// should still receive the reason.
///
/// actix-http counts from a clock that it reads every 500 ms, and misses a deadline that is already
/// over when it is set: the socket would stay open. So the time is well above that. In practice it
/// lasts for half of it to all of it.
const LINGER: Duration = Duration::from_secs(1);

/// The bound of what the kernel keeps of a connection in each direction, in bytes. It doubles that for its own data.
const BUFFER_BYTES: usize = 64 * 1024;

/// Connections that the kernel holds until the server accepts them.
const BACKLOG: i32 = 4096;

/// The limits of a port.
#[derive(Debug, Clone, Copy)]
pub struct HttpPortLimits {
    pub workers: usize,
    /// Connections of one worker. At this number it accepts no further one.
    pub worker_connections_max: usize,
    /// Maximum time for the headers of a request to arrive.
    pub headers_timeout: Duration,
    /// Maximum time for the last answers, once the port is closed.
    pub shutdown_timeout: Duration,
    /// Whether a client that has closed its end still waits for the answer.
    pub allows_half_closed: bool,
}

/// Binds an address. A connection whose sent bytes stay unacknowledged for `user_timeout` is closed.
pub fn bind(address: SocketAddr, user_timeout: Duration) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    // Connections inherit the options that the listener has when they are established, and the kernel establishes them
    // from `listen` on.
    set_options(&SockRef::from(&socket), user_timeout)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Gives a listener that was opened by another program the options of [`bind`]. Connections that wait in it already
/// have its former ones.
pub fn prepare(listener: TcpListener, user_timeout: Duration) -> io::Result<TcpListener> {
    set_options(&SockRef::from(&listener), user_timeout)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn set_options(socket: &SockRef<'_>, user_timeout: Duration) -> io::Result<()> {
    socket.set_tcp_user_timeout(Some(user_timeout))?;
    socket.set_tcp_nodelay(true)?;
    socket.set_send_buffer_size(BUFFER_BYTES)?;
    socket.set_recv_buffer_size(BUFFER_BYTES)
}

/// Serves a listener of [`bind`], with TLS if there is one. `open` is called with the peer: each connection holds what it
/// returns, and is closed at once if that is none. Each worker calls `configure` for its routes.
pub fn serve<G, C>(
    listener: TcpListener,
    limits: HttpPortLimits,
    tls: Option<Arc<Tls>>,
    open: impl Fn(Option<SocketAddr>) -> Option<G> + Send + Clone + 'static,
    configure: impl Fn() -> C + Send + Clone + 'static,
) -> io::Result<Server>
where
    G: 'static,
    C: FnOnce(&mut ServiceConfig) + Clone + 'static,
{
    let server = Server::build()
        .workers(limits.workers)
        .max_concurrent_connections(limits.worker_connections_max)
        .shutdown_timeout(limits.shutdown_timeout.as_millis().div_ceil(1000) as u64)
        .disable_signals();
    let options = HttpOptions {
        headers_timeout: limits.headers_timeout,
        keep_alive: KEEP_ALIVE,
        linger: LINGER,
        allows_half_closed: limits.allows_half_closed,
        bad_request: unread_request::bad_request,
        stopping: Some(server.graceful_shutdown_signal()),
    };
    let server = server.listen("kalends", listener, move || {
        let connections = actors::socket::service(&options, configure());
        let http2 = actors::socket::http2(&options, configure());
        let (tls, open) = (tls.clone(), open.clone());
        fn_factory(move || {
            let (connections, http2) = (connections.new_service(()), http2.new_service(()));
            let (tls, open) = (tls.clone(), open.clone());
            async move {
                let connections = connections.await?;
                let http2 = if tls.is_some() { Some(http2.await?) } else { None };
                let services = Rc::new(Services { connections, http2 });
                Ok::<_, ()>(fn_service(move |stream: TcpStream| {
                    let peer = stream.peer_addr().ok();
                    let Some(opened) = open(peer) else { return Either::Left(ready(Ok(()))) };
                    let served = match &tls {
                        None => {
                            Either::Left(services.connections.call((Stream::plain(stream), peer)))
                        }
                        Some(tls) => Either::Right(Box::pin(serve_tls(
                            Arc::clone(tls),
                            Rc::clone(&services),
                            stream,
                            peer,
                        ))),
                    };
                    Either::Right(async move {
                        let ended = served.await;
                        drop(opened);
                        ended
                    })
                }))
            }
        })
    })?;
    Ok(server.run())
}

/// What serves the connections of a thread.
struct Services<H1, H2> {
    connections: H1,
    /// With TLS, whose handshake selects it.
    http2: Option<H2>,
}

/// Makes the handshake, in an allocation of its own, which no open connection has.
async fn serve_tls<H1, H2>(
    tls: Arc<Tls>,
    services: Rc<Services<H1, H2>>,
    stream: TcpStream,
    peer: Option<SocketAddr>,
) -> Result<(), DispatchError>
where
    H1: Service<(Stream, Option<SocketAddr>), Response = (), Error = DispatchError>,
    H2: Service<(Stream, Option<SocketAddr>), Response = (), Error = DispatchError>,
{
    let Some(stream) = Box::pin(async move { tls.accept(stream).await }).await else {
        return Ok(());
    };
    match services.http2.as_ref().filter(|_| stream.is_http2()) {
        Some(http2) => Box::pin(http2.call((stream, peer))).await,
        None => services.connections.call((stream, peer)).await,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn connections_made_before_the_port_is_served_have_its_options() {
        let listener =
            bind(SocketAddr::from(([127, 0, 0, 1], 0)), Duration::from_millis(1234)).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let accepted = SockRef::from(&accepted);
        assert_eq!(accepted.tcp_user_timeout().unwrap(), Some(Duration::from_millis(1234)));
        assert!(accepted.tcp_nodelay().unwrap());
        // The kernel doubles it for its own data.
        assert_eq!(accepted.send_buffer_size().unwrap(), 2 * BUFFER_BYTES);
        assert_eq!(accepted.recv_buffer_size().unwrap(), 2 * BUFFER_BYTES);
    }
}
