//! Runtimes for tests. In one, time stands still until a test advances it; in the other, time is
//! real.
//!
//! Whichever a test runs on, what its clients did is checked at its end, see [`traces`].

use std::cell::RefCell;
use std::fmt::Debug;
use std::future::Future;
use std::sync::mpsc;
use std::time::Duration;

use actix::System;
pub(crate) use clockwork_test::test;
use state_machine::Span;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::{spawn_blocking, yield_now};

use crate::traces;

/// The bound of a test. Only a test that waits for an event that never happens reaches it.
const TEST_MAX: Duration = Duration::from_secs(120);

thread_local! {
    /// What the last wait of the test sees.
    static LAST_WAIT: RefCell<Option<Box<dyn Fn() -> String>>> = const { RefCell::new(None) };
}

/// Turns after which no task makes progress: a message passes at most three mailboxes.
const TURNS: usize = 48;

/// Runs a test on this thread alone, on a clock that only [`pass`] moves.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    run_on(|| new_runtime().start_paused(true).build().unwrap(), test)
}

/// Runs a test on this thread alone, in real time: for stores that are called over a network.
pub(crate) fn run_in_real_time<T>(test: impl Future<Output = T>) -> T {
    run_on(|| new_runtime().build().unwrap(), test)
}

fn new_runtime() -> Builder {
    let mut builder = Builder::new_current_thread();
    builder.enable_all();
    builder
}

fn run_on<T>(runtime: fn() -> Runtime, test: impl Future<Output = T>) -> T {
    traces::begin();
    LAST_WAIT.take();
    let output = System::with_tokio_rt(runtime).block_on(async {
        // While it waits, tokio does not move a clock that stands still to the next timer by
        // itself.
        let (done, is_done) = mpsc::channel::<()>();
        let watchdog = spawn_blocking(move || is_done.recv_timeout(TEST_MAX));
        let output = tokio::select! {
            output = test => output,
            _ = watchdog => {
                let seen = LAST_WAIT.with_borrow(|wait| wait.as_ref().map(|wait| wait()));
                let steps = traces::so_far().last_steps();
                panic!("the test waits for what does not happen; last wait: {seen:?}; last steps: {steps}");
            }
        };
        drop(done);
        output
    });
    if let Err(broken) = traces::so_far().check() {
        panic!("{broken}");
    }
    output
}

/// Looks until it sees what the test waits for, and returns that.
pub(crate) async fn until<T: Debug>(
    what: &str,
    mut look: impl AsyncFnMut() -> T,
    is_it: impl Fn(&T) -> bool,
) -> T {
    loop {
        let seen = look().await;
        if is_it(&seen) {
            return seen;
        }
        let seen = format!("{what}: {seen:?}");
        LAST_WAIT.set(Some(Box::new(move || seen.clone())));
        yield_now().await;
    }
}

/// Waits until a watched value is what the test waits for.
pub(crate) async fn until_watched<T: Debug + 'static>(
    what: &'static str,
    mut watched: watch::Receiver<T>,
    is_it: impl FnMut(&T) -> bool,
) {
    let now = watched.clone();
    LAST_WAIT.set(Some(Box::new(move || format!("{what}: {:?}", *now.borrow()))));
    watched.wait_for(is_it).await.unwrap();
}

/// Advances time, and runs all tasks that are due.
pub(crate) async fn pass(span: Span) {
    tokio::time::advance(Duration::from_millis(span.0)).await;
    settle().await;
}

/// Lets everything happen that needs neither time nor another thread.
pub(crate) async fn settle() {
    for _ in 0..TURNS {
        yield_now().await;
    }
}
