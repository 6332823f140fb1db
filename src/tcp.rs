//! Options of accepted TCP connections.

use std::any::Any;
use std::time::Duration;

use actix_web::rt::net::TcpStream;
use socket2::SockRef;

/// Sets the options of a connection; to be called from `on_connect`. A connection whose sent bytes
/// stay unacknowledged for `user_timeout` is closed.
pub fn set_options(io: &dyn Any, user_timeout: Duration) {
    if let Some(stream) = io.downcast_ref::<TcpStream>() {
        let socket = SockRef::from(stream);
        // The options of a connection that is closed already do not matter.
        let _ = socket.set_tcp_user_timeout(Some(user_timeout));
        let _ = socket.set_tcp_nodelay(true);
    }
}
