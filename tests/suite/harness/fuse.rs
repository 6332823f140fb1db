//! kill -9 in the middle of something.

use std::cell::Cell;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use super::Server;

/// Counts down to a kill -9, which comes from a thread of its own: the server is still at whatever
/// the test had it do.
pub(crate) struct Fuse {
    left: Cell<usize>,
    kill: Sender<()>,
}

impl Fuse {
    /// Kills the server after so many steps.
    pub(crate) fn of(server: &Server, steps: usize) -> Self {
        let (kill, burnt) = channel();
        let pid = server.pid().to_string();
        thread::spawn(move || {
            // A fuse that was dropped before its end kills nobody.
            if burnt.recv().is_ok() {
                let status = Command::new("kill").args(["-s", "KILL", &pid]).status();
                assert!(status.expect("kill can be run").success());
            }
        });
        Self { left: Cell::new(steps), kill }
    }

    /// One step.
    pub(crate) fn burn(&self) {
        self.left.set(self.left.get().wrapping_sub(1));
        if self.left.get() == 0 {
            self.kill.send(()).expect("the thread waits for it");
        }
    }
}
