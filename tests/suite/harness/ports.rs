//! Ports for programs that start later, or again: the kernel gives none of them to a client meanwhile, and no other test
//! program takes them.

use std::env::temp_dir;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process;

use parking_lot::Mutex;

/// The lowest port that is taken.
const FIRST: u16 = 10_000;

/// Ports that a test program reserves at once.
const BLOCK: u16 = 64;

/// The range from which Linux takes the ports of clients.
const CLIENTS: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// What this test program has reserved.
struct Reserved {
    /// The locks of its blocks. They end with the process, also when it is killed.
    locks: Vec<File>,
    left: Vec<u16>,
}

/// A free port on the loopback interface, which nobody else gets while this test program runs.
pub(crate) fn free_port() -> SocketAddr {
    static RESERVED: Mutex<Reserved> = Mutex::new(Reserved { locks: Vec::new(), left: Vec::new() });
    let mut reserved = RESERVED.lock();
    loop {
        let Some(port) = reserved.left.pop() else {
            let (lock, ports) = block();
            reserved.locks.push(lock);
            reserved.left = ports;
            continue;
        };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// Locks a block of ports. The search begins elsewhere in each process.
fn block() -> (File, Vec<u16>) {
    let range = fs::read_to_string(CLIENTS).expect("the machine runs Linux");
    let first = range.split_whitespace().next().and_then(|first| first.parse::<u16>().ok());
    let blocks = first.expect("the range has two numbers").saturating_sub(FIRST) / BLOCK;
    let begin = (process::id() % u32::from(blocks.max(1))) as u16;
    (0..blocks)
        .map(|number| (begin + number) % blocks)
        .find_map(|number| {
            let path = temp_dir().join(format!("kalends-tests-ports-{number}"));
            let lock = File::create(path).ok()?;
            lock.try_lock().ok()?;
            let ports = FIRST + number * BLOCK..FIRST + (number + 1) * BLOCK;
            Some((lock, ports.collect()))
        })
        .expect("a block of ports below those of clients is free")
}
