//! Ports for programs that start later, or again: the kernel gives none of them to a client meanwhile.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The lowest port that is taken.
const FIRST: u16 = 10_000;

/// The range from which Linux takes the ports of clients.
const CLIENTS: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// Test programs that run at the same time begin this many ports apart, or a multiple of it.
const APART: usize = 401;

/// A free port on the loopback interface, which no other test of this program gets.
pub(crate) fn free_port() -> SocketAddr {
    static COUNT: LazyLock<usize> = LazyLock::new(|| {
        let range = fs::read_to_string(CLIENTS).expect("the machine runs Linux");
        let first = range.split_whitespace().next().and_then(|first| first.parse().ok());
        usize::from(u16::saturating_sub(first.expect("the range has two numbers"), FIRST))
    });
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let begin = process::id() as usize * APART;
    (0..*COUNT)
        .map(|_| {
            let place = (begin + NEXT.fetch_add(1, Ordering::Relaxed)) % *COUNT;
            SocketAddr::from((Ipv4Addr::LOCALHOST, FIRST + place as u16))
        })
        .find(|address| TcpListener::bind(address).is_ok())
        .expect("a port below those of clients is free")
}
