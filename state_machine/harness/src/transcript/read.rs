//! Parses the input lines of a script.

use std::collections::BTreeSet;
use std::sync::Arc;

use base64::Engine;

use super::input::Input;
use crate::script::Bindings;
use crate::script::tokens::{OFFSET, SPAN, SyntaxError, Tokens, offset, span, unquoted};
use state_machine::broadcast::Broadcasts;
use state_machine::connection::{CloseReason, Event};
use state_machine::feed::{FeedKey, FeedPage, FeedSyncId, FeedValue, Update, Version};
use state_machine::ids::{Chid, MessageId, NodeId, OpId, PushId, Uaid};
use state_machine::message::{Encoding, Message, MessageKey, Payload, Topic, Urgency};
use state_machine::record::{LastConnect, NodeBinding, RouterRecord, RouterType};
use state_machine::store::{
    Cursor, Page, RegisterResult, SettledMessages, StoreAnswer, StoreFailed,
};
use state_machine::time::{Span, Time};
use state_machine::wire::{BASE64, InvalidFrame};

/// The head's values, from which a line's omitted values follow.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    pub(crate) start: Time,
    pub(crate) node: &'a NodeId,
}

impl Reader<'_> {
    /// Parses the text after `agent>`.
    pub(crate) fn agent(text: &str) -> Result<Input, SyntaxError> {
        Ok(Input::Event(match text {
            "<binary>" => Event::InvalidFrame(InvalidFrame::Binary),
            "<unreadable>" => Event::InvalidFrame(InvalidFrame::Unreadable),
            "<pong>" => Event::PeerActive,
            "<closes>" => Event::SocketClosed,
            _ => {
                let frame = Input::Frame(text.to_owned());
                frame.event(&Bindings::fixed()).map_err(|unknown| unknown.to_string())?;
                return Ok(frame);
            }
        }))
    }

    /// Parses the text after `node>`.
    pub(crate) fn node(&self, text: &str) -> Result<Event, SyntaxError> {
        const EVENTS: &str = "message_stored, replaced, connected_elsewhere, shutdown, access_ended, hello_over_limit or broadcasts";
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        match (word, rest) {
            ("message_stored", "") => Ok(Event::MessageStored),
            ("replaced", "") => Ok(Event::Replaced),
            ("shutdown", "") => Ok(Event::ShutdownBegan),
            ("access_ended", "") => Ok(Event::AccessEnded),
            ("hello_over_limit", text) => {
                let reason = CloseReason::ALL.into_iter().find(|reason| reason.text() == text);
                reason.map(Event::HelloOverLimit).ok_or_else(|| format!("`{text}` closes nothing"))
            }
            ("connected_elsewhere", rest) => {
                let mut words = Tokens::of(rest);
                let connected_at = self.seen(&mut words)?;
                words.end()?;
                Ok(Event::ConnectedElsewhere { connected_at })
            }
            ("broadcasts", all) => Ok(Event::BroadcastsChanged(Arc::new(broadcasts(all)?))),
            _ => Err(format!("expected {EVENTS}, got `{text}`")),
        }
    }

    /// Parses the text after `push>`.
    pub(crate) fn push(&self, text: &str) -> Result<Event, SyntaxError> {
        let mut words = Tokens::of(text);
        let event = if words.peek() == Some("reply_lost") {
            words.exactly("reply_lost")?;
            Event::AckReplyLost(reference(&mut words)?)
        } else {
            let push = PushId(words.parse("the number of the push, or `reply_lost`")?);
            Event::PushArrived { push, message: self.message(&mut words)? }
        };
        words.end()?;
        Ok(event)
    }

    /// Parses the text after `store>`.
    pub(crate) fn store(&self, text: &str) -> Result<Event, SyntaxError> {
        let mut words = Tokens::of(text);
        let op = OpId(words.parse("the number of the operation")?);
        let answer = if words.peek() == Some("failed") {
            words.exactly("failed")?;
            Err(StoreFailed)
        } else {
            Ok(self.answer(&mut words)?)
        };
        words.end()?;
        Ok(Event::StoreAnswered { op, answer })
    }

    fn answer(&self, words: &mut Tokens<'_>) -> Result<StoreAnswer, SyntaxError> {
        const ANSWERS: &str = "failed, registered, unknown_agent, superseded, channels, fetched, deleted, \
            channels_added, channel_removed, month_updated, move_finished, moved, node_cleared, over_limit or \
            no_space";
        Ok(match words.word(ANSWERS)? {
            "registered" => {
                let (record, before) = self.record(words)?;
                StoreAnswer::Registered(RegisterResult::Registered(record, before))
            }
            "unknown_agent" => StoreAnswer::Registered(RegisterResult::UnknownAgent),
            "superseded" => StoreAnswer::Registered(RegisterResult::Superseded(self.seen(words)?)),
            "channels" => StoreAnswer::Channels(channels(words)?),
            "fetched" => StoreAnswer::Fetched(self.page(words)?),
            "deleted" => StoreAnswer::Deleted(SettledMessages::default()),
            "offers_recorded" => StoreAnswer::OffersRecorded,
            "channels_added" => StoreAnswer::ChannelsAdded,
            "channel_removed" => StoreAnswer::ChannelRemoved,
            "month_updated" => StoreAnswer::MonthUpdated(yes_or_no(words)?),
            "move_finished" => StoreAnswer::MoveFinished(yes_or_no(words)?),
            "moved" => StoreAnswer::Moved,
            "over_limit" => StoreAnswer::OverLimit,
            "node_cleared" => StoreAnswer::NodeCleared(yes_or_no(words)?),
            "no_space" => StoreAnswer::NoSpace,
            other => return Err(format!("expected {ANSWERS}, got `{other}`")),
        })
    }

    /// The record as registered, and with `before=node@offset` the agent's previous node.
    pub(crate) fn record(
        &self,
        words: &mut Tokens<'_>,
    ) -> Result<(RouterRecord, Option<NodeBinding>), SyntaxError> {
        let uaid: Uaid = words.name()?;
        let mut fields = words.fields()?;
        let month = |text: &str| text.parse().ok();
        let connected_at = fields.need("at", OFFSET, |text| offset(text, self.start))?;
        let node = fields.read("node", "a node", node)?.unwrap_or_else(|| self.node.clone());
        let last_connect =
            fields.read("last_connect", "a number", |text| text.parse().ok().map(LastConnect))?;
        let record = RouterRecord {
            uaid,
            router_type: RouterType::WebPush,
            node: Some(node),
            connected_at,
            last_connect: last_connect
                .unwrap_or_else(|| LastConnect::of(connected_at, uaid, LastConnect::SHARDS)),
            curmonth: fields.need("curmonth", "a month such as 2026_11", month)?,
            oldmonth: fields.read("oldmonth", "a month such as 2026_11", month)?,
        };
        let before = fields.read("before", "a node, @ and an offset", |text| self.binding(text))?;
        fields.end()?;
        Ok((record, before))
    }

    fn binding(&self, text: &str) -> Option<NodeBinding> {
        let (name, at) = text.rsplit_once('@')?;
        Some(NodeBinding { node: node(name)?, connected_at: offset(at, self.start)? })
    }

    fn seen(&self, words: &mut Tokens<'_>) -> Result<Time, SyntaxError> {
        let mut fields = words.fields()?;
        let seen = fields.need("at", OFFSET, |text| offset(text, self.start))?;
        fields.end()?;
        Ok(seen)
    }

    fn page(&self, words: &mut Tokens<'_>) -> Result<Page, SyntaxError> {
        let messages = words.list(|words| self.message(words))?;
        let mut fields = words.fields()?;
        let next = fields.read("next", "a word", |text| Some(Cursor::new(text)))?;
        fields.end()?;
        Ok(Page { messages, next })
    }

    pub(crate) fn message(&self, words: &mut Tokens<'_>) -> Result<Message, SyntaxError> {
        let (id, chid) = (words.name::<MessageId>()?, words.name::<Chid>()?);
        let mut fields = words.fields()?;
        let topic = fields.read("topic", "a topic", |text| Topic::parse(text).ok())?;
        topic_fits(id, topic.is_some())?;
        let urgency = fields.read("urgency", "very-low, low, normal or high", Urgency::parse)?;
        let accepted_at = fields.read("accepted", OFFSET, |text| offset(text, self.start))?;
        let is_version = id.version_of(chid).is_some();
        // A version never expires.
        let ttl = if is_version { Span(u64::MAX) } else { fields.need("ttl", SPAN, span)? };
        let offers = fields.read("offers", "a number", |text| text.parse().ok())?;
        let encryption = fields.read("encryption", "a header's value", unquoted)?;
        let crypto_key = fields.read("crypto_key", "a header's value", unquoted)?;
        let data =
            fields.read("data", "unpadded URL-safe base64", |text| BASE64.decode(text).ok())?;
        fields.end()?;
        Ok(Message {
            topic,
            urgency: urgency.unwrap_or_default(),
            offers: offers.unwrap_or_default(),
            payload: match data {
                Some(data) if is_version => {
                    Some(Payload { data: data.into(), encoding: Encoding::Plain })
                }
                data => payload(data, encryption, crypto_key)?,
            },
            ..Message::new(id, chid, accepted_at.unwrap_or(self.start), ttl)
        })
    }
}

fn node(name: &str) -> Option<NodeId> {
    unquoted(name).map(|name| NodeId::new(&name))
}

fn broadcasts(text: &str) -> Result<Broadcasts, SyntaxError> {
    let mut words = Tokens::of(text);
    let updates = words.list(broadcast)?;
    let mut fields = words.fields()?;
    let cursor = fields.read("cursor", "a number", |text| text.parse().ok().map(FeedSyncId))?;
    fields.end()?;
    words.end()?;
    let last = updates.iter().map(|update| update.feed_sync_id).max().unwrap_or_default();
    let cursor = cursor.unwrap_or(last);
    let mut all = Broadcasts::default();
    all.apply(FeedPage { updates, cursor, head: cursor, ..FeedPage::default() });
    Ok(all)
}

fn broadcast(words: &mut Tokens<'_>) -> Result<Update, SyntaxError> {
    let feed_sync_id = FeedSyncId(words.parse("the number of the broadcast's last change")?);
    let (id, version) = (words.word("the broadcast's id")?, words.word("its version")?);
    let key = unquoted(id).and_then(|id| FeedKey::parse(&id).ok());
    let value = unquoted(version).and_then(|version| FeedValue::parse(&version).ok());
    Ok(Update {
        feed_sync_id,
        key: key.ok_or_else(|| format!("expected the broadcast's id, got `{id}`"))?,
        version: Version::default(),
        value: Some(value.ok_or_else(|| format!("expected its version, got `{version}`"))?),
    })
}

fn payload(
    data: Option<Vec<u8>>,
    encryption: Option<String>,
    crypto_key: Option<String>,
) -> Result<Option<Payload>, SyntaxError> {
    let encoding = match (encryption, crypto_key) {
        (None, None) => Encoding::Aes128Gcm,
        (Some(encryption), Some(crypto_key)) => {
            Encoding::AesGcm { encryption: encryption.into(), crypto_key: crypto_key.into() }
        }
        _ => return Err("encryption= and crypto_key= need each other".to_owned()),
    };
    match data {
        Some(data) => Ok(Some(Payload { data: data.into(), encoding })),
        None if encoding == Encoding::Aes128Gcm => Ok(None),
        None => Err("encryption= and crypto_key= need data=".to_owned()),
    }
}

fn reference(words: &mut Tokens<'_>) -> Result<MessageKey, SyntaxError> {
    let (id, chid) = (words.name()?, words.name()?);
    let mut fields = words.fields()?;
    let topic = fields.read("topic", "a topic", |text| Topic::parse(text).ok())?;
    fields.end()?;
    Ok(MessageKey { id, chid, topic })
}

fn topic_fits(id: MessageId, has_topic: bool) -> Result<(), SyntaxError> {
    if id.has_topic() == has_topic {
        Ok(())
    } else {
        Err("a message with topic= is named M1t, one without M1".to_owned())
    }
}

pub(crate) fn channels(words: &mut Tokens<'_>) -> Result<Option<BTreeSet<Chid>>, SyntaxError> {
    if words.peek() == Some("none") {
        return words.exactly("none").map(|()| None);
    }
    Ok(Some(words.list(Tokens::name)?.into_iter().collect()))
}

pub(crate) fn yes_or_no(words: &mut Tokens<'_>) -> Result<bool, SyntaxError> {
    match words.word("yes or no")? {
        "yes" => Ok(true),
        "no" => Ok(false),
        other => Err(format!("expected yes or no, got `{other}`")),
    }
}
