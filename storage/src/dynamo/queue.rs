//! Calls on their way: what is admitted, in which order, on which threads.
//!
//! Callers live on single-threaded actix workers, and may stop at any time. So every call runs on a
//! runtime of the engine's own, begins before its future is returned, and ends whether anybody waits
//! for it or not. The writes of one user agent wait for each other in a *lane*; reads wait for nothing.

use std::collections::{HashMap, VecDeque};
use std::future::ready;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use state_machine::Uaid;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{oneshot, watch};

use crate::contract::{Answer, StoreError};

/// How long the end waits for a look-up of a server's name that nobody needs any more.
const SHUTDOWN_WAIT_MAX: Duration = Duration::from_secs(1);

/// The way to the threads of an engine. Dropping it lets them finish what is queued.
pub(super) struct Queue {
    handle: Handle,
    state: Arc<Mutex<State>>,
    calls_max: usize,
    /// True once the threads are gone.
    ended: watch::Receiver<bool>,
}

struct State {
    closed: bool,
    /// Admitted, and not yet done.
    calls: usize,
    /// The writes that wait behind one that is under way, of each user agent that has one.
    lanes: HashMap<Uaid, VecDeque<Job>>,
    /// Told when the last call is done and no other will come.
    idle: watch::Sender<bool>,
}

type Job = BoxFuture<'static, ()>;

impl Queue {
    /// Starts the threads. `calls_max` calls are admitted at most.
    pub(super) fn start(threads: usize, calls_max: usize) -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(threads.max(1)).thread_name("dynamodb").enable_all();
        let runtime = runtime.build()?;
        let handle = runtime.handle().clone();
        let (idle, mut until_idle) = watch::channel(false);
        let (end, ended) = watch::channel(false);
        // A runtime must not be dropped by a task, and the engine may be.
        thread::Builder::new().name("dynamodb-end".to_owned()).spawn(move || {
            // An error means that the sender is gone, and with it every call.
            let _idle = runtime.block_on(until_idle.wait_for(|idle| *idle));
            runtime.shutdown_timeout(SHUTDOWN_WAIT_MAX);
            end.send_replace(true);
        })?;
        let state = State { closed: false, calls: 0, lanes: HashMap::new(), idle };
        Ok(Self { handle, state: Arc::new(Mutex::new(state)), calls_max, ended })
    }

    /// Runs a call at once.
    pub(super) fn run<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Answer<T> {
        let (job, answer) = job(call);
        let mut state = lock(&self.state);
        if let Err(refused) = state.admit(self.calls_max) {
            return Box::pin(ready(Err(refused)));
        }
        self.handle.spawn(run(self.state.clone(), job));
        answer
    }

    /// Runs a call once the writes of the same user agent that were called before are done.
    pub(super) fn run_in_order<T: Send + 'static>(
        &self,
        uaid: Uaid,
        call: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Answer<T> {
        let (job, answer) = job(call);
        let mut state = lock(&self.state);
        if let Err(refused) = state.admit(self.calls_max) {
            return Box::pin(ready(Err(refused)));
        }
        match state.lanes.get_mut(&uaid) {
            Some(lane) => lane.push_back(job),
            None => {
                state.lanes.insert(uaid, VecDeque::new());
                self.handle.spawn(run_lane(self.state.clone(), uaid, job));
            }
        }
        answer
    }

    /// Runs something for the engine itself, which nothing waits for to close.
    pub(super) fn block_on<T: Send>(&self, task: impl Future<Output = T> + Send) -> T {
        // A thread of its own: the caller's may be one of a runtime.
        thread::scope(|scope| {
            let task = scope.spawn(|| self.handle.block_on(task));
            task.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Admits nothing more. Answers when all that was admitted is done.
    pub(super) fn close(&self) -> Answer<()> {
        lock(&self.state).close();
        let mut ended = self.ended.clone();
        Box::pin(async move {
            // An error means that the thread which would say so is gone too.
            let _ended = ended.wait_for(|ended| *ended).await;
            Ok(())
        })
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        lock(&self.state).close();
    }
}

impl State {
    fn admit(&mut self, calls_max: usize) -> Result<(), StoreError> {
        if self.closed {
            return Err(StoreError::Closed);
        }
        if self.calls >= calls_max {
            return Err(StoreError::Busy);
        }
        self.calls += 1;
        Ok(())
    }

    fn close(&mut self) {
        self.closed = true;
        self.look_whether_idle();
    }

    fn call_done(&mut self) {
        self.calls -= 1;
        self.look_whether_idle();
    }

    fn look_whether_idle(&self) {
        if self.closed && self.calls == 0 {
            self.idle.send_replace(true);
        }
    }

    /// The next write of a lane; the lane goes with its last.
    fn next(&mut self, uaid: Uaid) -> Option<Job> {
        let job = self.lanes.get_mut(&uaid)?.pop_front();
        if job.is_none() {
            self.lanes.remove(&uaid);
        }
        job
    }
}

/// A call that sends its answer, and the answer.
fn job<T: Send + 'static>(
    call: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> (Job, Answer<T>) {
    let (reply, answer) = oneshot::channel();
    let job = async {
        // A bug in one call must not stop those behind it; its caller hears of the dropped reply.
        if let Ok(outcome) = AssertUnwindSafe(call).catch_unwind().await {
            // Nobody may be waiting: a caller that went away cancels nothing.
            let _unread = reply.send(outcome);
        }
    };
    (Box::pin(job), Box::pin(async { answer.await.unwrap_or_else(|_| Err(panicked())) }))
}

async fn run(state: Arc<Mutex<State>>, job: Job) {
    job.await;
    lock(&state).call_done();
}

async fn run_lane(state: Arc<Mutex<State>>, uaid: Uaid, first: Job) {
    let mut next = Some(first);
    while let Some(job) = next {
        job.await;
        let mut state = lock(&state);
        next = state.next(uaid);
        state.call_done();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn panicked() -> StoreError {
    StoreError::Failed("a call to DynamoDB stopped unexpectedly: this is a bug".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENT: Uaid = Uaid([1; 16]);
    const OTHER: Uaid = Uaid([2; 16]);

    fn queue(calls_max: usize) -> Queue {
        Queue::start(2, calls_max).unwrap()
    }

    /// A call that waits for the other end, and says what is left of it.
    fn held() -> (oneshot::Sender<u8>, impl Future<Output = Result<u8, StoreError>> + Send) {
        let (release, released) = oneshot::channel();
        (release, async { released.await.map_err(|_| StoreError::Closed) })
    }

    fn lanes(queue: &Queue) -> usize {
        lock(&queue.state).lanes.len()
    }

    #[tokio::test]
    async fn calls_of_one_agent_run_one_after_the_other() {
        let queue = queue(10);
        let order = Arc::new(Mutex::new(Vec::new()));
        let (release, first) = held();
        let mut answers = vec![queue.run_in_order(AGENT, first)];
        for number in 1..=5 {
            let order = order.clone();
            answers.push(queue.run_in_order(AGENT, async move {
                order.lock().unwrap().push(number);
                Ok(number)
            }));
        }
        assert_eq!(queue.run_in_order(OTHER, async { Ok(0) }).await, Ok(0));
        assert_eq!(queue.run(async { Ok(0) }).await, Ok(0));
        assert_eq!(*order.lock().unwrap(), [] as [u8; 0]);
        release.send(0).unwrap();
        for (number, answer) in answers.into_iter().enumerate().rev() {
            assert_eq!(answer.await.map(usize::from), Ok(number));
        }
        assert_eq!(*order.lock().unwrap(), [1, 2, 3, 4, 5]);
    }

    #[tokio::test]
    async fn a_lane_goes_with_its_last_call() {
        let queue = queue(10);
        let (release, first) = held();
        let answer = queue.run_in_order(AGENT, first);
        assert_eq!(lanes(&queue), 1);
        release.send(0).unwrap();
        answer.await.unwrap();
        queue.close().await.unwrap();
        assert_eq!(lanes(&queue), 0);
    }

    #[tokio::test]
    async fn a_call_that_panics_is_answered_and_holds_up_none() {
        let queue = queue(10);
        let bug = async { panic!("a bug, as this test wants it") };
        let panicking = queue.run_in_order::<u8>(AGENT, bug);
        let behind = queue.run_in_order(AGENT, async { Ok(1) });
        assert_eq!(panicking.await, Err(panicked()));
        assert_eq!(behind.await, Ok(1));
        assert_eq!(queue.close().await, Ok(()));
    }

    #[tokio::test]
    async fn a_call_too_many_is_busy_until_one_is_done() {
        let queue = queue(2);
        let ((first, one), (second, other)) = (held(), held());
        let answers = [queue.run(one), queue.run_in_order(AGENT, other)];
        assert_eq!(queue.run(async { Ok(0) }).await, Err(StoreError::Busy));
        assert_eq!(queue.run_in_order(AGENT, async { Ok(0) }).await, Err(StoreError::Busy));
        for release in [first, second] {
            release.send(0).unwrap();
        }
        for answer in answers {
            assert_eq!(answer.await, Ok(0));
        }
    }

    #[tokio::test]
    async fn closing_waits_for_what_was_admitted_and_admits_nothing_more() {
        let queue = queue(10);
        let (release, first) = held();
        let answers =
            [queue.run_in_order(AGENT, first), queue.run_in_order(AGENT, async { Ok(1) })];
        let closed = queue.close();
        assert_eq!(queue.run(async { Ok(0) }).await, Err(StoreError::Closed));
        release.send(0).unwrap();
        assert_eq!(closed.await, Ok(()));
        for (number, answer) in answers.into_iter().enumerate() {
            assert_eq!(answer.now_or_never(), Some(Ok(number as u8)), "it was answered before");
        }
    }
}
