use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use state_machine::{
    BridgeName, BridgeRecipient, LastConnect, Month, NodeBinding, NodeId, RouterType, Time,
};
use storage::data_dir::FileKey;
use storage::maintenance::{RepairClock, StoreAdmin};
use storage::store::{MonthStep, RegisterResult, Registration, Store, StoreAnswer, StoreOp};
use tempfile::TempDir;
use tokio::runtime::Builder;

use super::*;
use crate::{Embedded, EmbeddedOptions, router};

const UAID: Uaid = Uaid([1; 16]);

fn store() -> (TempDir, Arc<Embedded>) {
    let home = tempfile::tempdir().unwrap();
    let store = Embedded::open(home.path(), &EmbeddedOptions::new(64)).unwrap();
    (home, Arc::new(store))
}

fn block_on<T>(call: impl Future<Output = T>) -> T {
    Builder::new_current_thread().build().unwrap().block_on(call)
}

fn node() -> NodeId {
    NodeId::new("http://127.0.0.1:8081")
}

fn month(name: &str) -> Month {
    name.parse().unwrap()
}

fn registration(connected_at: u64) -> Registration {
    Registration {
        uaid: UAID,
        router_type: RouterType::WebPush,
        node: node(),
        connected_at: Time(connected_at),
        last_connect: LastConnect(connected_at),
        create_in: Some(month("2026_10")),
    }
}

fn record(uaid: Uaid) -> RouterRecord {
    RouterRecord {
        uaid,
        router_type: RouterType::WebPush,
        node: Some(node()),
        connected_at: Time(1),
        last_connect: LastConnect(1),
        curmonth: month("2026_10"),
        oldmonth: None,
    }
}

fn register(store: &Embedded, connected_at: u64) {
    let answer = block_on(store.execute(StoreOp::Register(registration(connected_at)))).unwrap();
    let registered = matches!(answer, StoreAnswer::Registered(RegisterResult::Registered(..)));
    assert!(registered, "{answer:?}");
}

fn read(store: &Embedded) -> Option<RouterRecord> {
    block_on(store.record(UAID)).unwrap()
}

fn on_disk(store: &Embedded) -> Option<RouterRecord> {
    store.readers.read(FileKey::Router, |conn| router::read(conn, UAID)).unwrap().flatten()
}

/// Reads the record, so that it is kept, and then after the write.
fn assert_next_read_sees(store: &Embedded, name: &str, write: impl FnOnce(&Embedded)) {
    let before = read(store);
    assert_eq!(before, on_disk(store), "before {name}");
    write(store);
    assert_ne!(before, on_disk(store), "{name} changes the record");
    assert_eq!(read(store), on_disk(store), "after {name}");
}

fn reads(from_memory: u64, from_file: u64) -> RecordReads {
    RecordReads { from_memory, from_file }
}

#[test]
fn a_record_is_read_from_the_file_once() {
    let (_home, store) = store();
    register(&store, 1);
    for _ in 0..5 {
        assert_eq!(read(&store), on_disk(&store));
    }
    assert_eq!(store.state().record_reads, Some(reads(4, 1)));
}

#[test]
fn the_read_after_any_write_returns_what_it_wrote() {
    let (_home, store) = store();
    register(&store, 1);
    let step = |connected_at| MonthStep {
        uaid: UAID,
        node: Some(node()),
        connected_at: Time(connected_at),
        from: month("2026_10"),
        to: month("2026_11"),
        last_connect: LastConnect(connected_at),
    };
    let see = |name: &str, write: &dyn Fn(&Embedded)| assert_next_read_sees(&store, name, write);
    see("register_user", &|store| register(store, 2));
    see("update_message_month", &|store| {
        let updated = block_on(store.execute(StoreOp::UpdateMonth(step(2))));
        assert_eq!(updated, Ok(StoreAnswer::MonthUpdated(true)));
    });
    see("finish_month_move", &|store| {
        let finished = block_on(store.execute(StoreOp::FinishMove(step(2))));
        assert_eq!(finished, Ok(StoreAnswer::MoveFinished(true)));
    });
    see("move_records", &|store| {
        block_on(store.move_records(month("2026_11"), month("2026_12"), None)).unwrap();
    });
    see("clear_node", &|store| {
        let binding = NodeBinding { node: node(), connected_at: Time(2) };
        let cleared = block_on(store.execute(StoreOp::ClearNode { uaid: UAID, binding }));
        assert_eq!(cleared, Ok(StoreAnswer::NodeCleared(true)));
    });
    see("repair_records", &|store| {
        let clock = RepairClock { now: Time(1), latest: Time(1), last_connect_shards: 1 };
        assert_eq!(block_on(store.repair_records(clock, None)).unwrap().written, 1);
    });
    see("mark_dropped", &|store| {
        assert!(block_on(store.mark_dropped(UAID, None)).unwrap().is_some());
    });
    assert!(block_on(store.drop_user(UAID)).unwrap());
    see("create_record", &|store| {
        assert!(block_on(store.create_record(record(UAID))).unwrap());
    });
    see("drop_user", &|store| assert!(block_on(store.drop_user(UAID)).unwrap()));
    register(&store, 3);
    block_on(store.mark_dropped(UAID, None)).unwrap();
    see("delete_uaids", &|store| {
        block_on(store.delete_uaids(vec![UAID])).unwrap();
        assert!(block_on(store.create_record(record(UAID))).unwrap(), "it was deleted");
    });
}

#[test]
fn a_registration_that_waited_for_space_is_read_once_it_is_written() {
    let (_home, store) = store();
    register(&store, 1);
    assert_next_read_sees(&store, "the writer", |store| {
        store.unwritten.keep(registration(2), on_disk(store)).unwrap();
        // The writer writes it after the answer of the first.
        block_on(store.check()).unwrap();
        block_on(store.check()).unwrap();
        assert!(store.unwritten.is_empty());
    });
}

#[test]
fn a_record_that_changes_while_it_is_read_is_not_kept() {
    let (_home, store) = store();
    register(&store, 1);
    let old = store.readers.records.get_or_read(UAID, || {
        let old = on_disk(&store);
        register(&store, 2);
        Ok::<_, Infallible>(old)
    });
    assert_eq!(old.unwrap().unwrap().connected_at, Time(1));
    assert_eq!(read(&store).unwrap().connected_at, Time(2));
}

#[test]
fn no_read_is_older_than_the_last_answered_write() {
    const ROUNDS: u64 = 300;
    let (_home, store) = store();
    register(&store, 1);
    let answered = AtomicU64::new(1);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let last = answered.load(Ordering::Acquire);
                    let seen = read(&store).unwrap().connected_at.0;
                    assert!(seen >= last, "read {seen} after the answer of {last}");
                    if last == ROUNDS {
                        break;
                    }
                }
            });
        }
        for connected_at in 2..=ROUNDS {
            register(&store, connected_at);
            answered.store(connected_at, Ordering::Release);
        }
    });
}

#[test]
fn as_many_records_are_kept_as_may_be() {
    let cache = RecordCache::new();
    for number in 0..2 * RECORDS_MAX as u128 {
        let uaid = Uaid(number.to_be_bytes());
        cache.get_or_read(uaid, || Ok::<_, Infallible>(Some(record(uaid)))).unwrap();
    }
    let shards = cache.shards.iter().map(lock);
    let (kept, bytes) = shards.fold((0, 0), |(kept, bytes), shard| {
        (kept + shard.records.len(), bytes + shard.records.memory_used().total())
    });
    assert_eq!(kept, RECORDS_MAX);
    // The name of the node is another 40 bytes.
    assert!(bytes <= 180 * RECORDS_MAX, "{bytes} bytes");
}

#[test]
fn agents_of_bridges_and_strangers_are_not_kept() {
    let cache = RecordCache::new();
    let recipient = BridgeRecipient {
        bridge: BridgeName::Fcm,
        app: "app".into(),
        token: "token".into(),
        aps: None,
    };
    let bridged =
        RouterRecord { router_type: RouterType::Bridge(Box::new(recipient)), ..record(UAID) };
    for answer in [Some(bridged), None] {
        for _ in 0..2 {
            let read = cache.get_or_read(UAID, || Ok::<_, Infallible>(answer.clone()));
            assert_eq!(read, Ok(answer.clone()));
        }
    }
    assert_eq!(cache.reads(), reads(0, 4));
}

#[test]
fn a_closed_store_returns_no_record() {
    let (_home, store) = store();
    register(&store, 1);
    read(&store);
    block_on(store.close()).unwrap();
    assert_eq!(block_on(store.record(UAID)), Err(storage::StoreError::Closed));
}
