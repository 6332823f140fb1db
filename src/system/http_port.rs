//! The server of a port, public or router: HTTP/1 whose upgrades take their sockets with them.

use std::cell::Cell;
use std::future::{poll_fn, ready};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use actix_http::error::DispatchError;
use actix_server::{FromStream, Server, ServerServiceFactory};
use actix_service::{Service, ServiceFactory, fn_factory, fn_service};
use actix_web::rt::net::{TcpStream, UnixStream};
use actix_web::web::ServiceConfig;
use actors::socket::{ConnectionUse, HttpOptions};
use futures_util::future::Either;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

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

/// Peers of a thread that are read after they were refused.
const REFUSING_MAX: usize = 8;

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
    /// Maximum time for which a peer on a Unix socket reads nothing. The kernel disconnects one of [`bind`].
    pub unread_max: Option<Duration>,
}

/// A socket that listens and is not served yet.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    /// For a proxy on this machine.
    Unix(UnixListener),
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl Listener {
    /// A second handle of the socket.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(listener) => Self::Tcp(listener.try_clone()?),
            Self::Unix(listener) => Self::Unix(listener.try_clone()?),
        })
    }
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

/// A connection that a port admits, which holds the guard until it ends.
pub struct Admitted<G> {
    pub guard: G,
    pub usage: Arc<ConnectionUse>,
}

/// What a peer without TLS is answered that is not admitted. With TLS it is disconnected.
pub struct NotAdmitted(pub Option<String>);

/// Serves a listener, with TLS if there is one. `open` is called with the peer, before a handshake; a Unix socket has none.
/// Each worker calls `configure` for its routes.
pub fn serve<G, C>(
    listener: impl Into<Listener>,
    limits: HttpPortLimits,
    tls: Option<Arc<Tls>>,
    open: impl Fn(Option<SocketAddr>) -> Result<Admitted<G>, NotAdmitted> + Send + Clone + 'static,
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
    let common = (options, limits.unread_max);
    let server = match listener.into() {
        Listener::Tcp(listener) => {
            server.listen("kalends", listener, factory(of_tcp, common, tls, open, configure))
        }
        Listener::Unix(listener) => {
            server.listen_uds("kalends", listener, factory(of_unix, common, tls, open, configure))
        }
    };
    Ok(server?.run())
}

/// An accepted connection and its peer.
type Accepted = (TcpStream, Option<SocketAddr>);

fn of_tcp(stream: TcpStream) -> io::Result<Accepted> {
    let peer = stream.peer_addr().ok();
    Ok((stream, peer))
}

/// One type for both kinds of sockets: reads, writes and shutdowns are the same system calls, and options of TCP belong to
/// listeners. The buffer that a peer fills is its own.
fn of_unix(stream: UnixStream) -> io::Result<Accepted> {
    let stream = stream.into_std()?;
    SockRef::from(&stream).set_send_buffer_size(BUFFER_BYTES)?;
    let stream = std::net::TcpStream::from(OwnedFd::from(stream));
    Ok((TcpStream::from_std(stream)?, None))
}

/// Makes the service of each thread, for what `accepted` makes of the sockets that the thread gets.
fn factory<S, G, C>(
    accepted: fn(S) -> io::Result<Accepted>,
    (options, unread_max): (HttpOptions, Option<Duration>),
    tls: Option<Arc<Tls>>,
    open: impl Fn(Option<SocketAddr>) -> Result<Admitted<G>, NotAdmitted> + Send + Clone + 'static,
    configure: impl Fn() -> C + Send + Clone + 'static,
) -> impl ServerServiceFactory<S>
where
    S: FromStream + 'static,
    G: 'static,
    C: FnOnce(&mut ServiceConfig) + Clone + 'static,
{
    move || {
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
                let refusing = Rc::new(Cell::new(0));
                Ok::<_, ()>(fn_service(move |stream: S| {
                    // It is closed already.
                    let Ok((stream, peer)) = accepted(stream) else {
                        return Either::Right(ready(Ok(())));
                    };
                    match open(peer) {
                        Ok(admitted) => {
                            let services = Rc::clone(&services);
                            let opened = (stream, peer, unread_max);
                            Either::Left(serve_admitted(admitted, opened, &tls, services))
                        }
                        Err(NotAdmitted(answer)) => {
                            if let Some(answer) = answer.filter(|_| tls.is_none()) {
                                refuse(stream, answer, &refusing);
                            }
                            Either::Right(ready(Ok(())))
                        }
                    }
                }))
            }
        })
    }
}

/// What serves the connections of a thread.
struct Services<H1, H2> {
    connections: H1,
    /// With TLS, whose handshake selects it.
    http2: Option<H2>,
}

/// A service of a thread.
trait ServesConnections: Service<Opened, Response = (), Error = DispatchError> {}

impl<S: Service<Opened, Response = (), Error = DispatchError>> ServesConnections for S {}

/// What a service gets of a connection.
type Opened = (Stream, Option<SocketAddr>, Arc<ConnectionUse>);

/// Serves a connection until it ends, or is idle and has to make room.
fn serve_admitted<G, H1: ServesConnections, H2: ServesConnections>(
    Admitted { guard, usage }: Admitted<G>,
    (stream, peer, unread_max): (TcpStream, Option<SocketAddr>, Option<Duration>),
    tls: &Option<Arc<Tls>>,
    services: Rc<Services<H1, H2>>,
) -> impl Future<Output = Result<(), DispatchError>> + use<G, H1, H2> {
    let opened = Arc::clone(&usage);
    let served = match tls {
        None => {
            let stream = Stream::plain(stream, unread_max);
            Either::Left(services.connections.call((stream, peer, opened)))
        }
        Some(tls) => {
            let tls = Arc::clone(tls);
            Either::Right(Box::pin(serve_tls(tls, services, stream, peer, opened)))
        }
    };
    async move {
        let ended = {
            let mut served = pin!(served);
            let ended = poll_fn(|cx| match usage.poll_must_close(cx) {
                true => Poll::Ready(Ok(())),
                false => served.as_mut().poll(cx),
            });
            ended.await
        };
        drop(guard);
        ended
    }
}

/// Answers a peer that is not admitted, and reads for a moment what it sends: else its request could reset the connection
/// before it has the answer. Of many at once the others are closed.
fn refuse(mut stream: TcpStream, answer: String, refusing: &Rc<Cell<usize>>) {
    if refusing.get() >= REFUSING_MAX {
        // The kernel takes as little, unless the peer is gone.
        let _ = stream.try_write(answer.as_bytes());
        return;
    }
    refusing.set(refusing.get() + 1);
    let refusing = Rc::clone(refusing);
    actix_web::rt::spawn(async move {
        let refused = async {
            stream.write_all(answer.as_bytes()).await?;
            stream.shutdown().await?;
            let mut unread = [0; 512];
            while stream.read(&mut unread).await? > 0 {}
            Ok::<_, io::Error>(())
        };
        let _ = timeout(LINGER, refused).await;
        refusing.set(refusing.get() - 1);
    });
}

/// Makes the handshake, in an allocation of its own, which no open connection has.
fn serve_tls<H1: ServesConnections, H2: ServesConnections>(
    tls: Arc<Tls>,
    services: Rc<Services<H1, H2>>,
    stream: TcpStream,
    peer: Option<SocketAddr>,
    usage: Arc<ConnectionUse>,
) -> impl Future<Output = Result<(), DispatchError>> + use<H1, H2> {
    let handshake = Box::pin(async move {
        let stream = tls.accept(stream).await?;
        Some(match services.http2.as_ref().filter(|_| stream.is_http2()) {
            Some(http2) => Either::Right(Box::pin(http2.call((stream, peer, usage)))),
            None => Either::Left(services.connections.call((stream, peer, usage))),
        })
    });
    async move {
        let served = handshake.await;
        match served {
            Some(served) => served.await,
            None => Ok(()),
        }
    }
}

impl<G> Admitted<G> {
    /// A connection that is never closed to make room.
    pub fn new(guard: G) -> Self {
        Self { guard, usage: Arc::default() }
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

    #[actix_web::test]
    async fn a_connection_of_a_unix_socket_has_the_send_buffer_of_others_and_no_peer() {
        let (accepted, mut client) = UnixStream::pair().unwrap();
        let (mut stream, peer) = of_unix(accepted).unwrap();
        assert_eq!(peer, None);
        assert_eq!(SockRef::from(&stream).send_buffer_size().unwrap(), 2 * BUFFER_BYTES);
        client.write_all(b"asked").await.unwrap();
        stream.read_exact(&mut [0; 5]).await.unwrap();
        stream.write_all(b"answered").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "answered");
    }
}
