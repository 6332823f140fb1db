//! The row of a router record, as every engine reads it.

use state_machine::{
    BridgeRecipient, LastConnect, Month, NodeBinding, NodeId, RouterRecord, RouterType, Time, Uaid,
};

/// A router record of any type, also of one that is not served.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RecordRow {
    pub uaid: Uaid,
    pub router_type: String,
    /// None of an agent that no bridge reaches, and if it cannot be read.
    pub recipient: Option<BridgeRecipient>,
    /// None in a copy.
    pub node: Option<NodeId>,
    pub connected_at: Time,
    pub last_connect: LastConnect,
    /// None if it is missing or cannot be read, which only a table in DynamoDB has.
    pub curmonth: Option<Month>,
    pub oldmonth: Option<Month>,
}

impl RecordRow {
    pub fn binding(&self) -> Option<NodeBinding> {
        let node = self.node.clone()?;
        Some(NodeBinding { node, connected_at: self.connected_at })
    }

    pub fn has_served_type(&self) -> bool {
        self.recipient.is_some() || RouterType::parse(&self.router_type).is_some()
    }

    /// Whether it is that of an agent with this bridge, application and token.
    pub fn is_reached_by(&self, recipient: &BridgeRecipient) -> bool {
        let BridgeRecipient { bridge, app, token, .. } = recipient;
        let there = self.recipient.as_ref();
        there.is_some_and(|it| (it.bridge, &it.app, &it.token) == (*bridge, app, token))
    }

    /// The record for a server. None if it counts as none.
    pub fn served(self) -> Option<RouterRecord> {
        let Self { uaid, node, connected_at, last_connect, oldmonth, .. } = self;
        let bridge = self.recipient.map(|recipient| RouterType::Bridge(Box::new(recipient)));
        let router_type = RouterType::parse(&self.router_type).or(bridge)?;
        let curmonth = self.curmonth?;
        Some(RouterRecord {
            uaid,
            router_type,
            node,
            connected_at,
            last_connect,
            curmonth,
            oldmonth,
        })
    }
}

impl From<RouterRecord> for RecordRow {
    fn from(record: RouterRecord) -> Self {
        let RouterRecord { uaid, router_type, node, connected_at, last_connect, .. } = record;
        Self {
            uaid,
            router_type: router_type.as_str().to_owned(),
            recipient: router_type.recipient().cloned(),
            node,
            connected_at,
            last_connect,
            curmonth: Some(record.curmonth),
            oldmonth: record.oldmonth,
        }
    }
}
