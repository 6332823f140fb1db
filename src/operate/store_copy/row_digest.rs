//! A digest of the rows of a table that does not depend on their order.

use std::hash::{Hash, Hasher};

use aws_lc_rs::digest::{Context, SHA256};
use storage::copied_rows::CopiedRow;

use crate::command::text::hex;

/// The number of rows, and the sum of their SHA-256 modulo 2^256.
///
/// An exclusive or would be blind to a row that is there twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct RowDigest {
    pub(super) rows: u64,
    /// The least significant bytes first.
    sum: [u8; 32],
}

/// Passes what the hash of a value consists of to SHA-256. It has every field.
struct Sha256(Context);

impl RowDigest {
    pub(super) fn add(&mut self, row: &CopiedRow) {
        let mut sha256 = Sha256(Context::new(&SHA256));
        row.hash(&mut sha256);
        let mut carry = 0;
        for (sum, byte) in self.sum.iter_mut().zip(sha256.0.finish().as_ref()) {
            let added = u16::from(*sum) + u16::from(*byte) + carry;
            [*sum, _] = added.to_le_bytes();
            carry = added >> 8;
        }
        self.rows += 1;
    }

    pub(super) fn to_hex(self) -> String {
        hex(self.sum)
    }
}

impl Hasher for Sha256 {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        unreachable!("the digest is taken from the context")
    }
}

#[cfg(test)]
mod tests {
    use state_machine::{
        BridgeName, BridgeRecipient, Chid, Encoding, LastConnect, Message, MessageId, Month,
        NodeId, Payload, Span, Time, Topic, Uaid, Urgency,
    };
    use storage::record_row::RecordRow;

    use super::*;

    fn digest<const N: usize>(rows: [&CopiedRow; N]) -> RowDigest {
        let mut digest = RowDigest::default();
        rows.into_iter().for_each(|row| digest.add(row));
        digest
    }

    fn message() -> Message {
        let id = MessageId::from_uuid_v7(0x7000 << 64, true);
        Message {
            topic: Some(Topic::parse("a").unwrap()),
            payload: Some(Payload { data: "a".into(), encoding: Encoding::Aes128Gcm }),
            ..Message::new(id, Chid([1; 16]), Time(1), Span(1))
        }
    }

    fn record() -> RecordRow {
        RecordRow {
            uaid: Uaid([1; 16]),
            router_type: "fcm".to_owned(),
            recipient: Some(BridgeRecipient {
                bridge: BridgeName::Fcm,
                app: "a".into(),
                token: "a".into(),
                aps: None,
            }),
            node: None,
            connected_at: Time(1),
            last_connect: LastConnect(1),
            curmonth: Some("2026_11".parse().unwrap()),
            oldmonth: None,
        }
    }

    #[test]
    fn the_digest_depends_on_each_field_of_a_row() {
        type Change<T> = fn(&mut T);
        let payload: Change<Message> =
            |it| it.payload.iter_mut().for_each(|payload| payload.data = "b".into());
        let of_message: [Change<Message>; 9] = [
            |it| it.id = MessageId::from_uuid_v7(0x7001 << 64, true),
            |it| it.chid = Chid([2; 16]),
            |it| it.topic = None,
            |it| it.urgency = Urgency::High,
            |it| it.accepted_at = Time(2),
            |it| it.ttl = Span(2),
            |it| it.offers = 1,
            |it| it.payload = None,
            payload,
        ];
        let of_record: [Change<RecordRow>; 8] = [
            |it| it.uaid = Uaid([2; 16]),
            |it| it.router_type = "apns".to_owned(),
            |it| it.recipient.iter_mut().for_each(|recipient| recipient.token = "b".into()),
            |it| it.connected_at = Time(2),
            |it| it.last_connect = LastConnect(2),
            |it| it.node = Some(NodeId::new("a")),
            |it| it.curmonth = it.curmonth.map(Month::next),
            |it| it.oldmonth = it.curmonth,
        ];
        let rest = CopiedRow::Channels(Uaid([3; 16]), [Chid([1; 16])].into());
        let messages = of_message.map(|change| {
            let mut changed = message();
            change(&mut changed);
            CopiedRow::Message(Uaid([1; 16]), changed)
        });
        let records = of_record.map(|change| {
            let mut changed = record();
            change(&mut changed);
            CopiedRow::Record(changed)
        });
        let same = [CopiedRow::Message(Uaid([1; 16]), message()), CopiedRow::Record(record())];
        let all = [&same[..], &messages, &records].concat();
        let digests: Vec<_> = all.iter().map(|row| digest([&rest, row])).collect();
        for (at, one) in digests.iter().enumerate() {
            assert!(!digests[..at].contains(one), "the row {at}");
        }
    }

    #[test]
    fn the_digest_does_not_depend_on_the_order_and_counts_each_row() {
        let [one, other] = [1, 2].map(|byte| CopiedRow::Channels(Uaid([byte; 16]), [].into()));
        let both = digest([&one, &other]);
        assert_eq!(both, digest([&other, &one]));
        assert_ne!(both, digest([&one]));
        assert_ne!(digest([&one, &one, &other]).sum, digest([&other]).sum);
    }
}
