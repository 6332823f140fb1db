//! The log of nodes in records that must not be called.

use actors::NodeDirectory;
use state_machine::delivery::NodeAnswer;
use state_machine::{NodeId, Span};

use super::world::{AGENT, World, limits};
use crate::cluster::outbound::{LOGGED_CHARS_MAX, RemoteLimits};

const LINE: &str =
    "WARN a record names a node that nodes_allowed does not allow, so it is not called";

fn blocked(number: usize) -> NodeId {
    NodeId::new(&format!("http://10.0.0.{number}:8081"))
}

#[tokio::test]
async fn one_blocked_node_is_logged_in_an_interval() {
    let mut world = World::new(limits());
    for number in 1..100 {
        assert_eq!(world.refused(&blocked(number)), NodeAnswer::Unreachable);
        world.nodes.notify_stored(&blocked(number), AGENT);
    }
    assert_eq!(world.log.says(LINE).await, " more=0 node=http://10.0.0.1:8081");
    assert_eq!(world.log.said(), [""; 0]);
}

#[tokio::test]
async fn after_the_interval_a_line_counts_the_requests_before_it() {
    let mut world = World::new(RemoteLimits { log_every: Span(20), ..limits() });
    assert_eq!(world.refused(&blocked(1)), NodeAnswer::Unreachable);
    assert_eq!(world.log.says(LINE).await, " more=0 node=http://10.0.0.1:8081");
    let mut more = 0;
    let fields = loop {
        assert_eq!(world.refused(&blocked(2)), NodeAnswer::Unreachable);
        if let Some(fields) = world.log.read().next().map(|line| line.fields) {
            break fields;
        }
        more += 1;
    };
    assert_eq!(fields, format!(" more={more} node=http://10.0.0.2:8081"));
}

#[tokio::test]
async fn a_logged_name_is_truncated_and_escaped() {
    let mut world = World::new(limits());
    let hostile = format!("http://\u{1b}[31m\n\u{202e}a{}", "b".repeat(100_000));
    assert_eq!(world.refused(&NodeId::new(&hostile)), NodeAnswer::Unreachable);
    let fields = world.log.says(LINE).await;
    assert!(fields.contains(r"http://\u{1b}[31m\n\u{202e}abbb"), "{fields}");
    assert!(
        fields.len() < 10 * LOGGED_CHARS_MAX
            && fields.chars().all(|sign| sign.is_ascii_graphic() || sign == ' ')
    );
}

#[tokio::test]
async fn an_allowed_node_is_not_logged() {
    let mut world = World::new(limits());
    let node = world.node(404).await;
    assert_eq!(world.pushed(&node.id).await, NodeAnswer::NotHere);
    assert_eq!(world.log.said(), [""; 0]);
}
