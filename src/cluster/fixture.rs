//! Keys and a message for tests of calls between nodes.

use std::sync::Arc;

use bytes::Bytes;
use state_machine::{Chid, Encoding, Message, MessageId, Payload, Span, Time, Topic, Urgency};

use super::signature::ClusterKeys;
use crate::settings::keys::Keys;
pub(crate) use crate::system::telemetry::fixture::{LONG, Log};

pub(crate) const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
pub(crate) const OTHER_KEY: &str = "_v38-_r5-Pf29fTz8vHw7-7t7Ovq6ejn5uXk4-Lh4N8=";
pub(crate) const NOW: Time = Time(1_796_000_000_000);

pub(crate) fn keys(cluster: &[&str]) -> Keys {
    Keys::from_texts(&[OTHER_KEY]).unwrap().with_cluster_texts(cluster).unwrap()
}

pub(crate) fn cluster_keys(key: &str) -> Arc<ClusterKeys> {
    Arc::new(ClusterKeys::derive(&keys(&[key])).unwrap())
}

pub(crate) fn message() -> Message {
    Message {
        id: MessageId::from_uuid_v7(0x0190_a4a3_b000_7000_8000_0000_0000_0000, true),
        chid: Chid([0xcd; 16]),
        topic: Some(Topic::parse("topic").unwrap()),
        urgency: Urgency::Low,
        accepted_at: Time(NOW.0 - 5),
        ttl: Span::from_secs(60),
        offers: 0,
        receipt: None,
        payload: Some(Payload {
            data: Bytes::from_static(b"\0data"),
            encoding: Encoding::Aes128Gcm,
        }),
    }
}
