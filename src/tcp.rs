//! TCP options of the server's ports, public and router.

use std::any::Any;
use std::time::Duration;

use actix_web::rt::net::TcpStream;
use socket2::SockRef;

/// Time for which an idle HTTP connection is kept. It is longer than that of the clients between
/// nodes (`node_connection_idle_s`), so that none sends a request on a connection just closed.
pub const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// Time for which a socket is read after the last response or close frame. Firefox waits for the
/// end of TCP after a close frame, and a client that is rejected before it has sent its body
/// should still receive the reason.
///
/// actix-http counts from a clock that it reads every 500 ms, and misses a deadline that is already
/// over when it is set: the socket would stay open. So the time is well above that. In practice it
/// lasts for half of it to all of it.
pub const LINGER: Duration = Duration::from_secs(1);

/// Sets the options of a connection; to be called from `on_connect`. A connection whose sent bytes
/// stay unacknowledged for `user_timeout` is closed.
pub fn set_options(io: &dyn Any, user_timeout: Duration) {
    if let Some(stream) = io.downcast_ref::<TcpStream>() {
        let socket = SockRef::from(stream);
        let _ = socket.set_tcp_user_timeout(Some(user_timeout));
        let _ = socket.set_tcp_nodelay(true);
    }
}
