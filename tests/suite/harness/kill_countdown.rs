//! kill -9 after a given number of steps.

use std::cell::Cell;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use super::Server;
use super::program::child;

/// Kills a server after some steps, from its own thread, so that the server is still processing the
/// last one.
pub(crate) struct KillCountdown {
    left: Cell<usize>,
    kill: Sender<()>,
}

impl KillCountdown {
    /// Prepares to kill the server at the step with this number.
    pub(crate) fn of(server: &Server, steps: usize) -> Self {
        let (kill, fired) = channel();
        let pid = server.pid().to_string();
        thread::spawn(move || {
            // If the countdown was dropped before its end, the server lives on.
            if fired.recv().is_ok() {
                let status = child("kill").args(["-s", "KILL", &pid]).status();
                assert!(status.expect("kill can be run").success());
            }
        });
        Self { left: Cell::new(steps), kill }
    }

    /// Counts one step; the last one kills the server.
    pub(crate) fn step(&self) {
        self.left.set(self.left.get().wrapping_sub(1));
        if self.left.get() == 0 {
            self.kill.send(()).expect("the thread waits for it");
        }
    }
}
