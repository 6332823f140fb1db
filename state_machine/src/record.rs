//! The router table's record of a user agent.

use std::fmt;

use crate::bridge::BridgeRecipient;
use crate::ids::{NodeId, Uaid};
use crate::month::{CivilHour, Month};
use crate::time::Time;

/// A user agent's record in the router table.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RouterRecord {
    pub uaid: Uaid,
    pub router_type: RouterType,
    /// The connection node that last registered the agent; cleared once the agent is found not to
    /// be connected there.
    pub node: Option<NodeId>,
    /// The time of that connection, by that node's clock. It grows with each connection.
    pub connected_at: Time,
    /// The hour of the last connection, for finding inactive agents.
    pub last_connect: LastConnect,
    /// The month whose table its messages are stored in.
    pub curmonth: Month,
    /// The month that an unfinished move leaves. Its table may still have messages.
    pub oldmonth: Option<Month>,
}

/// The node an agent is connected to, and the `connected_at` of that connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeBinding {
    pub node: NodeId,
    /// The `connected_at` of the record.
    pub connected_at: Time,
}

/// How a user agent is reached.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RouterType {
    /// Over a WebSocket of a connection node.
    WebPush,
    /// Over a WebSocket, with the older protocol SimplePush: a channel has one number, which only grows.
    SimplePush,
    /// Through the push service of its platform.
    Bridge(Box<BridgeRecipient>),
}

/// `YYYYMMDDHH` and four digits, 0001 to 0010, that spread one hour over several index keys
/// (docs/sources.md#table-functions).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LastConnect(pub u64);

impl RouterRecord {
    /// The node and `connected_at` of this record, if it has a node.
    pub fn binding(&self) -> Option<NodeBinding> {
        let node = self.node.clone()?;
        Some(NodeBinding { node, connected_at: self.connected_at })
    }
}

impl RouterType {
    /// The `router_type` in the router table.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::WebPush => "webpush",
            Self::SimplePush => "simplepush",
            Self::Bridge(recipient) => recipient.bridge.as_str(),
        }
    }

    /// The recipient at the bridge, if the agent is behind one.
    pub fn recipient(&self) -> Option<&BridgeRecipient> {
        match self {
            Self::Bridge(recipient) => Some(recipient),
            Self::WebPush | Self::SimplePush => None,
        }
    }

    /// Parses the `router_type` of a router table.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::WebPush, Self::SimplePush].into_iter().find(|known| known.as_str() == text)
    }
}

impl LastConnect {
    /// The default number of index keys that one hour is spread over.
    pub const SHARDS: usize = 10;
    /// The maximum: the key has four digits for it.
    pub const SHARDS_MAX: usize = 9999;

    /// The key of `time`'s hour for `uaid`, one of `spread`.
    pub fn of(time: Time, uaid: Uaid, spread: usize) -> Self {
        let place = usize::from(u16::from_be_bytes([uaid.0[14], uaid.0[15]]));
        Self::key(CivilHour::of(time), place % spread.clamp(1, Self::SHARDS_MAX))
    }

    /// Whether the other key is one of a later month.
    pub fn is_months_before(self, other: Self) -> bool {
        self.0 / 100_000_000 < other.0 / 100_000_000
    }

    /// The key of shard `place` of an hour, from 0.
    pub fn key(hour: CivilHour, place: usize) -> Self {
        let CivilHour { year, month, day, hour } = hour;
        let hour_key = ((u64::from(year) * 100 + u64::from(month)) * 100 + u64::from(day)) * 100
            + u64::from(hour);
        Self(hour_key * 10_000 + 1 + place as u64)
    }
}

impl fmt::Debug for LastConnect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_connect_is_the_hour_and_a_key_of_ten() {
        let time = Time(1_793_700_000_000);
        let CivilHour { year, month, day, hour } = CivilHour::of(time);
        let keys: Vec<u64> =
            (0..=255).map(|last| LastConnect::of(time, Uaid([last; 16]), 10).0).collect();
        let expected = format!("{year:04}{month:02}{day:02}{hour:02}");
        assert!(keys.iter().all(|key| key.to_string().starts_with(&expected)));
        assert_eq!(keys.iter().map(|key| key % 10_000).min(), Some(1));
        assert_eq!(keys.iter().map(|key| key % 10_000).max(), Some(10));
    }
}
