//! `rotation = false`: the table in use stays in use, until rotation is on again.

use state_machine::connection::PhaseName;

use super::agent::Agent;
use super::world::{NEW, OLD, World, in_month, in_table, month, stores};
use crate::node::{Fate, Node};
use crate::traces;

/// A node where rotation is off and [`NEW`] is in use.
fn frozen_node(world: &World, name: &str) -> Node {
    world.node(in_month(name), |bounds| bounds.frozen_month = Some(month(NEW)))
}

pub(crate) async fn where_rotation_is_off_one_table_is_used_for_months(world: World) {
    let node = frozen_node(&world, NEW);
    let uaid = Agent::subscribes(&node, 1).await;
    for name in [NEW, "2027_01", "2027_06"] {
        let node = frozen_node(&world, name);
        let stored = stores(&node, uaid).await;
        assert_eq!(world.rows(uaid).await, in_table(NEW, &[stored]));
        assert_eq!(Agent::visits(&node, uaid).await, [stored]);
        world.is_done_with(uaid, NEW).await;
        let newcomer = Agent::subscribes(&node, name.as_bytes()[6]).await;
        world.is_done_with(newcomer, NEW).await;
    }
    assert_eq!(world.months().await.unwrap(), [month(OLD), month(NEW)]);
}

pub(crate) async fn where_rotation_is_on_again_clients_move(world: World) {
    let node = frozen_node(&world, "2027_06");
    let uaid = Agent::subscribes(&node, 1).await;
    let stored = stores(&node, uaid).await;
    world.has_months(["2027_05", "2027_06"]).await;
    let node = world.node_in("2027_06");
    world.is_done_after_visit(&node, uaid, &[stored], "2027_06").await;
}

pub(crate) async fn switched_off_in_the_midst_of_a_month_nobody_moves_back(world: World) {
    // The next month's table was made ahead already. It is not in use.
    world.has_months(["2027_01"]).await;
    let (early, late) = {
        let node = world.node_in(OLD);
        let (early, waiting) = world.agent_of_last_month(&node, 1, 1).await;
        let node = world.node_in(NEW);
        let late = Agent::subscribes(&node, 2).await;
        ((early, waiting), (late, vec![stores(&node, late).await]))
    };
    let node = frozen_node(&world, NEW);
    for (uaid, waiting) in [&early, &late] {
        assert_eq!(Agent::visits(&node, *uaid).await, *waiting);
        world.is_done_with(*uaid, NEW).await;
    }
    // On again, in the same month: nothing changes.
    let node = world.node_in(NEW);
    for (uaid, _) in [&early, &late] {
        let stored = stores(&node, *uaid).await;
        assert_eq!(world.rows(*uaid).await, in_table(NEW, &[stored]));
        assert_eq!(Agent::visits(&node, *uaid).await, [stored]);
        world.is_done_with(*uaid, NEW).await;
    }
}

pub(crate) async fn frozen_in_the_midst_of_a_move_it_is_finished(world: World) {
    let (node, uaid, waiting) = world.agent_with(1).await;
    node.clients.clock.set(in_month(NEW));
    // The agent is silent; the record moves, and then the node dies.
    node.orders.set(5, Fate::Unheard);
    let mut agent = Agent::silent(&node, uaid);
    agent.is_in(PhaseName::DrainingOldMonth).await;
    agent.is_waited_for().await;
    agent.lets_pass(&node, super::world::DRAIN_WAIT);
    node.orders.has_met(1).await;
    assert_eq!(traces::line(agent.line()).phase, PhaseName::WritingRecord);
    agent.vanishes().await;
    let record = world.record_of(uaid).await;
    assert_eq!((record.curmonth, record.oldmonth), (month(NEW), Some(month(OLD))));
    assert_eq!(world.rows(uaid).await, in_table(OLD, &waiting));

    let node = frozen_node(&world, "2027_03");
    world.is_done_after_visit(&node, uaid, &waiting, NEW).await;
}
