//! Kills, stops and restarts one node in its own thread, because starting and ending a process
//! blocks.

use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use actix_web::rt::System;
use tokio::sync::mpsc::UnboundedSender;

use super::plan::{NodeAction, NodeActionKind};
use crate::harness::Server;

/// Carries out the planned actions of one node.
pub(super) struct NodeDriver {
    pub(super) server: Server,
    /// The index of the node, if it is a connection node.
    pub(super) connect: Option<usize>,
    pub(super) actions: Vec<NodeAction>,
    pub(super) began: Instant,
    pub(super) events: UnboundedSender<NodeEvent>,
    /// Receives nothing; the sender is dropped at the end of the run.
    pub(super) run: Receiver<()>,
}

/// What happened to a node. `connect` is its index if it is a connection node.
#[derive(Debug, Clone, Copy)]
pub(super) enum NodeEvent {
    /// The node is killed at this time.
    Killed { connect: Option<usize>, at: Instant },
    /// The node is stopped at this time.
    Stopped { connect: Option<usize>, at: Instant },
    /// The node was continued with SIGCONT.
    Continued { connect: Option<usize>, at: Instant },
    /// The node received SIGTERM and ended.
    Ended { signalled_at: Instant, at: Instant, status: ExitStatus },
    /// A start failed because the process ended.
    DidNotStart,
}

/// Maximum time from SIGTERM to the end of a node.
const END_WAIT: Duration = Duration::from_secs(30);

/// Maximum time until a node has restarted with a store that is up now and then.
const START_WAIT: Duration = Duration::from_secs(60);

/// The interval between two attempts to start a node.
const START_AGAIN: Duration = Duration::from_millis(300);

impl NodeDriver {
    /// Carries out all actions and returns the running node.
    pub(super) fn run(mut self) -> Server {
        for action in std::mem::take(&mut self.actions) {
            if !self.wait_until(self.began + action.at) {
                break;
            }
            match action.kind {
                NodeActionKind::Kill => self.kill(action.lasts),
                NodeActionKind::Terminate => self.terminate(action.lasts),
                NodeActionKind::Stop => self.stop(action.lasts),
            }
        }
        self.server
    }

    fn kill(&mut self, lasts: Duration) {
        self.describe(NodeEvent::Killed { connect: self.connect, at: Instant::now() });
        self.server.kill();
        self.wait_until(Instant::now() + lasts);
        self.start();
    }

    fn terminate(&mut self, lasts: Duration) {
        let signalled_at = Instant::now();
        self.server.signal("TERM");
        let status = System::new().block_on(self.server.ended_within(END_WAIT));
        self.describe(NodeEvent::Ended { signalled_at, at: Instant::now(), status });
        self.wait_until(Instant::now() + lasts);
        self.start();
    }

    fn stop(&mut self, lasts: Duration) {
        self.describe(NodeEvent::Stopped { connect: self.connect, at: Instant::now() });
        self.server.signal("STOP");
        self.wait_until(Instant::now() + lasts);
        self.server.signal("CONT");
        self.describe(NodeEvent::Continued { connect: self.connect, at: Instant::now() });
    }

    /// Starts the node until it succeeds, like a service manager.
    fn start(&mut self) {
        let until = Instant::now() + START_WAIT;
        while let Err(not_started) = self.server.try_restart() {
            assert!(Instant::now() < until, "not within {START_WAIT:?}: {not_started}");
            self.describe(NodeEvent::DidNotStart);
            self.wait_until(Instant::now() + START_AGAIN);
        }
    }

    /// Waits, and returns whether the run goes on.
    fn wait_until(&self, at: Instant) -> bool {
        let wait = at.saturating_duration_since(Instant::now());
        self.run.recv_timeout(wait) == Err(RecvTimeoutError::Timeout)
    }

    fn describe(&self, events: NodeEvent) {
        // Fails after the end of the run.
        let _ = self.events.send(events);
    }
}
