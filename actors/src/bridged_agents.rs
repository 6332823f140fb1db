//! The operations of the registration API on user agents behind a bridge; drives `state_machine::bridged_call`.

use std::collections::BTreeSet;
use std::sync::Arc;

use slog::{Logger, warn};
use state_machine::bridged_call::{
    BridgedCall, BridgedError, CallEffect, CallEvent, CallOutcome, CallParams, Task,
};
use state_machine::store::{StoreFailed, StoreOp};
use state_machine::{
    BridgeRecipient, Chid, LastConnect, Month, RouterRecord, RouterType, Span, Time, Uaid,
};
use storage::{BridgedRegistration, RegisterResult, Store, StoreError};
use uuid::Uuid;

use crate::clock::Clock;
use crate::shared_log_limiter::SharedLogLimiter;
use crate::store_executor;

/// Minimum time between two log lines of store operations that failed.
const FAILED_LOG_EVERY: Span = Span::from_secs(10);

/// Registrations of one call whose record another call has written meanwhile.
const REGISTRATIONS_MAX: u8 = 4;

/// The user agents behind bridges. Each operation moves the agent to this month first.
pub struct BridgedAgents {
    store: Arc<dyn Store>,
    clock: Clock,
    limits: BridgedLimits,
    log: Logger,
    failed_log_limiter: SharedLogLimiter,
}

/// What bounds the user agents behind bridges.
#[derive(Debug, Clone, Copy)]
pub struct BridgedLimits {
    /// Channels of one user agent at most.
    pub channels_max: usize,
    /// Keys of the `last_connect` index that one hour is spread over.
    pub last_connect_shards: usize,
    /// The month that messages are stored in if months do not turn.
    pub frozen_month: Option<Month>,
}

impl BridgedAgents {
    pub fn new(store: Arc<dyn Store>, clock: Clock, limits: BridgedLimits, log: Logger) -> Self {
        let failed_log_limiter = SharedLogLimiter::new(FAILED_LOG_EVERY);
        Self { store, clock, limits, log, failed_log_limiter }
    }

    /// Registers a new agent with its first channel. The record is written last, so that it never misses that channel.
    pub async fn register(
        &self,
        recipient: BridgeRecipient,
        chid: Chid,
    ) -> Result<Uaid, BridgedError> {
        self.admit()?;
        let (uaid, month) = (Uaid(Uuid::new_v4().into_bytes()), self.message_month());
        let channels = BTreeSet::from([chid]);
        let added = self.store.execute(StoreOp::AddChannels { uaid, month, channels }).await;
        self.checked(added)?;
        let registration = self.registration(uaid, recipient, self.clock.now(), Some(month));
        match self.checked(self.store.register_bridged(registration).await)? {
            RegisterResult::Registered(..) => Ok(uaid),
            RegisterResult::UnknownAgent | RegisterResult::Superseded(_) => {
                Err(BridgedError::Unavailable)
            }
        }
    }

    /// Replaces the recipient of an agent.
    pub async fn update(&self, uaid: Uaid, recipient: BridgeRecipient) -> Result<(), BridgedError> {
        let mut newer_than = self.enter(uaid).await?.connected_at;
        for _attempt in 0..REGISTRATIONS_MAX {
            let connected_at = self.clock.now().max(newer_than + Span(1));
            let registration = self.registration(uaid, recipient.clone(), connected_at, None);
            match self.checked(self.store.register_bridged(registration).await)? {
                RegisterResult::Registered(..) => return Ok(()),
                RegisterResult::UnknownAgent => return Err(BridgedError::UnknownAgent),
                RegisterResult::Superseded(seen) => newer_than = seen,
            }
        }
        Err(BridgedError::Unavailable)
    }

    /// The registered channels of an agent.
    pub async fn channels(&self, uaid: Uaid) -> Result<BTreeSet<Chid>, BridgedError> {
        self.enter(uaid).await?;
        match self.call(uaid, Task::ReadChannels).await? {
            CallOutcome::Channels(channels) => Ok(channels),
            CallOutcome::Moved(_) | CallOutcome::Written => Err(BridgedError::Unavailable),
        }
    }

    /// Registers a channel of an agent. One that is registered already stays so.
    pub async fn subscribe(&self, uaid: Uaid, chid: Chid) -> Result<(), BridgedError> {
        self.enter(uaid).await?;
        self.admit()?;
        let channels_max = self.limits.channels_max;
        self.call(uaid, Task::AddChannel { chid, channels_max }).await.map(|_written| ())
    }

    /// Unregisters a channel of an agent.
    pub async fn unsubscribe(&self, uaid: Uaid, chid: Chid) -> Result<(), BridgedError> {
        self.enter(uaid).await?;
        self.call(uaid, Task::RemoveChannel { chid }).await.map(|_written| ())
    }

    /// Drops the record of an agent.
    pub async fn unregister(&self, uaid: Uaid) -> Result<(), BridgedError> {
        self.recipient(uaid).await?;
        match self.checked(self.store.drop_user(uaid).await)? {
            true => Ok(()),
            false => Err(BridgedError::UnknownAgent),
        }
    }

    /// How the agent is reached. Reads the record and writes nothing.
    pub async fn recipient(&self, uaid: Uaid) -> Result<BridgeRecipient, BridgedError> {
        match self.checked(self.store.record(uaid).await)?.map(|record| record.router_type) {
            Some(RouterType::Bridge(recipient)) => Ok(*recipient),
            _ => Err(BridgedError::UnknownAgent),
        }
    }

    /// Moves an agent to this month, and returns its record.
    pub(crate) async fn move_to_this_month(
        &self,
        uaid: Uaid,
    ) -> Result<RouterRecord, BridgedError> {
        match self.call(uaid, Task::Move).await? {
            CallOutcome::Moved(record) => Ok(*record),
            CallOutcome::Channels(_) | CallOutcome::Written => Err(BridgedError::Unavailable),
        }
    }

    /// The month that messages are stored in now.
    pub(crate) fn message_month(&self) -> Month {
        self.limits.frozen_month.unwrap_or_else(|| Month::of(self.clock.now()))
    }

    /// Moves an agent that shows that it exists to this month. Without rotation there is no move that would write its
    /// `last_connect`, so it is written once a month.
    async fn enter(&self, uaid: Uaid) -> Result<RouterRecord, BridgedError> {
        let record = self.move_to_this_month(uaid).await?;
        let Some(recipient) = record.router_type.recipient() else { return Ok(record) };
        // One that is newer has another recipient perhaps, and stays.
        let connected_at = record.connected_at + Span(1);
        let seen = self.registration(uaid, recipient.clone(), connected_at, None);
        if record.last_connect.is_months_before(seen.last_connect) {
            self.checked(self.store.register_bridged(seen).await)?;
        }
        Ok(record)
    }

    async fn call(&self, uaid: Uaid, task: Task) -> Result<CallOutcome, BridgedError> {
        let last_connect = self.last_connect(uaid);
        let this_month = self.message_month();
        let params = CallParams { uaid, this_month, last_connect, task };
        let (mut call, mut effect) = BridgedCall::begin(params);
        loop {
            let event = match effect {
                CallEffect::End(ended) => return ended,
                CallEffect::ReadRecord => {
                    let read = self.noted(self.store.record(uaid).await);
                    read.map_or(CallEvent::StoreFailed, CallEvent::RecordRead)
                }
                CallEffect::Store(op) => {
                    let answer = self.noted(store_executor::submit(&*self.store, None, op).await);
                    answer.map_or(CallEvent::StoreFailed, CallEvent::StoreAnswered)
                }
            };
            effect = call.step(event);
        }
    }

    fn registration(
        &self,
        uaid: Uaid,
        recipient: BridgeRecipient,
        connected_at: Time,
        create_in: Option<Month>,
    ) -> BridgedRegistration {
        let last_connect = self.last_connect(uaid);
        BridgedRegistration { uaid, recipient, connected_at, last_connect, create_in }
    }

    fn last_connect(&self, uaid: Uaid) -> LastConnect {
        LastConnect::of(self.clock.now(), uaid, self.limits.last_connect_shards)
    }

    /// Refuses a new record or channel without space for it.
    fn admit(&self) -> Result<(), BridgedError> {
        match self.store.admits_subscription() {
            true => Ok(()),
            false => Err(BridgedError::NoSpace),
        }
    }

    fn checked<T>(&self, answer: Result<T, StoreError>) -> Result<T, BridgedError> {
        match answer {
            Err(StoreError::NoSpace) => Err(BridgedError::NoSpace),
            answer => self.noted(answer).map_err(|StoreFailed| BridgedError::Unavailable),
        }
    }

    /// The peer learns only that the store failed; the log has the reason.
    fn noted<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreFailed> {
        answer.map_err(|error| {
            if let Some(failures) = self.failed_log_limiter.count(self.clock.now()) {
                warn!(self.log, "store operations of user agents behind a bridge failed";
                    "failures" => failures, "error" => %error);
            }
            StoreFailed
        })
    }
}
