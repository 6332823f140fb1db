//! The deadlines of all clients of a thread, which share one timer.
//!
//! A timer of tokio for each would take 136 bytes of an idle connection, and a place among the futures of its actor.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::num::NonZero;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use by_address::ByAddress;
use state_machine::Time;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::clock::Clock;
use crate::handle::ClientMailbox;

/// When a client is woken.
#[derive(Debug, Default)]
pub(crate) struct WakeUp(Option<(Time, Millis)>);

/// Milliseconds since the timer of the thread began, and one more.
type Millis = NonZero<u64>;

thread_local! {
    static SCHEDULE: RefCell<Option<Schedule>> = const { RefCell::new(None) };
}

struct Schedule {
    began: Instant,
    due: BTreeSet<Due>,
    /// The first one has changed.
    changed: Rc<Notify>,
    timer: JoinHandle<()>,
}

/// Two clients may be due at the same time.
type Due = (Millis, ByAddress<Arc<ClientMailbox>>);

impl WakeUp {
    /// Wakes the client at `deadline`. An earlier time is kept: the client is woken once for nothing, which is cheaper
    /// than another time for every message.
    pub(crate) fn set(
        &mut self,
        deadline: Option<Time>,
        clock: &Clock,
        client: &Arc<ClientMailbox>,
    ) {
        let Some(deadline) = deadline else { return };
        if self.0.is_some_and(|(at, _)| at <= deadline) {
            return;
        }
        self.cancel(client);
        let wait = Duration::from_millis(deadline.since(clock.now()).0);
        let at = with_schedule(|schedule| schedule.insert(wait, Arc::clone(client)));
        self.0 = Some((deadline, at));
    }

    /// Removes what is left of it.
    pub(crate) fn cancel(&mut self, client: &Arc<ClientMailbox>) {
        let Some((_, at)) = self.0.take() else { return };
        let due = (at, ByAddress(Arc::clone(client)));
        // It is gone when its thread ends.
        let _ = SCHEDULE.try_with(|schedule| {
            schedule.borrow_mut().as_mut().map(|schedule| schedule.due.remove(&due))
        });
    }
}

/// Changes the schedule of this thread. A new one replaces it if its runtime has ended.
fn with_schedule<T>(change: impl FnOnce(&mut Schedule) -> T) -> T {
    SCHEDULE.with_borrow_mut(|schedule| {
        let schedule = match schedule {
            Some(schedule) if !schedule.timer.is_finished() => schedule,
            ended => ended.insert(Schedule::start()),
        };
        change(schedule)
    })
}

impl Schedule {
    fn start() -> Self {
        let changed = Rc::new(Notify::new());
        let timer = actix::spawn(run(Rc::clone(&changed)));
        Self { began: Instant::now(), due: BTreeSet::new(), changed, timer }
    }

    fn insert(&mut self, wait: Duration, client: Arc<ClientMailbox>) -> Millis {
        // Rounded up: no client is woken before its deadline.
        let at = (self.began.elapsed() + wait).as_nanos().div_ceil(1_000_000);
        let at = u64::try_from(at).map_or(Millis::MAX, |at| Millis::MIN.saturating_add(at));
        if self.due.first().is_none_or(|(first, _)| at < *first) {
            self.changed.notify_one();
        }
        self.due.insert((at, ByAddress(client)));
        at
    }

    /// Wakes the clients that are due. Returns the time of the next one.
    fn wake_due(&mut self) -> Option<Instant> {
        let elapsed = self.began.elapsed();
        while let Some((at, _)) = self.due.first() {
            let at = Duration::from_millis(at.get() - 1);
            if elapsed < at {
                return Some(self.began + at);
            }
            // A client that has ended needs no wake-up.
            let _ = self.due.pop_first().map(|(_, client)| client.wake());
        }
        None
    }
}

async fn run(changed: Rc<Notify>) {
    loop {
        let next = SCHEDULE.with_borrow_mut(|schedule| schedule.as_mut()?.wake_due());
        match next {
            // Either is a reason to look again.
            Some(at) => drop(timeout_at(at, changed.notified()).await),
            None => changed.notified().await,
        }
    }
}
