//! How many browsers run at a time.

use std::sync::{Condvar, Mutex, PoisonError};

/// More delay each other.
const BROWSERS_MAX: usize = 2;

static RUNNING: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

/// The turn of a test to run a browser, until it is dropped.
pub(crate) struct Turn(());

impl Turn {
    /// Waits until one of the others has ended.
    pub(crate) fn wait() -> Self {
        let (running, ended) = &RUNNING;
        let running = running.lock().unwrap_or_else(PoisonError::into_inner);
        let running = ended.wait_while(running, |running| *running == BROWSERS_MAX);
        *running.unwrap_or_else(PoisonError::into_inner) += 1;
        Self(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let (running, ended) = &RUNNING;
        *running.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ended.notify_one();
    }
}
