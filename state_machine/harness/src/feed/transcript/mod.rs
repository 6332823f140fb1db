//! A feed history describes step by step who wrote, published and read a feed, for engineers who read or write a test.
//!
//! ```text
//! # The time table of the feed note with a sequence: fred is given number 2, and the consumer sees jim.
//!
//! # t=0: the consumer's cursor is 0. t=1:
//! writer> write fred bob
//! table< fred version=1 waits value=bob
//! P1> written
//! P1< publish
//!
//! # t=2
//! P1> publishes
//! table< fred version=2 number=1 value=bob
//! P1< announce 1
//!
//! # t=3
//! C1> starts
//! C1< fetch after=0
//! C1> fetches
//! C1< consume [1 fred version=2 value=bob] cursor=1 head=1
//! C1> consumed
//!
//! # t=4
//! writer> write fred jim
//! table< fred version=3 waits value=jim
//! P1> written
//! P1< publish
//!
//! # t=5
//! P1> finds
//! P1< found [fred version=3]
//! P1> reads
//! P1< sequence 1 version=1
//! P1> commits
//! table< fred version=4 number=2 value=jim
//! P1< announce 2
//!
//! # t=6
//! C1> hears 2
//! C1< fetch after=1
//! C1> fetches
//! C1< consume [2 fred version=4 value=jim] cursor=2 head=2
//! C1> consumed
//! C1> compares
//! C1< misses nothing
//! ```
//!
//! The first line is a comment with one sentence about the history. Head lines follow, if any, and then the steps (`>`,
//! and `wait`). Each is followed by **all** its results (`<`), in their order. An indented line continues the line before.
//!
//! There is one feed, a table as a value. The publishers `P1`, `P2` are nodes with a publisher each, the consumers `C1`,
//! `C2` follow the feed; both are the machines that a server runs. Every notification is a line of its own, and so is
//! each step of a publication or a fetch. To describe a crash, a lost notification or a race, omit a line or put another
//! one between two steps.
//!
//! | head line | default | meaning |
//! |---|---|---|
//! | `limits batch=10 page=10 keys=1000 retry=1s poll=1m` | these | see below |
//! | `naive P1 P2` | none | publishers that use `MAX(number) + 1` in place of the sequence |
//!
//! The limits are `batch` keys in a publication, `page` updates in a page, and `keys` keys in the feed. The wait after a
//! failure of the store is `retry`, and the interval between two checks of a followed feed `poll`.
//!
//! | input | meaning |
//! |---|---|
//! | `writer> write fred bob` | a key is set; quote several words: `"two words"` |
//! | `writer> republish fred`, `writer> delete fred` | a key is republished, or deleted |
//! | `table> forgets 2` | the entries up to a number are forgotten |
//! | `P1> written` | the publisher is notified of a write |
//! | `P1> watched yes`, `no` | whether the feed has a follower on this node |
//! | `P1> finds` | a publication begins: the unpublished keys are read |
//! | `P1> reads` | the sequence is read |
//! | `P1> commits` | it is written if nothing has changed; after a conflict it finds and reads again |
//! | `P1> commits unheard` | it is written, and the publisher gets a failure |
//! | `P1> publishes` | the three steps in one |
//! | `P1> fails` | the store did nothing |
//! | `P1> crashes` | the publisher's memory and its uncommitted publication are lost |
//! | `C1> starts`, `C1> starts after=7` | at its stored cursor, or after a number |
//! | `C1> hears 2` | the consumer is notified of the head 2 |
//! | `C1> reads head`, `C1> reads updates` | the two steps of a fetch |
//! | `C1> fetches` | both in one |
//! | `C1> consumed` | the page was consumed and its cursor stored, in one step |
//! | `C1> fails` | the store did nothing |
//! | `C1> crashes` | everything but the consumed updates is lost |
//! | `C1> compares` | compares the consumed updates with the table |
//! | `wait 1s` | time passes; it may not pass a deadline |
//!
//! | result | meaning |
//! |---|---|
//! | `table< fred version=1 waits value=bob` | a row as written; `number=1` once published, `deleted` without a value |
//! | `table< no such key`, `too many keys`, `conflict` | nothing was written |
//! | `table< horizon 2 forgotten=1` | the horizon, and the entries that were removed |
//! | `P1< publish`, `P1< publish after=fred` | the effect to publish |
//! | `P1< found [fred version=1]`, `P1< sequence 0 version=0` | what was read; `P1< max 0` of a naive publisher |
//! | `P1< announce 1` | consumers on this node are notified of the head |
//! | `C1< fetch after=0`, `C1< head 2`, `no such feed` | the effect to fetch; what was read |
//! | `C1< consume [1 fred version=2 value=bob] cursor=1 head=2` | a page to consume |
//! | `C1< end no such feed`, `C1< end cursor from the future head=2` | there is nothing to follow |
//! | `C1< end cursor too old horizon=2` | it has missed forgotten entries, and starts over after 0 |
//! | `C1< misses fred version=4 value=jim`, `C1< misses nothing` | rows whose last state it has not seen |

mod follower;
mod input;
mod node;
mod outcome;
mod parse;
mod world;

pub use input::{Change, ConsumerName, ConsumerStep, Input, PublisherName, PublisherStep};
pub use outcome::{OutOfTurn, Outcome};
pub use world::{Setup, World};

/// A parsed feed history, ready to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// The sentence of the first line.
    pub title: String,
    /// The limits, and the naive publishers.
    pub setup: Setup,
    /// The inputs, each with its expected results.
    pub steps: Vec<Step>,
}

/// An input and all its expected results.
pub type Step = crate::script::Step<Input>;

impl History {
    /// The title and the head in the form that [`History::parse`] reads.
    pub fn head(&self) -> String {
        format!("# {}\n{}", self.title, self.setup)
    }
}
