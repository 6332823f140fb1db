//! Counting records by month, and making them name another.

use std::sync::Arc;

use futures_util::future::join_all;
use state_machine::{LastConnect, Month, NodeBinding, NodeId, RouterRecord, Span, Time, Uaid};
use storage::maintenance::{CopyProgress, PREFLIGHT_UAID, RecordsByMonth, RepairClock};

use crate::dynamo::things::{Tables, s};
use crate::maintenance::engines::embedded;
use crate::maintenance::world::{DAY, DECEMBER, SPREAD, World, agent, all_steps, bridged, month};
use crate::names::each_page;
use crate::store_calls::StoreCalls;

/// Agents 1 and 2 are on November, 3 moves from November to December, 4 is on December.
async fn with_records(world: World) -> World {
    let november = DECEMBER - DAY;
    for number in 1..=3 {
        world.connect(agent(number), november).await;
    }
    world.begin_move(agent(3), november, "2026_12").await;
    world.connect(agent(4), DECEMBER + Span(1)).await;
    world
}

async fn all_counts(world: &World) -> RecordsByMonth {
    let mut all = RecordsByMonth::default();
    each_page(async |after| {
        let page = world.records_by_month(after).await.unwrap();
        for (sum, counts) in
            [(&mut all.curmonth, page.curmonth), (&mut all.oldmonth, page.oldmonth)]
        {
            for (month, count) in counts {
                *sum.entry(month).or_default() += count;
            }
        }
        for (node, count) in page.nodes {
            *all.nodes.entry(node).or_default() += count;
        }
        all.unreadable += page.unreadable;
        all.other_types += page.other_types;
        all.bridged += page.bridged;
        all.dropped += page.dropped;
        all.latest = all.latest.max(page.latest);
        page.next
    })
    .await;
    all
}

fn counts(of: &[(&str, u64)]) -> std::collections::BTreeMap<Month, u64> {
    of.iter().map(|(name, count)| (month(name), *count)).collect()
}

async fn rename(world: &World, from: &str, to: &str) -> CopyProgress {
    all_steps(async |after| world.move_records(month(from), month(to), after).await).await.1
}

async fn months_of(world: &World, number: u16) -> (Month, Option<Month>) {
    let record = world.record(agent(number)).await.unwrap().unwrap();
    (record.curmonth, record.oldmonth)
}

pub(crate) async fn records_are_counted_by_both_months(world: World) {
    assert_eq!(all_counts(&world).await, RecordsByMonth::default());
    let world = with_records(world).await;
    world.check().await.unwrap();
    let counted = all_counts(&world).await;
    assert_eq!(counted.curmonth, counts(&[("2026_11", 2), ("2026_12", 2)]));
    assert_eq!(counted.oldmonth, counts(&[("2026_11", 1)]));
    assert_eq!(counted.unreadable, 0);
    assert_eq!(counted.nodes, [(NodeId::new("a"), 4)].into());
    let connected_at = DECEMBER + Span(1);
    assert_eq!(world.clear_node(agent(4), NodeId::new("a"), connected_at).await, Ok(true));
    assert_eq!(all_counts(&world).await.nodes, [(NodeId::new("a"), 3)].into());
}

impl Tables {
    /// Puts a record with texts.
    async fn put_text(&self, uaid: Uaid, texts: &[(&str, &str)]) {
        let uaid = uaid.to_string();
        let record = [("uaid", uaid.as_str())].into_iter().chain(texts.iter().copied());
        let record: Vec<_> = record.map(|(name, text)| (name, s(text))).collect();
        self.put("router", &record).await;
    }
}

/// With another prefix of the message tables: the users are there all the same.
#[tokio::test]
async fn records_whose_months_cannot_be_read_are_counted_apart() {
    let tables = Tables::new();
    let world = World::new(Arc::new(tables.open()), None);
    world.check().await.unwrap();
    let put = async |uaid: Uaid, months: &[(&str, &str)]| tables.put_text(uaid, months).await;
    put(PREFLIGHT_UAID, &[]).await;
    assert_eq!(all_counts(&world).await, RecordsByMonth::default());
    put(agent(1), &[("curmonth", "messages_2026_11")]).await;
    put(agent(2), &[]).await;
    put(agent(3), &[("curmonth", "message_2026_12"), ("oldmonth", "messages_2026_11")]).await;
    put(agent(4), &[("curmonth", "message_2026_12")]).await;
    let counted = all_counts(&world).await;
    assert_eq!(counted.unreadable, 3);
    assert_eq!(counted.curmonth, counts(&[("2026_12", 2)]));
    assert_eq!(counted.oldmonth, counts(&[]));
}

/// The records of autopush's bridges. One has no month.
#[tokio::test]
async fn records_of_other_router_types_are_no_agents_and_counted() {
    let tables = Tables::new();
    let world = World::new(Arc::new(tables.open()), None);
    let month = [("curmonth", "message_2026_12")];
    for (number, router_type, month) in
        [(1, "fcm", &month[..0]), (2, "apns", &month), (3, "webpush", &month)]
    {
        tables.put_text(agent(number), &[&[("router_type", router_type)], month].concat()).await;
        assert_eq!(world.exists(agent(number)).await, router_type == "webpush");
    }
    let counted = all_counts(&world).await;
    assert_eq!((counted.other_types, counted.dropped, counted.unreadable), (2, 0, 0));
    assert_eq!(counted.bridged, 2);
    assert_eq!(counted.curmonth, counts(&[("2026_12", 2)]));
    assert_eq!(world.mark_dropped(agent(1), None).await.map(|marked| marked.is_some()), Ok(true));
    assert_eq!(all_counts(&world).await.dropped, 1);
}

#[tokio::test]
async fn an_embedded_record_of_another_router_type_is_no_agent_and_counted() {
    let world = with_records(embedded()).await;
    let file = world.home.as_ref().unwrap().path().join("router.db");
    let update = "UPDATE router SET router_type = 'fcm' WHERE uaid = ?1";
    let changed = rusqlite::Connection::open(file).unwrap().execute(update, [agent(4).0]);
    assert_eq!(changed, Ok(1));
    assert!(!world.exists(agent(4)).await);
    let counted = all_counts(&world).await;
    assert_eq!((counted.other_types, counted.bridged, counted.dropped), (1, 1, 0));
    assert_eq!(counted.curmonth, counts(&[("2026_11", 2), ("2026_12", 2)]));
}

pub(crate) async fn agents_behind_a_bridge_are_counted_moved_and_found_inactive(world: World) {
    let november = DECEMBER - DAY;
    world.register_bridged(bridged(agent(1), november)).await.unwrap();
    let counted = all_counts(&world).await;
    assert_eq!(counted.curmonth, counts(&[("2026_11", 1)]));
    assert_eq!((counted.other_types, counted.dropped, counted.unreadable), (0, 0, 0));
    assert_eq!(rename(&world, "2026_11", "2027_01").await.written, 1);
    assert_eq!(months_of(&world, 1).await, (month("2027_01"), None));
    let found = world.inactive("2026_11", "2026_11").await;
    assert_eq!(found.iter().map(|user| user.uaid).collect::<Vec<_>>(), [agent(1)]);
    world.mark_dropped(agent(1), Some(found[0].last_connect)).await.unwrap().unwrap();
    assert!(!world.exists(agent(1)).await);
    assert_eq!(all_counts(&world).await.dropped, 1);
}

pub(crate) async fn records_that_name_a_month_are_made_to_name_another(world: World) {
    let world = with_records(world).await;
    let moved = rename(&world, "2026_11", "2027_01").await;
    assert!(moved.seen >= 4, "{moved:?}");
    assert_eq!(moved.written, 3);
    for number in 1..=2 {
        assert_eq!(months_of(&world, number).await, (month("2027_01"), None));
    }
    assert_eq!(months_of(&world, 3).await, (month("2026_12"), Some(month("2027_01"))));
    assert_eq!(months_of(&world, 4).await, (month("2026_12"), None));
}

pub(crate) async fn more_records_than_one_step_takes_are_counted_and_moved(world: World) {
    let all = 1..=1100;
    join_all(all.clone().map(|number| world.connect(agent(number), DECEMBER))).await;
    assert!(world.records_by_month(None).await.unwrap().next.is_some(), "one step is bounded");
    assert_eq!(all_counts(&world).await.curmonth, counts(&[("2026_12", 1100)]));
    let moved = rename(&world, "2026_12", "2027_01").await;
    assert_eq!((moved.seen, moved.written), (1100, 1100));
    assert_eq!(all_counts(&world).await.curmonth, counts(&[("2027_01", 1100)]));
}

pub(crate) async fn moved_records_are_not_moved_again(world: World) {
    let world = with_records(world).await;
    rename(&world, "2026_11", "2027_01").await;
    assert_eq!(rename(&world, "2026_11", "2027_01").await.written, 0);
}

pub(crate) async fn a_move_that_would_end_where_it_began_is_finished(world: World) {
    let world = with_records(world).await;
    rename(&world, "2026_11", "2026_12").await;
    assert_eq!(months_of(&world, 3).await, (month("2026_12"), None));
    assert_eq!(all_counts(&world).await.curmonth, counts(&[("2026_12", 4)]));
    assert_eq!(all_counts(&world).await.oldmonth, counts(&[]));
}

/// With a minute of tolerance, in December.
const CLOCK: RepairClock =
    RepairClock { now: DECEMBER, latest: Time(DECEMBER.0 + 60_000), last_connect_shards: SPREAD };

async fn repair(world: &World, clock: RepairClock) -> CopyProgress {
    all_steps(async |after| world.repair_records(clock, after).await).await.1
}

pub(crate) async fn records_of_the_future_are_set_to_now_and_others_stay(world: World) {
    let (ahead, years) = (CLOCK.latest + Span(1), DECEMBER + Span(12 * 365 * DAY.0));
    for (number, at) in [(1, CLOCK.latest), (2, ahead), (3, years), (4, DECEMBER - DAY)] {
        world.connect(agent(number), at).await;
    }
    world.begin_move(agent(3), years, "2026_12").await;
    let read = async |number| world.record(agent(number)).await.unwrap().unwrap();
    let before = [read(1).await, read(2).await, read(3).await, read(4).await];
    assert_eq!(all_counts(&world).await.latest, Some(years));

    assert_eq!(repair(&world, CLOCK).await.written, 2);
    let now = |number, there: &RouterRecord| RouterRecord {
        connected_at: DECEMBER,
        last_connect: LastConnect::of(DECEMBER, agent(number), SPREAD),
        ..there.clone()
    };
    let [near, second, third, past] = &before;
    let after = [near.clone(), now(2, second), now(3, third), past.clone()];
    assert_eq!([read(1).await, read(2).await, read(3).await, read(4).await], after);
    assert_eq!(all_counts(&world).await.latest, Some(CLOCK.latest));
    assert_eq!(repair(&world, CLOCK).await.written, 0, "it is repeatable");
    // A later connection registers with the present, and is named.
    let connected_at = CLOCK.latest + Span(1);
    world.connect(agent(3), connected_at).await;
    let binding = NodeBinding { node: NodeId::new("a"), connected_at };
    assert_eq!(read(3).await.binding(), Some(binding));
}

pub(crate) async fn more_records_than_one_step_takes_are_repaired(world: World) {
    let ahead = DECEMBER + DAY;
    join_all((1..=1100).map(|number| world.connect(agent(number), ahead))).await;
    let repaired = repair(&world, CLOCK).await;
    assert_eq!((repaired.seen, repaired.written), (1100, 1100));
    assert_eq!(all_counts(&world).await.latest, Some(DECEMBER));
}
