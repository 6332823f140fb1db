//! What a connection is used for, as its port sees it, which closes idle ones when it is nearly full.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::Context;

use futures_util::task::AtomicWaker;

/// It waits for a handshake or a request.
const IDLE: u8 = 0;
/// It has a request.
const ASKED: u8 = 1;
/// It is a WebSocket or an endless body.
const TAKEN: u8 = 2;
/// It is idle, and is to be closed.
const CLOSING: u8 = 3;

/// The use of a connection. Its thread and the port share it.
#[derive(Default)]
pub struct ConnectionUse {
    state: AtomicU8,
    has_overspent: AtomicBool,
    connection: AtomicWaker,
}

impl ConnectionUse {
    /// Has the connection closed by its own task, if it is idle.
    pub fn close_if_idle(&self) -> bool {
        let is_idle = self.change(IDLE, CLOSING);
        if is_idle {
            self.connection.wake();
        }
        is_idle
    }

    pub fn is_idle(&self) -> bool {
        self.state() == IDLE
    }

    /// Whether the connection was told to close, and is not closed yet.
    pub fn is_closing(&self) -> bool {
        self.state() == CLOSING
    }

    /// Whether the connection must end. The task is woken when it must.
    pub fn poll_must_close(&self, cx: &Context<'_>) -> bool {
        if self.state() == TAKEN {
            return false;
        }
        self.connection.register(cx.waker());
        self.is_closing()
    }

    /// Whether it ended because it made too much work.
    pub fn has_overspent(&self) -> bool {
        self.has_overspent.load(Ordering::Relaxed)
    }

    pub(super) fn overspend(&self) {
        self.has_overspent.store(true, Ordering::Relaxed);
    }

    pub(super) fn begin_request(&self) {
        self.change(IDLE, ASKED);
    }

    pub(super) fn end_request(&self) {
        self.change(ASKED, IDLE);
    }

    /// The connection is no HTTP from now on.
    pub(super) fn take(&self) {
        self.change(IDLE, TAKEN);
        self.change(ASKED, TAKEN);
    }

    fn state(&self) -> u8 {
        self.state.load(Ordering::Acquire)
    }

    fn change(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn only_an_idle_connection_is_closed() {
        let cx = Context::from_waker(Waker::noop());
        let (idle, asked, taken) =
            (ConnectionUse::default(), ConnectionUse::default(), ConnectionUse::default());
        for begun in [&asked, &taken] {
            begun.begin_request();
            assert!(!begun.close_if_idle());
        }
        taken.take();
        taken.end_request();
        assert!(!taken.close_if_idle() && !taken.poll_must_close(&cx));
        asked.end_request();
        for closed in [&idle, &asked] {
            assert!(!closed.poll_must_close(&cx) && closed.is_idle());
            assert!(closed.close_if_idle() && !closed.close_if_idle());
            closed.begin_request();
            assert!(closed.poll_must_close(&cx), "a request that comes too late keeps none open");
        }
    }
}
