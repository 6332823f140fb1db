//! One message and three events in any order: the client answers *unconfirmed*, the endpoint has the
//! message *stored*, the agent *acks* it. In the end it was sent once and no row is left.

use std::time::Duration;

use state_machine::delivery::Outcome;
use state_machine::store;
use state_machine::{MessageId, Month, Span};

use crate::clockwork::{self, pass, settle};
use crate::node::{ACK_WAIT, Bounds, Node, UserAgent};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Unconfirmed,
    Stored,
    Acked,
}

use Step::{Acked, Stored, Unconfirmed};

/// The events in their order, and the outcome of the push.
const ORDERS: [(&str, [Step; 3], Outcome); 6] = [
    ("unconfirmed, then stored, then acked", [Unconfirmed, Stored, Acked], Outcome::Stored),
    ("unconfirmed, then acked, then stored", [Unconfirmed, Acked, Stored], Outcome::Stored),
    ("stored, then unconfirmed, then acked", [Stored, Unconfirmed, Acked], Outcome::Stored),
    (
        "stored, then acked: the answer *accepted* is lost",
        [Stored, Acked, Unconfirmed],
        Outcome::Stored,
    ),
    (
        "acked, then stored by an endpoint that gave up",
        [Acked, Stored, Unconfirmed],
        Outcome::Stored,
    ),
    (
        "acked in time: nothing is left to be stored",
        [Acked, Unconfirmed, Stored],
        Outcome::Delivered,
    ),
];

#[test]
fn a_message_is_sent_once_and_leaves_no_row_in_any_order_of_events() {
    for (name, steps, outcome) in ORDERS {
        println!("{name}");
        plays(steps, outcome);
    }
}

/// The nudge that follows a store would do it too; nothing may depend on that.
#[clockwork::test]
async fn an_ack_whose_reply_is_lost_deletes_the_row_without_a_notification() {
    let (node, mut agent) = Node::with_agent(Bounds::default()).await;
    let message = node.message();
    let answer = node.deliver(agent.uaid, message.clone());
    assert_eq!(agent.is_notified().await, message.id);
    drop(answer);
    let month = Month::of(message.accepted_at);
    let stored = node.store.store_message(agent.uaid, month, message.clone()).await;
    assert_eq!(stored, Ok(store::Stored::Done));
    agent.acks(message.id);
    node.until_nothing_is_stored(agent.uaid).await;
}

fn plays(steps: [Step; 3], outcome: Outcome) {
    clockwork::run(async {
        let patience = patience(steps);
        let mut bounds = Bounds::default();
        bounds.endpoint.answer_wait = Duration::from_millis(patience.0);
        let node = Node::within(bounds).await;
        let mut agent = UserAgent::new(&node, 1).await;
        node.gate.set_open(false);

        let (id, sent) = node.sends(&mut agent).await;
        if patience < ACK_WAIT {
            pass(patience).await;
            assert_eq!(node.gate.messages(), 1, "the endpoint gave up");
        }
        for step in steps {
            happens(step, &node, &agent, id).await;
        }
        assert_eq!(sent.await.unwrap(), outcome);
        assert_eq!(node.gate.messages(), usize::from(outcome == Outcome::Stored));
        is_done_with(&node, agent).await;
    });
}

/// How long the endpoint waits: less than the client if *stored* precedes *unconfirmed*.
fn patience(steps: [Step; 3]) -> Span {
    let at = |step| steps.iter().position(|other| *other == step);
    if at(Stored) < at(Unconfirmed) { Span(ACK_WAIT.0 / 2) } else { Span(ACK_WAIT.0 * 2) }
}

async fn happens(step: Step, node: &Node, agent: &UserAgent, id: MessageId) {
    match step {
        Unconfirmed => pass(ACK_WAIT).await,
        Acked => {
            agent.acks(id);
            settle().await;
        }
        // Nothing is on its way to the store where the message was acked in time.
        Stored if node.gate.messages() == 0 => {}
        Stored => {
            node.gate.set_open(true);
            node.endpoints_rest().await;
        }
    }
}

/// No row is left, and the message is sent neither now nor on the next connection.
async fn is_done_with(node: &Node, mut agent: UserAgent) {
    node.until_nothing_is_stored(agent.uaid).await;
    agent.heard_nothing_more();
    let mut again = UserAgent::back(node, agent.uaid).await;
    node.delivers(&mut again).await;
}
