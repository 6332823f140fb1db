//! A runtime whose time stands still until a test moves it.

use std::future::Future;
use std::sync::mpsc;
use std::time::Duration;

use actix::System;
use state_machine::Span;
use tokio::runtime::Builder;
use tokio::task::{spawn_blocking, yield_now};

/// How long a test may take. Only a test that waits for what never comes gets there.
const TEST_MAX: Duration = Duration::from_secs(30);

/// Turns in which everything that can go on has gone on: a message passes three mailboxes at most.
const TURNS: usize = 48;

/// Runs a test on this thread alone, on a clock that only [`pass`] moves.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = || Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    System::with_tokio_rt(runtime).block_on(async {
        // While it waits, tokio does not move the clock to the next timer by itself.
        let (done, is_done) = mpsc::channel::<()>();
        let watchdog = spawn_blocking(move || is_done.recv_timeout(TEST_MAX));
        let output = tokio::select! {
            output = test => output,
            _ = watchdog => panic!("the test waits for what does not come"),
        };
        drop(done);
        output
    })
}

/// Lets time go by, and everything happen that is due.
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
