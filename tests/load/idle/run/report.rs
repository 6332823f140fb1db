//! The figures of a run: a JSON object for programs, a table for people.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::Plan;
use super::machine::{Machine, Memory};
use super::pushes::Push;

/// All figures of a run. CPU is that of the server, and `each` means for each agent.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    measured_at_unix_s: u64,
    machine: Machine,
    pub(crate) agents: usize,
    connecting_max: usize,
    pushes_per_second: usize,
    serve_args: String,
    pub(crate) accepting: Accepting,
    /// Before the first agent, when the server has settled.
    before: Memory,
    pub(crate) each: Each,
    pub(crate) idle: Idle,
    pub(crate) pushes: PushReport,
    pub(crate) restart: Restart,
    pub(crate) idle_after_restart: Idle,
    /// Connections of present agents that ended before and after the restart.
    pub(crate) closed: u64,
}

/// The first connect of all agents, until the last one has its channel.
#[derive(Debug, Serialize)]
pub(crate) struct Accepting {
    pub(crate) seconds: f64,
    pub(crate) cpu_s: f64,
    pub(crate) refused: u64,
    /// Agents that connected first, and the memory when they were connected and the server had settled.
    pub(crate) first_agents: usize,
    pub(crate) first_memory: Memory,
}

/// What one more agent takes. Memory is the growth over the agents after the first ones; none if it is not above 0.
#[derive(Debug, Serialize)]
pub(crate) struct Each {
    pub(crate) server_kib: Option<f64>,
    /// Objects and buffers of the kernel, for both ends of the connection.
    pub(crate) kernel_kib: Option<f64>,
    /// The process of the agents, their endpoints included.
    pub(crate) agent_kib: Option<f64>,
    /// All of it, by what is left for other programs, with the data of the server if its files are in memory.
    pub(crate) machine_kib: Option<f64>,
    pub(crate) accept_cpu_us: f64,
    pub(crate) back_cpu_us: f64,
    pub(crate) idle_cpu_ms_per_hour: f64,
    /// At the interval of the run; none without pings.
    pub(crate) pinged_cpu_ms_per_hour: Option<f64>,
    /// None without pings, and if it is not above 0.
    pub(crate) cpu_us_per_ping: Option<f64>,
    /// Of each push, not of each agent.
    pub(crate) push_cpu_us: f64,
}

/// A phase in which nothing is pushed.
#[derive(Debug, Serialize)]
pub(crate) struct Idle {
    pub(crate) ping_s: u64,
    pub(crate) seconds: f64,
    pub(crate) pings: u64,
    pub(crate) cpu_s: f64,
    /// At the end of the phase.
    pub(crate) memory: Memory,
}

/// Pushes to random agents.
#[derive(Debug, Serialize)]
pub(crate) struct PushReport {
    pub(crate) sent: usize,
    /// Those that were answered 201.
    pub(crate) accepted: usize,
    pub(crate) arrived: usize,
    /// Accepted and not arrived.
    pub(crate) missing: usize,
    pub(crate) cpu_s: f64,
    pub(crate) to_201_ms: Percentiles,
    pub(crate) to_frame_ms: Percentiles,
    pub(crate) memory: Memory,
}

#[derive(Debug, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

/// SIGTERM, the end of the process, its start, and the return of all agents.
#[derive(Debug, Serialize)]
pub(crate) struct Restart {
    pub(crate) stop_s: f64,
    pub(crate) start_s: f64,
    /// From the moment when the server listens, until the last agent was answered; the CPU time, too.
    pub(crate) back_s: f64,
    pub(crate) cpu_s: f64,
    /// Attempts that were refused.
    pub(crate) refused: u64,
    /// Agents that had to register again.
    pub(crate) forgotten: u64,
}

impl Report {
    pub(crate) fn new(
        plan: &Plan,
        before: Memory,
        accepting: Accepting,
        [idle, idle_after_restart]: [Idle; 2],
        pushes: PushReport,
        restart: Restart,
        closed: u64,
    ) -> Self {
        let idles = [&idle, &idle_after_restart];
        let each = Each::new(plan, &accepting, idles, &pushes, &restart);
        Self {
            measured_at_unix_s: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            machine: Machine::this(),
            agents: plan.agents,
            connecting_max: plan.connecting_max,
            pushes_per_second: plan.pushes_per_second,
            serve_args: plan.arguments.join(" "),
            accepting,
            before,
            each,
            idle,
            pushes,
            restart,
            idle_after_restart,
            closed,
        }
    }
}

impl Each {
    fn new(
        plan: &Plan,
        accepting: &Accepting,
        [idle, without_pings]: [&Idle; 2],
        pushes: &PushReport,
        restart: &Restart,
    ) -> Self {
        let agents = plan.agents as f64;
        let others = plan.agents - accepting.first_agents;
        let kib = |first: u64, all: u64| above_zero((all as f64 - first as f64) / others as f64);
        let (first, all) = (&accepting.first_memory, &idle.memory);
        let ms_per_hour = |idle: &Idle| idle.cpu_s / idle.seconds * 3600.0 * 1000.0 / agents;
        let of_pings_s = idle.cpu_s - without_pings.cpu_s / without_pings.seconds * idle.seconds;
        Self {
            server_kib: kib(first.server_kib, all.server_kib),
            kernel_kib: kib(first.slab_kib + first.tcp_kib, all.slab_kib + all.tcp_kib),
            agent_kib: kib(first.agents_kib, all.agents_kib),
            machine_kib: kib(all.available_kib, first.available_kib),
            accept_cpu_us: accepting.cpu_s * 1e6 / agents,
            back_cpu_us: restart.cpu_s * 1e6 / agents,
            idle_cpu_ms_per_hour: ms_per_hour(without_pings),
            pinged_cpu_ms_per_hour: (idle.ping_s > 0).then(|| ms_per_hour(idle)),
            cpu_us_per_ping: above_zero(of_pings_s * 1e6 / idle.pings as f64),
            push_cpu_us: pushes.cpu_s * 1e6 / pushes.sent.max(1) as f64,
        }
    }
}

/// A value that was measured: noise may exceed what one agent takes, and then the difference is no figure.
fn above_zero(value: f64) -> Option<f64> {
    (value.is_finite() && value > 0.0).then_some(value)
}

impl PushReport {
    pub(crate) fn new(all: &[Push], cpu_s: f64, memory: Memory) -> Self {
        let accepted = || all.iter().filter(|push| matches!(push.answer, Some((201, _))));
        Self {
            sent: all.len(),
            accepted: accepted().count(),
            arrived: all.iter().filter(|push| push.arrived_us.is_some()).count(),
            missing: accepted().filter(|push| push.arrived_us.is_none()).count(),
            cpu_s,
            to_201_ms: Percentiles::of(accepted().filter_map(|push| Some(push.answer?.1))),
            to_frame_ms: Percentiles::of(all.iter().filter_map(|push| push.arrived_us)),
            memory,
        }
    }
}

impl Percentiles {
    /// Those of durations in µs; 0 if there are none.
    fn of(durations_us: impl Iterator<Item = u32>) -> Self {
        let mut sorted: Vec<_> = durations_us.collect();
        sorted.sort_unstable();
        let at = |permille: usize| {
            let at = (sorted.len() * permille / 1000).min(sorted.len().saturating_sub(1));
            f64::from(sorted.get(at).copied().unwrap_or_default()) / 1000.0
        };
        Self { p50: at(500), p99: at(990), p999: at(999), max: at(1000) }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { agents, accepting, each, idle, pushes, restart, .. } = self;
        let Machine { cores, kernel, memory_mib } = &self.machine;
        let measured = |value: Option<f64>, digits: usize| {
            value.map_or("not measurable".to_owned(), |value| format!("{value:.digits$}"))
        };
        let mut row = |name: &str, value: String| writeln!(f, "| {name} | {value} |");
        row(
            &format!("{cores} cores, {memory_mib} MiB, Linux {kernel}"),
            format!("{agents} agents"),
        )?;
        row("---", "---".to_owned())?;
        row(
            "all accepted, s; CPU of each, µs; refused",
            format!("{:.1}; {:.0}; {}", accepting.seconds, each.accept_cpu_us, accepting.refused),
        )?;
        row(
            "server, resident, MiB without agents, with all",
            format!(
                "{:.1}, {:.1}",
                self.before.server_kib as f64 / 1024.0,
                idle.memory.server_kib as f64 / 1024.0
            ),
        )?;
        let slope = format!("KiB each after the first {}", accepting.first_agents);
        for (of, kib) in [
            ("server, resident", each.server_kib),
            ("kernel, both ends", each.kernel_kib),
            ("agents' process", each.agent_kib),
            ("machine, all of it", each.machine_kib),
        ] {
            row(&format!("{of}, {slope}"), measured(kib, 2))?;
        }
        row("CPU of an idle agent, ms an hour", format!("{:.2}", each.idle_cpu_ms_per_hour))?;
        let pinged = match each.pinged_cpu_ms_per_hour {
            Some(ms) => format!("{ms:.2}; {}; {}", measured(each.cpu_us_per_ping, 1), idle.pings),
            None => "no pings".to_owned(),
        };
        row(&format!("the same with pings at {} s; µs a ping; pings", idle.ping_s), pinged)?;
        row(
            "pushes sent, answered 201, arrived, missing",
            format!("{}, {}, {}, {}", pushes.sent, pushes.accepted, pushes.arrived, pushes.missing),
        )?;
        row("CPU of a push, µs", format!("{:.0}", each.push_cpu_us))?;
        row("POST to 201, ms", pushes.to_201_ms.to_string())?;
        row("POST to frame, ms", pushes.to_frame_ms.to_string())?;
        row(
            "restart: to the end, to the start, all back, s",
            format!("{:.1}, {:.1}, {:.1}", restart.stop_s, restart.start_s, restart.back_s),
        )?;
        row(
            "CPU of each return, µs; refused; registered again",
            format!("{:.0}; {}; {}", each.back_cpu_us, restart.refused, restart.forgotten),
        )?;
        row("connections lost without a restart", self.closed.to_string())
    }
}

impl fmt::Display for Percentiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { p50, p99, p999, max } = self;
        write!(f, "p50 {p50:.2}, p99 {p99:.2}, p999 {p999:.2}, max {max:.2}")
    }
}
