//! What a process uses, as Linux counts it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;

/// The processor time of each thread of a process so far, in ns.
pub(crate) struct CpuTime(BTreeMap<OsString, u64>);

impl CpuTime {
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let mut threads = BTreeMap::new();
        for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
            let thread = thread?;
            // A thread may end meanwhile.
            let Ok(stat) = fs::read_to_string(thread.path().join("schedstat")) else { continue };
            let ns = stat.split(' ').next().and_then(|ns| ns.parse().ok());
            let ns = ns.ok_or_else(|| io::Error::other("the kernel has no schedstat"))?;
            threads.insert(thread.file_name(), ns);
        }
        Ok(Self(threads))
    }

    /// The time since an earlier count, in µs, without that of threads that have ended.
    pub(crate) fn us_since(&self, earlier: &Self) -> f64 {
        let before = |thread| earlier.0.get(thread).copied().unwrap_or_default();
        let ns: u64 = self.0.iter().map(|(thread, ns)| ns.saturating_sub(before(thread))).sum();
        ns as f64 / 1000.0
    }
}

/// The resident memory of a process, in KiB.
pub(crate) fn resident_kib(pid: u32) -> io::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.parse().ok()).ok_or_else(|| io::Error::other("the kernel has no VmRSS"))
}
