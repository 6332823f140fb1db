//! Writes events, effects and the time between them as the lines of a transcript.

use base64::Engine;
use serde_json::{Value, json};

use crate::script::tokens::{offset_text, quoted, span_text};
use crate::script::{NameKind, NamedEndpoints, abstract_names};
use state_machine::broadcast::{Broadcasts, Versions};
use state_machine::connection::{CloseReason, Config, Effect, Event};
use state_machine::feed::{FeedKey, FeedSyncId, FeedValue};
use state_machine::ids::{Chid, MessageId, Uaid};
use state_machine::message::{Encoding, Message, MessageKey, Topic, Urgency};
use state_machine::month::Month;
use state_machine::receipt::AckCode;
use state_machine::record::{LastConnect, NodeBinding, RouterRecord};
use state_machine::store::{
    Cursor, MonthStep, Page, PageLimit, RegisterResult, Registration, StoreAnswer, StoreFailed,
    StoreOp,
};
use state_machine::time::Time;
use state_machine::wire::{BASE64, ClientMessage, InvalidFrame, ServerMessage};

/// Writes one session's lines, without the values that follow from its head.
#[derive(Debug, Clone, Copy)]
pub struct TranscriptWriter<'a> {
    /// The node's name and its limits.
    pub config: &'a Config,
    /// The start of the session.
    pub start: Time,
}

impl TranscriptWriter<'_> {
    /// The line of an event. Time that passed since `before` has a line of its own, see
    /// [`TranscriptWriter::wait`].
    pub fn event(&self, event: &Event, before: Time, now: Time) -> String {
        match event {
            Event::MessageReceived(message) => format!("agent> {}", client_message(message)),
            Event::HelloOverLimit(reason) => format!("node> hello_over_limit {}", reason.text()),
            Event::InvalidFrame(frame) => format!("agent> {}", invalid_frame(frame)),
            Event::PeerActive => "agent> <pong>".to_owned(),
            Event::SocketClosed => "agent> <closes>".to_owned(),
            Event::TimePassed => format!("wait {}", span_text(now.since(before))),
            Event::Replaced => "node> replaced".to_owned(),
            Event::ConnectedElsewhere { connected_at } => {
                format!("node> connected_elsewhere at={}", offset_text(*connected_at, self.start))
            }
            Event::ShutdownBegan => "node> shutdown".to_owned(),
            Event::AccessEnded => "node> access_ended".to_owned(),
            Event::MessageStored => "node> message_stored".to_owned(),
            Event::BroadcastsChanged(all) => format!("node> broadcasts {}", broadcasts(all)),
            Event::PushArrived { push, message } => {
                format!("push> {} {}", push.0, self.message(message))
            }
            Event::AckReplyLost(message) => format!("push> reply_lost {}", reference(message)),
            Event::StoreAnswered { op, answer } => {
                format!("store> {} {}", op.0, self.answer(answer))
            }
        }
    }

    /// The `wait` line before an event that is not [`Event::TimePassed`]; none if no time passed.
    pub fn wait(&self, event: &Event, before: Time, now: Time) -> Option<String> {
        let is_needed = before < now && *event != Event::TimePassed;
        is_needed.then(|| self.event(&Event::TimePassed, before, now))
    }

    /// The line of an effect.
    pub fn effect(&self, effect: &Effect, now: Time) -> String {
        match effect {
            Effect::Send(message) => format!("agent< {}", frame(message)),
            Effect::Ping => "agent< <ping>".to_owned(),
            Effect::SubmitStoreOp { op, operation } => {
                format!("store< {} {}", op.0, self.operation(operation, now))
            }
            Effect::AnswerPush { push, answer, message } => {
                let answer = answer.name().replace(' ', "_");
                format!("push< {} {answer} {}", push.0, reference(message))
            }
            Effect::Register { uaid } => format!("registry< register {}", uaid.name()),
            Effect::Deregister { uaid } => format!("registry< deregister {}", uaid.name()),
            Effect::NotifyPreviousNode { node, uaid, connected_at } => {
                let at = offset_text(*connected_at, self.start);
                format!("node< notify_previous {} {} at={at}", quoted(node.as_str()), uaid.name())
            }
            Effect::SubscribeBroadcasts { last_sent } => {
                format!("broadcasts< subscribe {last_sent}")
            }
            Effect::UnsubscribeBroadcasts => "broadcasts< unsubscribe".to_owned(),
            Effect::Close(reason) => format!("close< {}", close(*reason)),
        }
    }

    /// A store operation without its number.
    pub fn operation(&self, operation: &StoreOp, now: Time) -> String {
        let (uaid, arguments) = match operation {
            StoreOp::Register(registration) => {
                (registration.uaid, self.register(registration, now))
            }
            StoreOp::ReadChannels { uaid, month } => (*uaid, format!(" {month}")),
            StoreOp::Fetch { uaid, month, after, limit, now: as_of } => {
                let page = self.page_fields(after.as_ref(), *limit, *as_of, now);
                (*uaid, format!(" {month}{page}"))
            }
            StoreOp::FetchVersions { uaid, after, limit, now: as_of } => {
                (*uaid, self.page_fields(after.as_ref(), *limit, *as_of, now))
            }
            StoreOp::Delete { uaid, months, messages, acks } => {
                let (months, messages) = (month_list(months), list(messages, reference));
                (*uaid, format!(" {months} {messages}{}", codes(acks)))
            }
            StoreOp::RecordOffers { uaid, month, messages } => {
                (*uaid, format!(" {month} {}", list(messages, reference)))
            }
            StoreOp::AddChannels { uaid, month, channels }
            | StoreOp::CreateChannels { uaid, month, channels } => {
                (*uaid, format!(" {month} {}", list(channels, Chid::name)))
            }
            StoreOp::RemoveChannel { uaid, months, chid }
            | StoreOp::RemoveChannelAndVersion { uaid, months, chid } => {
                (*uaid, format!(" {} {}", month_list(months), chid.name()))
            }
            StoreOp::UpdateMonth(step) | StoreOp::FinishMove(step) => {
                (step.uaid, self.month_step(step, now))
            }
            StoreOp::MoveMessages { uaid, from, to } => (*uaid, format!(" {from} to {to}")),
            StoreOp::ClearNode { uaid, binding } => {
                (*uaid, format!(" at={}", offset_text(binding.connected_at, self.start)))
            }
        };
        let name = operation.effect_name().trim_start_matches("store: ").replace(' ', "_");
        format!("{name} {}{arguments}", uaid.name())
    }

    /// The store's answer, without the number of its operation.
    pub fn answer(&self, answer: &Result<StoreAnswer, StoreFailed>) -> String {
        let answer = match answer {
            Err(StoreFailed) => return "failed".to_owned(),
            Ok(answer) => answer,
        };
        match answer {
            StoreAnswer::Registered(RegisterResult::Registered(record, before)) => {
                self.record(record, before.as_ref())
            }
            StoreAnswer::Registered(RegisterResult::UnknownAgent) => "unknown_agent".to_owned(),
            StoreAnswer::Registered(RegisterResult::Superseded(seen)) => {
                format!("superseded at={}", offset_text(*seen, self.start))
            }
            StoreAnswer::Channels(None) => "channels none".to_owned(),
            StoreAnswer::Channels(Some(channels)) => {
                format!("channels {}", list(channels, Chid::name))
            }
            StoreAnswer::Fetched(page) => self.page(page),
            StoreAnswer::MonthUpdated(is_so)
            | StoreAnswer::MoveFinished(is_so)
            | StoreAnswer::NodeCleared(is_so) => {
                format!("{} {}", word(answer), if *is_so { "yes" } else { "no" })
            }
            StoreAnswer::Deleted(_)
            | StoreAnswer::OffersRecorded
            | StoreAnswer::ChannelsAdded
            | StoreAnswer::ChannelRemoved
            | StoreAnswer::Moved
            | StoreAnswer::OverLimit
            | StoreAnswer::NoSpace => word(answer),
        }
    }

    fn register(&self, registration: &Registration, now: Time) -> String {
        let Registration { uaid, connected_at, last_connect, create_in, .. } = registration;
        let mut text = format!(" at={}", offset_text(*connected_at, self.start));
        if let Some(month) = create_in {
            text += &format!(" create={month}");
        }
        text + &last_connect_text(*last_connect, now, *uaid)
    }

    fn month_step(&self, step: &MonthStep, now: Time) -> String {
        let MonthStep { uaid, connected_at, from, to, last_connect, .. } = step;
        let at = offset_text(*connected_at, self.start);
        let last_connect = last_connect_text(*last_connect, now, *uaid);
        format!(" {from} to {to} at={at}{last_connect}")
    }

    fn page_fields(
        &self,
        after: Option<&Cursor>,
        limit: PageLimit,
        as_of: Time,
        now: Time,
    ) -> String {
        let (limits, mut text) = (&self.config.limits, String::new());
        if let Some(after) = after {
            text += &format!(" after={}", after.as_str());
        }
        if limit.rows != limits.fetch_rows_max {
            text += &format!(" rows={}", limit.rows);
        }
        if limit.bytes != limits.fetch_bytes_max {
            text += &format!(" bytes={}", limit.bytes);
        }
        if as_of != now {
            text += &format!(" now={}", offset_text(as_of, self.start));
        }
        text
    }

    pub(crate) fn record(&self, record: &RouterRecord, before: Option<&NodeBinding>) -> String {
        let RouterRecord { uaid, node, connected_at, last_connect, curmonth, oldmonth, .. } =
            record;
        let at = offset_text(*connected_at, self.start);
        let mut text = format!("registered {} at={at} curmonth={curmonth}", uaid.name());
        if let Some(oldmonth) = oldmonth {
            text += &format!(" oldmonth={oldmonth}");
        }
        if let Some(node) = node.as_ref().filter(|node| **node != self.config.node) {
            text += &format!(" node={}", quoted(node.as_str()));
        }
        text += &last_connect_text(*last_connect, *connected_at, *uaid);
        if let Some(NodeBinding { node, connected_at }) = before {
            let at = offset_text(*connected_at, self.start);
            text += &format!(" before={}@{at}", quoted(node.as_str()));
        }
        text
    }

    fn page(&self, page: &Page) -> String {
        let messages = list(&page.messages, |message| self.message(message));
        let next = page.next.as_ref().map(|next| format!(" next={}", next.as_str()));
        let next = next.unwrap_or_default();
        format!("fetched {messages}{next}")
    }

    pub(crate) fn message(&self, message: &Message) -> String {
        let Message { topic, urgency, accepted_at, ttl, offers, payload, .. } = message;
        let mut text = format!("{} {}", message.id.name(), message.chid.name());
        if message.version().is_none() {
            text += &format!(" ttl={}", span_text(*ttl));
        }
        text += &topic_text(topic.as_ref());
        if *urgency != Urgency::default() {
            text += &format!(" urgency={}", urgency.as_str());
        }
        if *accepted_at != self.start {
            text += &format!(" accepted={}", offset_text(*accepted_at, self.start));
        }
        if *offers > 0 {
            text += &format!(" offers={offers}");
        }
        if let Some(payload) = payload {
            text += &format!(" data={}", BASE64.encode(&payload.data));
            if let Encoding::AesGcm { encryption, crypto_key } = &payload.encoding {
                text += &format!(" encryption={}", quoted(encryption));
                text += &format!(" crypto_key={}", quoted(crypto_key));
            }
        }
        text
    }
}

/// A frame for the agent as JSON, with names for ids.
pub(super) fn frame(message: &ServerMessage) -> String {
    abstract_names(&message.to_json(&NamedEndpoints))
}

fn client_message(message: &ClientMessage) -> String {
    let json = match message {
        ClientMessage::Hello { uaid, broadcasts, use_webpush } => {
            let uaid = uaid.map(|uaid| format!(r#","uaid":"{uaid}""#)).unwrap_or_default();
            let use_webpush = if *use_webpush { r#","use_webpush":true"# } else { "" };
            format!(r#"{{"messageType":"hello"{uaid}{use_webpush}{}}}"#, versions(broadcasts))
        }
        ClientMessage::Register { chid, key: None } => command("register", *chid),
        ClientMessage::Register { chid, key: Some(key) } => {
            format!(r#"{{"messageType":"register","channelID":"{chid}","key":"{key:?}"}}"#)
        }
        ClientMessage::Unregister { chid } => command("unregister", *chid),
        ClientMessage::Ack { updates } => {
            let update = |update: &state_machine::wire::AckUpdate| match update
                .id
                .version_of(update.chid)
            {
                Some(version) => {
                    format!(r#"{{"channelID":"{}","version":{version}}}"#, update.chid)
                }
                None => {
                    let code = update.code.map(|code| format!(r#","code":{code}"#));
                    let code = code.unwrap_or_default();
                    format!(r#"{{"channelID":"{}","version":"{}"{code}}}"#, update.chid, update.id)
                }
            };
            let updates: Vec<String> = updates.iter().map(update).collect();
            format!(r#"{{"messageType":"ack","updates":[{}]}}"#, updates.join(","))
        }
        ClientMessage::Nack => r#"{"messageType":"nack"}"#.to_owned(),
        ClientMessage::BroadcastSubscribe { broadcasts } => {
            format!(r#"{{"messageType":"broadcast_subscribe"{}}}"#, versions(broadcasts))
        }
        ClientMessage::Ping => "{}".to_owned(),
        ClientMessage::Urgency { min } => {
            format!(r#"{{"messageType":"urgency","min":"{}"}}"#, min.as_str())
        }
    };
    abstract_names(&json)
}

/// The field, empty if there are no versions.
fn versions(broadcasts: &Versions) -> String {
    if broadcasts.is_empty() {
        return String::new();
    }
    let text = |(id, version): (&FeedKey, &FeedValue)| {
        (id.as_str().to_owned(), Value::from(version.as_str()))
    };
    let versions: serde_json::Map<String, Value> = broadcasts.iter().map(text).collect();
    format!(r#","broadcasts":{}"#, Value::from(versions))
}

fn command(message_type: &str, chid: Chid) -> String {
    format!(r#"{{"messageType":"{message_type}","channelID":"{chid}"}}"#)
}

/// A frame that is invalid for the same reason.
fn invalid_frame(frame: &InvalidFrame) -> String {
    match frame {
        InvalidFrame::NotJson => "not JSON".to_owned(),
        InvalidFrame::Binary => "<binary>".to_owned(),
        InvalidFrame::Unreadable => "<unreadable>".to_owned(),
        InvalidFrame::UnknownType { message_type } => {
            json!({"messageType": message_type}).to_string()
        }
        InvalidFrame::BadField { message_type, channel_id, .. } => {
            let mut fields = json!({"messageType": message_type, "key": "", "min": ""});
            if let Some(channel_id) = channel_id {
                fields["channelID"] = Value::from(&**channel_id);
            }
            abstract_names(&fields.to_string())
        }
    }
}

/// All broadcasts, each with the number of its last change; and the cursor, if it is higher than
/// all of them.
fn broadcasts(all: &Broadcasts) -> String {
    let last = all.sequenced().map(|(changed, ..)| changed).max().unwrap_or_default();
    let one = |(changed, id, version): (FeedSyncId, &FeedKey, &FeedValue)| {
        format!("{changed} {} {}", quoted(id.as_str()), quoted(version.as_str()))
    };
    let texts: Vec<String> = all.sequenced().map(one).collect();
    let cursor = Some(all.cursor()).filter(|cursor| *cursor != last);
    let cursor = cursor.map(|cursor| format!(" cursor={cursor}")).unwrap_or_default();
    format!("[{}]{cursor}", texts.join(", "))
}

fn close(reason: CloseReason) -> String {
    match reason.code() {
        Some(code) => format!("{code} {}", reason.text()),
        None => reason.text().to_owned(),
    }
}

pub(crate) fn reference(message: &MessageKey) -> String {
    let MessageKey { id, chid, topic } = message;
    format!("{} {}{}", id.name(), chid.name(), topic_text(topic.as_ref()))
}

fn topic_text(topic: Option<&Topic>) -> String {
    topic.map(|topic| format!(" topic={}", topic.as_str())).unwrap_or_default()
}

/// The index key, if it differs from the one that follows from `time`.
fn last_connect_text(last_connect: LastConnect, time: Time, uaid: Uaid) -> String {
    if last_connect == LastConnect::of(time, uaid, LastConnect::SHARDS) {
        String::new()
    } else {
        format!(" last_connect={}", last_connect.0)
    }
}

pub(crate) fn list<'a, T: 'a>(
    items: impl IntoIterator<Item = &'a T>,
    text: impl Fn(&'a T) -> String,
) -> String {
    let items: Vec<String> = items.into_iter().map(text).collect();
    format!("[{}]", items.join(", "))
}

/// The ack codes of a delete, but for the usual one.
fn codes(acks: &[(MessageId, AckCode)]) -> String {
    let unusual = acks.iter().filter(|(_, code)| *code != AckCode::Delivered);
    let codes = unusual.map(|(id, code)| format!(" {}={}", id.name(), code.number()));
    codes.collect()
}

fn month_list(months: &[Month]) -> String {
    let months: Vec<String> = months.iter().map(Month::to_string).collect();
    months.join(",")
}

/// The name of an answer as one word.
fn word(answer: &StoreAnswer) -> String {
    answer.name().replace(' ', "_")
}
