//! The events that a connection may receive in the search: one of each kind that makes a
//! difference.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::transcript::{default_config, default_limits};
use state_machine::broadcast::{Broadcasts, Versions};
use state_machine::connection::{CloseReason, Connection, ConnectionSeed, Event, Limits};
use state_machine::feed::{FeedKey, FeedValue};
use state_machine::ids::{Chid, MessageId, NodeId, PushId, Uaid};
use state_machine::message::{Message, Topic, Urgency};
use state_machine::month::Month;
use state_machine::record::{LastConnect, NodeBinding, RouterRecord};
use state_machine::store::{
    Cursor, Page, RegisterResult, Registration, SettledMessages, StoreAnswer, StoreOp,
};
use state_machine::time::{Span, Time};
use state_machine::wire::{AckUpdate, ClientMessage, InvalidFrame};

/// The third of November 2026, and the months before it.
pub(super) const START: Time = Time(1_793_700_000_000);

/// Channels that the store knows, and channels that it does not.
const KNOWN: Chid = Chid([0xAA; 16]);
const OTHER_KNOWN: Chid = Chid([0xBB; 16]);
const UNKNOWN: Chid = Chid([0xCC; 16]);
const OTHER_UNKNOWN: Chid = Chid([0xDD; 16]);

/// A connection on a node with small limits, so that the search reaches them.
pub(super) fn connection() -> Connection {
    let limits = Limits {
        unacked_max: 3,
        deferred_commands_max: 1,
        channels_max: 3,
        remembered_acks_max: 2,
        ..default_limits()
    };
    let config = default_config(limits);
    let seed = ConnectionSeed { fresh_uaid: Uaid([9; 16]), jitter: 0 };
    Connection::new(Arc::new(config), seed, START)
}

/// The events that may arrive at any time, whatever effects are outstanding.
pub(super) fn events() -> Vec<Event> {
    let said = said().into_iter().map(Event::MessageReceived);
    let frame = [InvalidFrame::NotJson, InvalidFrame::UnknownType { message_type: "x".into() }];
    let pushes = pushes().into_iter().enumerate().map(|(at, message)| {
        let push = PushId(at as u64);
        Event::PushArrived { push, message }
    });
    let others = [
        Event::HelloOverLimit(CloseReason::TooManyConnects),
        Event::HelloOverLimit(CloseReason::TooManyHellos),
        Event::PeerActive,
        Event::SocketClosed,
        Event::TimePassed,
        Event::Replaced,
        Event::ConnectedElsewhere { connected_at: START + Span::from_secs(3600) },
        Event::ConnectedElsewhere { connected_at: START - Span(1) },
        Event::ShutdownBegan,
        Event::AccessEnded,
        Event::MessageStored,
        Event::BroadcastsChanged(broadcasts()),
        Event::AckReplyLost(message(1, KNOWN).key()),
    ];
    said.chain(frame.map(Event::InvalidFrame)).chain(pushes).chain(others).collect()
}

/// The answers that the store may give to an operation.
pub(super) fn answers(operation: &StoreOp) -> Vec<StoreAnswer> {
    match operation {
        StoreOp::Register(registration) => registered(registration),
        StoreOp::ReadChannels { .. } => {
            let known = BTreeSet::from([KNOWN, OTHER_KNOWN]);
            vec![StoreAnswer::Channels(Some(known)), StoreAnswer::Channels(None)]
        }
        StoreOp::Fetch { .. } | StoreOp::FetchVersions { .. } => {
            pages().into_iter().map(StoreAnswer::Fetched).collect()
        }
        StoreOp::Delete { .. } => vec![StoreAnswer::Deleted(SettledMessages::default())],
        StoreOp::RecordOffers { .. } => vec![StoreAnswer::OffersRecorded],
        StoreOp::AddChannels { .. } | StoreOp::CreateChannels { .. } => {
            vec![StoreAnswer::ChannelsAdded]
        }
        StoreOp::RemoveChannel { .. } | StoreOp::RemoveChannelAndVersion { .. } => {
            vec![StoreAnswer::ChannelRemoved]
        }
        StoreOp::UpdateMonth(_) => [true, false].map(StoreAnswer::MonthUpdated).to_vec(),
        StoreOp::FinishMove(_) => [true, false].map(StoreAnswer::MoveFinished).to_vec(),
        StoreOp::MoveMessages { .. } => vec![StoreAnswer::Moved],
        StoreOp::ClearNode { .. } => vec![StoreAnswer::NodeCleared(true)],
    }
}

fn said() -> Vec<ClientMessage> {
    let update = |id| AckUpdate { chid: KNOWN, id, code: None };
    let sent: Vec<MessageId> =
        rows().iter().chain(pushes().iter()).map(|message| message.id).collect();
    vec![
        ClientMessage::Hello {
            uaid: Some(Uaid([1; 16])),
            broadcasts: Versions::new(),
            use_webpush: true,
        },
        ClientMessage::Hello { uaid: None, broadcasts: Versions::new(), use_webpush: true },
        ClientMessage::Hello { uaid: Some(Uaid([1; 16])), broadcasts: has(), use_webpush: true },
        ClientMessage::Hello { uaid: None, broadcasts: has(), use_webpush: true },
        ClientMessage::Register { chid: OTHER_KNOWN, key: None },
        ClientMessage::Register { chid: UNKNOWN, key: None },
        ClientMessage::Register { chid: OTHER_UNKNOWN, key: None },
        ClientMessage::Unregister { chid: KNOWN },
        ClientMessage::Ack { updates: sent.into_iter().map(update).collect() },
        ClientMessage::Ack { updates: vec![update(message(9, KNOWN).id)] },
        ClientMessage::Nack,
        ClientMessage::BroadcastSubscribe { broadcasts: has() },
        ClientMessage::Ping,
        ClientMessage::Urgency { min: Urgency::High },
        ClientMessage::Urgency { min: Urgency::VeryLow },
    ]
}

/// The broadcast versions that the agent has.
fn has() -> Versions {
    [(broadcast(), version("old"))].into()
}

fn broadcasts() -> Arc<Broadcasts> {
    Arc::new(Broadcasts::of([(broadcast(), version("new"))]))
}

fn broadcast() -> FeedKey {
    FeedKey::parse("broadcast").expect("a key is text")
}

fn version(text: &str) -> FeedValue {
    FeedValue::parse(text).expect("a value is text")
}

fn pushes() -> [Message; 4] {
    let topic = Topic::parse("topic").ok();
    [
        message(1, KNOWN),
        Message { topic, ..message(3, KNOWN) },
        Message { ttl: Span::ZERO, ..message(4, KNOWN) },
        message(6, UNKNOWN),
    ]
}

fn rows() -> [Message; 3] {
    [message(5, KNOWN), message(6, UNKNOWN), message(7, KNOWN)]
}

fn pages() -> [Page; 4] {
    let [first, of_unknown, last] = rows();
    let next = Some(Cursor::new("first"));
    [
        Page::default(),
        Page { messages: vec![first], next },
        Page { messages: vec![of_unknown], next: None },
        Page { messages: vec![last], next: None },
    ]
}

/// A message with this id; it has a topic if `number` is odd.
fn message(number: u128, chid: Chid) -> Message {
    let id = MessageId::from_uuid_v7(number, number == 3);
    Message::new(id, chid, START, Span::from_secs(24 * 60 * 60))
}

fn registered(registration: &Registration) -> Vec<StoreAnswer> {
    let Registration { uaid, connected_at, .. } = *registration;
    let last_connect = LastConnect::of(connected_at, uaid, LastConnect::SHARDS);
    let record = |curmonth, oldmonth, before| {
        let created = registration.clone().record(curmonth);
        let record = RouterRecord { last_connect, oldmonth, ..created };
        StoreAnswer::Registered(RegisterResult::Registered(record, before))
    };
    let this_month = Month::of(START);
    let last_month = this_month.previous();
    let seen = registration.connected_at;
    let there = NodeBinding { node: NodeId::new("there"), connected_at: START - Span(1) };
    let over_limit = registration.create_in.map(|_| StoreAnswer::OverLimit);
    let answers = [
        record(this_month, None, None),
        record(this_month, None, Some(there)),
        record(last_month, None, None),
        // The longest path first: the search does not repeat the start of a path.
        record(last_month, Some(last_month.previous()), None),
        record(this_month, Some(last_month), None),
        StoreAnswer::Registered(RegisterResult::UnknownAgent),
        StoreAnswer::Registered(RegisterResult::Superseded(seen)),
    ];
    answers.into_iter().chain(over_limit).collect()
}
