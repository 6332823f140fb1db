//! The floor of message ids.

use state_machine::{Span, Time};
use storage::maintenance::ID_FLOOR_AHEAD_MAX;

use crate::maintenance::world::{DECEMBER, World, agent};

pub(crate) async fn the_floor_of_ids_is_only_raised(world: World) {
    assert_eq!(world.id_floor().await, Ok(Time(0)));
    for (raised, floor) in [(5_000, 5_000), (4_000, 5_000), (5_000, 5_000), (6_000, 6_000)] {
        world.raise_id_floor(Time(raised)).await.unwrap();
        assert_eq!(world.id_floor().await, Ok(Time(floor)));
    }
    world.connect(agent(1), DECEMBER).await;
    let counts = world.records_by_month(None).await.unwrap();
    assert_eq!((counts.curmonth.values().sum::<u64>(), counts.unreadable), (1, 0));
}

pub(crate) async fn a_floor_that_a_clock_far_ahead_has_left_is_replaced(world: World) {
    let now = Time(1_796_000_000_000);
    let ahead = now + ID_FLOOR_AHEAD_MAX;
    for (left, floor) in
        [(ahead, ahead), (ahead + Span(1), now), (ahead + ahead.since(Time(0)), now)]
    {
        world.raise_id_floor(left).await.unwrap();
        world.raise_id_floor(now).await.unwrap();
        assert_eq!(world.id_floor().await, Ok(floor));
    }
}
