//! What shares a statement in PostgreSQL, and what does not wait for it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use postgres_server::{Session, shared};
use state_machine::{LastConnect, NodeId, RouterRecord, RouterType, Uaid};
use storage::{Store, StoreAdmin, Stored};
use storage_postgresql::{Postgres, PostgresOptions};
use tokio::time::sleep;

use crate::names::{self, NOW, chid};
use crate::postgresql::{AGENTS, ALL, agent, channel, november, on, with_agents};

/// An agent whose row of the month another session has locked, until it is released.
struct Locked {
    schema: String,
    _session: Session,
}

impl Locked {
    async fn agent(options: &PostgresOptions, uaid: Uaid) -> Self {
        let schema = options.schema.clone();
        let lock = format!(
            "BEGIN; SELECT 1 FROM {schema}.agents_2026_11 WHERE uaid = '{uaid}' FOR UPDATE; SELECT pg_sleep(600)"
        );
        let locked = Self { _session: shared().session(&lock), schema };
        locked.until("wait_event = 'PgSleep'").await;
        locked
    }

    /// Waits until a session with a statement on the schema is in this state.
    async fn until(&self, state: &str) {
        let query = format!(
            "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%{}.%' AND pid <> pg_backend_pid() AND {state}",
            self.schema
        );
        for _ in 0..3000 {
            if !shared().rows(&query).is_empty() {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("no session has {state}");
    }

    fn release(self) {
        shared().sql(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE query LIKE '%{}.%' AND wait_event = 'PgSleep'",
            self.schema
        ));
    }
}

/// Stores a message of an agent that is locked, and waits until it waits for the lock.
async fn blocked(
    store: &Arc<Postgres>,
    locked: &Locked,
) -> tokio::task::JoinHandle<Result<Stored, storage::StoreError>> {
    let store = store.clone();
    let stored = tokio::spawn(async move {
        store.store_message(agent(0), november(), names::message(1, channel(), NOW)).await
    });
    locked.until("wait_event_type = 'Lock'").await;
    stored
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_queue_are_stored_by_few_statements_and_each_has_its_own_answer() {
    let options = PostgresOptions { connections: 1, ..on(&shared().url) };
    let store = with_agents(&options).await;
    let locked = Locked::agent(&options, agent(0)).await;
    let first = blocked(&store, &locked).await;

    // Of each agent: some to its channel, one to another channel, and two of a topic.
    let mut expected = Vec::new();
    let mut calls = Vec::new();
    for number in 1..AGENTS {
        for message in 10..30 {
            let (to, answer) = match message {
                20 => (chid(2), Stored::NoSuchChannel),
                _ => (channel(), Stored::Done),
            };
            expected.push(answer);
            let of = names::message(message, to, NOW);
            calls.push(store.store_message(agent(number), november(), of));
        }
    }
    let of_topics = (1..AGENTS).flat_map(|number| [(number, 40), (number, 41)]);
    let of_topics = of_topics.map(|(number, message)| {
        let of = names::with_topic(message, "topic", names::message(message, channel(), NOW));
        store.store_message(agent(number), november(), of)
    });
    let of_topics = tokio::spawn(join_all(of_topics.collect::<Vec<_>>()));
    let calls = tokio::spawn(join_all(calls));
    let all = 1 + usize::from(AGENTS - 1) * 22;
    while store.state().queue.is_none_or(|queue| queue.length < all) {
        sleep(Duration::from_millis(1)).await;
    }
    locked.release();
    assert_eq!(first.await.unwrap(), Ok(Stored::Done));
    let answers = calls.await.unwrap().into_iter().collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!(answers, expected);
    for pair in of_topics.await.unwrap().chunks(2) {
        // In the order in which they are executed.
        let lesser = [Stored::Done, Stored::Outranked(names::id(41, true))];
        assert!(lesser.map(Ok).contains(&pair[0]), "{pair:?}");
        assert_eq!(pair[1], Ok(Stored::Done));
    }

    let expected = (10..30).filter(|id| *id != 20).map(|id| names::id(id, false));
    let expected: Vec<_> = expected.chain([names::id(41, true)]).collect();
    for number in 1..AGENTS {
        let there = names::all_messages(&*store, agent(number), november(), ALL, NOW).await;
        let mut ids: Vec<_> = there.iter().map(|message| message.id).collect();
        ids.sort_by_key(|id| (id.to_bytes()[..6].to_vec(), *id));
        assert_eq!(ids, expected, "agent {number}");
    }
    let counts = format!(
        "SELECT count(DISTINCT xmin::text), count(*) = (SELECT sum(messages) FROM {0}.agents_2026_11)
         FROM {0}.messages_2026_11",
        options.schema
    );
    let counts = shared().rows(&counts);
    let (transactions, are_counted) = (counts[0][0].parse::<usize>().unwrap(), &counts[0][1]);
    assert!(transactions < all / 4, "{transactions} transactions for {all} messages");
    assert_eq!(are_counted, "t");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_whose_rows_are_locked_holds_up_no_other() {
    let options = PostgresOptions { connections: 2, ..on(&shared().url) };
    let store = with_agents(&options).await;
    let locked = Locked::agent(&options, agent(0)).await;
    let first = blocked(&store, &locked).await;
    // Each after the lane of the one before is late.
    let mut others = Vec::new();
    for number in 2..5 {
        let of = names::message(number, channel(), NOW);
        others.push(tokio::spawn(store.store_message(agent(0), november(), of)));
        sleep(Duration::from_millis(100)).await;
    }
    let of = names::message(1, channel(), NOW);
    assert_eq!(store.store_message(agent(1), november(), of).await, Ok(Stored::Done));
    assert!(!first.is_finished() && others.iter().all(|other| !other.is_finished()));
    locked.release();
    for stored in others.into_iter().chain([first]) {
        assert_eq!(stored.await.unwrap(), Ok(Stored::Done));
    }
}

/// Each call has an answer after a few limits, and not after one for each call that waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_queue_behind_a_locked_table_do_not_wait_in_turn() {
    let operation_timeout = Duration::from_millis(500);
    let options = PostgresOptions { connections: 1, operation_timeout, ..on(&shared().url) };
    let store = with_agents(&options).await;
    let lock = format!(
        "BEGIN; LOCK TABLE {0}.agents_2026_11; SELECT pg_sleep(600) FROM {0}.state",
        options.schema
    );
    let locked = Locked { _session: shared().session(&lock), schema: options.schema.clone() };
    locked.until("wait_event = 'PgSleep'").await;
    let calls = (0..AGENTS).map(|number| {
        store.store_message(agent(number), november(), names::message(1, channel(), NOW))
    });
    let answers = join_all(calls.collect::<Vec<_>>()).await;
    let errors = answers.into_iter().map(|answer| answer.unwrap_err().to_string());
    // The server has ended a call that waited for the lock by itself.
    let waited = errors.filter(|error| error.contains("statement timeout")).count();
    assert!((1..=4).contains(&waited), "{waited} of {AGENTS} calls waited in turn");
    locked.release();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_are_read_at_once_are_each_those_of_their_agent() {
    let store = with_agents(&on(&shared().url)).await;
    for number in (0..100).step_by(2) {
        let record = RouterRecord {
            uaid: agent(number),
            router_type: RouterType::WebPush,
            node: Some(NodeId::new(&format!("http://node-{number}"))),
            connected_at: NOW,
            last_connect: LastConnect(1),
            curmonth: november(),
            oldmonth: None,
        };
        assert!(store.create_record(record).await.unwrap());
    }
    let reads = (0..200).map(|number| store.record(agent(number)));
    for (number, record) in (0..).zip(join_all(reads.collect::<Vec<_>>()).await) {
        let read = record.unwrap().map(|record| (record.uaid, record.node));
        let is_there = number < 100 && number % 2 == 0;
        let node = is_there.then(|| NodeId::new(&format!("http://node-{number}")));
        assert_eq!(read, is_there.then_some((agent(number), node)));
    }
}
