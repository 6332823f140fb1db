//! Records that an import creates.

use state_machine::{LastConnect, NodeId, RouterRecord, RouterType, Time, Uaid};

use crate::maintenance::world::{DECEMBER, SPREAD, World, agent};

/// Of an agent that is connected nowhere.
pub(crate) fn record(uaid: Uaid, connected_at: Time) -> RouterRecord {
    RouterRecord {
        uaid,
        router_type: RouterType::WebPush,
        node: None,
        connected_at,
        last_connect: LastConnect::of(connected_at, uaid, SPREAD),
        curmonth: "2026_12".parse().unwrap(),
        oldmonth: None,
    }
}

pub(crate) async fn a_created_record_is_read_back_and_found_by_its_last_connect(world: World) {
    let absent = record(agent(1), DECEMBER);
    let connected = RouterRecord {
        node: Some(NodeId::new("a")),
        oldmonth: Some("2026_11".parse().unwrap()),
        ..record(agent(2), DECEMBER)
    };
    for record in [absent, connected] {
        assert_eq!(world.create_record(record.clone()).await, Ok(true));
        assert_eq!(world.record(record.uaid).await, Ok(Some(record)));
    }
    let found = world.inactive("2026_12", "2026_12").await;
    assert_eq!(found.len(), 2);
}

pub(crate) async fn a_record_is_created_only_where_there_is_none(world: World) {
    world.connect(agent(1), DECEMBER).await;
    let before = world.record(agent(1)).await;
    assert_eq!(world.create_record(record(agent(1), Time(DECEMBER.0 + 1))).await, Ok(false));
    assert_eq!(world.record(agent(1)).await, before);
    world.mark_dropped(agent(1), None).await.unwrap();
    assert_eq!(world.create_record(record(agent(1), DECEMBER)).await, Ok(false));
    assert_eq!(world.record(agent(1)).await, Ok(None));
}
