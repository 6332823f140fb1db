//! Messages whose senders want receipts: acks that get lost, crashes, and the turn of a month.

use harness::invariants::Promise;
use state_machine::Month;

use crate::models::check::is_caught;
use crate::models::mutation::Mutation;
use crate::models::scenario::{
    Bounds, DECEMBER, Freedom, NOVEMBER, Scenario, message, message_with_topic, wanting,
};
use crate::search::{holds, is_large, tests};

/// One message waits, another is pushed. Answers of the store are lost, and a node crashes.
fn receipts(name: &'static str, from: Month) -> Scenario {
    let messages: Vec<_> = (0..2).map(message).map(wanting).collect();
    assert!(messages[0].id < messages[1].id && messages.iter().all(|it| it.id.may_want_receipt()));
    Scenario::new(name, from, messages)
        .waiting([0])
        .free(Freedom { acks_tarry: is_large(), ..Freedom::default() })
        .bound(Bounds { connects: 2, lost_answers: 1, node_crashes: 1, ..Bounds::default() })
        .seen("the message that was pushed has its receipt", |search, world| {
            let id = search.scenario.messages[1].id;
            world.store.receipts.contains(&id)
        })
        .seen("an acked message has no receipt yet", |search, world| {
            let id = search.scenario.messages[0].id;
            world.agent.acked.contains(&id) && !world.store.receipts.contains(&id)
        })
}

tests! {
    every_acked_message_has_its_receipt_and_no_other:
        holds(&receipts("receipts", Month::of(DECEMBER)));
    receipts_survive_the_turn_of_the_month:
        holds(&receipts("receipts_while_the_month_turns", Month::of(NOVEMBER)));
}

/// The earlier message may be acked while the later one replaces it.
#[test]
fn a_replaced_message_needs_no_receipt() {
    let messages = (0..2).map(message_with_topic).map(wanting).collect();
    let scenario = Scenario::new("receipts_of_a_topic", Month::of(DECEMBER), messages)
        .free(Freedom { pushes_in_any_order: true, ..Freedom::default() })
        .bound(Bounds { connects: 1, lost_answers: 1, ..Bounds::default() });
    holds(&scenario);
}

#[test]
fn a_receipt_of_a_message_that_is_only_sent_is_noticed() {
    is_caught(
        receipts("receipts", Month::of(DECEMBER)),
        Mutation::ReceiptWhenSent,
        Promise::ReceiptsAreTrue,
    );
}
