//! The list of tables on each engine.

use storage::Notification;
use storage::maintenance::{Table, TableStatus};

use crate::maintenance::world::{DECEMBER, World, agent, chid, chids, message, month};
use crate::store_calls::StoreCalls;

fn which(tables: &[TableStatus]) -> Vec<Table> {
    tables.iter().map(|status| status.table).collect()
}

pub(crate) async fn tables_are_listed_router_first_then_months_oldest_first(world: World) {
    let world = world.with_months(&["2026_12", "2026_10"]).await;
    let notification = Notification { chid: chid(1), version: 1, data: None };
    world.save_notification(agent(1), notification).await.unwrap();
    world.connect(agent(1), DECEMBER).await;
    world.add_channels(agent(1), month("2026_10"), chids([1])).await.unwrap();
    world.put(agent(1), "2026_10", &message(1)).await;
    let tables = world.tables().await.unwrap();
    let months = ["2026_10", "2026_12"].map(|name| Table::Messages(month(name)));
    let expected = [&[Table::Router, Table::Notifications][..], &months].concat();
    assert_eq!(which(&tables), expected);
    assert!(tables.iter().all(|status| status.state == "active"), "{tables:?}");
    assert!(tables[2].name.contains("2026_10"), "{tables:?}");
    let filled: Vec<bool> = tables.iter().map(|status| status.items > 0).collect();
    assert_eq!(filled, [true, true, true, false]);
    assert!(tables[..3].iter().all(|status| status.bytes > 0), "{tables:?}");
}

pub(crate) async fn a_table_that_is_made_twice_is_there_once(world: World) {
    let world = world.with_months(&["2026_12", "2026_12"]).await;
    assert_eq!(world.months().await, Ok(vec![month("2026_12")]));
    assert_eq!(world.drop_month(month("2026_12")).await, Ok(true));
    assert_eq!(world.drop_month(month("2026_12")).await, Ok(false));
    assert_eq!(world.months().await, Ok(vec![]));
}
