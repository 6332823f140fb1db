//! One call on a user agent behind a bridge, which never connects: a push or a registration call. Each call first moves
//! the agent to this month, or finishes a move that another call has left.
//!
//! ```text
//!   ReadingRecord ──another month──► WritingRecord ──► ReadingChannels ──► CreatingChannels ──► ClearingOldMonth ─┐
//!     ▲  │ this month, no oldmonth      │ changed          ▲ oldmonth is set                                      │
//!     │  ▼                              ▼                  │                                                      │
//!     │  Reading ──► Writing       ReadingRecord ──────────┘         ReadingRecord ◄──────────────────────────────┘
//!     │                 │ written
//!     └─────────────────┘
//! ```
//!
//! Any number of calls may run at once, on several nodes with different clocks, and stop anywhere. What makes that safe:
//!
//! - The record moves before the channels do, and only from the month it is in: one call moves it.
//! - The channels are read after that, and the row in the new month is created once. A late copy changes nothing.
//! - A channel is written only while the record has no `oldmonth`, and the record is read again before the answer. If it
//!   moved meanwhile, the channel is written in the new month too.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use crate::ids::{Chid, Uaid};
use crate::month::{DueMove, Month, MonthMove};
use crate::record::{LastConnect, RouterRecord};
use crate::store::{MonthStep, StoreAnswer, StoreOp};

/// What a call does once the agent is on this month.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Task {
    /// Nothing more: a push.
    Move,
    ReadChannels,
    /// Register a channel, if the agent has fewer than `channels_max` others.
    AddChannel {
        chid: Chid,
        channels_max: usize,
    },
    RemoveChannel {
        chid: Chid,
    },
}

/// The parameters of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallParams {
    pub uaid: Uaid,
    /// The month that messages are stored in by this node's clock.
    pub this_month: Month,
    /// The key of this hour in the last-connect index.
    pub last_connect: LastConnect,
    pub task: Task,
}

/// An input of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CallEvent {
    /// The result of [`CallEffect::ReadRecord`].
    RecordRead(Option<RouterRecord>),
    /// The result of [`CallEffect::Store`].
    StoreAnswered(StoreAnswer),
    /// Either of them failed, or its outcome is unknown.
    StoreFailed,
}

/// An effect of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CallEffect {
    /// Read the router record with a consistent read.
    ReadRecord,
    Store(StoreOp),
    /// The last effect of a call.
    End(Result<CallOutcome, BridgedError>),
}

/// The result of a call that was executed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CallOutcome {
    /// The result of [`Task::Move`]: the record, which names this month or a later one and no `oldmonth`.
    Moved(Box<RouterRecord>),
    /// The result of [`Task::ReadChannels`].
    Channels(BTreeSet<Chid>),
    /// The channel is registered, or is not any more.
    Written,
}

/// Why a call was not executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BridgedError {
    /// No agent behind a bridge has this uaid.
    UnknownAgent,
    /// The channel to unregister is not registered.
    NoSuchChannel,
    /// The agent has as many channels as it may.
    TooManyChannels,
    /// The store has no space for it.
    NoSpace,
    /// The store failed, or the record moved each time. A write may have happened; the caller may repeat it.
    Unavailable,
}

/// A call on a user agent behind a bridge.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BridgedCall {
    params: CallParams,
    /// Reads of the record.
    lookups: u8,
    /// The month that the channel was written in.
    written_in: Option<Month>,
    state: CallState,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum CallState {
    ReadingRecord,
    WritingRecord(MonthStep),
    ReadingOldChannels(MonthStep),
    CreatingChannels(MonthStep),
    ClearingOldMonth,
    ReadingChannels(Month),
    WritingChannel(Month),
    Ended,
}

/// Reads of the record after which a call fails, if the record changes each time.
const LOOKUPS_MAX: u8 = 8;

use CallEffect as Do;
use CallState as State;

impl BridgedCall {
    /// Begins a call and returns its first effect.
    pub fn begin(params: CallParams) -> (Self, CallEffect) {
        let state = State::ReadingRecord;
        (Self { params, lookups: 0, written_in: None, state }, Do::ReadRecord)
    }

    /// Applies the result of the last effect and returns the next one.
    pub fn step(&mut self, event: CallEvent) -> CallEffect {
        let state = std::mem::replace(&mut self.state, State::Ended);
        let answer = match (state, event) {
            (State::ReadingRecord, CallEvent::RecordRead(record)) => return self.on_record(record),
            (state, CallEvent::StoreAnswered(answer)) => (state, answer),
            (_, CallEvent::RecordRead(_) | CallEvent::StoreFailed) => {
                return end(BridgedError::Unavailable);
            }
        };
        match answer {
            (_, StoreAnswer::NoSpace) => end(BridgedError::NoSpace),
            (State::WritingRecord(step), StoreAnswer::MonthUpdated(true)) => self.copy(step),
            (State::WritingRecord(_), StoreAnswer::MonthUpdated(false))
            | (State::ClearingOldMonth, StoreAnswer::MoveFinished(_)) => self.read_record(),
            (State::ReadingOldChannels(step), StoreAnswer::Channels(channels)) => {
                let (uaid, month) = (step.uaid, step.to);
                let channels = channels.unwrap_or_default();
                self.state = State::CreatingChannels(step);
                Do::Store(StoreOp::CreateChannels { uaid, month, channels })
            }
            (State::CreatingChannels(step), StoreAnswer::ChannelsAdded) => {
                self.state = State::ClearingOldMonth;
                Do::Store(StoreOp::FinishMove(step))
            }
            (State::ReadingChannels(month), StoreAnswer::Channels(channels)) => {
                self.on_channels(month, channels.unwrap_or_default())
            }
            (
                State::WritingChannel(month),
                StoreAnswer::ChannelsAdded | StoreAnswer::ChannelRemoved,
            ) => {
                self.written_in = Some(month);
                self.read_record()
            }
            // No other answer belongs to the operation of a state.
            _ => end(BridgedError::Unavailable),
        }
    }

    fn read_record(&mut self) -> CallEffect {
        self.lookups += 1;
        if self.lookups >= LOOKUPS_MAX {
            return end(BridgedError::Unavailable);
        }
        self.state = State::ReadingRecord;
        Do::ReadRecord
    }

    fn on_record(&mut self, record: Option<RouterRecord>) -> CallEffect {
        let is_bridge = |record: &RouterRecord| record.router_type.recipient().is_some();
        let Some(record) = record.filter(is_bridge) else { return end(BridgedError::UnknownAgent) };
        let step = |MonthMove { from, to }| MonthStep {
            uaid: record.uaid,
            node: None,
            connected_at: record.connected_at,
            from,
            to,
            last_connect: self.params.last_connect,
        };
        match DueMove::of(record.curmonth, record.oldmonth, self.params.this_month) {
            Some(DueMove::Resume(months)) => self.copy(step(months)),
            Some(DueMove::Begin(months)) => {
                let step = step(months);
                self.state = State::WritingRecord(step.clone());
                Do::Store(StoreOp::UpdateMonth(step))
            }
            None => self.on_this_month(record),
        }
    }

    /// Reads the channels of the old month, which the record has left.
    fn copy(&mut self, step: MonthStep) -> CallEffect {
        let (uaid, month) = (step.uaid, step.from);
        self.state = State::ReadingOldChannels(step);
        Do::Store(StoreOp::ReadChannels { uaid, month })
    }

    fn on_this_month(&mut self, record: RouterRecord) -> CallEffect {
        let (uaid, month) = (record.uaid, record.curmonth);
        match (self.params.task, self.written_in) {
            (Task::Move, _) => Do::End(Ok(CallOutcome::Moved(Box::new(record)))),
            (_, Some(written)) if written == month => Do::End(Ok(CallOutcome::Written)),
            (task, Some(_)) => self.write(task, month),
            (_, None) => {
                self.state = State::ReadingChannels(month);
                Do::Store(StoreOp::ReadChannels { uaid, month })
            }
        }
    }

    fn on_channels(&mut self, month: Month, channels: BTreeSet<Chid>) -> CallEffect {
        match self.params.task {
            Task::AddChannel { chid, channels_max }
                if !channels.contains(&chid) && channels.len() >= channels_max =>
            {
                end(BridgedError::TooManyChannels)
            }
            Task::RemoveChannel { chid } if !channels.contains(&chid) => {
                end(BridgedError::NoSuchChannel)
            }
            Task::ReadChannels => Do::End(Ok(CallOutcome::Channels(channels))),
            task => self.write(task, month),
        }
    }

    fn write(&mut self, task: Task, month: Month) -> CallEffect {
        let uaid = self.params.uaid;
        self.state = State::WritingChannel(month);
        match task {
            Task::AddChannel { chid, .. } => {
                Do::Store(StoreOp::AddChannels { uaid, month, channels: BTreeSet::from([chid]) })
            }
            Task::RemoveChannel { chid } => {
                Do::Store(StoreOp::RemoveChannel { uaid, months: vec![month], chid })
            }
            Task::Move | Task::ReadChannels => end(BridgedError::Unavailable),
        }
    }
}

fn end(error: BridgedError) -> CallEffect {
    Do::End(Err(error))
}
