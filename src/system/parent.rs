//! The process that started this one.

use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Pid, getppid};
use tokio::time::sleep;

/// Interval at which the parent is looked at. There is no signal for its end that a thread of it would not send too.
const LOOK_EVERY: Duration = Duration::from_millis(100);

static AT_START: OnceLock<Option<Pid>> = OnceLock::new();

/// Notes the parent. It is called first of all: a parent that ends before is not noticed.
pub fn note() {
    AT_START.get_or_init(getppid);
}

/// Waits until the parent at the start has ended.
pub async fn ended() {
    let at_start = *AT_START.get_or_init(getppid);
    while getppid() == at_start {
        sleep(LOOK_EVERY).await;
    }
}
