//! The log of the clocks that are wrong: a line for each of them when they change.

use actors::SharedLogLimiter;
use parking_lot::Mutex;
use slog::{Logger, info, warn};
use state_machine::{ClockComparison, ClockDifference, NodeId, Span, Time};

/// Nodes that are named at once, those that differ most. `/health` and the metrics have all.
const NAMED_MAX: usize = 10;

pub(super) struct ClockLog {
    limiter: SharedLogLimiter,
    logged: Mutex<Named>,
    log: Logger,
}

/// Whether there is a majority, and the clocks that differ, each with whether it is behind.
type Named = (bool, Vec<(Option<NodeId>, bool)>);

impl ClockLog {
    pub(super) fn new(log_every: Span, log: Logger) -> Self {
        let logged = Mutex::new((true, Vec::new()));
        Self { limiter: SharedLogLimiter::new(log_every), logged, log }
    }

    /// Whether lines may be written now. Otherwise the news are logged later.
    pub(super) fn allows(&self, now: Time) -> bool {
        self.limiter.count(now).is_some()
    }

    /// Names the clocks that differ, unless these were named last.
    pub(super) fn write(&self, clocks: &ClockComparison) {
        let named = named(clocks);
        let mut logged = self.logged.lock();
        if *logged == named {
            return;
        }
        *logged = named;
        if clocks.differing().next().is_none() {
            info!(self.log, "the clocks of the nodes agree again");
        }
        for clock in clocks.differing().take(NAMED_MAX) {
            let (node, difference_s) = (clock.name(), clock.ahead.seconds());
            match clocks.has_majority {
                true => {
                    warn!(self.log, "the clock of a node is wrong, set it"; "node" => node, "difference_s" => difference_s);
                }
                false => {
                    warn!(self.log, "the clocks of nodes differ, and it is not known which one is wrong: compare them";
                        "node" => node, "difference_s" => difference_s);
                }
            }
        }
    }
}

fn named(clocks: &ClockComparison) -> Named {
    let mut named: Vec<_> = clocks
        .differing()
        .map(|clock| (clock.node.clone(), clock.ahead < ClockDifference::ZERO))
        .collect();
    named.sort_unstable();
    (named.is_empty() || clocks.has_majority, named)
}
