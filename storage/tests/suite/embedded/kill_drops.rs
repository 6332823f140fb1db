//! kill -9 while inactive users are dropped: no row is left without its record.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use state_machine::{LastConnect, Month, Span, Uaid};
use storage::maintenance::MonthRange;
use storage::{DropInactiveUsers, Registration, Store, StoreAdmin};
use storage_sqlite::Embedded;

use crate::embedded::{
    CHID, CHILD_DIR, NOW, agent, kill_child, message, month, open, opened, registration, waiting,
};
use crate::names::each_page;
use crate::store_calls::StoreCalls;

/// Enough for ten batches of a drop.
const AGENTS: u8 = 250;

/// Messages of an agent in each month, so that most of the time rows are deleted.
const MESSAGES: u32 = 30;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drop_that_is_killed_leaves_no_row_without_a_record_and_is_completed() {
    if let Some(dir) = std::env::var_os(CHILD_DIR) {
        return drop_all(Arc::new(open(Path::new(&dir))), || println!("# batch")).await;
    }
    let (home, store) = opened();
    join_all((1..=AGENTS).map(|number| furnish(&store, agent(number)))).await;
    Store::close(&store).await.unwrap();
    for delay in 1..=6 {
        let mut heard = 0;
        let is_batch = |line: &str| {
            heard += usize::from(line.contains("# batch"));
            heard > 0
        };
        // Another instant of the next batch in each round.
        kill_child(home.path(), is_batch, Duration::from_millis(delay)).await;

        let store = open(home.path());
        let (records, owners) = (records(&store).await, owners(&store).await);
        assert!(heard > 0 || records.is_empty());
        assert!(owners.is_subset(&records), "{:?}", owners.difference(&records));
        Store::close(&store).await.unwrap();
    }
    let store = Arc::new(open(home.path()));
    drop_all(store.clone(), || {}).await;
    assert_eq!((records(&store).await, owners(&store).await), ([].into(), [].into()));
}

/// An agent with a channel and messages in three months.
async fn furnish(store: &Embedded, uaid: Uaid) {
    let last_connect = LastConnect::of(NOW, uaid, 1);
    let registration = Registration { last_connect, ..registration(uaid, 1) };
    store.register_user(registration).await.unwrap();
    for month in months() {
        store.ensure_month(month).await.unwrap();
        store.add_channels(uaid, month, [CHID].into()).await.unwrap();
        for number in 1..=MESSAGES {
            store.store_message(uaid, month, message(number)).await.unwrap();
        }
    }
}

fn months() -> [Month; 3] {
    [month(), month().next(), month().next().next()]
}

/// Drops all inactive users, and reports each batch with users.
async fn drop_all(store: Arc<Embedded>, report: impl Fn()) {
    let later = NOW + Span::from_secs(100 * 24 * 60 * 60);
    let mut users = DropInactiveUsers::new(store, 2, later, month());
    while let Some(batch) = users.next().await {
        if batch.unwrap().dropped > 0 {
            report();
        }
    }
}

/// The users in the index, those who are being dropped included.
async fn records(store: &Embedded) -> BTreeSet<Uaid> {
    let seen = MonthRange { first: month(), last: month() };
    let mut found = BTreeSet::new();
    each_page(async |after| {
        let page = store.inactive_users(seen, after).await.unwrap();
        found.extend(page.users.iter().map(|user| user.uaid));
        page.next
    })
    .await;
    found
}

/// The users who have channels, or messages in the first month.
async fn owners(store: &Embedded) -> BTreeSet<Uaid> {
    let mut owners = BTreeSet::new();
    for uaid in (1..=AGENTS).map(agent) {
        let mut has_rows = !waiting(store, uaid, NOW).await.is_empty();
        for month in months() {
            has_rows |= store.channels(uaid, month).await.unwrap().is_some();
        }
        owners.extend(has_rows.then_some(uaid));
    }
    owners
}
