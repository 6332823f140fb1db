//! Session transcripts: one connection's story as text, for people to read and for machines to repeat.
//!
//! ```text
//! # A new agent registers a channel.
//! at 2026-11-03T10:00:00Z
//! fresh U9
//!
//! agent> {"messageType":"hello","use_webpush":true}
//! registry< register U9
//! agent< {"messageType":"hello","uaid":"{U9}","status":200,"use_webpush":true,"broadcasts":{}}
//! agent> {"messageType":"register","channelID":"{C1}"}
//! store< 0 register U9 at=+0ms create=2026_11
//! store> 0 failed
//! wait 1s
//! store< 1 register U9 at=+0ms create=2026_11
//! ```
//!
//! The first line is a comment: one sentence that says what the session shows. Then come the head,
//! and lines that go into the machine (`>`, and `wait`), each followed by **all** that the machine
//! orders because of it (`<`), in this sequence. An indented line goes on with the line before.
//!
//! | head line | default | |
//! |---|---|---|
//! | `at 2026-11-03T10:00:00Z` | needed | when the socket was accepted, by the node's clock |
//! | `limits ack_wait=1s unacked_max=4` | [`Limits`](state_machine::connection::Limits) | spans and numbers by their field's name |
//! | `fresh U9` | `U9` | the uaid a new agent is given |
//! | `jitter 100` | `0` | of 65536: an eighth of a span is shortened by that share |
//! | `node here` | `here` | the node's name |
//! | `frozen 2026_10` | | the month that stays in use for ever |
//!
//! | line in | what happened |
//! |---|---|
//! | `agent> TEXT` | a text frame came, JSON or not |
//! | `agent> <binary>`, `<unreadable>`, `<pong>`, `<closes>` | another frame came, or the socket closed |
//! | `wait 1s` | time went by; it may not pass over a deadline |
//! | `push> 7 M1 C1 ttl=60s` and `topic=`, `urgency=`, `accepted=+5s`, `data=BASE64URL`, `encryption=`, `crypto_key=` | an endpoint hands a message over |
//! | `push> reply_lost M1 C1` | the endpoint had not heard the answer *accepted* |
//! | `node> message_stored`, `node> replaced`, `node> shutdown` | a message was stored; the agent came again; the node ends |
//! | `node> connected_elsewhere at=+5s` | another node tells that the agent is connected there since then |
//! | `node> broadcasts [1 weather v7, 4 news "two words"] cursor=5` | the broadcasts are these now, each with the number of its last change |
//! | `store> 0 failed` | the store did not do order 0, or cannot say |
//! | `store> 0 registered U1 at=+0ms curmonth=2026_11` and `oldmonth=`, `node=`, `last_connect=`, `before=there@-5m` | or `unknown_agent`, or `superseded at=+5ms`; `before` is where the agent was, and since when |
//! | `store> 1 channels [C1, C2]` | or `channels none` |
//! | `store> 2 fetched [M1 C1 ttl=60s, M2 C1 ttl=60s] next=M2` | messages as in `push>` |
//! | `store> 3 deleted`, `channels_added`, `channel_removed`, `moved` | |
//! | `store> 4 month_updated yes`, `move_finished no`, `node_cleared yes` | whether the record was still this connection's |
//!
//! | line out | what is ordered |
//! |---|---|
//! | `agent< JSON`, `agent< <ping>` | a frame for the agent |
//! | `store< 0 ORDER` | an order, named and numbered |
//! | `push< 7 accepted M1 C1` | the answer to a push: `accepted`, `unconfirmed`, `busy`, `no_such_channel` |
//! | `registry< register U1`, `registry< deregister U1` | |
//! | `node< notify_previous there U1 at=+0ms` | another node is told that the agent is connected here since then |
//! | `broadcasts< subscribe 4`, `broadcasts< unsubscribe` | to be told of changes after the fourth, or of none |
//! | `close< 1001 server is shutting down` | the end; `close< socket closed` without a close frame |
//!
//! `U1`, `C1`, `M1` and `K1` name user agents, channels, messages and keys ([`bindings`]); a message with a
//! topic is `M1t`. In JSON they stand in braces, and `{endpoint U1 C1}` is the URL of a channel.
//! The node says what the broadcasts are before a hello that names some, after a `broadcast_subscribe`, and
//! when they changed to those who follow them; the number they have come to stands there where it is greater than all.
//! Times are told from the start (`+1500ms`, `-5s`), and what follows from the rest is left out:
//! `now`, `rows` and `bytes` of a fetch stand there only when they are not the time and the limits.

mod bindings;
mod head;
mod parse;
mod read;
mod replay;
pub(crate) mod tokens;
mod write;

pub use bindings::{Bindings, UnknownName};
pub use parse::ParseError;
pub(crate) use parse::{title, whole_lines};
pub(crate) use replay::difference;
pub use replay::{Mismatch, StepReport, replay, run};
pub use write::TranscriptWriter;

use state_machine::connection::{Config, ConnectionSeed, Event};
use state_machine::ids::OpId;
use state_machine::time::{Span, Time};
use state_machine::wire::ClientMessage;

/// A session script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transcript {
    /// What the session shows, in a sentence.
    pub title: String,
    /// When the socket was accepted.
    pub start: Time,
    /// The node and its limits.
    pub config: Config,
    /// What is the connection's own.
    pub seed: ConnectionSeed,
    /// What happens, and what is ordered because of it.
    pub steps: Vec<Step>,
}

/// One thing that happens, and every order that must follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Its line in the file, from 1.
    pub line: usize,
    /// The line as it stands there.
    pub text: String,
    /// What happens.
    pub input: Input,
    /// What must follow: all of it, in this sequence.
    pub effects: Vec<Expected>,
}

/// What happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The agent sent this text frame, in which [`Bindings::substitute`] puts ids for names.
    Frame(String),
    /// Time goes by.
    Wait(Span),
    /// Anything else.
    Event(Event),
}

/// A line of what must follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// Its line in the file, from 1.
    pub line: usize,
    /// The line, in the one way it is written.
    pub text: String,
    /// What kind of order it is.
    pub kind: OrderKind,
}

/// To whom an order goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrderKind {
    /// A text frame for the agent: this JSON, with names in it.
    Frame(String),
    /// A ping for the agent.
    Ping,
    /// An order to the store.
    Store(OpId),
    /// An answer to an endpoint.
    Push,
    /// A word to the registry.
    Registry,
    /// A word to another node.
    Node,
    /// A word to whoever tells of broadcasts.
    Broadcasts,
    /// The end of the connection.
    Close,
}

impl Transcript {
    /// Reads a script. Its errors begin with the line: put the file's name and a colon before them.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        parse::transcript(text)
    }
}

impl Input {
    /// The event that it is for a connection, with the ids of `names`.
    pub fn event(&self, names: &Bindings) -> Result<Event, UnknownName> {
        Ok(match self {
            Self::Frame(template) => match ClientMessage::parse(&names.substitute(template)?) {
                Ok(message) => Event::MessageReceived(message),
                Err(frame) => Event::InvalidFrame(frame),
            },
            Self::Wait(_) => Event::TimePassed,
            Self::Event(event) => event.clone(),
        })
    }
}
