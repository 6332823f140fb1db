//! Rows that autopush keeps after their agent has acked them.

use storage::maintenance::Table;

use super::*;
use crate::store_calls::StoreCalls;

/// Four rows of which the agent has acked two, as autopush leaves them. Returns the sort keys of the others.
async fn partly_acked_rows(world: &World) -> [String; 2] {
    let chids = ("chids", AttributeValue::Ss(vec![CHANNEL.to_string()]));
    world.put_row(" ", [chids, ("current_timestamp", n(1_793_699_999_000_000))]).await;
    let key = |timestamp: u64| format!("02:{timestamp}:{CHANNEL}");
    let keys = [
        key(1_793_699_998_999_999),
        key(1_793_699_999_000_000),
        key(1_793_699_999_000_001),
        format!("01:{CHANNEL}:a-topic"),
    ];
    for (key, update_id) in keys.iter().zip(RANDOM.iter().cycle()) {
        world.put_row(key, attributes(update_id)).await;
    }
    let [_, _, unacked, topic] = keys;
    [topic, unacked]
}

fn sort_keys(rows: &[Item]) -> Vec<&str> {
    rows.iter().map(|row| row["chidmessageid"].as_s().unwrap().as_str()).collect()
}

#[tokio::test]
async fn rows_that_were_acked_to_autopush_are_deleted_and_not_delivered() {
    let world = World::open().await;
    let left = partly_acked_rows(&world).await;
    world.store(november(), message(1)).await;
    let waiting = world.waiting(november()).await;
    assert_eq!((waiting.len(), waiting.last()), (3, Some(&message(1))));
    let rows = world.message_rows(november()).await;
    let rows: Vec<_> = sort_keys(&rows).into_iter().filter(|key| !key.starts_with(" ")).collect();
    let ours = format!("02:{}:{CHANNEL}", id(1, false));
    assert_eq!(rows, [&left[0], &ours, &left[1]]);
}

#[tokio::test]
async fn rows_that_were_acked_to_autopush_are_not_moved() {
    let world = World::open().await;
    let left = partly_acked_rows(&world).await;
    world.store.move_messages(AGENT, november(), december()).await.unwrap();
    assert_eq!(sort_keys(&world.message_rows(december()).await), left);
    assert_eq!(world.message_rows(november()).await, []);
}

#[tokio::test]
async fn the_copy_of_a_table_still_knows_what_was_acked_to_autopush() {
    let world = World::open().await;
    partly_acked_rows(&world).await;
    world.store.copy_rows(november(), december(), None).await.unwrap();
    assert_eq!(world.waiting(december()).await.len(), 2);
}

#[tokio::test]
async fn rows_that_a_copy_leaves_out_are_counted_and_those_of_a_server_are_not() {
    let world = World::open().await;
    partly_acked_rows(&world).await;
    world.put_row("no sort key of a message", []).await;
    world.store(november(), message(1)).await;
    world.store.check().await.unwrap();
    let marks = BTreeSet::from(["mark".to_owned()]);
    assert_eq!(world.store.put_key_fingerprints(BTreeSet::new(), marks).await, Ok(true));
    world.tables.put("router", &[("uaid", s("of no agent"))]).await;
    // The channels, three messages, two that were acked, and one row that is none.
    for (table, rows, counted) in
        [(Table::Messages(november()), 4, 7), (Table::Router, 0, 1), (Table::Feeds, 0, 0)]
    {
        let page = world.store.read_rows(table, None).await.unwrap();
        assert_eq!((page.rows.len(), page.seen()), (rows, counted), "{table:?}");
        assert_eq!(world.store.count_rows(table).await, Ok(counted), "{table:?}");
    }
}
