//! Session scripts describe one connection as text, for engineers who read or write a test: each input, and
//! everything that the machine orders because of it.
//!
//! ```text
//! # A new agent registers a channel.
//! at 2026-11-03T10:00:00Z
//! fresh U9
//!
//! agent> {"messageType":"hello","use_webpush":true}
//! registry< register U9
//! agent< {"messageType":"hello","uaid":"{U9}","status":200,"use_webpush":true,"urgency":true,"broadcasts":{}}
//! agent> {"messageType":"register","channelID":"{C1}"}
//! store< 0 register U9 at=+0ms create=2026_11
//! store> 0 failed
//! wait 1s
//! store< 1 register U9 at=+0ms create=2026_11
//! ```
//!
//! The first line is a comment with one sentence about the session. The head follows, and then the inputs of the
//! machine (`>`, and `wait`). Each is followed by **all** its effects (`<`), in their order. An indented line continues
//! the line before.
//!
//! | head line | default | meaning |
//! |---|---|---|
//! | `at 2026-11-03T10:00:00Z` | required | when the socket was accepted, by the node's clock |
//! | `limits ack_wait=1s unacked_max=4` | `default_limits` | times and numbers by field name |
//! | `fresh U9` | `U9` | the uaid that a new agent is given |
//! | `jitter 100` | `0` | of 65536: an eighth of a time is shortened by that share |
//! | `node here` | `here` | the node's name |
//! | `frozen 2026_10` | none | the month that stays in use without rotation |
//! | `simplepush` | off | a `hello` without `use_webpush` is one of SimplePush |
//!
//! | input | meaning |
//! |---|---|
//! | `agent> TEXT` | a text frame was received, JSON or not |
//! | `agent> <binary>`, `<unreadable>`, `<pong>`, `<closes>` | another frame was received, or the socket closed |
//! | `wait 1s` | time passed; it may not pass a deadline |
//! | `push> 7 M1 C1 ttl=60s` | an endpoint sent a push |
//! | `push> reply_lost M1 C1` | the answer *accepted* did not reach the endpoint |
//! | `node> message_stored` | a message was stored for the agent |
//! | `node> replaced` | the agent connected again to this node |
//! | `node> connected_elsewhere at=+5s` | the agent connected to another node at that time |
//! | `node> shutdown` | the node stops |
//! | `node> broadcasts [1 weather v7, 4 news "two words"] cursor=5` | the broadcasts, each with its last number |
//! | `store> 0 failed` | operation 0 failed, or its outcome is unknown |
//! | `store> 0 no_space` | the store has no space for operation 0, and wrote nothing |
//! | `store> 0 registered U1 at=+0ms curmonth=2026_11` | the record as registered |
//! | `store> 0 unknown_agent`, `store> 0 superseded at=+5ms` | the two refusals of a registration |
//! | `store> 1 channels [C1, C2]`, `store> 1 channels none` | the channels, or no table of channels |
//! | `store> 2 fetched [M1 C1 ttl=60s, M2 C1 ttl=60s] next=M2` | messages as in `push>` |
//! | `store> 3 deleted`, `channels_added`, `channel_removed`, `moved` | the operation was executed |
//! | `store> 4 month_updated yes`, `move_finished no`, `node_cleared yes` | whether the record was this connection's |
//!
//! - A push may also have `topic=`, `urgency=`, `accepted=+5s`, `data=BASE64URL`, `encryption=` and `crypto_key=`.
//! - A record may also have `oldmonth=`, `node=`, `last_connect=` and `before=there@-5m`, the agent's previous node and
//!   the time of that connection.
//! - The node sends the broadcasts before a `hello` that names some, after a `broadcast_subscribe`, and to subscribers
//!   when they change. `cursor` is present if it is higher than all their numbers.
//!
//! | effect | meaning |
//! |---|---|
//! | `agent< JSON`, `agent< <ping>` | a frame for the agent |
//! | `store< 0 OPERATION` | a store operation with its number |
//! | `push< 7 accepted M1 C1` | the answer to a push: `accepted`, `unconfirmed`, `busy`, `no_such_channel` |
//! | `registry< register U1`, `registry< deregister U1` | the registry learns of the connection |
//! | `node< notify_previous there U1 at=+0ms` | notify the agent's previous node of this connection |
//! | `broadcasts< subscribe 4`, `broadcasts< unsubscribe` | receive changes after number 4, or none |
//! | `close< 1001 server is shutting down` | the end; `close< socket closed` is without a close frame |
//!
//! `U1`, `C1`, `M1` and `K1` name user agents, channels, messages and keys. A message with a topic is
//! `M1t`, one whose sender wants a receipt `M1r`, one with both `M1tr`. A delete then has the code of the ack
//! (`M1r=101`), if it is not 100. `V5C1` is version 5 of a SimplePush channel, in `push> 7 V5C1 C1`, which has no
//! `ttl=`. In JSON they are in braces, and `{endpoint U1 C1}` is the URL of a channel.
//!
//! Times are relative to the start (`+1500ms`, `-5s`). Values that follow from the others are omitted: `now`, `rows` and
//! `bytes` of a fetch are present only if they differ from the time and the limits. Close frames are those for an agent
//! with the subprotocol.

mod head;
mod input;
mod parse;
mod read;
mod replay;
mod write;

pub use head::{default_config, default_limits};
pub use input::{Input, Step, Transcript};
pub(crate) use parse::{Head, check_effect};
pub(crate) use read::{Reader, channels, yes_or_no};
pub(crate) use replay::submitted;
pub use replay::{SessionWorld, StepReport, run};
pub use write::TranscriptWriter;
pub(crate) use write::{list, reference};

pub use crate::script::{Bindings, Expected, Mismatch, ParseError, UnknownName};
