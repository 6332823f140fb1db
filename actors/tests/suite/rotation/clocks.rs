//! Two nodes on one store, and it is another month on each.

use state_machine::connection::PhaseName;
use state_machine::delivery::Outcome;

use super::agent::Agent;
use super::world::{NEW, OLD, World, in_month, in_table, lasting, month, stores};
use crate::node::{Fate, Node};
use crate::traces;

/// One whose clock is right, and one that is still in the month before.
fn two_nodes(world: &World) -> (Node, Node) {
    let ahead = world.node(in_month(NEW), |bounds| bounds.name = "ahead");
    let behind = world.node(in_month(OLD), |bounds| bounds.name = "behind");
    (ahead, behind)
}

pub(crate) async fn a_record_that_moved_stays_where_it_is_on_a_node_whose_clock_is_behind(
    world: World,
) {
    let (ahead, behind) = two_nodes(&world);
    let (uaid, waiting) = world.agent_of_last_month(&behind, 1, 2).await;
    world.is_done_after_visit(&ahead, uaid, &waiting, NEW).await;

    let stored = [stores(&ahead, uaid).await, stores(&behind, uaid).await];
    assert_eq!(world.rows(uaid).await, in_table(NEW, &stored));
    let mut agent = Agent::settles(&behind, uaid).await;
    assert_eq!(agent.got, stored);
    assert_eq!(traces::line(agent.line()).phase, PhaseName::Ready);
    world.is_done_with(uaid, NEW).await;
    let record = world.record_of(uaid).await;
    assert_eq!(record.node, Some(behind.clients.config.node.clone()));

    // Endpoints of both reach it there.
    for node in [&ahead, &behind] {
        agent.got.clear();
        let message = lasting(node);
        let sent = node.send(uaid, message.clone());
        agent.until(|agent, _| agent.got == [message.id]).await;
        assert_eq!(sent.await.unwrap(), Outcome::Delivered);
    }
    agent.hangs_up().await;
    world.is_done_after_visit(&ahead, uaid, &[], NEW).await;
}

pub(crate) async fn a_client_moves_when_it_comes_to_a_node_whose_clock_is_ahead(world: World) {
    let (ahead, behind) = two_nodes(&world);
    let (uaid, _) = world.agent_of_last_month(&behind, 1, 0).await;
    let older = Agent::settles(&behind, uaid).await;
    assert_eq!(world.record_of(uaid).await.curmonth, month(OLD));

    // The older connection lingers, as one does whose line was cut.
    let mut agent = Agent::settles(&ahead, uaid).await;
    world.is_done_with(uaid, NEW).await;
    for node in [&ahead, &behind] {
        agent.got.clear();
        let message = lasting(node);
        let sent = node.send(uaid, message.clone());
        agent.until(|agent, _| agent.got == [message.id]).await;
        assert_eq!(sent.await.unwrap(), Outcome::Delivered);
    }
    assert_eq!(older.got, []);
    older.hangs_up().await;
    world.is_done_with(uaid, NEW).await;
    let record = world.record_of(uaid).await;
    assert_eq!(
        record.node,
        Some(ahead.clients.config.node.clone()),
        "the older one took nothing along"
    );
    agent.hangs_up().await;
}

pub(crate) async fn a_move_that_another_connection_overtakes_is_left_to_it_or_finished(
    world: World,
) {
    const ORDERS_MIN: usize = 9;
    let (ahead, behind) = two_nodes(&world);
    // At every order of the move in turn, the agent turns up at the other node.
    let mut at = 0;
    while is_overtaken_at(at, &world, &ahead, &behind).await {
        at += 1;
    }
    assert_eq!(at, ORDERS_MIN, "a move has that many orders");
}

/// Answers whether a move has that many orders.
async fn is_overtaken_at(at: usize, world: &World, ahead: &Node, behind: &Node) -> bool {
    let (uaid, waiting) = world.agent_of_last_month(behind, at as u8, 2).await;
    ahead.orders.set(at, Fate::Held);
    let mut mover = Agent::connects(ahead, uaid);
    let is_held = tokio::select! {
        biased;
        () = ahead.orders.has_met(1) => true,
        () = mover.comes_to_rest(ahead) => false,
    };
    mover.falls_silent();
    let mut got = mover.got.clone();
    got.extend(Agent::visits(behind, uaid).await);
    ahead.orders.release();
    mover.comes_to_rest(ahead).await;
    mover.hangs_up().await;
    got.extend(Agent::visits(ahead, uaid).await);
    assert!(waiting.iter().all(|id| got.contains(id)), "{at}: {got:?} of {waiting:?}");
    world.is_done_with(uaid, NEW).await;
    assert_eq!(Agent::visits(behind, uaid).await, []);
    world.is_done_with(uaid, NEW).await;
    is_held
}
