//! Ways between nodes that are slow, cut or lossy: a push is stored and found, and no record loses
//! its node because of them.

use actors::NodeDirectory;
use actors::registry::{ConnectedElsewhere, NotifyResult};
use state_machine::connection::CloseReason;
use state_machine::delivery::Outcome;
use state_machine::{MessageId, NodeId, Span};

use super::Places;
use crate::clockwork::{self, pass, settle};
use crate::node::{ACK_WAIT, Bounds, Node, UserAgent, Way};

/// What an endpoint waits for the answer of a node.
const ANSWER_WAIT: Span = Span(2 * ACK_WAIT.0);

const TOO_LATE: Span = Span(3 * ACK_WAIT.0);

#[test]
fn a_push_that_does_not_reach_its_node_is_stored_and_sent_when_the_node_is_notified() {
    for way in [Way::Refuses, Way::Hangs] {
        clockwork::run(async {
            let (places, mut agent) = connected().await;
            places.set_way("a", way);
            let first = push(&places, &agent).await;
            agent.heard_nothing_more();
            is_still_there(&places, &agent).await;

            places.set_way("a", Way::Open);
            places.sender.delivers(&mut agent).await;
            // The lost notification is sent again once the way is open.
            places.ground.neighbours.notify_stored(&NodeId::new("a"), agent.uaid);
            places.takes_all(&mut agent, &[first]).await;
        });
    }
}

#[clockwork::test]
async fn a_message_whose_notification_is_lost_is_found_by_the_storage_recheck() {
    let recheck = Span(10 * ANSWER_WAIT.0);
    let mut bounds = Bounds { name: "a", ..Bounds::default() };
    bounds.limits.storage_recheck = recheck;
    let places = Places::new().await;
    let node = Node::on(&places.ground, &bounds);
    let mut agent = UserAgent::new(&node, 1).await;
    places.set_way("a", Way::Refuses);
    let message = push(&places, &agent).await;
    agent.heard_nothing_more();
    pass(recheck).await;
    places.takes_all(&mut agent, &[message]).await;
}

#[test]
fn a_message_whose_ack_answer_is_lost_or_late_is_stored_and_not_sent_again() {
    for way in [Way::LosesAnswers, Way::AnswersLate(TOO_LATE)] {
        println!("{way:?}");
        clockwork::run(is_acked_unheard(way));
    }
}

/// The agent acks a message, of which its endpoint does not hear in time.
async fn is_acked_unheard(way: Way) {
    let (places, mut agent) = connected().await;
    places.set_way("a", way);
    let (id, sent) = places.sender.sends(&mut agent).await;
    agent.acks(id);
    pass(ANSWER_WAIT).await;
    assert_eq!(sent.await.unwrap(), Outcome::Stored);
    pass(TOO_LATE).await;
    is_still_there(&places, &agent).await;
    places.takes_all(&mut agent, &[]).await;
}

#[clockwork::test]
async fn a_push_that_reaches_its_node_after_it_was_stored_is_sent_once() {
    let (places, mut agent) = connected().await;
    places.set_way("a", Way::Slow(TOO_LATE));
    let message = places.sender.message();
    let sent = places.sender.send(agent.uaid, message.clone());
    settle().await;
    pass(ANSWER_WAIT).await;
    assert_eq!(sent.await.unwrap(), Outcome::Stored);
    settle().await;
    agent.heard_nothing_more();
    pass(TOO_LATE).await;
    pass(TOO_LATE).await;
    places.takes_all(&mut agent, &[message.id]).await;
    is_still_there(&places, &agent).await;
}

#[clockwork::test]
async fn a_record_loses_its_node_only_when_that_node_answers_not_here() {
    let (places, agent) = connected().await;
    let uaid = agent.uaid;
    // The node died, and its address refuses.
    places.set_way("a", Way::Refuses);
    let first = push(&places, &agent).await;
    is_still_there(&places, &agent).await;
    // It restarts under its name, without connections.
    let _again = Node::on(&places.ground, &Bounds { name: "a", ..Bounds::default() });
    places.set_way("a", Way::Open);
    let second = push(&places, &agent).await;
    assert_eq!(places.node_of(uaid).await, None);

    let mut newer = UserAgent::back(&places.b, uaid).await;
    places.takes_all(&mut newer, &[first, second]).await;
}

#[clockwork::test]
async fn the_agents_of_a_dead_node_connect_to_another_node() {
    let (places, mut older) = connected().await;
    places.set_way("a", Way::Refuses);
    let message = push(&places, &older).await;
    let mut newer = UserAgent::back(&places.b, older.uaid).await;
    places.takes_all(&mut newer, &[message]).await;
    places.set_way("a", Way::Open);
    assert_eq!(places.node_of(newer.uaid).await.as_deref(), Some("b"));
    older.heard_nothing_more();
    // It closes when it is notified at last.
    let since = places.record(newer.uaid).await.connected_at;
    let moved = ConnectedElsewhere { uaid: newer.uaid, connected_at: since };
    assert_eq!(places.a.registry.send(moved).await, Ok(NotifyResult::Delivered));
    assert_eq!(older.is_closed().await, CloseReason::Replaced);
}

async fn connected() -> (Places, UserAgent) {
    let places = Places::new().await;
    let agent = UserAgent::new(&places.a, 1).await;
    settle().await;
    (places, agent)
}

/// Sends a message, which must be stored after whatever the way takes.
async fn push(places: &Places, agent: &UserAgent) -> MessageId {
    let message = places.sender.message();
    let sent = places.sender.send(agent.uaid, message.clone());
    settle().await;
    pass(ANSWER_WAIT).await;
    assert_eq!(sent.await.unwrap(), Outcome::Stored);
    message.id
}

/// Its record names the node on which it is.
async fn is_still_there(places: &Places, agent: &UserAgent) {
    let record = places.record(agent.uaid).await;
    assert_eq!(record.node, Some(NodeId::new("a")));
}
