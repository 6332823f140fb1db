//! Closes a port without resetting connections that the server has not accepted yet.
//!
//! The kernel completes connections before the server accepts them. Closing the listening socket
//! resets those in its backlog with the requests sent on them, and their clients cannot know
//! whether these were processed. So a filter first drops the SYN of each new connection, and for
//! [`WAIT`] the server accepts the backlog. A client whose SYN was dropped retransmits it after a
//! second and is then refused.

use std::io;
use std::net::TcpListener;
use std::time::Duration;

use socket2::{SockFilter, SockRef};

/// Time for the server to accept the backlog.
pub(super) const WAIT: Duration = Duration::from_millis(100);

/// Offset of the flags in a TCP header (RFC 9293 §3.1). SYN without ACK opens a connection.
const FLAGS_AT: u32 = 13;
const SYN: u32 = 0x02;
const ACK: u32 = 0x10;

/// Drops new connections from now on.
pub(super) fn stop_accepting(listener: &TcpListener) -> io::Result<()> {
    // Classic BPF: load a byte, mask it, compare it, drop the packet or keep all of it.
    let filter = [
        SockFilter::new(0x30, 0, 0, FLAGS_AT),
        SockFilter::new(0x54, 0, 0, SYN | ACK),
        SockFilter::new(0x15, 0, 1, SYN),
        SockFilter::new(0x06, 0, 0, 0),
        SockFilter::new(0x06, 0, 0, u32::MAX),
    ];
    SockRef::from(listener).attach_filter(&filter)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_waiting_connection_is_served_and_a_new_one_is_not_established() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut waiting = TcpStream::connect(address).unwrap();
        stop_accepting(&listener).unwrap();
        let late = TcpStream::connect_timeout(&address, Duration::from_millis(300));
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let (mut accepted, _) = listener.accept().unwrap();
        waiting.write_all(b"a push").unwrap();
        drop(waiting);
        let mut text = String::new();
        accepted.read_to_string(&mut text).unwrap();
        assert_eq!(text, "a push");
        drop(listener);
        let refused = TcpStream::connect_timeout(&address, Duration::from_secs(5)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
