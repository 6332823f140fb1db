//! Receipts: pushes, acks, withdrawals and the ends of TTLs and subscriptions, on nodes that share a store.

mod scenarios;

use std::collections::BTreeSet;

use harness::sentences;
use state_machine::feed::{FeedKey, FeedName, Version};
use state_machine::store::Stored;
use state_machine::{AckCode, MessageId, Receipt, ReceiptRequest, Time};
use storage::receipts::Settlement;
use storage::rules::feed_rows::SequenceChange;
use storage::rules::topics::{self, MessageRow, Replaces};
use storage::rules::{feeds, receipts};
use storage::{ExpectedReceipt, StoreError};
use storage_reference::{
    Answer, Call, Commit, Feed, Replay, Request, RowOf, RowOfMessage, Rows, Tables,
};

use super::{Kept, Process, Rules, World};

sentences! {
    /// A promise to senders who want receipts, and to the owner of the tables.
    Promise:
    AckedHasItsReceipt, "acked_has_its_receipt",
        "The row of an acked message is deleted after its receipt says delivered.";
    DeliveredStays, "delivered_stays",
        "A receipt that says delivered never changes, whatever acks follow.";
    ExpiredReplacesNone, "expired_replaces_none",
        "A receipt says expired in place of no other.";
    GoneHasNone, "gone_has_none",
        "A message that was replaced, refused or deleted by its sender does not get the receipt expired.";
    EachIsCounted, "each_is_counted",
        "A subscription counts the messages that are expected and those that have a receipt, each once.";
    BoundIsKept, "bound_is_kept",
        "No message is expected above the bound of its subscription.";
    DecidedInTheEnd, "decided_in_the_end",
        "An accepted message whose TTL has ended has a receipt.";
    EndsWithAll, "ends_with_all",
        "Nothing is left of a subscription that has ended.";
}

/// A bug for the model checker to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Mutation {
    /// An ack deletes the row before the receipt is written.
    RowFirst,
    /// A commit does not compare the versions of its keys.
    NoKeyCondition,
    /// A commit removes a receipt from those that are expected whether or not it is one of them.
    NoExpectedCondition,
    /// A commit has neither of these conditions.
    NoCondition,
    /// A message replaces that of its topic whether or not that one wants a receipt.
    ReceiptNotCancelled,
    /// A message whose predecessor's receipt is cancelled replaces any older one.
    AnyOlderReplaced,
    /// The receipt of a message is counted beside the message.
    CountedTwice,
    /// A message is counted without a look at the bound.
    NoBound,
    /// The sequence of an ended subscription is removed although it has changed.
    SequenceRemovedAnyway,
    /// A search for due receipts finds none.
    NoneDue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Receipts;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ReceiptCall {
    role: Role,
    /// Whether the row of an acked message is deleted first, which is a bug.
    is_row_first: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Role {
    Push(RowOfMessage),
    Ack(RowOfMessage, AckCode),
    Withdraw(RowOfMessage),
    Expire(Time),
    Publish,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Outcome {
    /// None if the subscription is full.
    Pushed(Option<Stored>),
    Done,
    /// Others have changed the rows at each attempt.
    Refused,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Ledger {
    /// Messages that get no receipt when their TTL ends.
    gone: BTreeSet<FeedKey>,
    /// Messages whose pushes were answered that they are stored.
    accepted: BTreeSet<FeedKey>,
    /// Whether a node has begun to remove the subscription.
    is_ending: bool,
}

/// When the TTL of every message has ended.
const DEADLINE: Time = Time(1_000);
/// When the subscription has ended.
const END: Time = Time(100_000);

fn subscription() -> FeedName {
    FeedName::receipts(END, 7)
}

fn message(number: u8, topic: Option<u8>) -> RowOfMessage {
    let key = FeedKey::parse(&format!("/m/{number}")).expect("a key");
    let request = ReceiptRequest { subscription: subscription(), key };
    let expected = Some(ExpectedReceipt { request, deadline: DEADLINE });
    RowOfMessage { id: MessageId::from_bytes([number; 16]), topic, expected }
}

fn expected(message: &RowOfMessage) -> &ExpectedReceipt {
    message.expected.as_ref().expect("the messages here want receipts")
}

fn key(message: &RowOfMessage) -> FeedKey {
    expected(message).request.key.clone()
}

/// The bound of messages: more than most scenarios have.
fn messages_max(message: &RowOfMessage) -> u64 {
    if message.id >= MessageId::from_bytes([8; 16]) { 1 } else { 5 }
}

impl Call for ReceiptCall {
    type Outcome = Outcome;

    async fn run(&self, requests: &Replay) -> Outcome {
        self.role.run(requests, self.is_row_first).await.unwrap_or(Outcome::Refused)
    }
}

impl Role {
    async fn run(&self, requests: &Replay, is_row_first: bool) -> Result<Outcome, StoreError> {
        let rows = Rows(requests);
        match self {
            Self::Push(message) => {
                let expected = expected(message);
                if !receipts::expect(&rows, expected, messages_max(message)).await? {
                    return Ok(Outcome::Pushed(None));
                }
                let row = RowOf(requests, message);
                let has_topic = message.topic.is_some();
                let (stored, _) = topics::put(&rows, &row, message.id, has_topic).await?;
                if stored != Stored::Done {
                    receipts::cancel(&rows, expected).await?;
                }
                return Ok(Outcome::Pushed(Some(stored)));
            }
            Self::Ack(message, code) => {
                let acked = Settlement::Acked(*code);
                settle(requests, message, acked, is_row_first).await?;
            }
            Self::Withdraw(message) => {
                settle(requests, message, Settlement::Withdrawn, false).await?;
            }
            Self::Expire(now) => drop(receipts::expire(&rows, *now).await?),
            Self::Publish => drop(feeds::publish(&rows, &subscription(), None, 8).await?),
        }
        Ok(Outcome::Done)
    }
}

/// Deletes a message in the steps of DynamoDB: the receipt that its row names is decided, and then the row is deleted.
async fn settle(
    requests: &Replay,
    message: &RowOfMessage,
    settlement: Settlement,
    is_row_first: bool,
) -> Result<(), StoreError> {
    let (rows, row) = (Rows(requests), RowOf(requests, message));
    let there = row.there().await?.filter(|there| there.id == message.id);
    let Some(expected) = there.and_then(|there| there.expected) else { return Ok(()) };
    let delete = Request::DeleteMessage(message.clone());
    if is_row_first {
        rows.is_done(delete.clone()).await;
    }
    receipts::settle(&rows, &expected, settlement).await?;
    if !is_row_first {
        rows.is_done(delete).await;
    }
    Ok(())
}

impl Rules for Receipts {
    type Call = ReceiptCall;
    type Outcome = Outcome;
    type Mutation = Mutation;
    type Promise = Promise;
    type Ledger = Ledger;

    /// A message is acked and withdrawn once it was stored. A push that failed is none of the same message again. No push is
    /// under way when its subscription ends: the endpoint selects one that lasts.
    fn may_begin(world: &World<Self>, call: &ReceiptCall, process: &Process<Self>) -> bool {
        match &call.role {
            Role::Ack(message, _) | Role::Withdraw(message) => {
                world.tables.messages.values().any(|there| there.id == message.id)
            }
            Role::Push(_) => *process == Process::Waiting && !world.has_begun(&Role::Expire(END)),
            Role::Expire(END) => !world.is_pushing(),
            Role::Expire(_) | Role::Publish => true,
        }
    }

    fn begin(call: &ReceiptCall, mutation: Option<Mutation>) -> ReceiptCall {
        ReceiptCall { is_row_first: mutation == Some(Mutation::RowFirst), ..call.clone() }
    }

    fn execute(tables: &mut Tables, request: &Request, mutation: Option<Mutation>) -> Answer {
        let mut request = request.clone();
        match (mutation, &mut request) {
            (Some(Mutation::NoKeyCondition), Request::Commit(commit)) => any_keys(tables, commit),
            (Some(Mutation::NoExpectedCondition), Request::Commit(commit)) => {
                any_expected(tables, commit);
            }
            (Some(Mutation::NoCondition), Request::Commit(commit)) => {
                any_keys(tables, commit);
                any_expected(tables, commit);
            }
            (Some(Mutation::ReceiptNotCancelled), Request::PutMessage(message, replaces)) => {
                replace_older(tables, message, replaces, Replaces::OlderWithoutReceipt);
            }
            (Some(Mutation::AnyOlderReplaced), Request::PutMessage(message, replaces)) => {
                if matches!(replaces, Replaces::Message(_)) {
                    let any = *replaces;
                    replace_older(tables, message, replaces, any);
                }
            }
            (Some(Mutation::CountedTwice), Request::Commit(commit)) => {
                if let (Some((false, _)), [_, ..]) = (&commit.expected, &commit.keys[..]) {
                    let (keys_max, forgotten) = (u64::MAX, Version::default());
                    commit.sequence = SequenceChange::CountKey { keys_max, forgotten };
                }
            }
            (Some(Mutation::NoBound), Request::Commit(commit)) => {
                if let SequenceChange::CountKey { keys_max, .. } = &mut commit.sequence {
                    *keys_max = u64::MAX;
                }
            }
            (Some(Mutation::SequenceRemovedAnyway), Request::RemoveSequence(feed, keys)) => {
                *keys = tables.feeds.get(feed).map_or(0, |feed| feed.sequence().keys);
            }
            (Some(Mutation::NoneDue), Request::Due(now)) => *now = Time(0),
            _ => {}
        }
        tables.execute(&request).expect("no reader sees a publication in part here")
    }

    fn executed(
        world: &mut World<Self>,
        before: &Tables,
        request: &Request,
        call: &ReceiptCall,
    ) -> Kept<Self> {
        let (feed, was) = (feed(&world.tables), feed(before));
        world.ledger.is_ending |= call.role == Role::Expire(END);
        if let Request::PutMessage(message, _) = request {
            let rows = before.messages.values();
            let now = &world.tables.messages;
            let replaced = rows.filter(|row| !now.values().any(|there| there.id == row.id));
            let replaced: Vec<_> = replaced.map(key).collect();
            world.ledger.gone.extend(replaced.into_iter().filter(|gone| *gone != key(message)));
        }
        for (key, row) in &feed.keys {
            let there = row.value.as_ref().and_then(Receipt::parse);
            let old = was.keys.get(key).and_then(|row| row.value.as_ref()).and_then(Receipt::parse);
            match (old, there) {
                (old, new) if old == new => {}
                (Some(_), Some(Receipt::Expired)) => {
                    return Err((Promise::ExpiredReplacesNone, format!("{key} was {old:?}")));
                }
                (Some(Receipt::Delivered(_)), new) => {
                    return Err((
                        Promise::DeliveredStays,
                        format!("{key} is {new:?}, was {old:?}"),
                    ));
                }
                (None, Some(Receipt::Expired)) if world.ledger.gone.contains(key) => {
                    return Err((Promise::GoneHasNone, format!("{key} has expired")));
                }
                _ => {}
            }
        }
        if let (Request::DeleteMessage(message), Role::Ack(..)) = (request, &call.role) {
            let value = feed.keys.get(&key(message)).and_then(|row| row.value.as_ref());
            let is_delivered =
                matches!(value.and_then(Receipt::parse), Some(Receipt::Delivered(_)));
            if !is_delivered && !world.ledger.is_ending && world.tables != *before {
                return Err((Promise::AckedHasItsReceipt, format!("{message:?} has {value:?}")));
            }
        }
        if world.ledger.is_ending {
            return Ok(());
        }
        let counted = feed.sequence().keys;
        let there = (feed.keys.len() + world.tables.expected.len()) as u64;
        if counted != there {
            return Err((Promise::EachIsCounted, format!("{counted} are counted of {there}")));
        }
        if let (Request::Commit(commit), Role::Push(message)) = (request, &call.role)
            && matches!(commit.expected, Some((true, _)))
            && was.sequence().keys < counted
            && counted > messages_max(message)
        {
            return Err((Promise::BoundIsKept, format!("{counted} are counted")));
        }
        Ok(())
    }

    fn ended(world: &mut World<Self>, call: &ReceiptCall, outcome: &Outcome) -> Kept<Self> {
        let ledger = &mut world.ledger;
        match (&call.role, outcome) {
            (Role::Push(message), Outcome::Pushed(Some(Stored::Done))) => {
                ledger.accepted.insert(key(message));
            }
            (Role::Push(message), Outcome::Pushed(_))
            | (Role::Withdraw(message), Outcome::Done) => {
                ledger.gone.insert(key(message));
            }
            _ => {}
        }
        Ok(())
    }

    fn at_rest(world: &World<Self>, mutation: Option<Mutation>) -> Kept<Self> {
        let (tables, outcome) = world.alone(&expire(DEADLINE), mutation);
        let undecided = world.ledger.accepted.iter().find(|key| {
            let may_be_none = world.ledger.gone.contains(*key) || world.may_be_cancelled(key);
            !may_be_none && !feed(&tables).keys.contains_key(*key)
        });
        if let Some(key) = undecided.filter(|_| !world.ledger.is_ending) {
            return Err((Promise::DecidedInTheEnd, format!("{key} has no receipt: {outcome:?}")));
        }
        let (tables, outcome) = world.alone(&expire(END), mutation);
        let is_clean = feed(&tables) == Feed::default() && tables.expected.is_empty();
        match outcome {
            Outcome::Done if is_clean => Ok(()),
            outcome => Err((Promise::EndsWithAll, format!("{outcome:?}, {tables:?}"))),
        }
    }
}

impl World<Receipts> {
    fn has_begun(&self, role: &Role) -> bool {
        self.processes
            .iter()
            .any(|(call, process)| call.role == *role && *process != Process::Waiting)
    }

    fn is_pushing(&self) -> bool {
        let is_push = |call: &ReceiptCall| matches!(call.role, Role::Push(_));
        let is_running = |process: &Process<Receipts>| matches!(process, Process::Running(_));
        self.late.iter().any(|(call, _)| is_push(call))
            || self.processes.iter().any(|(call, process)| is_push(call) && is_running(process))
    }

    /// Whether a call has begun that may cancel the receipt of a message that stays: it has failed in between.
    fn may_be_cancelled(&self, of: &FeedKey) -> bool {
        let begun = self.processes.iter().filter(|(_, process)| *process != Process::Waiting);
        begun.into_iter().any(|(call, _)| match &call.role {
            Role::Withdraw(message) => key(message) == *of,
            Role::Push(message) => message.topic.is_some() && key(message) > *of,
            Role::Ack(..) | Role::Expire(_) | Role::Publish => false,
        })
    }
}

fn feed(tables: &Tables) -> Feed {
    tables.feeds.get(&subscription()).cloned().unwrap_or_default()
}

/// Leaves the versions of the keys out of the conditions of a commit.
fn any_keys(tables: &Tables, commit: &mut Commit) {
    let feed = tables.feeds.get(&commit.feed);
    for change in &mut commit.keys {
        change.before = feed.and_then(|feed| feed.key_row(&change.key));
    }
}

/// Leaves out of the conditions of a commit that a receipt is expected.
fn any_expected(tables: &Tables, commit: &mut Commit) {
    commit.expected.take_if(|(is_added, expected)| {
        let ReceiptRequest { subscription, key } = expected.request.clone();
        !*is_added && !tables.expected.contains_key(&(subscription, key))
    });
}

/// Lets a message replace an older one, if the request is of this kind.
fn replace_older(tables: &Tables, message: &RowOfMessage, replaces: &mut Replaces, kind: Replaces) {
    let there = tables.messages.values().find(|there| there.topic == message.topic);
    let is_older = there.is_some_and(|there| there.id < message.id);
    if *replaces == kind && message.topic.is_some() && is_older {
        *replaces = Replaces::Any;
    }
}

fn call(role: Role) -> ReceiptCall {
    ReceiptCall { role, is_row_first: false }
}

fn expire(now: Time) -> ReceiptCall {
    call(Role::Expire(now))
}
