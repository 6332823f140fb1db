//! What is done to a node, by a thread of its own: starting and ending a process takes its time.

use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use actix_web::rt::System;
use tokio::sync::mpsc::UnboundedSender;

use super::plan::{Deed, DeedKind};
use crate::harness::Server;

/// Who does what is planned for one node.
pub(super) struct Minder {
    pub(super) server: Server,
    /// Its number, if it is a connection node.
    pub(super) connect: Option<usize>,
    pub(super) deeds: Vec<Deed>,
    pub(super) began: Instant,
    pub(super) news: UnboundedSender<News>,
    /// Nothing ever comes; where the other end is gone, the run is.
    pub(super) run: Receiver<()>,
}

/// What happened to a node. `connect` is its number, if it is a connection node.
#[derive(Debug, Clone, Copy)]
pub(super) enum News {
    /// It is killed at this moment.
    Died { connect: Option<usize>, at: Instant },
    /// It is stopped at this moment.
    Stopped { connect: Option<usize>, at: Instant },
    /// It goes on.
    WentOn { connect: Option<usize>, at: Instant },
    /// It was told to end, and did.
    Ended { told_at: Instant, at: Instant, status: ExitStatus },
    /// It ended while it started.
    DidNotStart,
}

/// How long a node that was told to end may take.
const END_WAIT: Duration = Duration::from_secs(30);

/// How long it takes at most until a node starts again whose store is there now and then.
const START_WAIT: Duration = Duration::from_secs(60);

/// What starts a node that ended by itself waits so long before it tries again.
const START_AGAIN: Duration = Duration::from_millis(300);

impl Minder {
    /// Does all that is planned; gives the node back, which runs.
    pub(super) fn mind(mut self) -> Server {
        for deed in std::mem::take(&mut self.deeds) {
            if !self.wait_until(self.began + deed.at) {
                break;
            }
            match deed.kind {
                DeedKind::Kill => self.kill(deed.lasts),
                DeedKind::Terminate => self.terminate(deed.lasts),
                DeedKind::Stop => self.stop(deed.lasts),
            }
        }
        self.server
    }

    fn kill(&mut self, lasts: Duration) {
        self.tell(News::Died { connect: self.connect, at: Instant::now() });
        self.server.kill();
        self.wait_until(Instant::now() + lasts);
        self.start();
    }

    fn terminate(&mut self, lasts: Duration) {
        let told_at = Instant::now();
        self.server.signal("TERM");
        let status = System::new().block_on(self.server.ended_within(END_WAIT));
        self.tell(News::Ended { told_at, at: Instant::now(), status });
        self.wait_until(Instant::now() + lasts);
        self.start();
    }

    fn stop(&mut self, lasts: Duration) {
        self.tell(News::Stopped { connect: self.connect, at: Instant::now() });
        self.server.signal("STOP");
        self.wait_until(Instant::now() + lasts);
        self.server.signal("CONT");
        self.tell(News::WentOn { connect: self.connect, at: Instant::now() });
    }

    /// Starts it again and again, as a service manager does.
    fn start(&mut self) {
        let until = Instant::now() + START_WAIT;
        while let Err(not_started) = self.server.try_restart() {
            assert!(Instant::now() < until, "not within {START_WAIT:?}: {not_started}");
            self.tell(News::DidNotStart);
            self.wait_until(Instant::now() + START_AGAIN);
        }
    }

    /// Waits. Answers whether the run goes on.
    fn wait_until(&self, at: Instant) -> bool {
        let wait = at.saturating_duration_since(Instant::now());
        self.run.recv_timeout(wait) == Err(RecvTimeoutError::Timeout)
    }

    fn tell(&self, news: News) {
        // Where the run is over, nobody listens.
        let _ = self.news.send(news);
    }
}
