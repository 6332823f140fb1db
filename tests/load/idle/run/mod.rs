//! One run: agents connect, are idle, are pushed to, and return after a restart of the server.

mod agent;
mod crowd;
mod frames;
#[path = "../../shared/group.rs"]
mod group;
mod machine;
mod pushes;
mod report;
mod server;
#[path = "../../shared/usage.rs"]
mod usage;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crowd::{Counts, Crowd};
use machine::Memory;
use pushes::SENDERS;
pub(crate) use report::Report;
use report::{Accepting, Idle, PushReport, Restart};
use server::Server;
use usage::CpuTime;

/// An error is a text that gives the cause, and what to do.
pub(crate) type Result<T> = std::result::Result<T, String>;

/// What a run measures, and how.
pub(crate) struct Plan {
    pub(crate) kalends: PathBuf,
    /// More arguments for `kalends serve`.
    pub(crate) arguments: Vec<String>,
    /// The data directory, instead of an empty one.
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) agents: usize,
    /// Agents that connect at once.
    pub(crate) connecting_max: usize,
    /// Silence of an agent after which the server pings it; 0 is no ping.
    pub(crate) ping_s: u64,
    pub(crate) pushes_per_second: usize,
    /// Duration of each phase.
    pub(crate) seconds: u64,
    /// Becomes true after a signal. The run then ends soon with an error.
    pub(crate) interrupted: Arc<AtomicBool>,
}

impl Plan {
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    fn check_interrupted(&self) -> Result<()> {
        if self.is_interrupted() { Err("interrupted".to_owned()) } else { Ok(()) }
    }
}

/// Files of a server beside its connections; the agents' process needs fewer.
const FILES_RESERVED: u64 = 512;

/// The usual bound of a limit of open files.
const NR_OPEN_USUAL: u64 = 1_048_576;

/// Memory of server, agents and kernel for each agent, rounded up. Data and its cache need more.
const KIB_PER_AGENT: u64 = 13;

/// Longest wait for something to do, so that phases end on time.
const TURN: Duration = Duration::from_millis(20);

/// Agents that connect first, or a tenth if that is more, and at most half. They use the memory that is free from the
/// start, so that memory is measured from there.
const FIRST_AGENTS_MIN: usize = 3000;

/// Interval between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(5);

/// Time in s before an idle phase, for what the server does after connects.
const SETTLING_S: u64 = 10;

/// A phase in which nothing changes for this long has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs the whole plan. No process and no temporary folder is left, in case of an error too.
pub(crate) fn measure(plan: &Plan) -> Result<Report> {
    let mut phase = 1;
    measure_phases(plan, &mut phase).map_err(|error| match plan.is_interrupted() {
        true => format!("interrupted in phase {phase}, nothing was written"),
        false => error,
    })
}

fn measure_phases(plan: &Plan, phase: &mut u8) -> Result<Report> {
    check_memory(plan.agents, Memory::available_kib())?;
    check_files(plan.agents, raise_open_files(files_for(plan.agents)))?;
    let server = Server::start(plan)?;
    let crowd = Crowd::new(plan.agents, plan.connecting_max, server.address)?;
    let mut run = Run { plan, server, crowd, phase };
    let before = run.settled_memory()?;
    let accepting = run.accept()?;
    *run.phase = 2;
    let idle = run.idle(plan.ping_s)?;
    *run.phase = 3;
    let pushes = run.push()?;
    *run.phase = 4;
    let restart = run.restart()?;
    *run.phase = 5;
    let idle_after_restart = run.idle(0)?;
    let closed = run.crowd.counts.closed;
    Ok(Report::new(plan, before, accepting, [idle, idle_after_restart], pushes, restart, closed))
}

/// A server and its agents.
struct Run<'a> {
    plan: &'a Plan,
    server: Server,
    crowd: Crowd,
    phase: &'a mut u8,
}

impl Run<'_> {
    fn memory(&self) -> Memory {
        Memory::of(self.server.pid())
    }

    /// The memory after what the server does beside its answers.
    fn settled_memory(&mut self) -> Result<Memory> {
        self.pass("settling", SETTLING_S.min(self.plan.seconds), |_| true)?;
        Ok(self.memory())
    }

    fn cpu(&self) -> Result<CpuTime> {
        let cpu = CpuTime::of(self.server.pid());
        cpu.map_err(|error| format!("the CPU time of the server cannot be read: {error}"))
    }

    fn cpu_s_since(&self, earlier: &CpuTime) -> Result<f64> {
        Ok(self.cpu()?.us_since(earlier) / 1e6)
    }

    fn accept(&mut self) -> Result<Accepting> {
        let first_agents = first_agents(self.plan.agents);
        let (first_s, first_cpu_s) = self.connect(first_agents)?;
        let first_memory = self.settled_memory()?;
        let (others_s, others_cpu_s) = self.connect(self.plan.agents - first_agents)?;
        Ok(Accepting {
            seconds: first_s + others_s,
            cpu_s: first_cpu_s + others_cpu_s,
            refused: self.crowd.counts.refused,
            first_agents,
            first_memory,
        })
    }

    /// Connects more agents, and returns the duration and the CPU time in s.
    fn connect(&mut self, agents: usize) -> Result<(f64, f64)> {
        let (begun, cpu) = (Instant::now(), self.cpu()?);
        self.crowd.begin(agents);
        self.all_present("connecting")?;
        Ok((begun.elapsed().as_secs_f64(), self.cpu_s_since(&cpu)?))
    }

    /// Nothing is pushed. What connecting left to do is done when the phase begins, and pings have begun for all agents.
    /// It has at least one ping. With and without pings it is as long, and begins as long after the last connect.
    fn idle(&mut self, ping_s: u64) -> Result<Idle> {
        // Whole intervals have the same number of pings, in whatever order the agents have theirs.
        let seconds = self.plan.seconds.next_multiple_of(self.plan.ping_s.max(1));
        self.pass("settling", self.plan.ping_s.max(SETTLING_S.min(seconds)), |_| true)?;
        let (begun, cpu) = (Instant::now(), self.cpu()?);
        let pings = self.crowd.counts.pings;
        self.pass("idle", seconds, |crowd| ping_s == 0 || crowd.counts.pings > pings)?;
        Ok(Idle {
            ping_s,
            seconds: begun.elapsed().as_secs_f64(),
            pings: self.crowd.counts.pings - pings,
            cpu_s: self.cpu_s_since(&cpu)?,
            memory: self.memory(),
        })
    }

    /// Pushes at the rate of the plan, and waits for what was not answered or has not arrived.
    fn push(&mut self) -> Result<PushReport> {
        let (begun, cpu) = (Instant::now(), self.cpu()?);
        let rate = self.plan.pushes_per_second as f64;
        let all = (rate * self.plan.seconds as f64) as usize;
        let mut progress = Progress::new(*self.phase, "pushes");
        while self.crowd.pushes.all.len() < all || !self.crowd.pushes.is_complete() {
            let due = (begun.elapsed().as_secs_f64() * rate) as usize;
            while self.crowd.pushes.all.len() < due.min(all) {
                self.crowd.push();
            }
            // The next push is due in a moment, and what a poll waits for is rounded up to whole milliseconds.
            self.turn(Duration::from_millis(1))?;
            self.server.check()?;
            progress.show(self.crowd.pushes.all.len(), all, "");
            if progress.is_stuck() {
                break;
            }
        }
        let cpu_s = self.cpu_s_since(&cpu)?;
        Ok(PushReport::new(&self.crowd.pushes.all, cpu_s, self.memory()))
    }

    /// Stops the server and starts it again, with the port and the data it had.
    fn restart(&mut self) -> Result<Restart> {
        let Counts { refused, forgotten, closed, .. } = self.crowd.counts;
        self.crowd.is_open = false;
        let begun = Instant::now();
        self.server.terminate();
        let (mut stop_s, mut progress) = (None, Progress::new(*self.phase, "agents left"));
        while stop_s.is_none() || self.crowd.present > 0 {
            self.turn(TURN)?;
            if stop_s.is_none() && self.server.has_ended() {
                stop_s = Some(begun.elapsed().as_secs_f64());
            }
            progress.show(self.crowd.present, self.plan.agents, "");
            if progress.is_stuck() {
                return Err(format!("the server does not end. {}", self.server.log_tail()));
            }
        }
        self.crowd.counts.closed = closed;
        let begun = Instant::now();
        self.server.start_again(self.plan)?;
        let (start_s, begun, cpu) = (begun.elapsed().as_secs_f64(), Instant::now(), self.cpu()?);
        self.crowd.is_open = true;
        self.all_present("returning")?;
        Ok(Restart {
            stop_s: stop_s.unwrap_or_default(),
            start_s,
            back_s: begun.elapsed().as_secs_f64(),
            cpu_s: self.cpu_s_since(&cpu)?,
            refused: self.crowd.counts.refused - refused,
            forgotten: self.crowd.counts.forgotten - forgotten,
        })
    }

    /// Waits until all agents that have begun are present. It is an error if none becomes so for a while.
    fn all_present(&mut self, what: &'static str) -> Result<()> {
        let (mut progress, refused) = (Progress::new(*self.phase, what), self.crowd.counts.refused);
        while self.crowd.present < self.crowd.begun() {
            self.turn(TURN)?;
            self.server.check()?;
            let refused = self.crowd.counts.refused - refused;
            progress.show(self.crowd.present, self.plan.agents, &format!(", {refused} refused"));
            if progress.is_stuck() {
                return Err(format!(
                    "{} of {} agents are present, and no other for {} s; {} were refused: look at the limits of open \
                    files, net.netfilter.nf_conntrack_max and the log of the server. {}",
                    self.crowd.present,
                    self.plan.agents,
                    PATIENCE.as_secs(),
                    self.crowd.counts.refused,
                    self.server.log_tail()
                ));
            }
        }
        Ok(())
    }

    /// Answers the server for this long, and until the condition is true.
    fn pass(
        &mut self,
        what: &'static str,
        seconds: u64,
        is_done: impl Fn(&Crowd) -> bool,
    ) -> Result<()> {
        let (begun, mut progress) = (Instant::now(), Progress::new(*self.phase, what));
        let duration = Duration::from_secs(seconds);
        while begun.elapsed() < duration || !is_done(&self.crowd) {
            self.turn(TURN)?;
            self.server.check()?;
            progress.show(begun.elapsed().as_secs() as usize, seconds as usize, " s");
            if begun.elapsed() > duration + PATIENCE {
                return Err(format!("the server sent no ping. {}", self.server.log_tail()));
            }
        }
        Ok(())
    }

    fn turn(&mut self, wait: Duration) -> Result<()> {
        self.plan.check_interrupted()?;
        self.crowd.turn(wait)
    }
}

/// Lines on standard error during a long phase.
struct Progress {
    phase: u8,
    what: &'static str,
    shown_at: Instant,
    /// The last count, and when it changed.
    count: usize,
    changed_at: Instant,
}

impl Progress {
    fn new(phase: u8, what: &'static str) -> Self {
        Self { phase, what, shown_at: Instant::now(), count: 0, changed_at: Instant::now() }
    }

    fn show(&mut self, count: usize, all: usize, more: &str) {
        if count != self.count {
            (self.count, self.changed_at) = (count, Instant::now());
        }
        if self.shown_at.elapsed() >= PROGRESS {
            self.shown_at = Instant::now();
            eprintln!("phase {}, {}: {count} of {all}{more}", self.phase, self.what);
        }
    }

    fn is_stuck(&self) -> bool {
        self.changed_at.elapsed() > PATIENCE
    }
}

/// The agents that connect first, of this number.
fn first_agents(agents: usize) -> usize {
    FIRST_AGENTS_MIN.max(agents / 10).min(agents / 2)
}

/// Open files that the server needs. The agents' process needs one less for each of its own.
fn files_for(agents: usize) -> u64 {
    agents as u64 + FILES_RESERVED + SENDERS as u64
}

/// Raises the limit of open files, which the server inherits, and returns it.
fn raise_open_files(needed: u64) -> u64 {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // A privileged process may raise the hard limit too. If it may not, the soft one is raised up to that.
    for maximum in [maximum.map(|maximum| maximum.max(needed)), maximum] {
        if setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok() {
            break;
        }
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

fn check_files(agents: usize, limit: u64) -> Result<()> {
    let needed = files_for(agents);
    if needed <= limit {
        return Ok(());
    }
    let fewer = fewer_agents(limit.saturating_sub(files_for(0)));
    let nr_open = match needed > NR_OPEN_USUAL {
        true => format!("`sysctl -w fs.nr_open={needed}` and "),
        false => String::new(),
    };
    Err(format!(
        "{agents} agents need {needed} open files in a process, and the limit is {limit}: raise it as root with \
        {nr_open}`ulimit -n {needed}`{fewer}"
    ))
}

/// The advice to use as many agents as fit, if any do.
fn fewer_agents(fits: u64) -> String {
    if fits > 0 { format!(", or use --agents {fits}") } else { String::new() }
}

fn check_memory(agents: usize, available_kib: u64) -> Result<()> {
    let needed_kib = agents as u64 * KIB_PER_AGENT;
    if needed_kib <= available_kib {
        return Ok(());
    }
    let fewer = fewer_agents(available_kib / KIB_PER_AGENT);
    Err(format!(
        "{agents} agents need about {} MiB for server, agents and kernel, and {} MiB are available: end other \
        programs{fewer}",
        needed_kib / 1024,
        available_kib / 1024
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_too_low_names_what_fits() {
        assert_eq!(check_files(1000, files_for(1000)), Ok(()));
        let error = check_files(1001, files_for(1000)).unwrap_err();
        assert!(error.ends_with("or use --agents 1000"), "{error}");
        assert_eq!(check_memory(1000, 1000 * KIB_PER_AGENT), Ok(()));
        let error = check_memory(1001, 1000 * KIB_PER_AGENT).unwrap_err();
        assert!(error.ends_with("use --agents 1000"), "{error}");
        for error in [check_files(1, 100), check_memory(1, 0)] {
            let error = error.unwrap_err();
            assert!(!error.contains("--agents"), "{error}");
        }
    }

    #[test]
    fn at_most_half_of_the_agents_connect_first() {
        assert_eq!([1, 200, 19_000, 50_000].map(first_agents), [0, 100, 3000, 5000]);
    }
}
