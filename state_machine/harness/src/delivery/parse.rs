//! Parses a delivery script line by line.

use super::{DeliveryScript, Input};
use crate::script::tokens::{
    Fields, OFFSET, SPAN, SyntaxError, Tokens, offset, one_of, span, unquoted,
};
use crate::script::{self, Grammar, ParseError};
use crate::transcript::{Head, Reader, channels, yes_or_no};
use state_machine::bridge::{BridgeName, BridgeOutcome, BridgeRecipient};
use state_machine::delivery::{BridgedRoute, DeliveryEvent, NodeAnswer, Route, WriteError};
use state_machine::ids::NodeId;
use state_machine::store::{FullScope, Stored};

/// The answers of a node, and their words.
const NODE_ANSWERS: [(&str, NodeAnswer); 6] = [
    ("accepted", NodeAnswer::Accepted),
    ("unconfirmed", NodeAnswer::Unconfirmed),
    ("busy", NodeAnswer::Busy),
    ("not_here", NodeAnswer::NotHere),
    ("no_such_channel", NodeAnswer::NoSuchChannel),
    ("unreachable", NodeAnswer::Unreachable),
];

/// The answers of a bridge without arguments, and their words.
pub(super) const BRIDGE_OUTCOMES: [(&str, BridgeOutcome); 8] = [
    ("accepted", BridgeOutcome::Accepted),
    ("recipient_gone", BridgeOutcome::RecipientGone),
    ("busy", BridgeOutcome::Busy { retry_after: None }),
    ("unknown_app", BridgeOutcome::UnknownApp),
    ("misconfigured", BridgeOutcome::Misconfigured),
    ("unauthorized", BridgeOutcome::Unauthorized),
    ("unavailable", BridgeOutcome::Unavailable),
    ("timed_out", BridgeOutcome::TimedOut),
];

impl DeliveryScript {
    /// Reads a script. Its errors begin with the line: put the file's name and a colon before them.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut head = DeliveryHead(Head::default());
        let (title, steps) = script::parse(text, &mut head)?;
        let start = head.0.start.expect("no input is read without it");
        Ok(Self { title, start, frozen_month: head.0.config.frozen_month, steps })
    }
}

/// The head of a session, of which a delivery has two lines.
struct DeliveryHead(Head);

impl Grammar for DeliveryHead {
    type Input = Input;

    const WHAT: &'static str = "delivery";

    fn effect(&self, recipient: &str, _: &str) -> Result<(), SyntaxError> {
        match recipient {
            "store" | "node" | "bridge" | "push" => Ok(()),
            _ => Err(format!("expected store<, node<, bridge< or push<, got `{recipient}<`")),
        }
    }

    fn input(&mut self, head: &str, rest: &str) -> Result<Option<Input>, SyntaxError> {
        if !["push>", "store>", "node>", "bridge>"].contains(&head) {
            return Ok(None);
        }
        let reader = self.0.reader()?;
        let mut words = Tokens::of(rest);
        let input = match head {
            "push>" => Input::Push(words.name()?, Box::new(reader.message(&mut words)?)),
            "store>" => store(&reader, &mut words)?,
            "node>" => {
                let answer = one_of(&NODE_ANSWERS, words.word("the answer of the node")?)?;
                Input::Event(DeliveryEvent::NodeAnswered(answer))
            }
            _ => Input::Event(DeliveryEvent::BridgeAnswered(bridge(&mut words)?)),
        };
        words.end()?;
        Ok(Some(input))
    }

    fn head(&mut self, head: &str, rest: &str, has_no_input: bool) -> Result<(), SyntaxError> {
        match head {
            "at" | "frozen" if has_no_input => self.0.head(head, rest, has_no_input),
            _ => Err(format!(
                "expected push>, store>, node>, bridge>, an effect with <, or at the beginning at or frozen, \
                 got `{head}`"
            )),
        }
    }
}

fn store(reader: &Reader<'_>, words: &mut Tokens<'_>) -> Result<Input, SyntaxError> {
    const ANSWERS: &str = "record, other_protocol, channels, stored, outranked, no_such_channel, no_such_month, full, node_cleared, \
        deleted, dropped or failed";
    let event = match words.word(ANSWERS)? {
        "record" if words.peek() == Some("none") => {
            words.exactly("none")?;
            return Ok(Input::Record(None));
        }
        "record" => return Ok(Input::Record(Some(route(reader, words)?))),
        "channels" => return Ok(Input::Channels(channels(words)?)),
        "failed" => return Ok(Input::Failed),
        "other_protocol" => DeliveryEvent::OtherProtocol,
        "stored" => DeliveryEvent::Stored(Ok(Stored::Done)),
        "outranked" => DeliveryEvent::Stored(Ok(Stored::Outranked(words.name()?))),
        "no_such_channel" => DeliveryEvent::Stored(Ok(Stored::NoSuchChannel)),
        "no_such_month" => DeliveryEvent::Stored(Err(WriteError::NoSuchMonth)),
        "full" => {
            let scopes = [("user", FullScope::User), ("channel", FullScope::Channel)];
            let scope = one_of(&scopes, words.word("user or channel")?)?;
            DeliveryEvent::Stored(Ok(Stored::Full(scope)))
        }
        "node_cleared" => DeliveryEvent::NodeCleared,
        "deleted" => DeliveryEvent::OldRowDeleted,
        "dropped" => DeliveryEvent::RecipientDropped(Ok(yes_or_no(words)?)),
        other => return Err(format!("expected {ANSWERS}, got `{other}`")),
    };
    Ok(Input::Event(event))
}

fn route(reader: &Reader<'_>, words: &mut Tokens<'_>) -> Result<Route, SyntaxError> {
    const MONTH: &str = "a month such as 2026_11";
    let mut fields = words.fields()?;
    let month = |text: &str| text.parse().ok();
    let node =
        fields.read("node", "a node", |text| unquoted(text).map(|name| NodeId::new(&name)))?;
    let connected_at = fields.need("at", OFFSET, |text| offset(text, reader.start))?;
    let curmonth = fields.need("curmonth", MONTH, month)?;
    let oldmonth = fields.read("oldmonth", MONTH, month)?;
    let bridged = recipient(&mut fields)?
        .map(|recipient| BridgedRoute { recipient: Box::new(recipient), oldmonth });
    fields.end()?;
    Ok(Route { node, connected_at, curmonth, bridged })
}

fn recipient(fields: &mut Fields<'_>) -> Result<Option<BridgeRecipient>, SyntaxError> {
    let text = |text: &str| unquoted(text).map(String::into_boxed_str);
    let Some(bridge) = fields.read("bridge", "fcm or apns", BridgeName::parse)? else {
        return Ok(None);
    };
    Ok(Some(BridgeRecipient {
        bridge,
        app: fields.need("app", "an application", text)?,
        token: fields.need("token", "a token", text)?,
        aps: fields.read("aps", "a dictionary as JSON", text)?,
    }))
}

fn bridge(words: &mut Tokens<'_>) -> Result<BridgeOutcome, SyntaxError> {
    let outcome = match words.word("the answer of the bridge")? {
        "too_large" => BridgeOutcome::TooLarge { max_bytes: 0 },
        word => one_of(&BRIDGE_OUTCOMES, word)?,
    };
    let mut fields = words.fields()?;
    let outcome = match outcome {
        BridgeOutcome::TooLarge { .. } => BridgeOutcome::TooLarge {
            max_bytes: fields.need("max", "a number of bytes", |text| text.parse().ok())?,
        },
        BridgeOutcome::Busy { .. } => {
            BridgeOutcome::Busy { retry_after: fields.read("retry", SPAN, span)? }
        }
        other => other,
    };
    fields.end()?;
    Ok(outcome)
}
