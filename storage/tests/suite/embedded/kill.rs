//! kill -9 in the middle of a storm of writes: what was answered is there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use state_machine::{Message, MessageId, Uaid};
use storage::{RegisterResult, Store, Stored};
use storage_sqlite::Embedded;
use tokio::task::JoinSet;

use crate::embedded::{
    CHID, CHILD_DIR, NOW, agent, kill_child, message, month, open, registration, waiting,
};
use crate::names;
use crate::store_calls::StoreCalls;

const AGENTS: u8 = 16;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_write_answered_before_kill_nine_is_there_afterwards() {
    if let Some(dir) = std::env::var_os(CHILD_DIR) {
        return write_until_killed(Path::new(&dir)).await;
    }
    let home = tempfile::tempdir().unwrap();
    let mut heard = Heard::default();
    for answers in [100, 1000, 3000] {
        let enough = heard.lines + answers;
        let is_enough = |line: &str| {
            heard.note(line);
            heard.lines >= enough
        };
        kill_child(home.path(), is_enough, Duration::ZERO).await;
        assert!(heard.lines >= enough, "the child writes until it is killed");
        let store = open(home.path());
        heard.verify(&store).await;
        store.close().await.unwrap();
    }
}

/// The output of the child: what it did.
#[derive(Default)]
struct Heard {
    lines: usize,
    agents: BTreeMap<u8, HeardOfAgent>,
}

#[derive(Default)]
struct HeardOfAgent {
    stored: BTreeSet<u32>,
    deleting: BTreeSet<u32>,
    deleted: BTreeSet<u32>,
    topic: u32,
    connected_at: u64,
}

impl Heard {
    fn note(&mut self, line: &str) {
        let mut words = line.split(' ');
        let [Some("#"), Some(number), Some(what), Some(value), Some(".")] =
            std::array::from_fn(|_| words.next())
        else {
            return;
        };
        self.lines += 1;
        let agent = self.agents.entry(number.parse().unwrap()).or_default();
        let value: u32 = value.parse().unwrap();
        match what {
            "stored" => drop(agent.stored.insert(value)),
            "deleting" => drop(agent.deleting.insert(value)),
            "deleted" => drop(agent.deleted.insert(value)),
            "topic" => agent.topic = agent.topic.max(value),
            "connected" => agent.connected_at = agent.connected_at.max(value.into()),
            _ => panic!("{line}"),
        }
    }

    async fn verify(&self, store: &Embedded) {
        for (number, heard) in &self.agents {
            let rows = waiting(store, agent(*number), NOW).await;
            let (topics, plain): (Vec<_>, Vec<_>) =
                rows.into_iter().partition(|row| row.topic.is_some());
            let there: BTreeSet<MessageId> = plain.iter().map(|row| row.id).collect();
            for stored in heard.stored.difference(&heard.deleting) {
                assert!(there.contains(&message(*stored).id), "{stored} of {number} is lost");
            }
            for deleted in &heard.deleted {
                assert!(!there.contains(&message(*deleted).id), "{deleted} of {number} is back");
            }
            assert!(topics.len() <= 1);
            assert!(topics.iter().all(|row| row.id >= topical(heard.topic).id));
            assert!(heard.topic == 0 || topics.len() == 1);
            let record = store.record(agent(*number)).await.unwrap();
            assert!(record.is_none_or(|record| record.connected_at.0 >= heard.connected_at));
        }
    }
}

fn topical(number: u32) -> Message {
    names::with_topic(number, "t", message(number))
}

/// The child: one task per agent, each prints what was answered.
async fn write_until_killed(dir: &Path) {
    let store = Arc::new(open(dir));
    store.ensure_month(month()).await.unwrap();
    let mut tasks = JoinSet::new();
    for number in 1..=AGENTS {
        tasks.spawn(write_as(store.clone(), number));
    }
    tasks.join_all().await;
}

async fn write_as(store: Arc<Embedded>, number: u8) {
    let uaid: Uaid = agent(number);
    let say = |what: &str, value: u32| println!("# {number} {what} {value} .");
    store.add_channels(uaid, month(), [CHID].into()).await.unwrap();
    let first = store.record(uaid).await.unwrap().map_or(0, |record| record.connected_at.0 as u32);
    for round in first + 1.. {
        let registered = store.register_user(registration(uaid, round.into())).await.unwrap();
        assert!(matches!(registered, RegisterResult::Registered(..)));
        say("connected", round);
        for id in [2 * round, 2 * round + 1] {
            let stored = store.store_message(uaid, month(), message(id)).await;
            assert_eq!(stored, Ok(Stored::Done));
            say("stored", id);
        }
        store.store_message(uaid, month(), topical(round)).await.unwrap();
        say("topic", round);
        say("deleting", 2 * round);
        let done = vec![message(2 * round).key()];
        store.delete_messages(uaid, vec![month()], done).await.unwrap();
        say("deleted", 2 * round);
    }
}
