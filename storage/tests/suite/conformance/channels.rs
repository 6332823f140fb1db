//! Channels in the message tables.

use storage::StoreError;

use crate::conformance::world::*;
use crate::store_calls::StoreCalls;

pub(crate) async fn channels_are_none_where_nothing_was_registered(world: World) {
    assert_eq!(world.channels(agent(1), month(NEW)).await, Ok(None));
}

pub(crate) async fn channels_are_none_where_there_is_no_table(world: World) {
    let world = world.with_channels().await;
    assert_eq!(world.channels(agent(1), month(UNMADE)).await, Ok(None));
    world.drop_month(month(OLD)).await.unwrap();
    assert_eq!(world.channels(agent(1), month(OLD)).await, Ok(None));
}

pub(crate) async fn all_channels_that_were_ever_added_are_read_back(world: World) {
    let thousand: Vec<u16> = (0..1000).collect();
    let cases: [(&str, &[&[u16]]); 5] = [
        ("in any order", &[&[3, 1]]),
        ("a later set takes none away", &[&[1, 2], &[2, 3]]),
        ("an empty set makes the agent known", &[&[]]),
        ("an empty set takes none away", &[&[1], &[]]),
        ("a thousand", &[&thousand]),
    ];
    for (number, (case, sets)) in (1..).zip(cases) {
        for set in sets {
            world.add_channels(agent(number), month(NEW), chids(set.to_vec())).await.unwrap();
        }
        let expected = Ok(Some(chids(sets.concat())));
        assert_eq!(world.channels(agent(number), month(NEW)).await, expected, "{case}");
    }
}

pub(crate) async fn removing_the_last_channel_leaves_an_empty_set(world: World) {
    world.add_channels(agent(1), month(NEW), chids([1])).await.unwrap();
    for _repeated in 0..2 {
        assert_eq!(world.remove_channel(agent(1), vec![month(NEW)], chid(1)).await, Ok(()));
        assert_eq!(world.channels(agent(1), month(NEW)).await, Ok(Some(chids([]))));
    }
}

pub(crate) async fn removing_a_channel_of_an_unknown_agent_does_not_make_it_known(world: World) {
    assert_eq!(world.remove_channel(agent(1), vec![month(NEW)], chid(1)).await, Ok(()));
    assert_eq!(world.channels(agent(1), month(NEW)).await, Ok(None));
}

pub(crate) async fn a_channel_is_removed_in_each_month_named_and_in_no_other(world: World) {
    world.ensure_month(month("2026_09")).await.unwrap();
    for name in ["2026_09", OLD, NEW] {
        world.add_channels(agent(1), month(name), chids([1, 2])).await.unwrap();
    }
    let removed = world.remove_channel(agent(1), vec![month(OLD), month(NEW)], chid(1)).await;
    assert_eq!(removed, Ok(()));
    assert_eq!(world.channels(agent(1), month(OLD)).await, Ok(Some(chids([2]))));
    assert_eq!(world.channels(agent(1), month(NEW)).await, Ok(Some(chids([2]))));
    assert_eq!(world.channels(agent(1), month("2026_09")).await, Ok(Some(chids([1, 2]))));
    assert_eq!(world.remove_channel(agent(1), vec![], chid(2)).await, Ok(()));
    assert_eq!(world.channels(agent(1), month(NEW)).await, Ok(Some(chids([2]))));
}

pub(crate) async fn a_month_without_a_table_is_passed_over_when_a_channel_is_removed(world: World) {
    let world = world.with_channels().await;
    let months = vec![month(UNMADE), month(NEW)];
    assert_eq!(world.remove_channel(agent(1), months, chid(1)).await, Ok(()));
    assert_eq!(world.channels(agent(1), month(NEW)).await, Ok(Some(chids([2, 3]))));
    let nowhere = world.remove_channel(agent(1), vec![month(UNMADE)], chid(1)).await;
    assert_eq!(nowhere, Ok(()));
}

pub(crate) async fn channels_cannot_be_added_where_there_is_no_table(world: World) {
    let refused = world.add_channels(agent(1), month(UNMADE), chids([1])).await;
    assert_eq!(refused, Err(StoreError::NoSuchMonth(month(UNMADE))));
    world.ensure_month(month(UNMADE)).await.unwrap();
    assert_eq!(world.channels(agent(1), month(UNMADE)).await, Ok(None));
}

pub(crate) async fn agents_and_months_have_channels_of_their_own(world: World) {
    world.add_channels(agent(1), month(OLD), chids([1])).await.unwrap();
    world.add_channels(agent(1), month(NEW), chids([2])).await.unwrap();
    world.add_channels(agent(2), month(NEW), chids([3])).await.unwrap();
    world.remove_channel(agent(2), vec![month(NEW)], chid(2)).await.unwrap();
    assert_eq!(world.channels(agent(1), month(OLD)).await, Ok(Some(chids([1]))));
    assert_eq!(world.channels(agent(1), month(NEW)).await, Ok(Some(chids([2]))));
    assert_eq!(world.channels(agent(2), month(NEW)).await, Ok(Some(chids([3]))));
}
