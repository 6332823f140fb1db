//! What the kernel knows of this process. Other systems than Linux have none of it.

use std::fs::{metadata, read_dir, read_to_string};

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// The process at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessState {
    /// Seconds of processor time, of all threads.
    pub(super) cpu_s: u64,
    /// Resident memory in bytes.
    pub(super) resident_bytes: u64,
    /// When the process started, in seconds since 1970.
    pub(super) started_at_s: u64,
    pub(super) open_files: usize,
}

/// Reads the state of this process from `/proc`.
pub(super) fn read() -> Option<ProcessState> {
    let (of_process, of_system) = (read_to_string("/proc/self/stat"), read_to_string("/proc/stat"));
    let units = (clock_ticks_per_second(), u64::try_from(page_size()).ok()?);
    parse(&of_process.ok()?, &of_system.ok()?, units, open_files()?)
}

/// The number of open files at which no further one is opened.
pub(super) fn open_files_max() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// The memory in bytes that this process and those of its unit or container may use, and what sets that.
pub(super) fn memory_max() -> Option<(u64, &'static str)> {
    let of_process = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let path = of_process.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    let limit = read_to_string(format!("/sys/fs/cgroup{path}/memory.max")).unwrap_or_default();
    match limit.trim().parse() {
        Ok(limit) => Some((limit, "MemoryMax of the unit")),
        Err(_) => Some((machine_memory(&read_to_string("/proc/meminfo").ok()?)?, "the machine")),
    }
}

fn machine_memory(info: &str) -> Option<u64> {
    let line = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// The size of the directory, since Linux 6.2. Reading the directory takes a microsecond for each file.
fn open_files() -> Option<usize> {
    let size = metadata("/proc/self/fd").ok()?.len();
    match usize::try_from(size).ok()? {
        // The directory that is read is open itself.
        0 => Some(read_dir("/proc/self/fd").ok()?.count().saturating_sub(1)),
        files => Some(files),
    }
}

/// The fields are numbered as in proc(5). The second one, the name of the process, may contain spaces.
fn parse(
    of_process: &str,
    of_system: &str,
    (ticks_per_s, page_bytes): (u64, u64),
    open_files: usize,
) -> Option<ProcessState> {
    let (_, from_third) = of_process.rsplit_once(')')?;
    let fields: Vec<_> = from_third.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let booted_at_s = of_system.lines().find_map(|line| line.strip_prefix("btime "))?;
    Some(ProcessState {
        cpu_s: (field(14)? + field(15)?) / ticks_per_s,
        resident_bytes: field(24)? * page_bytes,
        started_at_s: booted_at_s.trim().parse::<u64>().ok()? + field(22)? / ticks_per_s,
        open_files,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_those_of_the_manual_whatever_the_name_of_the_process_is() {
        let of_process = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 1250 350 0 0 20 0 4 0 6000 99999999 2560 18446744073709551615 1";
        let state = parse(of_process, "cpu 1 2\nbtime 1700000000\n", (100, 4096), 12);
        let expected = ProcessState {
            cpu_s: 16,
            resident_bytes: 2560 * 4096,
            started_at_s: 1_700_000_060,
            open_files: 12,
        };
        assert_eq!(state, Some(expected));
        assert_eq!(parse("7 (a) S 1", "btime 1\n", (100, 4096), 12), None);
        let info = "MemTotal:       16384000 kB\nMemFree:         1000000 kB\n";
        assert_eq!(machine_memory(info), Some(16_384_000 << 10));
        assert_eq!(machine_memory("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn this_process_is_there() {
        let state = read().unwrap();
        assert!(state.resident_bytes > 1 << 20 && state.open_files >= 3, "{state:?}");
        assert!(memory_max().unwrap().0 > state.resident_bytes);
        assert!(open_files_max().unwrap() > state.open_files as u64);
    }
}
