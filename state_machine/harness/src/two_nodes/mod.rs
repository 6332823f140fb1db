//! An agent script describes one agent on two nodes, `here` and `there`, for engineers who read or write a test: two
//! connections, the store that both use, and the notifications between the nodes.
//!
//! ```text
//! # The agent moves to another node, which notifies the previous one.
//! at 2026-11-03T10:00:00Z
//! record U1 at=-1h curmonth=2026_11
//! channels U1 2026_11 [C1]
//!
//! here.agent> <connects>
//! here.agent> {"messageType":"hello","uaid":"{U1}","use_webpush":true}
//! here.registry< register U1
//! here.store< 0 register U1 at=+0ms
//! here.store> 0 executed
//! table< registered U1 at=+0ms curmonth=2026_11 node=here
//! here.store< 1 read_channels U1 2026_11
//! wait 2s
//! there.agent> <connects>
//! there.agent> {"messageType":"hello","uaid":"{U1}","use_webpush":true}
//! there.registry< register U1
//! there.store< 0 register U1 at=+2s
//! there.store> 0 executed
//! table< registered U1 at=+2s curmonth=2026_11 node=there before=here@+0ms
//! there.node< notify_previous here U1 at=+2s
//! there.store< 1 read_channels U1 2026_11
//! here.node> notified
//! here.registry< deregister U1
//! here.close< 4409 the same user agent connected again, or was dropped
//! ```
//!
//! The lines are those of a session script with a node before them. The store is the simplest one that keeps the contract:
//! a script gives no answers, but says when an operation is executed. Every notification is a line of its own. To describe
//! a loss or a race, write `failed`, `answer_lost` or `not_notified`, or put another line between two steps.
//!
//! | head line | default | meaning |
//! |---|---|---|
//! | `at`, `limits`, `fresh`, `frozen` | as in a session | for both nodes |
//! | `clock there -5s` | none | that node's clock is behind, or ahead with `+5s` |
//! | `record U1 at=-1h curmonth=2026_11` | none | the agent's record, also with `node=there` and `oldmonth=` |
//! | `channels U1 2026_11 [C1, C2]` | none | its channels in a month |
//!
//! | input | meaning |
//! |---|---|
//! | `here.agent> <connects>` | the agent opens a socket; on that node it has no other one |
//! | `here.agent> TEXT`, `here.agent> <closes>`, ... | as `agent>` in a session |
//! | `here.push> 7 M1 C1 ttl=60s`, ... | as `push>` in a session |
//! | `here.node> shutdown`, ... | as `node>` in a session, except `connected_elsewhere` |
//! | `here.node> notified` | the oldest notification for the node arrives |
//! | `here.node> not_notified` | it is lost |
//! | `here.node> crashes` | the node loses its connection, and what that ordered |
//! | `here.store> 0 executed` | operation 0 of the connection is executed and answered |
//! | `here.store> 0 failed` | it is not executed, and the connection gets a failure |
//! | `here.store> 0 answer_lost` | it is executed, and the connection gets a failure |
//! | `endpoint> stores U1 M1 C1 ttl=60s` | an endpoint stores a message, and notifies the node of the record |
//! | `wait 1s` | time passes on both nodes; it may not pass a deadline |
//!
//! | effect | meaning |
//! |---|---|
//! | `here.agent< JSON`, `here.store< 0 OPERATION`, ... | as in a session |
//! | `table< registered U1 at=+2s curmonth=2026_11 node=there` | what the store answers, also if the answer is lost |
//! | `table< record U1 at=+2s curmonth=2026_11 node=there` | the record, after another operation has changed it |
//! | `table< stored`, `table< no_such_user`, ... | what the endpoint is answered |
//!
//! All times are relative to `at`, by the clock of the node that writes them.

mod input;
mod node;
mod parse;
mod world;

pub use input::{Execution, Input, NodeInput, NodeName, TwoNodesScript};
pub(crate) use world::TwoNodes;
