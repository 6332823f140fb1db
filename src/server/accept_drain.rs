//! A port that closes leaves nobody on its doorstep.
//!
//! The kernel takes connections in before a server does. Those that still wait for the server when the listening socket is
//! closed are reset, with the requests that were sent on them, and their senders cannot know what became of these. So
//! for a moment before, the first packet of each new connection is dropped, and those that wait are taken in. A
//! sender whose packet was dropped tries again by itself after a second, and is refused.

use std::io;
use std::net::TcpListener;
use std::time::Duration;

use socket2::{SockFilter, SockRef};

/// How long a server may take to take in who waits.
pub(super) const WAIT: Duration = Duration::from_millis(100);

/// Where a TCP header has its flags (RFC 9293 §3.1), and which two say that a connection begins.
const FLAGS_AT: u32 = 13;
const SYN: u32 = 0x02;
const ACK: u32 = 0x10;

/// Lets nobody else come.
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
    fn who_was_let_in_is_heard_and_nobody_else_comes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut waits = TcpStream::connect(address).unwrap();
        stop_accepting(&listener).unwrap();
        let late = TcpStream::connect_timeout(&address, Duration::from_millis(300));
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let (mut accepted, _) = listener.accept().unwrap();
        waits.write_all(b"a push").unwrap();
        drop(waits);
        let mut text = String::new();
        accepted.read_to_string(&mut text).unwrap();
        assert_eq!(text, "a push");
        drop(listener);
        let refused = TcpStream::connect_timeout(&address, Duration::from_secs(5)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
