//! Nodes whose clocks differ from that of this one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use actors::NodeDirectory;
use state_machine::clocks::THIS_SERVER;
use state_machine::delivery::NodeAnswer;
use state_machine::{NodeId, Span};

use super::node::{Act, Node, other_time};
use super::world::{AGENT, World, limits, soon};
use crate::cluster::about::Introduction;
use crate::cluster::fixture::{NOW, OTHER_KEY, cluster_keys};
use crate::cluster::outbound::RemoteLimits;

const DAY_S: i64 = 24 * 60 * 60;

/// Logs each change at once.
fn often() -> RemoteLimits {
    RemoteLimits { log_every: Span::ZERO, ..limits() }
}

/// The clocks that differ, each with the seconds that it is ahead.
fn differing(world: &World) -> Vec<(String, i64)> {
    let clocks = world.nodes.clocks();
    clocks.differing().map(|clock| (clock.name().to_owned(), clock.ahead.seconds())).collect()
}

/// Seconds, which are rounded down from a little less or more.
fn near(seconds: i64, expected: i64) -> bool {
    (seconds - expected).abs() <= 2
}

#[tokio::test]
async fn a_push_to_a_node_with_another_clock_is_delivered_and_later_ones_at_the_first_try() {
    for seconds in [120, -120, 1200, -1200, DAY_S - 60, 60 - DAY_S] {
        let mut world = World::new(limits());
        let mut node = world.node_ahead(seconds, 200).await;
        let push = format!("PUT /push/{AGENT}");
        assert_eq!(world.pushed(&node.id).await, NodeAnswer::Accepted, "{seconds} s ahead");
        assert_eq!(node.requests(), [&push, &push].map(Clone::clone));
        for _ in 0..3 {
            assert_eq!(world.pushed(&node.id).await, NodeAnswer::Accepted);
            assert_eq!(node.requests(), std::slice::from_ref(&push));
        }
        world.nodes.notify_stored(&node.id, AGENT);
        world.rests().await;
        assert_eq!(node.requests(), [format!("PUT /notif/{AGENT}")]);
        let differing = differing(&world);
        assert_eq!((&*differing[0].0, &*differing[1].0), (THIS_SERVER, node.id.as_str()));
        assert!(near(differing[1].1, seconds) && near(differing[0].1, -seconds));
        assert!(!world.log.said().iter().any(|line| line.contains("unreachable")));
    }
}

#[tokio::test]
async fn the_clock_of_a_node_that_only_calls_is_compared_too() {
    let world = World::new(limits());
    let node = world.called_node(0).await;
    let calls = |name: &str, ahead_ms: i64| {
        let introduction = Introduction {
            name: name.to_owned(),
            role: "endpoint".to_owned(),
            version: "1".to_owned(),
            time_ms: NOW.0.saturating_add_signed(ahead_ms),
        };
        world.callers.note(introduction.to_text().as_bytes(), NOW);
    };
    // What the node answered says more than its own call.
    calls(node.id.as_str(), -3_600_000);
    calls("right:1", 0);
    assert_eq!((world.nodes.clocks().clocks.len(), differing(&world)), (3, Vec::new()));
    calls("wrong:1", 1_200_000);
    assert_eq!(differing(&world), [("wrong:1".to_owned(), 1200)]);
}

#[tokio::test]
async fn both_tries_use_one_connection() {
    let world = World::new(limits());
    let mut node = world.node_ahead(1200, 200).await;
    for _ in 0..2 {
        assert_eq!(world.pushed(&node.id).await, NodeAnswer::Accepted);
    }
    assert_eq!(node.connections(), 1);
}

#[tokio::test]
async fn a_notification_reaches_a_node_with_another_clock() {
    for seconds in [-1200, 1200] {
        let world = World::new(limits());
        let mut node = world.node_ahead(seconds, 404).await;
        world.nodes.notify_stored(&node.id, AGENT);
        world.rests().await;
        assert_eq!(node.requests(), [format!("PUT /notif/{AGENT}"), format!("PUT /notif/{AGENT}")]);
    }
}

#[tokio::test]
async fn nodes_with_the_same_time_are_called_once_and_nothing_is_logged() {
    let mut world = World::new(often());
    for seconds in [0, 50, -50] {
        let mut node = world.called_node(seconds).await;
        assert_eq!(node.requests().len(), 1);
    }
    assert_eq!(differing(&world), []);
    assert_eq!(world.nodes.clocks().clocks.len(), 4);
    assert_eq!(world.log.said(), [""; 0]);
}

#[tokio::test]
async fn a_clock_that_is_more_than_a_day_away_is_refused() {
    for seconds in [DAY_S + 60, -DAY_S - 60] {
        let mut world = World::new(limits());
        let mut node = world.node_ahead(seconds, 200).await;
        assert_eq!(world.pushed(&node.id).await, NodeAnswer::Unreachable);
        assert_eq!(node.requests().len(), 1);
        assert_eq!(world.nodes.clocks().clocks, []);
        world.log.says("a node rejects a signature").await;
    }
}

#[tokio::test]
async fn a_node_that_tells_another_time_each_time_is_called_twice_for_a_push() {
    let mut world = World::new(limits());
    let (keys, clock, calls) = (Arc::clone(&world.keys), world.clock.clone(), AtomicU64::new(0));
    let mut node = world
        .node_that(Act::Answer(Arc::new(move |mac| {
            // Some lies are within what a node with the right time accepts.
            let lie = 50_000 * (calls.fetch_add(1, Ordering::Relaxed) % 2);
            other_time(&keys, mac, clock.now() + Span(lie))
        })))
        .await;
    assert_eq!(world.pushed(&node.id).await, NodeAnswer::Unreachable);
    assert_eq!(node.requests().len(), 2);
    assert!(world.is_open(&node.id));
    let error = world.log.says("a node is unreachable").await;
    assert!(error.contains("the node refuses the time of a request"), "{error}");
}

#[tokio::test]
async fn a_clock_that_is_corrected_on_either_side_is_followed() {
    let mut world = World::new(often());
    let mut node = world.node_ahead(1200, 200).await;
    let tries = async |world: &World, node: &mut Node| {
        assert_eq!(world.pushed(&node.id).await, NodeAnswer::Accepted);
        node.requests().len()
    };
    assert_eq!((tries(&world, &mut node).await, tries(&world, &mut node).await), (2, 1));
    node.set_clock(world.ahead(0));
    assert_eq!((tries(&world, &mut node).await, tries(&world, &mut node).await), (2, 1));
    assert_eq!(differing(&world), []);
    world.log.says("INFO the clocks of the nodes agree again").await;
    world.clock.set(world.ahead(-7200));
    assert_eq!((tries(&world, &mut node).await, tries(&world, &mut node).await), (2, 1));
    assert!(near(differing(&world)[1].1, 7200));
    world.clock.set(world.ahead(7200 - 30));
    assert_eq!((tries(&world, &mut node).await, tries(&world, &mut node).await), (2, 1));
    assert_eq!(differing(&world), []);
    // 31 s on the other side: no difference was kept that would be 61 s away.
    world.clock.set(world.ahead(61));
    assert_eq!(tries(&world, &mut node).await, 1);
}

#[tokio::test]
async fn a_difference_that_the_node_refuses_without_its_time_is_forgotten() {
    let world = World::new(soon());
    let mut node = world.called_node(DAY_S - 3600).await;
    node.set_clock(world.ahead(3600 - DAY_S));
    assert_eq!(world.pushed(&node.id).await, NodeAnswer::Unreachable);
    world.rests().await;
    node.requests();
    assert_eq!(world.pushed(&node.id).await, NodeAnswer::Accepted);
    assert_eq!(node.requests().len(), 1, "the probe has found the difference");
}

#[tokio::test]
async fn a_time_that_is_not_signed_for_the_request_changes_nothing() {
    let world = World::new(limits());
    let now = world.ahead(1200);
    let strange = {
        let keys = cluster_keys(OTHER_KEY);
        Act::Answer(Arc::new(move |mac| other_time(&keys, mac, now)))
    };
    let replayed = {
        let (keys, first) = (Arc::clone(&world.keys), Arc::new(std::sync::OnceLock::new()));
        let act = move |mac: &_| first.get_or_init(|| other_time(&keys, mac, now)).clone();
        let act = Act::Answer(Arc::new(act));
        let other = world.node_that(act.clone()).await;
        assert_eq!(world.pushed(&other.id).await, NodeAnswer::Unreachable);
        act
    };
    let known = world.nodes.clocks().clocks.len();
    for act in [strange, replayed] {
        let mut node = world.node_that(act).await;
        assert_eq!(world.pushed(&node.id).await, NodeAnswer::Unreachable);
        assert_eq!(node.requests().len(), 1);
        assert_eq!(world.nodes.clocks().clocks.len(), known);
    }
}

#[tokio::test]
async fn the_difference_goes_with_the_entry_of_the_node() {
    let limits = RemoteLimits { nodes_max: 1, evict_after: Span::ZERO, ..limits() };
    let world = World::new(limits);
    let (wrong, right) = (world.node_ahead(1200, 200).await, world.node_ahead(0, 200).await);
    assert_eq!(world.pushed(&wrong.id).await, NodeAnswer::Accepted);
    assert_eq!(world.pushed(&right.id).await, NodeAnswer::Accepted);
    let known: Vec<_> = world.nodes.clocks().clocks.into_iter().map(|clock| clock.node).collect();
    assert_eq!(known.len(), 2);
    assert!(known.contains(&Some(right.id.clone())) && known.contains(&None));
}

/// The fields of the next line that names a clock.
async fn names(world: &mut World, text: &str) -> (String, i64) {
    let fields = world.log.says(text).await;
    let value = |name: &str| {
        let (_, rest) = fields.split_once(&format!(" {name}=")).expect("the line has the field");
        rest.split(" difference_s=").next().unwrap_or_default().trim().to_owned()
    };
    let node = value("node").split(" node=").next().unwrap_or_default().to_owned();
    let seconds = fields.split("difference_s=").nth(1).and_then(|rest| rest.split(' ').next());
    (node, seconds.expect("the line has the field").parse().unwrap())
}

const WRONG: &str = "WARN the clock of a node is wrong, set it";
const DIFFER: &str = "WARN the clocks of nodes differ, and it is not known which one is wrong";

#[tokio::test]
async fn the_node_outside_the_majority_is_logged_once() {
    let mut world = World::new(often());
    for seconds in [0, -10] {
        drop(world.called_node(seconds).await);
    }
    let wrong = world.node_ahead(-1200, 200).await;
    for _ in 0..10 {
        assert_eq!(world.pushed(&wrong.id).await, NodeAnswer::Accepted);
    }
    let (node, seconds) = names(&mut world, WRONG).await;
    assert_eq!(NodeId::new(&node), wrong.id);
    assert!(near(seconds, -1200), "{seconds}");
    let _third = world.called_node(10).await;
    assert_eq!(world.log.said(), [""; 0]);
}

#[tokio::test]
async fn of_two_nodes_both_are_logged_and_then_the_one_that_a_third_decides() {
    let mut world = World::new(often());
    let first = world.called_node(1200).await;
    let both = [names(&mut world, DIFFER).await, names(&mut world, DIFFER).await];
    assert_eq!((&*both[0].0, &*both[1].0), (THIS_SERVER, first.id.as_str()));
    assert!(near(both[0].1, -1200) && near(both[1].1, 1200), "{both:?}");
    let second = world.called_node(1210).await;
    let (node, seconds) = names(&mut world, WRONG).await;
    assert!(node == THIS_SERVER && near(seconds, -1200), "{node} {seconds}");
    assert_eq!(world.pushed(&second.id).await, NodeAnswer::Accepted);
    assert_eq!(world.log.said(), [""; 0]);
}

#[tokio::test]
async fn a_node_with_the_right_time_that_answers_later_decides() {
    let mut world = World::new(often());
    let wrong = world.called_node(1200).await;
    names(&mut world, DIFFER).await;
    let _right = world.called_node(0).await;
    assert_eq!(names(&mut world, WRONG).await.0, wrong.id.as_str());
}
