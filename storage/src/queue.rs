//! Admission and order of calls, and the threads that run them.
//!
//! Callers live on single-threaded actix workers, and may stop at any time. So every call runs on
//! the engine's own runtime, takes its slot before its future is returned, and is finished even if
//! the future is dropped. Reads do not wait for writes.
//!
//! The writes of one user agent pass through an *agent queue*: stores of messages run concurrently,
//! and every other write runs alone, after all earlier calls and before all later ones. So writes
//! take effect in the order of their calls. Two stores commute: each has a row of its own, or
//! replaces only a lesser id.
//!
//! The slots of the engine and of each agent queue are limited. Any application server can send
//! messages to a user agent, so that stores are rejected first, and routing last (see
//! [`Priority`]).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, MaybeDone, maybe_done};
use state_machine::Uaid;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::unconstrained;
use tokio::time::timeout;

use crate::store::{QueueState, StoreError, StoreFuture, answered};

/// Permits of an agent queue: a store takes one, any other write all. The semaphore is fair, so
/// that a write that waits for all of them blocks those behind it.
const AGENT_QUEUE_WIDTH: u32 = u32::MAX >> 3;

/// The handle of an engine's threads. After it is dropped they finish the queued calls.
pub struct Queue {
    handle: Handle,
    state: Arc<Mutex<Admissions>>,
    limits: QueueLimits,
}

#[derive(Debug, Clone, Copy)]
pub struct QueueLimits {
    /// Calls that wait or run.
    pub calls_max: usize,
    /// Calls in one agent queue.
    pub agent_calls_max: usize,
    /// How long a call may wait in an agent queue. Then it is dropped without being executed.
    pub agent_wait_max: Duration,
}

/// The share of the slots that a call may use.
///
/// A flood of stores leaves slots for fetches, and message tables that hang leave slots for the
/// router reads of direct notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Stores of messages: three quarters.
    Store,
    /// All other operations on messages and channels, and maintenance: seven eighths.
    Messages,
    /// The router table and its health check: all.
    Router,
}

struct Admissions {
    closed: bool,
    /// Admitted and unfinished calls.
    calls: usize,
    /// One for each user agent with an unfinished write.
    agent_queues: HashMap<Uaid, AgentQueue>,
    /// Set when the queue is closed and the last call is finished.
    idle: watch::Sender<bool>,
}

struct AgentQueue {
    width: Arc<Semaphore>,
    calls: usize,
}

/// A position in an agent queue, taken when the call is made. It is held until it is dropped.
type Turn = MaybeDone<BoxFuture<'static, Result<OwnedSemaphorePermit, AcquireError>>>;

impl Queue {
    pub fn start(name: &str, threads: usize, limits: QueueLimits) -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(threads.max(1)).thread_name(name).enable_all();
        let runtime = runtime.build()?;
        let handle = runtime.handle().clone();
        let (idle, mut until_idle) = watch::channel(false);
        handle.spawn(async move {
            // An error means that the sender was dropped, after the last call.
            let _idle = until_idle.wait_for(|idle| *idle).await;
            runtime.shutdown_background();
        });
        let state = Admissions { closed: false, calls: 0, agent_queues: HashMap::new(), idle };
        Ok(Self { handle, state: Arc::new(Mutex::new(state)), limits })
    }

    /// Runs a call. With a user agent it runs in the order of that agent's writes: concurrently
    /// with others if it is a store, else alone.
    pub fn run<T: Send + 'static>(
        &self,
        priority: Priority,
        agent: Option<Uaid>,
        call: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> StoreFuture<T> {
        let mut turn = match lock(&self.state).admit(priority, agent, &self.limits) {
            Ok(turn) => turn,
            Err(refused) => return answered(Err(refused)),
        };
        let agent_wait_max = self.limits.agent_wait_max;
        let call = async move {
            if let Some(turn) = &mut turn {
                timeout(agent_wait_max, turn).await.map_err(|_late| StoreError::Busy)?;
            }
            call.await
        };
        let (reply, answer) = oneshot::channel();
        let state = self.state.clone();
        self.handle.spawn(async move {
            // A panic in one call must not stop those behind it.
            let outcome = AssertUnwindSafe(call).catch_unwind().await;
            let outcome = outcome.unwrap_or_else(|_| Err(panicked()));
            let mut state = lock(&state);
            // Under the lock, so that the caller finds its slot free. A dropped future is no error.
            let _unread = reply.send(outcome);
            state.call_done(agent);
        });
        Box::pin(async { answer.await.unwrap_or_else(|_| Err(panicked())) })
    }

    /// Runs a task of the engine itself, outside of the limits.
    pub fn block_on<T: Send>(&self, task: impl Future<Output = T> + Send) -> T {
        // A thread of its own: the caller's may be one of a runtime.
        thread::scope(|scope| {
            let task = scope.spawn(|| self.handle.block_on(task));
            task.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    pub fn state(&self) -> QueueState {
        QueueState { length: lock(&self.state).calls, max: self.limits.calls_max }
    }

    /// Rejects further calls, and waits for the admitted ones.
    pub fn close(&self) -> StoreFuture<()> {
        let mut idle = lock(&self.state).close().subscribe();
        Box::pin(async move {
            // An error means that the engine was dropped and is idle.
            let _idle = idle.wait_for(|idle| *idle).await;
            Ok(())
        })
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        lock(&self.state).close();
    }
}

impl Priority {
    fn share_of(self, places: usize) -> usize {
        match self {
            Self::Store => places - places / 4,
            Self::Messages => places - places / 8,
            Self::Router => places,
        }
    }

    fn width(self) -> u32 {
        match self {
            Self::Store => 1,
            Self::Messages | Self::Router => AGENT_QUEUE_WIDTH,
        }
    }
}

impl Admissions {
    fn admit(
        &mut self,
        priority: Priority,
        agent: Option<Uaid>,
        limits: &QueueLimits,
    ) -> Result<Option<Turn>, StoreError> {
        if self.closed {
            return Err(StoreError::Closed);
        }
        let in_agent_queue = agent.and_then(|uaid| self.agent_queues.get(&uaid));
        let in_agent_queue = in_agent_queue.map_or(0, |agent_queue| agent_queue.calls);
        if in_agent_queue >= priority.share_of(limits.agent_calls_max)
            || self.calls >= priority.share_of(limits.calls_max)
        {
            return Err(StoreError::Busy);
        }
        self.calls += 1;
        Ok(agent.map(|uaid| self.agent_queues.entry(uaid).or_default().enter(priority)))
    }

    fn close(&mut self) -> &watch::Sender<bool> {
        self.closed = true;
        self.update_idle();
        &self.idle
    }

    /// Removes an agent queue with its last call.
    fn call_done(&mut self, agent: Option<Uaid>) {
        self.calls -= 1;
        if let Some(Entry::Occupied(mut entry)) = agent.map(|uaid| self.agent_queues.entry(uaid)) {
            entry.get_mut().calls -= 1;
            if entry.get().calls == 0 {
                entry.remove();
            }
        }
        self.update_idle();
    }

    fn update_idle(&self) {
        if self.closed && self.calls == 0 {
            self.idle.send_replace(true);
        }
    }
}

impl Default for AgentQueue {
    fn default() -> Self {
        Self { width: Arc::new(Semaphore::new(AGENT_QUEUE_WIDTH as usize)), calls: 0 }
    }
}

impl AgentQueue {
    /// Takes the position behind all earlier ones.
    fn enter(&mut self, priority: Priority) -> Turn {
        self.calls += 1;
        // The first poll takes the position. Unconstrained, because tokio's cooperative budget
        // could otherwise return pending without taking it.
        let permit = unconstrained(self.width.clone().acquire_many_owned(priority.width()));
        let mut turn = maybe_done(permit.boxed());
        (&mut turn).now_or_never();
        turn
    }
}

fn lock(state: &Mutex<Admissions>) -> MutexGuard<'_, Admissions> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn panicked() -> StoreError {
    StoreError::Failed("a call of the store stopped unexpectedly: this is a bug".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENT: Uaid = Uaid([1; 16]);
    const OTHER: Uaid = Uaid([2; 16]);

    fn queue(calls_max: usize) -> Queue {
        bounded(calls_max, calls_max, Duration::from_secs(60))
    }

    fn bounded(calls_max: usize, agent_calls_max: usize, agent_wait_max: Duration) -> Queue {
        Queue::start("test", 2, QueueLimits { calls_max, agent_calls_max, agent_wait_max }).unwrap()
    }

    /// A call that waits for the other end, and returns the value that it sends.
    fn held() -> (oneshot::Sender<u8>, impl Future<Output = Result<u8, StoreError>> + Send) {
        let (release, released) = oneshot::channel();
        (release, async { released.await.map_err(|_| StoreError::Closed) })
    }

    fn agent_queues(queue: &Queue) -> usize {
        lock(&queue.state).agent_queues.len()
    }

    #[tokio::test]
    async fn calls_of_one_agent_run_one_after_the_other() {
        let queue = queue(10);
        let order = Arc::new(Mutex::new(Vec::new()));
        let (release, first) = held();
        let mut answers = vec![queue.run(Priority::Router, Some(AGENT), first)];
        for number in 1..=5 {
            let order = order.clone();
            answers.push(queue.run(Priority::Router, Some(AGENT), async move {
                order.lock().unwrap().push(number);
                Ok(number)
            }));
        }
        assert_eq!(queue.run(Priority::Router, Some(OTHER), async { Ok(0) }).await, Ok(0));
        assert_eq!(queue.run(Priority::Router, None, async { Ok(0) }).await, Ok(0));
        assert_eq!(*order.lock().unwrap(), [] as [u8; 0]);
        release.send(0).unwrap();
        for (number, answer) in answers.into_iter().enumerate().rev() {
            assert_eq!(answer.await.map(usize::from), Ok(number));
        }
        assert_eq!(*order.lock().unwrap(), [1, 2, 3, 4, 5]);
    }

    #[tokio::test]
    async fn an_agent_queue_is_removed_with_its_last_call() {
        let queue = queue(10);
        let (release, first) = held();
        let answer = queue.run(Priority::Router, Some(AGENT), first);
        assert_eq!(agent_queues(&queue), 1);
        release.send(0).unwrap();
        answer.await.unwrap();
        queue.close().await.unwrap();
        assert_eq!(agent_queues(&queue), 0);
    }

    #[tokio::test]
    async fn a_call_that_panics_is_answered_and_holds_up_none() {
        let queue = queue(10);
        let bug = async { panic!("a bug, as this test wants it") };
        let panicking = queue.run::<u8>(Priority::Router, Some(AGENT), bug);
        let behind = queue.run(Priority::Router, Some(AGENT), async { Ok(1) });
        assert_eq!(panicking.await, Err(panicked()));
        assert_eq!(behind.await, Ok(1));
        assert_eq!(queue.close().await, Ok(()));
    }

    #[tokio::test]
    async fn a_call_too_many_is_busy_until_one_is_done() {
        let queue = queue(2);
        let ((first, one), (second, other)) = (held(), held());
        let answers = [
            queue.run(Priority::Router, None, one),
            queue.run(Priority::Router, Some(AGENT), other),
        ];
        assert_eq!(queue.run(Priority::Router, None, async { Ok(0) }).await, Err(StoreError::Busy));
        assert_eq!(
            queue.run(Priority::Router, Some(AGENT), async { Ok(0) }).await,
            Err(StoreError::Busy)
        );
        for release in [first, second] {
            release.send(0).unwrap();
        }
        for answer in answers {
            assert_eq!(answer.await, Ok(0));
        }
    }

    #[tokio::test]
    async fn closing_waits_for_admitted_calls_and_rejects_further_ones() {
        let queue = queue(10);
        let (release, first) = held();
        let answers = [
            queue.run(Priority::Router, Some(AGENT), first),
            queue.run(Priority::Router, Some(AGENT), async { Ok(1) }),
        ];
        let closed = queue.close();
        assert_eq!(
            queue.run(Priority::Router, None, async { Ok(0) }).await,
            Err(StoreError::Closed)
        );
        release.send(0).unwrap();
        assert_eq!(closed.await, Ok(()));
        for (number, answer) in answers.into_iter().enumerate() {
            assert_eq!(answer.now_or_never(), Some(Ok(number as u8)), "it was answered before");
        }
    }

    /// A held call that reports its start.
    fn watched() -> (oneshot::Receiver<()>, oneshot::Sender<u8>, StoreFuture<u8>) {
        let (begin, begun) = oneshot::channel();
        let (release, call) = held();
        let call = async {
            begin.send(()).unwrap();
            call.await
        };
        (begun, release, Box::pin(call))
    }

    #[tokio::test]
    async fn stores_of_one_agent_run_side_by_side_and_any_other_write_alone_between_them() {
        let queue = queue(100);
        let [one, two, alone, three] =
            [Priority::Store, Priority::Store, Priority::Messages, Priority::Store].map(
                |priority| {
                    let (begun, release, call) = watched();
                    (begun, release, queue.run(priority, Some(AGENT), call))
                },
            );
        one.0.await.unwrap();
        two.0.await.unwrap();
        let (mut begun, mut next) = (alone.0, three.0);
        one.1.send(1).unwrap();
        assert_eq!(one.2.await, Ok(1));
        assert_eq!(queue.run(Priority::Router, Some(OTHER), async { Ok(0) }).await, Ok(0));
        begun.try_recv().unwrap_err();
        two.1.send(2).unwrap();
        begun.await.unwrap();
        assert_eq!(queue.run(Priority::Router, Some(OTHER), async { Ok(0) }).await, Ok(0));
        next.try_recv().unwrap_err();
        alone.1.send(3).unwrap();
        next.await.unwrap();
        three.1.send(4).unwrap();
        assert_eq!((two.2.await, alone.2.await, three.2.await), (Ok(2), Ok(3), Ok(4)));
    }

    #[tokio::test]
    async fn a_full_agent_queue_rejects_stores_first_and_affects_no_other_agent() {
        let queue = bounded(100, 8, Duration::from_secs(60));
        let (release, first) = held();
        let mut answers = vec![queue.run(Priority::Router, Some(AGENT), first)];
        for (priority, places) in
            [(Priority::Store, 6), (Priority::Messages, 7), (Priority::Router, 8)]
        {
            while answers.len() < places {
                answers.push(queue.run(priority, Some(AGENT), async { Ok(0) }));
            }
            let one_more = queue.run(priority, Some(AGENT), async { Ok(9) });
            assert_eq!(one_more.await, Err(StoreError::Busy), "{priority:?}");
        }
        assert_eq!(queue.run(Priority::Store, Some(OTHER), async { Ok(1) }).await, Ok(1));
        release.send(0).unwrap();
        for answer in answers {
            assert_eq!(answer.await, Ok(0));
        }
        assert_eq!(queue.run(Priority::Store, Some(AGENT), async { Ok(1) }).await, Ok(1));
    }

    #[tokio::test]
    async fn a_call_whose_turn_is_late_is_busy_and_never_done() {
        let queue = bounded(10, 10, Duration::from_millis(20));
        let (begun, release, first) = watched();
        let first = queue.run(Priority::Store, Some(AGENT), first);
        begun.await.unwrap();
        let (mut late_begun, _release, late) = watched();
        let late = queue.run(Priority::Router, Some(AGENT), late);
        assert_eq!(late.await, Err(StoreError::Busy));
        let beside = queue.run(Priority::Store, Some(AGENT), async { Ok(2) });
        assert_eq!(beside.await, Ok(2), "a late call does not delay others");
        release.send(1).unwrap();
        assert_eq!(first.await, Ok(1), "waiting is bounded, not being done");
        queue.close().await.unwrap();
        late_begun.try_recv().unwrap_err();
    }

    #[tokio::test]
    async fn a_call_takes_its_position_at_once_in_a_task_without_budget() {
        let semaphore = Semaphore::new(1);
        while semaphore.acquire().now_or_never().is_some() {}
        assert!(matches!(AgentQueue::default().enter(Priority::Store), MaybeDone::Done(_)));
    }
}
