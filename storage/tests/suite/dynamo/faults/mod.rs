//! Each request of each operation fails once: for k = 1, 2, … until an operation ends before its k-th request.
//!
//! The operation is repeated as its callers do. Then the rows are those that it leaves without a fault, executed once or
//! twice, and in any order with what another node did; its answer is one of those; and [`raw_rows`] finds nothing wrong.

mod line;
mod operations;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use aws_sdk_dynamodb::types::{DeleteRequest, WriteRequest};
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream;
use state_machine::feed::FeedName;
use state_machine::{Time, Uaid};
use storage::{FeedTables, NotificationTable, Store, StoreFuture, WhenFull};
use storage_dynamodb::{Dynamo, DynamoOptions};

use self::line::{Fault, Line};
use self::operations::{OPERATIONS, Operation, ops_of};
use crate::dynamo::things::*;
use crate::raw_rows::{self, Counts};

/// A call, with the names of one run.
type Step = fn(&Arc<Dynamo>, Run) -> StoreFuture<String>;

/// The names of one run: all runs of an operation are on the same tables, one after the other. The rows of the first one
/// stay beside those of each other run, which are deleted at its end: all later ones would read them again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run(u16);

const FIRST: Run = Run(1);

impl Run {
    fn agent(self) -> Uaid {
        let mut bytes = [0xa0; 16];
        bytes[14..].copy_from_slice(&self.0.to_be_bytes());
        Uaid(bytes)
    }

    fn feed(self) -> FeedName {
        FeedName::parse(&format!("feed-{:05}", self.0)).unwrap()
    }

    fn subscription(self) -> FeedName {
        FeedName::receipts(ENDS, self.0.into())
    }

    fn names(self) -> [String; 3] {
        [
            self.agent().to_string(),
            self.feed().as_str().to_owned(),
            self.subscription().as_str().to_owned(),
        ]
    }
}

/// When all subscriptions end, after the messages have expired.
const ENDS: Time = Time(NOW.0 - NOW.0 % 1000 + 86_400_000);

/// No caller repeats more often.
const TRIES_MAX: usize = 4;

/// More requests than any operation has.
const REQUESTS_MAX: usize = 200;

/// Faults without another node.
const FAULTS: [fn() -> Fault; 4] =
    [|| Fault::Lost, || Fault::AnswerLost, || Fault::Conflict, || Fault::Refused];

const MONTHS: [&str; 2] = ["2026_11", "2026_12"];

/// The tables that operations write to, with the attributes of their keys.
const TABLES: [(&str, &[&str]); 6] = [
    ("router", &["uaid"]),
    ("storage", &["uaid", "chid"]),
    ("sequences", &["name"]),
    ("feeds", &["feed", "item"]),
    ("message_2026_11", &["uaid", "chidmessageid"]),
    ("message_2026_12", &["uaid", "chidmessageid"]),
];

/// No more items are deleted by one request.
const DELETED_AT_ONCE: usize = 25;

/// What a run leaves.
struct Left {
    /// The rows of the run, without its names and without the counts of waiting messages.
    rows: String,
    /// All that does not hold of all rows together.
    wrong: Vec<String>,
}

/// The tables of one operation, a node whose line fails, and another one.
struct World {
    tables: Tables,
    line: Line<aws_sdk_dynamodb::config::SharedHttpClient>,
    node: Arc<Dynamo>,
    other: Arc<Dynamo>,
    runs: u16,
}

impl World {
    async fn open(operation: &Operation, attempts_max: u32) -> Self {
        let mut tables = Tables::new();
        tables.options =
            DynamoOptions { attempts_max, waiting: operation.waiting, ..tables.options };
        let (options, line) = (tables.options.clone(), Line::new());
        let opening = line.clone();
        let opened = tokio::task::spawn_blocking(move || {
            let patient = DynamoOptions { attempts_max: 3, ..options.clone() };
            let other = crate::wire_engine::open(&patient);
            (Arc::new(opening.open(&options)), other)
        });
        let (node, other) = opened.await.unwrap();
        if operation.has_tables {
            for name in MONTHS {
                other.ensure_month(crate::names::month(name)).await.unwrap();
            }
            other.ensure_feeds().await.unwrap();
            other.ensure_notifications().await.unwrap();
        }
        Self { tables, line, node, other, runs: 0 }
    }

    /// A run whose rows are there.
    async fn begin(&mut self, operation: &Operation) -> Run {
        self.runs += 1;
        let run = Run(self.runs);
        for step in operation.before {
            step(&self.other, run).await.unwrap();
        }
        run
    }

    /// The rows that these steps leave, and the answers to the operation among them.
    async fn reference(
        &mut self,
        operation: &Operation,
        steps: &[Step],
    ) -> (String, BTreeSet<String>) {
        let run = self.begin(operation).await;
        let mut answers = BTreeSet::new();
        for step in steps {
            let answer = step(&self.other, run).await.unwrap();
            if std::ptr::fn_addr_eq(*step, operation.call) {
                answers.insert(without_names(&answer, run));
            }
        }
        let left = self.end(run).await;
        assert_eq!(left.wrong, [""; 0], "{} without a fault", operation.name);
        (left.rows, answers)
    }

    /// Reads all rows, and deletes those of a run.
    async fn end(&self, run: Run) -> Left {
        let names = TABLES.map(|(table, _)| self.tables.name(table));
        let items = names.each_ref().map(|table| raw_rows::items(&self.tables.raw, table));
        let items = join_all(items).await;
        let tables = TABLES.iter().zip(&items);
        let wrong =
            raw_rows::of_items(tables.clone().map(|((name, _), items)| (*name, &items[..])))
                .wrong(Counts::AtLeast);
        let (mut rows, mut deleted) = (BTreeSet::new(), Vec::new());
        for ((table, key), items) in tables {
            for item in items {
                let attributes: BTreeSet<_> =
                    item.iter().map(|(name, value)| format!("{name}: {}", shown(value))).collect();
                let row = format!("{table} {attributes:?}");
                let is_of_run = run.names().iter().any(|name| row.contains(name));
                if is_of_run && run != FIRST {
                    deleted.push((self.tables.name(table), deletion(item, key)));
                }
                if (is_of_run || row.contains("S(\\\"keys")) && !row.contains(" waiting") {
                    rows.insert(without_names(&row, run));
                }
            }
        }
        for some in deleted.chunks(DELETED_AT_ONCE) {
            let mut by_table = HashMap::<_, Vec<_>>::new();
            for (table, request) in some {
                by_table.entry(table.clone()).or_default().push(request.clone());
            }
            let deleting = self.tables.raw.batch_write_item().set_request_items(Some(by_table));
            deleting.send().await.unwrap();
        }
        Left { rows: rows.into_iter().collect::<Vec<_>>().join("\n"), wrong }
    }

    /// Lets a request of the operation fail, and repeats it. Returns whether there was such a request.
    async fn fail(
        &mut self,
        operation: &Operation,
        number: usize,
        fault: impl FnOnce(Run, Arc<Dynamo>) -> Fault,
    ) -> (bool, Vec<String>, String, Left) {
        let run = self.begin(operation).await;
        self.line.fails_at(number, fault(run, self.other.clone()));
        let mut errors = Vec::new();
        let answer = loop {
            match (operation.call)(&self.node, run).await {
                Ok(answer) => break answer,
                Err(error) => errors.push(error),
            }
            assert!(errors.len() < TRIES_MAX, "{} {number}: {errors:?}", operation.name);
        };
        let (is_it, asked) = self.line.has_failed();
        (is_it, asked, without_names(&answer, run), self.end(run).await)
    }
}

fn without_names(text: &str, run: Run) -> String {
    let shown = ["AGENT", "FEED", "SUBSCRIPTION"];
    run.names()
        .iter()
        .zip(shown)
        .fold(text.to_owned(), |text, (name, shown)| text.replace(name, shown))
}

/// A request that deletes an item, which has these attributes as its key.
fn deletion(item: &Item, key: &[&str]) -> WriteRequest {
    let key = key.iter().map(|name| ((*name).to_owned(), item[*name].clone())).collect();
    let delete = DeleteRequest::builder().set_key(Some(key)).build().unwrap();
    WriteRequest::builder().delete_request(delete).build()
}

/// In an order of its own.
fn shown(value: &aws_sdk_dynamodb::types::AttributeValue) -> String {
    use aws_sdk_dynamodb::types::AttributeValue::{M, Ss};
    match value {
        M(map) => {
            let map: std::collections::BTreeMap<_, _> =
                map.iter().map(|(name, value)| (name, shown(value))).collect();
            format!("{map:?}")
        }
        Ss(texts) => format!("{:?}", texts.iter().collect::<BTreeSet<_>>()),
        value => format!("{value:?}"),
    }
}

/// Lets each request of an operation fail in each way, on a node that sends a request so often.
async fn sweep(operation: &Operation, attempts_max: u32) {
    let mut world = World::open(operation, attempts_max).await;
    let call = operation.call;
    // Another node's store, which a count of the rows may miss: see `waiting_counts`.
    let is_counting = operation.waiting.when_full == WhenFull::Replace;
    let others = operation.others.iter().copied().chain([call]).filter(|_| !is_counting);
    for other in [None].into_iter().chain(others.map(Some)) {
        let orders = match other {
            None => vec![vec![call], vec![call, call]],
            Some(other) => vec![
                vec![other, call],
                vec![call, other],
                vec![call, other, call],
                vec![other, call, call],
            ],
        };
        let (mut right, mut answers) = (BTreeSet::new(), BTreeSet::new());
        for order in orders {
            let (rows, answered) = world.reference(operation, &order).await;
            right.insert(rows);
            answers.extend(answered);
        }
        let faults = if other.is_none() { FAULTS.len() } else { 1 };
        for (fault, make) in FAULTS.iter().enumerate().take(faults) {
            for number in 1.. {
                assert!(number < REQUESTS_MAX, "{} does not end", operation.name);
                let with = |run, store: Arc<Dynamo>| match other {
                    None => make(),
                    Some(other) => Fault::After(Box::pin(async move {
                        other(&store, run).await.unwrap();
                    })),
                };
                let (is_it, asked, answer, left) = world.fail(operation, number, with).await;
                let when = format!(
                    "{}, {attempts_max} attempts, fault {fault} of other {:?} at request {number} of {asked:?}",
                    operation.name,
                    other.map(|other| operation
                        .others
                        .iter()
                        .position(|it| std::ptr::fn_addr_eq(*it, other))),
                );
                assert_eq!(left.wrong, [""; 0], "{when}");
                if !is_it {
                    break;
                }
                let rows = left.rows;
                assert!(right.contains(&rows), "{when} left\n{rows}\nand not one of\n{right:#?}");
                assert!(answers.contains(&answer), "{when} answered {answer}, not {answers:?}");
            }
        }
    }
}

/// `OPERATION=part` in the environment sweeps those with that part of a name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_request_of_each_operation_fails_once() {
    let only = std::env::var("OPERATION").unwrap_or_default();
    let sweeps = OPERATIONS.iter().filter(|operation| operation.name.contains(&only));
    let sweeps = sweeps.flat_map(|operation| [1, 3].map(|attempts| (operation, attempts)));
    let swept = stream::iter(sweeps)
        .map(|(operation, attempts)| tokio::spawn(async move { sweep(operation, attempts).await }));
    let failed: Vec<_> =
        swept.buffer_unordered(4).filter_map(async |done| done.err()).collect().await;
    assert!(failed.is_empty(), "{} sweeps failed", failed.len());
}

/// A new operation or method has a row in the table, or is a read.
#[test]
fn each_operation_that_writes_has_its_faults() {
    let sources = [
        include_str!("../../../../src/store.rs"),
        include_str!("../../../../src/receipts.rs"),
        include_str!("../../../../src/feeds.rs"),
        include_str!("../../../../src/notifications.rs"),
        include_str!("../../../../src/maintenance.rs"),
    ];
    let contract = sources.iter().flat_map(|source| {
        let traits = source.split("\npub trait ").skip(1);
        let bodies = traits.map(|rest| rest.split("\n}\n").next().unwrap());
        bodies.flat_map(|body| body.split("\n    fn ").skip(1))
    });
    let methods = contract.map(|rest| rest.split('(').next().unwrap());
    let known: Vec<_> = OPERATIONS.iter().map(|operation| operation.name).collect();
    let is_known = |name: &&str| {
        operations::NOT_SWEPT.contains(name)
            || known.iter().any(|it| it.split(':').next() == Some(*name))
    };
    let unknown: Vec<_> = methods.chain(ops_of()).filter(|name| !is_known(name)).collect();
    assert_eq!(unknown, [""; 0]);
}
