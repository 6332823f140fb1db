//! Rows of each kind that a store can hold.

use std::collections::BTreeMap;

use bytes::Bytes;
use state_machine::feed::{FeedKey, FeedMark, FeedName, FeedSyncId, FeedValue, Sequence, Version};
use state_machine::{
    AckCode, BridgeName, BridgeRecipient, Chid, Encoding, LastConnect, Message, MessageId, Month,
    Payload, Receipt, ReceiptRequest, Span, Time, Topic, Uaid, Urgency,
};
use storage::Notification;
use storage::copied_rows::CopiedRow;
use storage::feeds::FeedState;
use storage::maintenance::Table;
use storage::record_row::RecordRow;

/// Rows of a kind that differ in their key only: more than a page of a copy has.
const PLAIN: u16 = 1050;

/// What the samples are made from.
pub(super) struct Samples {
    pub(super) now: Time,
    /// Rows of each kind that differ in their key only.
    pub(super) plain: u16,
}

/// A new kind of rows does not compile until [`kind`] has it, and fails until there are samples of it.
const KINDS: usize = 8;

const DAY: Span = Span::from_secs(24 * 3600);

/// The agent whose messages have expired: they are not copied.
pub(super) const EXPIRED: Uaid = Uaid([0xee; 16]);

fn kind(row: &CopiedRow) -> usize {
    match row {
        CopiedRow::Record(_) => 0,
        CopiedRow::Version(..) => 1,
        CopiedRow::Sequence(_) => 2,
        CopiedRow::Key { .. } => 3,
        CopiedRow::Value { .. } => 4,
        CopiedRow::ExpectedReceipt { .. } => 5,
        CopiedRow::Channels(..) => 6,
        CopiedRow::Message(..) => 7,
    }
}

/// More than a page of each kind, with odd rows.
pub(super) fn all(now: Time) -> Vec<(Table, CopiedRow)> {
    Samples { now, plain: PLAIN }.rows()
}

impl Samples {
    /// Rows of each kind, with odd ones: each differs from a plain one in one place.
    pub(super) fn rows(&self) -> Vec<(Table, CopiedRow)> {
        let Self { now, plain } = *self;
        let (month, past) = (Month::of(now), Month::of(now).previous());
        let feeds = self.feeds();
        let sequences = self.sequences(&feeds);
        let old = [channels(1, 1), CopiedRow::Message(uaid(1), message(now, 7))];
        let of_month = self.all_channels().into_iter().chain(self.messages()).collect();
        let tables = [
            (Table::Router, self.records()),
            (Table::Notifications, self.versions()),
            (Table::Sequences, sequences),
            (Table::Feeds, feeds),
            (Table::Messages(past), old.into()),
            (Table::Messages(month), of_month),
        ];
        let rows = tables
            .into_iter()
            .flat_map(|(table, rows)| rows.into_iter().map(move |row| (table, row)));
        let rows: Vec<_> = rows.collect();
        let mut counts = [0; KINDS];
        rows.iter().for_each(|(_, row)| counts[kind(row)] += 1);
        assert!(counts.iter().all(|count| *count > usize::from(plain)), "{counts:?}");
        rows
    }

    /// The plain samples, and those that a change makes of the next ones.
    fn with_odd<T>(&self, plain: impl Fn(u16) -> T, changes: &[&dyn Fn(&mut T)]) -> Vec<T> {
        let odd = (self.plain..).zip(changes).map(|(number, change)| {
            let mut odd = plain(number);
            change(&mut odd);
            odd
        });
        (0..self.plain).map(&plain).chain(odd).collect()
    }

    fn records(&self) -> Vec<CopiedRow> {
        let now = self.now;
        let plain = |number| RecordRow {
            uaid: uaid(number),
            router_type: "webpush".to_owned(),
            recipient: None,
            node: None,
            connected_at: now,
            last_connect: LastConnect::of(now, uaid(number), 1),
            curmonth: Some(Month::of(now)),
            oldmonth: None,
        };
        let bridged = |record: &mut RecordRow, bridge, token: &str, aps: Option<&str>| {
            let (app, token, aps) = ("app".into(), token.into(), aps.map(Box::from));
            record.router_type = BridgeName::as_str(bridge).to_owned();
            record.recipient = Some(BridgeRecipient { bridge, app, token, aps });
        };
        let odd: &[&dyn Fn(&mut RecordRow)] = &[
            &|record| record.connected_at = Time(0),
            &|record| record.connected_at = now + DAY * 365,
            &|record| record.last_connect = LastConnect(1),
            &|record| record.curmonth = Some(Month::of(now).previous()),
            &|record| record.oldmonth = Some(Month::of(now).previous()),
            &|record| record.router_type = "adm".to_owned(),
            &|record| record.router_type = "dropped".to_owned(),
            &|record| bridged(record, BridgeName::Fcm, "a", None),
            &|record| bridged(record, BridgeName::Fcm, "b", None),
            &|record| bridged(record, BridgeName::Apns, "a", None),
            &|record| bridged(record, BridgeName::Apns, "a", Some("{}")),
        ];
        self.with_odd(plain, odd).into_iter().map(CopiedRow::Record).collect()
    }

    fn versions(&self) -> Vec<CopiedRow> {
        let plain = |number| Notification { chid: chid(number), version: 7, data: None };
        let odd: &[&dyn Fn(&mut Notification)] = &[
            &|it| it.version = 0,
            &|it| it.version = u64::MAX,
            &|it| it.data = Some(String::new()),
            &|it| it.data = Some("a".to_owned()),
        ];
        let versions =
            self.with_odd(plain, odd).into_iter().map(|it| CopiedRow::Version(uaid(1), it));
        versions.chain([CopiedRow::Version(uaid(2), plain(0))]).collect()
    }

    /// Keys with their values, and expected receipts.
    fn feeds(&self) -> Vec<CopiedRow> {
        let text = |text: &str| Some(FeedValue::parse(text).expect("it is one"));
        let many = FeedName::parse("many").expect("it is a name");
        let plain = |number: u16| Entry {
            feed: many.clone(),
            key: key(&number.to_string()),
            version: 2,
            number: Some(u64::from(number) + 1),
            value: text("a value"),
        };
        let large = i64::MAX as u64;
        let delivered = Some(Receipt::Delivered(AckCode::NotHandled).value());
        let odd: &[&dyn Fn(&mut Entry)] = &[
            &|it| it.number = None,
            &|it| it.number = Some(large),
            &|it| it.version = large,
            &|it| it.value = None,
            &|it| it.value = text(""),
            &|it| it.key = key(&"x".repeat(FeedKey::BYTES_MAX)),
            &|it| it.key = key(": a b"),
            &|it| (it.value, it.number) = (None, None),
            &|it| it.feed = FeedName::access(),
            &|it| it.feed = FeedName::broadcasts(),
            &|it| (it.feed, it.value) = (subscription(LATE, 1), delivered.clone()),
            &|it| (it.feed, it.number) = (subscription(LATE, 1), None),
            // It has ended.
            &|it| it.feed = subscription(1, 1),
        ];
        let entries = self.with_odd(plain, odd).into_iter().flat_map(
            |Entry { feed, key, version, number, value }| {
                let (version, number) = (Version(version), number.map(FeedSyncId));
                let of_key =
                    CopiedRow::Key { feed: feed.clone(), key: key.clone(), version, number };
                [of_key, CopiedRow::Value { feed, key, version, number, value }]
            },
        );
        let expected =
            |number| (subscription(LATE, 1), key(&format!("/m/{number}")), Time(LATE * 1000));
        let odd: &[&dyn Fn(&mut Expected)] = &[
            &|it| it.0 = subscription(LATE, 2),
            &|it| it.0 = subscription(1, 1),
            &|it| it.2 = Time(0),
            &|it| it.2 = Time(i64::MAX as u64),
        ];
        let expected = self.with_odd(expected, odd).into_iter();
        let expected = expected.map(|(feed, key, deadline)| CopiedRow::ExpectedReceipt {
            feed,
            key,
            deadline,
        });
        entries.chain(expected).collect()
    }

    /// The sequence of each feed of these rows, and others.
    fn sequences(&self, feeds: &[CopiedRow]) -> Vec<CopiedRow> {
        let mut of_rows = BTreeMap::<FeedName, Sequence>::new();
        for row in feeds {
            match row {
                CopiedRow::Key { feed, number, .. } => {
                    let sequence = of_rows.entry(feed.clone()).or_default();
                    sequence.value = sequence.value.max(number.unwrap_or_default());
                    sequence.keys += 1;
                }
                CopiedRow::ExpectedReceipt { feed, .. } => {
                    of_rows.entry(feed.clone()).or_default().keys += 1;
                }
                _ => {}
            }
        }
        let of_rows = of_rows.into_iter().map(|(name, sequence)| FeedState { name, sequence });
        let plain = |number: u16| {
            let name = FeedName::parse(&format!("feed-{number}")).expect("it is a name");
            let sequence =
                Sequence { value: FeedSyncId(9), version: 3, keys: 5, ..Sequence::default() };
            FeedState { name, sequence }
        };
        let odd: &[&dyn Fn(&mut FeedState)] = &[
            &|it| it.sequence = Sequence::default(),
            &|it| it.sequence.value = FeedSyncId(10),
            &|it| it.sequence.version = 4,
            &|it| it.sequence.keys = 0,
            &|it| it.sequence.horizon = FeedSyncId(8),
            &|it| it.sequence.forgotten = Version(2),
            &|it| it.sequence.mark = Some(FeedMark { number: FeedSyncId(8), at: Time(5) }),
            &|it| it.name = subscription(0, 1),
        ];
        // Subscriptions of which nothing is left: each message was withdrawn.
        let empty = (0..=self.plain).map(|number| FeedState {
            name: subscription(LATE + 1, number),
            sequence: Sequence::default(),
        });
        of_rows.chain(self.with_odd(plain, odd)).chain(empty).map(CopiedRow::Sequence).collect()
    }

    fn all_channels(&self) -> Vec<CopiedRow> {
        let odd = [channels(self.plain, 0), channels(self.plain + 1, 300)];
        (0..self.plain).map(|number| channels(number, 1)).chain(odd).collect()
    }

    fn messages(&self) -> Vec<CopiedRow> {
        let now = self.now;
        let plain = |number| message(now, number);
        let aesgcm = Encoding::AesGcm { encryption: "salt=a".into(), crypto_key: "dh=b".into() };
        let payload = |data: &'static [u8], encoding: &Encoding| {
            Some(Payload { data: Bytes::from_static(data), encoding: encoding.clone() })
        };
        let receipt = ReceiptRequest { subscription: subscription(LATE, 1), key: key("/m/1") };
        let odd: &[&dyn Fn(&mut Message)] = &[
            &|it| it.chid = chid(1),
            &|it| it.urgency = Urgency::VeryLow,
            &|it| it.urgency = Urgency::Low,
            &|it| it.urgency = Urgency::High,
            &|it| it.accepted_at = now + DAY,
            &|it| it.ttl = Span(DAY.0 * 2 + 1),
            // It is copied, and not compared.
            &|it| it.ttl = Span::from_secs(600),
            &|it| it.offers = 7,
            &|it| (it.id, it.receipt) = (it.id.with_receipt(true), Some(Box::new(receipt.clone()))),
            &|it| it.payload = None,
            &|it| it.payload = payload(b"", &Encoding::Aes128Gcm),
            &|it| it.payload = payload(b"data", &aesgcm),
            &|it| it.payload = payload(&[0, 0xff], &Encoding::Aes128Gcm),
            &|it| {
                it.id = MessageId::from_uuid_v7(0x7000 << 64 | 1, true);
                it.topic = Some(Topic::parse("topic").expect("it is one"));
            },
        ];
        let expired = [1, 2].map(|number| {
            CopiedRow::Message(EXPIRED, Message { accepted_at: Time(1), ..message(now, number) })
        });
        let living = self
            .with_odd(plain, odd)
            .into_iter()
            .map(|message| CopiedRow::Message(uaid(1), message));
        living.chain(expired).collect()
    }
}

pub(super) fn uaid(number: u16) -> Uaid {
    let mut bytes = [0xa0; 16];
    bytes[14..].copy_from_slice(&number.to_be_bytes());
    Uaid(bytes)
}

fn chid(number: u16) -> Chid {
    Chid(uaid(number).0)
}

/// A receipt subscription that ends then.
fn subscription(ends_at: u64, number: u16) -> FeedName {
    FeedName::receipts(Time(ends_at * 1000), number.into())
}

/// It ends in a year that no test sees.
const LATE: u64 = 9_000_000_000;

fn key(text: &str) -> FeedKey {
    FeedKey::parse(text).expect("it is one")
}

struct Entry {
    feed: FeedName,
    key: FeedKey,
    version: u64,
    number: Option<u64>,
    value: Option<FeedValue>,
}

/// The subscription, the key and the deadline.
type Expected = (FeedName, FeedKey, Time);

fn channels(number: u16, count: u16) -> CopiedRow {
    CopiedRow::Channels(uaid(number), (0..count).map(chid).collect())
}

/// It lives for two days from now on.
fn message(now: Time, number: u16) -> Message {
    let id = (u128::from(now.0) << 80) | 0x7000 << 64 | u128::from(number) << 8;
    let payload = Payload { data: Bytes::from_static(b"data"), encoding: Encoding::Aes128Gcm };
    let id = MessageId::from_uuid_v7(id, false);
    Message { payload: Some(payload), ..Message::new(id, chid(0), now, DAY * 2) }
}
