//! What `/proc` says of memory and CPU.

use std::fs::read_to_string;
use std::process;
use std::thread::available_parallelism;

use serde::Serialize;

/// Units of CPU time in `/proc/PID/stat`: `USER_HZ` is 100 on all machines.
const TICKS_PER_S: f64 = 100.0;

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
        let [server, own] = [server, process::id()].map(|pid| read(&format!("/proc/{pid}/status")));
        let (memory, sockets) = (read("/proc/meminfo"), read("/proc/net/sockstat"));
        let page_kib = number_after(&read("/proc/self/smaps"), "KernelPageSize:").unwrap_or(4);
        let tcp = sockets.lines().find_map(|line| line.strip_prefix("TCP:")).unwrap_or_default();
        Self {
            server_kib: number_after(&server, "VmRSS:").unwrap_or_default(),
            agents_kib: number_after(&own, "VmRSS:").unwrap_or_default(),
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

/// CPU time of a process, user and system.
pub(crate) fn cpu_s(pid: u32) -> f64 {
    let stat = read(&format!("/proc/{pid}/stat"));
    // The name in parentheses may contain spaces. The times are fields 14 and 15, the first after it is field 3.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks =
        fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok());
    ticks.sum::<f64>() / TICKS_PER_S
}

/// The text of a file; empty if there is none.
fn read(path: &str) -> String {
    read_to_string(path).unwrap_or_default()
}

fn number_after(text: &str, name: &str) -> Option<u64> {
    let (_, rest) = text.split_once(name)?;
    rest.split_whitespace().next()?.parse().ok()
}
