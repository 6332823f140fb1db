//! What `/proc` has of memory and the machine.

use std::fs::read_to_string;
use std::process;
use std::thread::available_parallelism;

use serde::Serialize;

use crate::shared::usage::resident_kib;

/// Memory at one time, in KiB.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Memory {
    /// Resident memory of the server.
    pub(crate) server_kib: u64,
    /// Resident memory of the agents' process.
    pub(crate) agents_kib: u64,
    /// The kernel's objects: sockets, files and polls of both ends.
    pub(crate) slab_kib: u64,
    /// Buffers of all TCP sockets, of both ends.
    pub(crate) tcp_kib: u64,
    /// What is left for all programs.
    pub(crate) available_kib: u64,
}

/// The machine that was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    pub(crate) memory_mib: u64,
}

impl Memory {
    pub(crate) fn of(server: u32) -> Self {
        let [server_kib, agents_kib] =
            [server, process::id()].map(|pid| resident_kib(pid).map_or(0, |kib| kib as u64));
        let (memory, sockets) = (read("/proc/meminfo"), read("/proc/net/sockstat"));
        let page_kib = number_after(&read("/proc/self/smaps"), "KernelPageSize:").unwrap_or(4);
        let tcp = sockets.lines().find_map(|line| line.strip_prefix("TCP:")).unwrap_or_default();
        Self {
            server_kib,
            agents_kib,
            slab_kib: number_after(&memory, "\nSlab:").unwrap_or_default(),
            tcp_kib: number_after(tcp, " mem ").unwrap_or_default() * page_kib,
            available_kib: number_after(&memory, "MemAvailable:").unwrap_or_default(),
        }
    }

    pub(crate) fn available_kib() -> u64 {
        number_after(&read("/proc/meminfo"), "MemAvailable:").unwrap_or(u64::MAX)
    }
}

impl Machine {
    pub(crate) fn this() -> Self {
        Self {
            cores: available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory_mib: number_after(&read("/proc/meminfo"), "MemTotal:").unwrap_or_default()
                / 1024,
        }
    }
}

/// The text of a file; empty if there is none.
fn read(path: &str) -> String {
    read_to_string(path).unwrap_or_default()
}

fn number_after(text: &str, name: &str) -> Option<u64> {
    let (_, rest) = text.split_once(name)?;
    rest.split_whitespace().next()?.parse().ok()
}
