//! Several nodes over one store: notifications between them, and nodes that end.

mod clocks;
mod draining;
mod feeds;
mod health;
mod killed_nodes;
mod moves;
mod pushes;
mod receipts;
mod records;
mod refusals;
mod router_urls;
mod starting;
mod storms;
mod topics;

use aws_sdk_dynamodb::types::AttributeValue;

use crate::harness::{Cluster, dynamo};

/// The node that the agent's router record names.
async fn node_of(cluster: &Cluster, uaid: &str) -> Option<String> {
    let asked = dynamo::client(&cluster.wire.url).get_item().table_name("router");
    let asked = asked.key("uaid", key(uaid)).consistent_read(true);
    let record = asked.send().await.expect("the server answers").item;
    let record = record.expect("the agent has a record");
    record.get("node_id").map(|node| node.as_s().expect("it is a text").clone())
}

/// Sets the node in the agent's router record.
async fn name_node(cluster: &Cluster, uaid: &str, node: &str) {
    let change = dynamo::client(&cluster.wire.url).update_item().table_name("router");
    let change = change.key("uaid", key(uaid)).update_expression("SET node_id = :node");
    let node = AttributeValue::S(node.to_owned());
    change.expression_attribute_values(":node", node).send().await.expect("the server takes it");
}

fn key(uaid: &str) -> AttributeValue {
    AttributeValue::S(uaid.replace('-', ""))
}
