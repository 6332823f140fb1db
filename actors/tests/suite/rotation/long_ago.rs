//! Clients that were away for longer than a month, and tables that are gone.

use serde_json::json;
use state_machine::connection::PhaseName;
use state_machine::delivery::Outcome;
use state_machine::{Chid, Uaid};

use super::agent::Agent;
use super::world::{NEW, OLD, STORE_RETRY, World, in_table, it_becomes, lasting, month, stores};
use crate::node::{CHANNEL, Fate, UserAgent};
use crate::traces;

/// The place of that order where nothing waits: register, channels, fetch, copy, and then it.
const RECORD_MOVES: usize = 4;

pub(crate) async fn a_client_two_months_behind_takes_what_is_left_and_moves(world: World) {
    comes_after(world, "2027_01").await;
}

pub(crate) async fn a_client_three_months_behind_takes_what_is_left_and_moves(world: World) {
    comes_after(world, "2027_02").await;
}

/// From November, with all the tables in between.
async fn comes_after(world: World, name: &str) {
    world.has_months(["2027_01", "2027_02"]).await;
    let (node, uaid, mut waiting) = world.agent_with(2).await;
    it_becomes(&node, name);
    // Endpoints store where the agent will look first, however long ago that was.
    waiting.push(stores(&node, uaid).await);
    assert_eq!(world.rows(uaid).await, in_table(OLD, &waiting));
    world.is_done_after_visit(&node, uaid, &waiting, name).await;
    assert_eq!(world.channels_in(uaid, name).await, Some([CHANNEL].into()));
    assert_eq!(world.channels_in(uaid, NEW).await, None, "no month in between is touched");
}

pub(crate) async fn a_client_moves_over_the_new_year(world: World) {
    world.has_months(["2027_01"]).await;
    let (node, uaid, waiting) = world.agent_with(1).await;
    it_becomes(&node, "2026_12");
    world.is_done_after_visit(&node, uaid, &waiting, "2026_12").await;
    let stored = stores(&node, uaid).await;
    it_becomes(&node, "2027_01");
    world.is_done_after_visit(&node, uaid, &[stored], "2027_01").await;
}

pub(crate) async fn a_move_to_a_month_without_a_table_waits_for_it_and_loses_nothing(world: World) {
    let (node, uaid, mut waiting) = world.agent_with(1).await;
    it_becomes(&node, "2027_01");
    let mut agent = Agent::connects(&node, uaid);
    for _ in 0..3 {
        agent.until(|_, now| now.waits_for_retry()).await;
        assert_eq!(traces::line(agent.line()).phase, PhaseName::CopyingChids);
        agent.lets_pass(&node, STORE_RETRY);
    }
    waiting.push(stores(&node, uaid).await);
    assert_eq!(world.record_of(uaid).await.curmonth, month(OLD));
    world.has_months(["2027_01"]).await;
    agent.comes_to_rest(&node).await;
    assert_eq!(agent.got, waiting);
    world.is_done_with(uaid, "2027_01").await;
}

pub(crate) async fn a_move_that_was_cut_is_finished_months_later(world: World) {
    world.has_months(["2027_01", "2027_02"]).await;
    let (node, uaid, _) = world.agent_to_move(0).await;
    node.orders.set(RECORD_MOVES, Fate::Unheard);
    let agent = Agent::connects(&node, uaid);
    node.orders.has_met(1).await;
    agent.vanishes().await;
    // What an endpoint stored between the copy and the record is in the old table still.
    let late = lasting(&node);
    world.store_message(uaid, month(OLD), late.clone()).await.unwrap();
    traces::told(uaid, late.clone(), Outcome::Stored);
    let record = world.record_of(uaid).await;
    assert_eq!((record.curmonth, record.oldmonth), (month(NEW), Some(month(OLD))));

    let node = world.node_in("2027_02");
    let stored = stores(&node, uaid).await;
    world.is_done_after_visit(&node, uaid, &[late.id, stored], "2027_02").await;
}

pub(crate) async fn a_client_whose_old_table_was_dropped_in_the_midst_of_a_move_keeps_its_uaid(
    world: World,
) {
    let (node, uaid, _) = world.agent_to_move(0).await;
    node.orders.set(RECORD_MOVES, Fate::Unheard);
    let agent = Agent::connects(&node, uaid);
    node.orders.has_met(1).await;
    agent.vanishes().await;
    assert_eq!(world.drop_month(month(OLD)).await, Ok(true));

    world.has_months(["2027_02"]).await;
    let node = world.node_in("2027_02");
    let stored = stores(&node, uaid).await;
    world.is_done_after_visit(&node, uaid, &[stored], "2027_02").await;
}

pub(crate) async fn a_client_whose_table_was_dropped_gets_a_new_uaid_and_subscribes_again(
    world: World,
) {
    world.has_months(["2027_01", "2027_02"]).await;
    let (node, uaid, _) = world.agent_with(1).await;
    it_becomes(&node, "2027_02");
    assert_eq!(world.drop_month(month(OLD)).await, Ok(true));
    let sent = node.send(uaid, lasting(&node)).await.unwrap();
    assert_eq!(sent, Outcome::NoSuchUser, "its application servers are answered so");

    let fresh = Uaid([2; 16]);
    let mut agent = Agent::connects_with_luck(&node, uaid, fresh);
    agent.is_in(PhaseName::Ready).await;
    assert_eq!(agent.greeted_as, Some(fresh.to_string()));
    assert_eq!(node.find(uaid).await, None);
    let chid = Chid([2; 16]);
    agent.registers(chid);
    agent.until(|agent, _| !agent.answers.is_empty()).await;
    agent.hangs_up().await;
    world.is_done_with(fresh, "2027_02").await;
    assert_eq!(world.channels_in(fresh, "2027_02").await, Some([chid].into()));
}

pub(crate) async fn a_client_without_a_record_or_without_channels_gets_a_new_uaid(world: World) {
    let node = world.node_in(OLD);
    let (dropped, _) = world.agent_of_last_month(&node, 1, 1).await;
    assert_eq!(world.drop_user(dropped).await, Ok(true));
    // Its node died between its record and its first channel: it has no subscription to lose.
    node.orders.set(1, Fate::Lost);
    let agent = UserAgent::connect(&node, Uaid([2; 16]));
    agent.says(&json!({"messageType": "hello"}));
    agent.says(&json!({"messageType": "register", "channelID": CHANNEL.to_string()}));
    node.orders.has_met(1).await;
    assert_eq!(node.orders.orders(), ["register", "add channels 2026_11"]);
    node.orders.lift();

    it_becomes(&node, NEW);
    for uaid in [dropped, Uaid([2; 16])] {
        let fresh = Uaid([3; 16]);
        let mut agent = Agent::connects_with_luck(&node, uaid, fresh);
        agent.is_in(PhaseName::Ready).await;
        assert_eq!(agent.greeted_as, Some(fresh.to_string()));
        agent.hangs_up().await;
    }
}

pub(crate) async fn a_look_that_fails_never_gives_a_new_uaid(world: World) {
    let (node, uaid, waiting) = world.agent_to_move(1).await;
    // The reads of the record and of the channels could find an agent unknown.
    for at in [0, 1] {
        for fate in [Fate::Refused, Fate::Doubted] {
            node.orders.set(at, fate);
            let mut agent = Agent::silent(&node, uaid);
            agent.is_waited_for().await;
            node.orders.has_met(1).await;
            assert_eq!(traces::line(agent.line()).phase, PhaseName::Identified);
            assert_eq!(agent.greeted_as, None, "{at} {fate:?}");
            agent.comes_to_rest(&node).await;
            assert_eq!(agent.greeted_as, Some(uaid.to_string()), "{at} {fate:?}");
            agent.hangs_up().await;
        }
    }
    world.is_done_after_visit(&node, uaid, &waiting, NEW).await;
}

pub(crate) async fn a_store_that_is_closed_never_gives_a_new_uaid(world: World) {
    let (node, uaid, waiting) = world.agent_to_move(1).await;
    world.close().await.unwrap();
    let mut agent = Agent::connects(&node, uaid);
    for _ in 0..3 {
        agent.is_waited_for().await;
        assert_eq!(traces::line(agent.line()).phase, PhaseName::Identified);
        assert_eq!(agent.greeted_as, None);
        agent.lets_pass(&node, STORE_RETRY);
    }
    let sent = node.send(uaid, lasting(&node)).await.unwrap();
    assert_eq!(sent, Outcome::Unavailable);
    agent.hangs_up().await;

    let world = world.restart().await;
    let node = world.node_in(NEW);
    world.is_done_after_visit(&node, uaid, &waiting, NEW).await;
}
