//! Feed histories: who wrote, published and read a feed, step by step, as text for people to read and for machines
//! to repeat.
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
//! The first line is a comment: one sentence that says what the history shows. Then come head lines, if any, and lines
//! of what happens (`>`, and `wait`), each followed by **all** that comes of it (`<`), in this sequence. An indented
//! line goes on with the line before.
//!
//! There is one feed, a table as a value. Publishers `P1`, `P2` are nodes with a publisher each, consumers `C1`, `C2` follow
//! the feed; both are the machines that a server runs. Nobody is told anything by himself: that a publisher hears of a
//! write, or a consumer of a new head, is a line, and so is each step of a publication or a fetch. Leave the line out,
//! or put another between two steps, and you have a crash, a lost word or a race.
//!
//! | head line | default | |
//! |---|---|---|
//! | `limits batch=10 page=10 keys=1000 retry=1s poll=1m` | these | keys in a publication, updates in a page, keys of the feed; how long a store that failed is left alone, how often a followed feed is looked at |
//! | `naive P1 P2` | | publishers that take `MAX(number) + 1` of the table instead of the sequence's next |
//!
//! | line in | what happens |
//! |---|---|
//! | `writer> write fred bob` | a key is set; quote what is not one word: `"two words"` |
//! | `writer> republish fred`, `writer> delete fred` | |
//! | `P1> written` | the publisher hears that something was written |
//! | `P1> watched yes`, `no` | whether somebody on its node follows the feed |
//! | `P1> finds` | a publication begins: which keys wait? |
//! | `P1> reads` | the sequence is read |
//! | `P1> commits` | it is written, if all is still as it was read; after a conflict it finds and reads again |
//! | `P1> commits unheard` | it is written, and the publisher is told that the store failed |
//! | `P1> publishes` | the three steps in one |
//! | `P1> fails` | the store did nothing |
//! | `P1> crashes` | what the publisher knew is gone, and what it had not committed |
//! | `C1> starts`, `C1> starts after=7` | where it left off, or behind a number |
//! | `C1> hears 2` | the consumer is told that the feed has come as far as 2 |
//! | `C1> reads head`, `C1> reads updates` | the two steps of a fetch |
//! | `C1> fetches` | both in one |
//! | `C1> consumed` | the page was consumed and its cursor remembered, in one step |
//! | `C1> fails` | the store did nothing |
//! | `C1> crashes` | all is gone but what was consumed |
//! | `C1> compares` | holds what it has consumed against the table |
//! | `wait 1s` | time goes by; it may not pass over a deadline |
//!
//! | line out | what comes of it |
//! |---|---|
//! | `table< fred version=1 waits value=bob` | a row as it was written; `number=1` once it is published, `deleted` without a value |
//! | `table< no such key`, `too many keys`, `conflict` | nothing was written |
//! | `P1< publish`, `P1< publish after=fred` | an order to publish |
//! | `P1< found [fred version=1]`, `P1< sequence 0 version=0` | what was read; `P1< max 0` by a naive one |
//! | `P1< announce 1` | its consumers are to hear how far the feed has come |
//! | `C1< fetch after=0`, `C1< head 2`, `no such feed` | an order to fetch; what was read |
//! | `C1< consume [1 fred version=2 value=bob] cursor=1 head=2` | a page to be consumed |
//! | `C1< end no such feed`, `C1< end cursor from the future head=2` | there is nothing to follow |
//! | `C1< misses fred version=4 value=jim`, `C1< misses nothing` | rows whose last state it has not seen |

mod follower;
mod input;
mod node;
mod outcome;
mod parse;
mod replay;
mod world;

pub use input::{Change, ConsumerName, ConsumerStep, Input, PublisherName, PublisherStep};
pub use outcome::Outcome;
pub use replay::{StepReport, replay};
pub use world::{OutOfTurn, Setup, World};

use crate::transcript::ParseError;

/// A feed history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// What it shows, in a sentence.
    pub title: String,
    /// Limits, and who is naive.
    pub setup: Setup,
    /// What happens, and what comes of it.
    pub steps: Vec<Step>,
}

/// One thing that happens, and all that must come of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Its line in the file, from 1.
    pub line: usize,
    /// What happens.
    pub input: Input,
    /// What must come of it: the number of the line, and the line.
    pub expected: Vec<(usize, String)>,
}

impl History {
    /// Reads a history. Its errors begin with the line: put the file's name and a colon before them.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        parse::history(text)
    }

    /// The title and the head, as they are read.
    pub fn head(&self) -> String {
        format!("# {}\n{}", self.title, self.setup)
    }
}
