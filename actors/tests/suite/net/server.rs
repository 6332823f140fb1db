//! actix-web with the clients' route, on a real socket.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actix_service::{Service, ServiceFactory};
use actix_web::HttpRequest;
use actix_web::rt::spawn;
use actix_web::rt::task::JoinHandle;
use actix_web::web::{self, ServiceConfig};
use actors::ClientShared;
use actors::socket::HttpOptions;
use state_machine::connection::ConnectionSeed;
use tokio::net::{TcpListener, TcpSocket};

use super::metered::{Metered, Traffic};
use super::peer::Peer;

/// Time in which a peer closes its end.
const LINGER: Duration = Duration::from_secs(1);

/// What the kernel keeps for one direction of a connection with small buffers: as little as it
/// lets.
const SMALL_BUFFER_BYTES: u32 = 4096;

/// A server whose every connection is a client actor.
pub(crate) struct Server {
    listener: TcpListener,
    serve: Box<Serve>,
    buffer_bytes: Option<u32>,
    connections: RefCell<Vec<JoinHandle<()>>>,
}

/// Serves one accepted stream.
type Serve = dyn Fn(Metered, SocketAddr) -> JoinHandle<()>;

impl Server {
    /// Listens on a free port. Every connection has the same seed.
    pub(crate) async fn start(shared: &Arc<ClientShared>, seed: ConnectionSeed) -> Self {
        Self::with_buffers(None, shared, seed).await
    }

    /// The same, and little fits between the server and a peer that does not read.
    pub(crate) async fn with_small_buffers(
        shared: &Arc<ClientShared>,
        seed: ConnectionSeed,
    ) -> Self {
        Self::with_buffers(Some(SMALL_BUFFER_BYTES), shared, seed).await
    }

    async fn with_buffers(
        buffer_bytes: Option<u32>,
        shared: &Arc<ClientShared>,
        seed: ConnectionSeed,
    ) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        if let Some(bytes) = buffer_bytes {
            // Inherited by every connection.
            socket.set_send_buffer_size(bytes).unwrap();
        }
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let listener = socket.listen(16).unwrap();
        let serve = serve(Arc::clone(shared), seed).await;
        Self { listener, serve, buffer_bytes, connections: RefCell::default() }
    }

    /// A peer that connects and upgrades as Firefox does.
    pub(crate) async fn connect(&self) -> Peer {
        self.connect_with(Some("push-notification")).await
    }

    /// A peer that connects and upgrades with this subprotocol.
    pub(crate) async fn connect_with(&self, subprotocol: Option<&str>) -> Peer {
        let socket = TcpSocket::new_v4().unwrap();
        if let Some(bytes) = self.buffer_bytes {
            socket.set_recv_buffer_size(bytes).unwrap();
        }
        let stream = socket.connect(self.listener.local_addr().unwrap()).await.unwrap();
        let (accepted, address) = self.listener.accept().await.unwrap();
        let traffic = Traffic::default();
        let connection = (self.serve)(traffic.of_server(accepted), address);
        self.connections.borrow_mut().push(connection);
        Peer::upgrade(stream, traffic, subprotocol).await
    }

    /// Drops every connection in whatever state it is, as a worker does that is stopped.
    pub(crate) fn drop_connections(&self) {
        self.connections.take().iter().for_each(JoinHandle::abort);
    }
}

async fn serve(shared: Arc<ClientShared>, seed: ConnectionSeed) -> Box<Serve> {
    let connect = move |request: HttpRequest| {
        let upgraded = actors::socket::upgrade(
            Arc::clone(&shared),
            seed,
            Box::new(crate::wire::Unlimited(())),
            &request,
        );
        async { upgraded }
    };
    let routes = |service: &mut ServiceConfig| {
        service.route("/", web::get().to(connect));
    };
    let service = actors::socket::service(&options(), routes).new_service(()).await.unwrap();
    Box::new(move |stream, address| {
        let served = service.call((stream, Some(address), Arc::default()));
        // How a connection ends is for its peer to see.
        spawn(async { drop(served.await) })
    })
}

pub(crate) fn options() -> HttpOptions {
    HttpOptions {
        headers_timeout: Duration::from_secs(5),
        keep_alive: Duration::from_secs(75),
        linger: LINGER,
        allows_half_closed: true,
        bad_request: str::to_owned,
        stopping: None,
    }
}
