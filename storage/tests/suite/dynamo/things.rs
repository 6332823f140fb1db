//! Names for what the tests store.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{
    BehaviorVersion, Config, Credentials, Region, SharedCredentialsProvider,
};
use bytes::Bytes;
use state_machine::{
    Chid, Encoding, LastConnect, Message, MessageId, MessageKey, Month, NodeId, Payload,
    RouterType, Span, Time, Topic, Uaid, Urgency,
};
use storage::{DynamoOptions, Registration};

use crate::wire_engine::{self, wire_server};

pub(crate) const AGENT: Uaid = Uaid([1; 16]);
pub(crate) const CHANNEL: Chid = Chid([0xc0; 16]);
/// A time in November 2026.
pub(crate) const NOW: Time = Time(1_793_700_000_000);

/// Short pauses, so that a test that retries takes no time, and no retries beyond the third
/// attempt.
pub(crate) fn options() -> DynamoOptions {
    DynamoOptions {
        region: Some("eu-central-1".to_owned()),
        attempts_max: 3,
        backoff_initial: Duration::from_millis(1),
        backoff_max: Duration::from_millis(2),
        agent_writes_max: 64,
        ..wire_engine::options::options()
    }
}

pub(crate) fn credentials() -> SharedCredentialsProvider {
    SharedCredentialsProvider::new(Credentials::new("key", "secret", None, None, "the test"))
}

/// A client that sees the tables of the shared server as they are.
pub(crate) fn raw_client() -> Client {
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-central-1"))
        .endpoint_url(&wire_server::shared().url)
        .credentials_provider(credentials());
    Client::from_conf(config.build())
}

pub(crate) fn november() -> Month {
    "2026_11".parse().unwrap()
}

pub(crate) fn december() -> Month {
    november().next()
}

pub(crate) fn id(number: u32, has_topic: bool) -> MessageId {
    MessageId::from_uuid_v7((u128::from(number) << 80) | 0x7000 << 64 | 0x5ee4, has_topic)
}

pub(crate) fn message(number: u32) -> Message {
    Message {
        id: id(number, false),
        chid: CHANNEL,
        topic: None,
        urgency: Urgency::Normal,
        accepted_at: NOW,
        ttl: Span::from_secs(60),
        offers: 0,
        receipt: None,
        payload: Some(Payload {
            data: Bytes::from(format!("message {number}")),
            encoding: Encoding::Aes128Gcm,
        }),
    }
}

pub(crate) fn topical(number: u32) -> Message {
    let topic = Some(Topic::parse("a-topic").unwrap());
    Message { id: id(number, true), topic, ..message(number) }
}

pub(crate) fn references(messages: impl IntoIterator<Item = Message>) -> Vec<MessageKey> {
    messages.into_iter().map(|message| message.key()).collect()
}

pub(crate) fn registration(connected_at: u64) -> Registration {
    Registration {
        uaid: AGENT,
        router_type: RouterType::WebPush,
        node: NodeId::new("node"),
        connected_at: Time(connected_at),
        last_connect: LastConnect(2_026_111_400_001),
        create_in: Some(november()),
    }
}
