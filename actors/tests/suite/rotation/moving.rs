//! A client moves to the month that has begun, when it connects and not before.

use std::collections::BTreeSet;
use std::sync::Arc;

use state_machine::connection::{Effect, PhaseName, PushAnswer};
use state_machine::delivery::Outcome;
use state_machine::{Chid, MessageId, Time};
use storage::{StoreOp, Stored};

use super::agent::Agent;
use super::world::{NEW, OLD, World, in_month, in_table, it_becomes, lasting, month, stores};
use crate::node::{Bounds, CHANNEL, Fate, Node, stored_messages};
use crate::traces;

pub(crate) async fn a_client_of_this_month_touches_no_other(world: World) {
    let (node, uaid, waiting) = world.agent_with(2).await;
    node.orders.lift();
    let got = Agent::visits(&node, uaid).await;
    assert_eq!(got, waiting);
    let orders = ["register", "read channels 2026_11", "fetch 2026_11", "delete [2026_11]"];
    assert_eq!(node.orders.orders(), orders);
    world.is_done_with(uaid, OLD).await;
    assert_eq!(world.channels_in(uaid, NEW).await, None);
}

/// The orders of a move, with messages that are acked.
pub(crate) const MOVE: [&str; 9] = [
    "register",
    "read channels 2026_11",
    "fetch 2026_11",
    "delete [2026_11, 2026_12]",
    "add channels 2026_12",
    "update month",
    "fetch 2026_11",
    "finish move",
    "fetch 2026_12",
];

pub(crate) async fn a_client_of_last_month_takes_its_messages_and_moves(world: World) {
    let (node, uaid, waiting) = world.agent_to_move(2).await;
    node.orders.lift();
    assert_eq!(Agent::visits(&node, uaid).await, waiting);
    assert_eq!(node.orders.orders(), MOVE);
    world.is_done_with(uaid, NEW).await;
    assert_eq!(world.channels_in(uaid, OLD).await, Some([CHANNEL].into()));
    assert_eq!(world.channels_in(uaid, NEW).await, Some([CHANNEL].into()));

    // Later messages wait in the new month, and are not redelivered once acked.
    let next = stores(&node, uaid).await;
    assert_eq!(world.rows(uaid).await, in_table(NEW, &[next]));
    assert_eq!(Agent::visits(&node, uaid).await, [next]);
    world.is_done_after_visit(&node, uaid, &[], NEW).await;
}

/// The agent remembers no ack here, so redeliveries are not hidden.
pub(crate) async fn what_a_broken_off_copy_left_in_the_new_month_goes_with_the_acks(world: World) {
    let node = world.node(in_month(OLD), |bounds| bounds.limits.remembered_acks_max = 1);
    let (uaid, waiting) = world.agent_of_last_month(&node, 1, 3).await;
    let channels = [CHANNEL].into();
    world.execute(StoreOp::AddChannels { uaid, month: month(NEW), channels }).await.unwrap();
    for message in stored_messages(&*world, uaid, month(OLD), Time(0)).await {
        assert_eq!(world.store_message(uaid, month(NEW), message).await, Ok(Stored::Done));
    }
    it_becomes(&node, NEW);
    assert_eq!(Agent::visits(&node, uaid).await, waiting);
    world.is_done_after_visit(&node, uaid, &[], NEW).await;
}

pub(crate) async fn a_client_takes_more_than_a_page_before_it_moves(world: World) {
    let node = world.node(in_month(OLD), small_pages);
    let (uaid, waiting) = world.agent_of_last_month(&node, 1, 9).await;
    it_becomes(&node, NEW);
    node.orders.lift();
    assert_eq!(Agent::visits(&node, uaid).await, waiting);
    let fetches = node.orders.orders().iter().filter(|order| *order == "fetch 2026_11").count();
    assert!(fetches > 5, "{:?}", node.orders.orders());
    world.is_done_with(uaid, NEW).await;
}

/// Two rows in a page, four messages that wait for acks.
pub(crate) fn small_pages(bounds: &mut Bounds) {
    (bounds.limits.fetch_rows_max, bounds.limits.unacked_max) = (2, 4);
}

pub(crate) async fn channels_are_copied_without_messages_and_the_record_moves_last(world: World) {
    let (node, uaid, waiting) = world.agent_to_move(2).await;
    node.orders.set(at("update month"), Fate::Held);
    let mut agent = Agent::connects(&node, uaid);
    agent.is_in(PhaseName::WritingRecord).await;
    node.orders.has_met(1).await;
    assert_eq!(agent.got, waiting);
    assert_eq!(world.channels_in(uaid, NEW).await, Some([CHANNEL].into()));
    assert_eq!(world.rows(uaid).await, [], "acked in the old month, not copied to the new one");
    let record = world.record_of(uaid).await;
    assert_eq!((record.curmonth, record.oldmonth), (month(OLD), None));

    node.orders.release();
    agent.comes_to_rest(&node).await;
    world.is_done_with(uaid, NEW).await;
}

pub(crate) async fn commands_and_pushes_during_every_step_of_a_move_wait_for_its_end(world: World) {
    let (node, uaid, mut waiting) = world.agent_to_move(2).await;
    node.orders.set(0, Fate::Held);
    let mut agent = Agent::connects(&node, uaid);
    let asked = asks_and_pushes_at_every_order(&node, &mut agent, &mut waiting).await;
    node.orders.release();
    agent.comes_to_rest(&node).await;
    assert!(asked.len() >= MOVE.len() - 2, "a fetch twice, and the last one when it is ready");
    assert_eq!(agent.answers, asked);
    agent.got.sort_unstable();
    assert_eq!(agent.got, waiting);
    assert_eq!(push_answers(&agent), [PushAnswer::Busy].into());
    world.is_done_with(uaid, NEW).await;
}

/// One command and one push at every kind of order of a move that is held back; the channels asked
/// for.
async fn asks_and_pushes_at_every_order(
    node: &Node,
    agent: &mut Agent,
    waiting: &mut Vec<MessageId>,
) -> Vec<String> {
    let (mut asked, mut seen) = (Vec::new(), BTreeSet::new());
    loop {
        let orders = Arc::clone(&node.orders);
        agent.until(|_, now| now.phase == PhaseName::Ready || orders.is_waited_at()).await;
        if traces::line(agent.line()).phase == PhaseName::Ready {
            return asked;
        }
        let before = seen.len();
        seen.extend(node.orders.orders());
        // Not at every single one: a push makes it look once more, and so on for ever.
        if seen.len() > before {
            let chid = Chid([asked.len() as u8 + 1; 16]);
            agent.registers(chid);
            asked.push(chid.to_string());
            waiting.push(stores(node, agent.uaid()).await);
            agent.until(|_, _| true).await;
            assert!(agent.answers.is_empty(), "{seen:?}");
        }
        node.orders.let_in();
    }
}

pub(crate) async fn a_session_stays_open_over_midnight_and_its_agent_moves_when_it_reconnects(
    world: World,
) {
    let node = world.node_in(OLD);
    let uaid = Agent::subscribes(&node, 1).await;
    let mut agent = Agent::settles(&node, uaid).await;
    it_becomes(&node, NEW);
    agent.notices_the_time();
    agent.until(|_, _| true).await;

    let direct = lasting(&node);
    let sent = node.send(uaid, direct.clone());
    agent.until(|agent, _| agent.got == [direct.id]).await;
    assert_eq!(sent.await.unwrap(), Outcome::Delivered);

    // A push that waits for its ack, and one that is busy because of it.
    agent.falls_silent();
    let waits = lasting(&node);
    let sent = node.send(uaid, waits.clone());
    agent.until(|agent, _| agent.got.len() == 2).await;
    let busy = stores(&node, uaid).await;
    assert_eq!(world.rows(uaid).await, in_table(OLD, &[busy]));
    agent.acks_all();
    assert_eq!(sent.await.unwrap(), Outcome::Delivered);
    agent.comes_to_rest(&node).await;
    assert_eq!(agent.got, [direct.id, waits.id, busy]);

    agent.registers(Chid([2; 16]));
    agent.until(|agent, _| agent.answers.len() == 1).await;
    assert_eq!(world.channels_in(uaid, NEW).await, None);
    assert_eq!(world.record_of(uaid).await.curmonth, month(OLD));
    agent.hangs_up().await;

    // What was stored after midnight is where the agent looks first.
    let stored = stores(&node, uaid).await;
    assert_eq!(world.rows(uaid).await, in_table(OLD, &[stored]));
    world.is_done_after_visit(&node, uaid, &[stored], NEW).await;
    assert_eq!(world.channels_in(uaid, NEW).await, Some([CHANNEL, Chid([2; 16])].into()));
}

/// The place of an order in [`MOVE`].
fn at(order: &str) -> usize {
    MOVE.iter().position(|other| *other == order).unwrap()
}

/// The answers of a connection to endpoints.
fn push_answers(agent: &Agent) -> BTreeSet<PushAnswer> {
    let trace = traces::so_far();
    let effects = trace.steps(agent.line()).flat_map(|step| &step.effects);
    let answers = effects.filter_map(|effect| match effect {
        Effect::AnswerPush { answer, .. } => Some(*answer),
        _ => None,
    });
    answers.collect()
}
