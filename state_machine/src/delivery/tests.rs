use super::*;
use crate::ids::{MessageId, NodeId};
use crate::store::FullScope;
use crate::time::Time;

fn month(text: &str) -> Month {
    text.parse().unwrap()
}

fn node() -> NodeId {
    NodeId::new("here")
}

fn route(node: Option<NodeId>, curmonth: &str) -> DeliveryEvent {
    let route = Route { node, connected_at: Time(5), curmonth: month(curmonth), bridged: None };
    Is::RecordRead(Ok(Some(route)))
}

const TERMS: PushParams = PushParams {
    ttl_is_zero: false,
    stores_first: false,
    this_month: NOVEMBER,
    message_month: NOVEMBER,
};
const NOVEMBER: Month = match Month::new(2026, 11) {
    Ok(month) => month,
    Err(_) => panic!("November is a month"),
};

/// Applies the events and returns the effects of each, after the first effect.
fn run(
    terms: PushParams,
    events: impl IntoIterator<Item = DeliveryEvent>,
) -> Vec<Vec<DeliveryEffect>> {
    let (mut delivery, first) = Delivery::begin(terms);
    let mut effects = vec![vec![first]];
    effects.extend(events.into_iter().map(|event| delivery.step(event)));
    let is_answered = matches!(effects.last().unwrap().last(), Some(Do::Answer(_)));
    assert_eq!(delivery.is_done(), is_answered);
    effects
}

/// The effects after the last event.
fn last(terms: PushParams, events: impl IntoIterator<Item = DeliveryEvent>) -> Vec<DeliveryEffect> {
    run(terms, events).pop().unwrap()
}

fn store(in_month: &str) -> Vec<DeliveryEffect> {
    vec![Do::Store { month: month(in_month) }]
}

#[test]
fn an_acked_push_costs_one_read_and_no_write() {
    let effects =
        run(TERMS, [route(Some(node()), "2026_11"), Is::NodeAnswered(NodeAnswer::Accepted)]);
    let expected =
        [vec![Do::ReadRecord], vec![Do::Deliver { node: node() }], answer(Outcome::Delivered)];
    assert_eq!(effects, expected);
}

#[test]
fn a_message_with_a_receipt_is_stored_before_its_agent_gets_it() {
    let terms = PushParams { stores_first: true, ..TERMS };
    let here = || route(Some(node()), "2026_11");
    let effects = run(terms, [here(), Is::Stored(Ok(Stored::Done)), here()]);
    let expected = [
        vec![Do::ReadRecord],
        store("2026_11"),
        vec![Do::ReadRecord],
        vec![Do::NotifyMessageStored { node: node() }, Do::Answer(Outcome::Stored)],
    ];
    assert_eq!(effects, expected);
}

#[test]
fn an_unacked_message_is_stored_and_its_node_is_notified_after_a_second_read() {
    for unsure in [NodeAnswer::Unconfirmed, NodeAnswer::Busy, NodeAnswer::Unreachable] {
        let effects = run(
            TERMS,
            [
                route(Some(node()), "2026_11"),
                Is::NodeAnswered(unsure),
                Is::Stored(Ok(Stored::Done)),
                route(Some(node()), "2026_11"),
            ],
        );
        let expected = [
            vec![Do::ReadRecord],
            vec![Do::Deliver { node: node() }],
            store("2026_11"),
            vec![Do::ReadRecord],
            vec![Do::NotifyMessageStored { node: node() }, Do::Answer(Outcome::Stored)],
        ];
        assert_eq!(effects, expected, "{unsure:?}");
    }
}

#[test]
fn only_not_here_clears_the_node_and_only_as_it_was_read() {
    let effects =
        last(TERMS, [route(Some(node()), "2026_11"), Is::NodeAnswered(NodeAnswer::NotHere)]);
    assert_eq!(effects, [Do::ClearNode { node: node(), connected_at: Time(5) }]);
}

#[test]
fn a_month_that_moved_meanwhile_gets_the_message_and_the_old_row_goes() {
    let effects = run(
        TERMS,
        [
            route(None, "2026_10"),
            Is::Stored(Ok(Stored::Done)),
            route(None, "2026_11"),
            Is::Stored(Ok(Stored::Done)),
            Is::OldRowDeleted,
            route(None, "2026_11"),
        ],
    );
    let expected = [
        vec![Do::ReadRecord],
        store("2026_10"),
        vec![Do::ReadRecord],
        store("2026_11"),
        vec![Do::DeleteStored { month: month("2026_10") }],
        vec![Do::ReadRecord],
        answer(Outcome::Stored),
    ];
    assert_eq!(effects, expected);
}

#[test]
fn a_channel_given_up_while_the_month_moved_is_no_channel_any_more() {
    let effects = last(
        TERMS,
        [
            route(None, "2026_10"),
            Is::Stored(Ok(Stored::Done)),
            route(None, "2026_11"),
            Is::Stored(Ok(Stored::NoSuchChannel)),
            Is::OldRowDeleted,
        ],
    );
    assert_eq!(effects, answer(Outcome::NoSuchChannel));
}

#[test]
fn a_message_that_is_outranked_or_does_not_fit_is_answered_so_and_leaves_no_row() {
    let by = MessageId::from_uuid_v7(7 << 80, true);
    for (refused, outcome) in [
        (Stored::Outranked(by), Outcome::Outranked(by)),
        (Stored::Full(FullScope::Channel), Outcome::Full(FullScope::Channel)),
    ] {
        let refused = || Is::Stored(Ok(refused));
        assert_eq!(last(TERMS, [route(None, "2026_11"), refused()]), answer(outcome));
        let stored = [route(None, "2026_10"), Is::Stored(Ok(Stored::Done)), route(None, "2026_11")];
        let moved = stored.into_iter().chain([refused()]);
        let delete = vec![Do::DeleteStored { month: month("2026_10") }];
        assert_eq!(last(TERMS, moved.clone()), delete);
        assert_eq!(last(TERMS, moved.chain([Is::OldRowDeleted])), answer(outcome));
    }
}

#[test]
fn a_channel_that_is_only_in_the_month_moved_to_is_found_there() {
    let events = |curmonth| {
        [route(None, "2026_10"), Is::Stored(Ok(Stored::NoSuchChannel)), route(None, curmonth)]
    };
    assert_eq!(last(TERMS, events("2026_11")), store("2026_11"));
    assert_eq!(last(TERMS, events("2026_10")), answer(Outcome::NoSuchChannel));
}

#[test]
fn the_connections_word_on_a_channel_is_confirmed_before_it_counts() {
    let events = |confirmed| {
        [
            route(Some(node()), "2026_11"),
            Is::NodeAnswered(NodeAnswer::NoSuchChannel),
            Is::ChannelConfirmed(confirmed),
        ]
    };
    assert_eq!(last(TERMS, events(Ok(true))), store("2026_11"));
    assert_eq!(last(TERMS, events(Ok(false))), answer(Outcome::NoSuchChannel));
    assert_eq!(last(TERMS, events(Err(StoreFailed))), answer(Outcome::Unavailable));
}

#[test]
fn a_ttl_of_zero_is_delivered_now_or_dropped() {
    let terms = PushParams { ttl_is_zero: true, ..TERMS };
    assert_eq!(last(terms, [route(None, "2026_11")]), answer(Outcome::Dropped));
    for (node_answer, outcome) in [
        (NodeAnswer::Accepted, Outcome::Delivered),
        (NodeAnswer::Busy, Outcome::Dropped),
        (NodeAnswer::Unconfirmed, Outcome::Dropped),
        (NodeAnswer::Unreachable, Outcome::Dropped),
    ] {
        let events = [route(Some(node()), "2026_11"), Is::NodeAnswered(node_answer)];
        assert_eq!(last(terms, events), answer(outcome));
    }
    let not_here =
        [route(Some(node()), "2026_11"), Is::NodeAnswered(NodeAnswer::NotHere), Is::NodeCleared];
    assert_eq!(last(terms, not_here), answer(Outcome::Dropped));
}

#[test]
fn a_store_that_fails_never_gives_a_201() {
    let failed = || Is::RecordRead(Err(StoreFailed));
    assert_eq!(last(TERMS, [failed()]), answer(Outcome::Unavailable));
    let refused = Is::Stored(Err(WriteError::Failed));
    assert_eq!(last(TERMS, [route(None, "2026_11"), refused]), answer(Outcome::Unavailable));
    let stored = Is::Stored(Ok(Stored::Done));
    let events = [route(None, "2026_11"), stored, failed()];
    assert_eq!(last(TERMS, events), answer(Outcome::Unavailable));
}

#[test]
fn a_missing_record_and_one_that_disappears_give_different_answers() {
    let none = || Is::RecordRead(Ok(None));
    assert_eq!(last(TERMS, [none()]), answer(Outcome::NoSuchUser));
    let events = [route(None, "2026_11"), Is::Stored(Ok(Stored::Done)), none()];
    assert_eq!(last(TERMS, events), answer(Outcome::UserWentAway));
}

#[test]
fn a_dropped_table_means_gone_and_a_missing_new_one_means_try_again() {
    let events = |curmonth| [route(None, curmonth), Is::Stored(Err(WriteError::NoSuchMonth))];
    assert_eq!(last(TERMS, events("2026_09")), answer(Outcome::NoSuchUser));
    for kept in ["2026_10", "2026_11", "2026_12"] {
        assert_eq!(last(TERMS, events(kept)), answer(Outcome::Unavailable));
    }
}

#[test]
fn a_month_that_changes_at_each_read_is_unavailable() {
    let mut delivery = Delivery::begin(TERMS).0;
    delivery.step(route(None, "2026_01"));
    let mut month_number = 1;
    let mut effects = Vec::new();
    for _ in 0..100 {
        effects = delivery.step(Is::Stored(Ok(Stored::Done)));
        effects.extend(delivery.step(Is::OldRowDeleted));
        month_number = month_number % 12 + 1;
        effects.extend(delivery.step(route(None, &format!("2026_{month_number:02}"))));
        if delivery.is_done() {
            break;
        }
    }
    assert_eq!(effects.last(), Some(&Do::Answer(Outcome::Unavailable)));
}

/// Delivers to a month that is another one at each read, with this result of each store. Returns all effects.
fn chase(stored: Stored) -> Vec<DeliveryEffect> {
    let mut delivery = Delivery::begin(TERMS).0;
    let mut effects = delivery.step(route(None, "2026_01"));
    for month_number in 2..12 {
        effects.extend(delivery.step(Is::Stored(Ok(stored))));
        effects.extend(delivery.step(Is::OldRowDeleted));
        effects.extend(delivery.step(route(None, &format!("2026_{month_number:02}"))));
    }
    effects
}

#[test]
fn the_record_is_read_again_as_often_as_the_limit_allows() {
    let ends =
        [(Stored::Done, Outcome::Unavailable), (Stored::NoSuchChannel, Outcome::NoSuchChannel)];
    for (stored, outcome) in ends {
        let effects = chase(stored);
        let reads = effects.iter().filter(|effect| **effect == Do::ReadRecord).count();
        assert_eq!(reads, usize::from(LOOKUPS_MAX));
        assert_eq!(effects.last(), Some(&Do::Answer(outcome)));
    }
}

#[test]
fn a_fact_that_answers_nothing_changes_nothing() {
    let (mut delivery, _) = Delivery::begin(TERMS);
    let before = delivery.clone();
    assert_eq!(delivery.step(Is::Stored(Ok(Stored::Done))), []);
    assert_eq!(delivery.step(Is::NodeAnswered(NodeAnswer::Accepted)), []);
    assert_eq!(delivery, before);
}
