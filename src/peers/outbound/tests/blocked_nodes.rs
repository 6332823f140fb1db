//! The log of nodes in records that must not be called.

use actors::NodeDirectory;
use state_machine::delivery::NodeAnswer;
use state_machine::{NodeId, Span};

use super::world::{AGENT, World, limits};
use crate::peers::outbound::RemoteLimits;
use crate::peers::outbound::blocked_nodes::{NAME_CHARS_MAX, NAMES_MAX};

const LINE: &str =
    "WARN a record names a node that nodes_allowed does not allow, so it is not called";

fn blocked(number: usize) -> NodeId {
    NodeId::new(&format!("http://10.0.0.{number}:8081"))
}

#[tokio::test]
async fn a_blocked_node_is_logged_once() {
    let mut world = World::new(limits());
    for _ in 0..3 {
        assert_eq!(world.refused(&blocked(1)), NodeAnswer::Unreachable);
        world.nodes.notify_stored(&blocked(1), AGENT);
    }
    assert_eq!(world.says(LINE).await, " more=0 node=http://10.0.0.1:8081");
    assert_eq!(world.said(), [""; 0]);
    assert_eq!(world.refused(&blocked(2)), NodeAnswer::Unreachable);
    assert_eq!(world.says(LINE).await, " more=5 node=http://10.0.0.2:8081");
}

#[tokio::test]
async fn a_blocked_node_is_logged_again_after_the_interval() {
    let mut world = World::new(RemoteLimits { log_every: Span(20), ..limits() });
    for _ in 0..2 {
        while world.said().is_empty() {
            assert_eq!(world.refused(&blocked(1)), NodeAnswer::Unreachable);
        }
    }
}

#[tokio::test]
async fn the_number_of_logged_nodes_is_bounded() {
    let mut world = World::new(limits());
    for number in 0..100 {
        assert_eq!(world.refused(&blocked(number)), NodeAnswer::Unreachable);
    }
    assert_eq!(world.said(), [LINE; NAMES_MAX]);
}

#[tokio::test]
async fn a_logged_name_is_truncated_and_escaped() {
    let mut world = World::new(limits());
    let hostile = format!("http://\u{1b}[31m\n\u{202e}a{}", "b".repeat(100_000));
    assert_eq!(world.refused(&NodeId::new(&hostile)), NodeAnswer::Unreachable);
    let fields = world.says(LINE).await;
    assert!(fields.contains(r"http://\u{1b}[31m\n\u{202e}abbb"), "{fields}");
    assert!(
        fields.len() < 10 * NAME_CHARS_MAX
            && fields.chars().all(|sign| sign.is_ascii_graphic() || sign == ' ')
    );
}

#[tokio::test]
async fn an_allowed_node_is_not_logged() {
    let mut world = World::new(limits());
    let node = world.node(404).await;
    assert_eq!(world.pushed(&node.id).await, NodeAnswer::NotHere);
    assert_eq!(world.said(), [""; 0]);
}
