//! What operators are told of nodes that records name and that may not be called.

use actors::NodeDirectory;
use state_machine::delivery::NodeAnswer;
use state_machine::{NodeId, Span};

use super::world::{AGENT, World, limits};
use crate::peers::outbound::RemoteLimits;
use crate::peers::outbound::blocked_nodes::{NAME_CHARS_MAX, NAMES_MAX};

const LINE: &str =
    "WARN a record names a node that nodes_allowed does not have, so it is not called";

fn stranger(number: usize) -> NodeId {
    NodeId::new(&format!("http://10.0.0.{number}:8081"))
}

#[tokio::test]
async fn a_node_that_may_not_be_called_is_told_of_once_by_its_name() {
    let mut world = World::new(limits());
    for _ in 0..3 {
        assert_eq!(world.refused(&stranger(1)), NodeAnswer::Unreachable);
        world.nodes.notify_stored(&stranger(1), AGENT);
    }
    assert_eq!(world.says(LINE).await, " more=0 node=http://10.0.0.1:8081");
    assert_eq!(world.said(), [""; 0]);
    assert_eq!(world.refused(&stranger(2)), NodeAnswer::Unreachable);
    assert_eq!(world.says(LINE).await, " more=5 node=http://10.0.0.2:8081");
}

#[tokio::test]
async fn it_is_told_of_again_after_a_while() {
    let mut world = World::new(RemoteLimits { tell_every: Span(20), ..limits() });
    for _ in 0..2 {
        while world.said().is_empty() {
            assert_eq!(world.refused(&stranger(1)), NodeAnswer::Unreachable);
        }
    }
}

#[tokio::test]
async fn records_that_name_ever_new_nodes_fill_no_log_and_no_memory() {
    let mut world = World::new(limits());
    for number in 0..100 {
        assert_eq!(world.refused(&stranger(number)), NodeAnswer::Unreachable);
    }
    assert_eq!(world.said(), [LINE; NAMES_MAX]);
}

#[tokio::test]
async fn a_name_in_the_log_is_short_and_has_no_signs_that_change_a_terminal() {
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
async fn a_node_that_is_called_is_no_stranger() {
    let mut world = World::new(limits());
    let node = world.node(404).await;
    assert_eq!(world.pushed(&node.id).await, NodeAnswer::NotHere);
    assert_eq!(world.said(), [""; 0]);
}
