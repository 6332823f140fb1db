//! The versions of SimplePush as an endpoint stores them.

use std::collections::BTreeSet;

use state_machine::delivery::Outcome;
use state_machine::{LastConnect, Message, Month, NodeBinding, NodeId, RouterType, Uaid};
use storage::{Registration, StoreOp};

use crate::clockwork;
use crate::node::{CHANNEL, Node, stored_versions};

const UAID: Uaid = Uaid([9; 16]);

#[clockwork::test]
async fn a_version_of_a_channel_that_is_unregistered_meanwhile_is_refused_and_leaves_no_row() {
    let node = Node::start().await;
    let (now, elsewhere) = (node.message().accepted_at, NodeId::new("elsewhere"));
    let month = Month::of(now);
    let registration = Registration {
        uaid: UAID,
        router_type: RouterType::SimplePush,
        node: elsewhere.clone(),
        connected_at: now,
        last_connect: LastConnect::of(now, UAID, 1),
        create_in: Some(month),
    };
    let binding = NodeBinding { node: elsewhere, connected_at: now };
    let channels = BTreeSet::from([CHANNEL]);
    for op in [
        StoreOp::Register(registration),
        StoreOp::ClearNode { uaid: UAID, binding },
        StoreOp::AddChannels { uaid: UAID, month, channels },
    ] {
        node.store.execute(op).await.unwrap();
    }
    assert_eq!(node.store.record(UAID).await.unwrap().unwrap().node, None);

    node.gate.set_open(false);
    let put = node.send(UAID, Message::of_version(CHANNEL, 5, None, now));
    node.gate.has_messages(1).await;
    let (uaid, months, chid) = (UAID, vec![month], CHANNEL);
    let unregister = StoreOp::RemoveChannelAndVersion { uaid, months, chid };
    node.store.execute(unregister).await.unwrap();
    node.gate.set_open(true);

    assert_eq!(put.await.unwrap(), Outcome::NoSuchChannel);
    assert_eq!(stored_versions(&*node.store, uaid, now).await, []);
}
