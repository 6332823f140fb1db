//! The operations that write, each with the rows before it, and what another node does meanwhile.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::TryFutureExt;
use state_machine::feed::{FeedKey, FeedMark, FeedSyncId, FeedValue};
use state_machine::{
    AckCode, BridgeName, BridgeRecipient, Chid, LastConnect, Message, MessageKey, NodeBinding,
    NodeId, RouterRecord, RouterType, Span, Time,
};
use storage::{
    BridgedRegistration, ExpectedReceipt, FeedTables, MonthStep, Notification, NotificationTable,
    ReceiptTables, Registration, Store, StoreAdmin, StoreAnswer, StoreFuture, StoreOp, Stored,
    WaitingBound, WaitingLimits, WhenFull,
};
use storage_dynamodb::Dynamo;

use super::{ENDS, Run, Step};
use crate::dynamo::things::*;
use crate::names::with_receipt;

pub(super) struct Operation {
    /// A method or a variant of [`StoreOp`], and after a colon what is special.
    pub(super) name: &'static str,
    pub(super) before: &'static [Step],
    pub(super) call: Step,
    /// What another node does before a request, besides the same call.
    pub(super) others: &'static [Step],
    pub(super) waiting: WaitingLimits,
    /// Whether all tables are there before it.
    pub(super) has_tables: bool,
}

/// Methods that read, or whose faults are those of a method in the table.
pub(super) const NOT_SWEPT: &[&str] = &[
    // They read.
    "risks",
    "ReadChannels",
    "Fetch",
    "FetchVersions",
    "record",
    "channels",
    "months",
    "check",
    "close",
    "admits_subscription",
    "state",
    "take_slow_writes",
    "fetch_feed",
    "feeds",
    "fetch_notifications",
    "tables",
    "records_by_month",
    "waiting_page",
    "inactive_users",
    "has_rows",
    "read_rows",
    "count_rows",
    "key_fingerprints",
    "id_floor",
    // It removes what it has written.
    "preflight",
    // Its variants are in the table.
    "execute",
    // As `ensure_month`.
    "ensure_feeds",
    "ensure_notifications",
    // One request, which sets a value.
    "set_throughput",
    // Not in DynamoDB.
    "delete_expired",
    "snapshot",
];

/// Bounds that no test reaches, so that messages are counted.
const WIDE: WaitingLimits = within(1000, WhenFull::Refuse);

const fn within(messages_max: u64, when_full: WhenFull) -> WaitingLimits {
    let none = WaitingBound { messages_max: 0, bytes_max: 0 };
    WaitingLimits { user: none, channel: WaitingBound { messages_max, bytes_max: 0 }, when_full }
}

const fn operation(name: &'static str, before: &'static [Step], call: Step) -> Operation {
    Operation { name, before, call, others: &[], waiting: WIDE, has_tables: true }
}

impl Operation {
    const fn beside(self, others: &'static [Step]) -> Self {
        Self { others, ..self }
    }

    const fn with_bounds(self, waiting: WaitingLimits) -> Self {
        Self { waiting, ..self }
    }
}

pub(super) static OPERATIONS: &[Operation] = &[
    operation("Register", &[], |s, it| register(s, it, 100))
        .beside(&[|s, it| register(s, it, 101)]),
    operation("Register:again", &[registered], |s, it| register(s, it, 100))
        .beside(&[|s, it| register(s, it, 101)]),
    operation("ClearNode", &[registered], |s, it| {
        let binding = NodeBinding { node: NodeId::new("node"), connected_at: Time(99) };
        run(s, StoreOp::ClearNode { uaid: it.agent(), binding })
    }),
    operation("AddChannels", &[], channels),
    operation("CreateChannels", &[], |s, it| {
        let (uaid, channels) = (it.agent(), [CHANNEL].into());
        run(s, StoreOp::CreateChannels { uaid, month: november(), channels })
    }),
    operation("RemoveChannel", &[channels, channels_in_december, stored], |s, it| {
        let (uaid, months) = (it.agent(), vec![november(), december()]);
        run(s, StoreOp::RemoveChannel { uaid, months, chid: CHANNEL })
    }),
    operation("RemoveChannelAndVersion", &[channels, version], |s, it| {
        let (uaid, months) = (it.agent(), vec![november()]);
        run(s, StoreOp::RemoveChannelAndVersion { uaid, months, chid: CHANNEL })
    }),
    operation("UpdateMonth", &[registered], month_updated),
    operation("FinishMove", &[registered, month_updated], |s, it| {
        run(s, StoreOp::FinishMove(step(it)))
    }),
    operation(
        "MoveMessages",
        &[channels, channels_in_december, sent, send_topical, |s, it| store(s, it, message(4))],
        move_messages,
    ),
    operation(
        "MoveMessages:onto one of its topic",
        &[channels, channels_in_december, send_topical, |s, it| {
            shown(s.store_message(it.agent(), december(), topical(9)))
        }],
        move_messages,
    ),
    operation("RecordOffers", &[channels, stored], |s, it| {
        // Each execution counts: the rows are those of one or two.
        let (uaid, messages) = (it.agent(), vec![message(1).key()]);
        run(s, StoreOp::RecordOffers { uaid, month: november(), messages })
    }),
    operation("Delete", &[channels, stored], |s, it| ack(s, it, &message(1), false))
        .beside(&[sent]),
    operation("Delete:with a receipt", &[channels, send_topical], ack_topical)
        .beside(&[|s, it| store(s, it, topical(2)), withdraw]),
    operation("Delete:of the last of many channels", &[many_channels, empty_19], |s, it| {
        delete(s, it, vec![in_channel(19).key()])
    })
    .beside(&[|s, it| send_to(s, it, 0)]),
    operation("store_message", &[channels], stored).beside(&[sent]),
    operation("store_message:without bounds", &[channels], stored).with_bounds(WaitingLimits::NONE),
    operation("store_message:replaces its topic", &[channels, send_topical], |s, it| {
        store(s, it, topical(3))
    })
    .beside(&[
        |s, it| store(s, it, topical(1)),
        |s, it| store(s, it, topical(4)),
        |s, it| send(s, it, 2),
    ]),
    operation("store_message:with a receipt", &[channels, send_topical], |s, it| send(s, it, 3))
        .beside(&[|s, it| send(s, it, 2), ack_topical]),
    operation("store_message:above a bound", &[channels, stored, sent], |s, it| send(s, it, 3))
        .with_bounds(within(2, WhenFull::Refuse)),
    operation("store_message:others give way", &[channels, stored, sent], |s, it| {
        store(s, it, message(3))
    })
    .with_bounds(within(2, WhenFull::Replace)),
    operation("register_bridged", &[], |s, it| {
        let registration = BridgedRegistration {
            uaid: it.agent(),
            recipient: recipient(),
            connected_at: Time(100),
            last_connect: LastConnect(9),
            create_in: Some(november()),
        };
        shown(s.register_bridged(registration))
    }),
    operation("drop_user", &[registered, channels], |s, it| shown(s.drop_user(it.agent()))),
    operation(
        "drop_bridged",
        &[|s, it| shown(s.create_record(record(it, RouterType::Bridge(Box::new(recipient())))))],
        |s, it| shown(s.drop_bridged(it.agent(), recipient())),
    ),
    operation("create_record", &[], |s, it| {
        shown(s.create_record(record(it, RouterType::WebPush)))
    }),
    operation("mark_dropped", &[registered], marked),
    operation("delete_rows", &[registered, channels, sent], drop_rows).beside(&[sent]),
    operation("delete_uaids", &[registered, marked], |s, it| {
        shown(s.delete_uaids(vec![it.agent()]))
    }),
    Operation {
        has_tables: false,
        ..operation(
            "ensure_month",
            &[|s, _| shown(s.ensure_feeds()), |s, _| shown(s.drop_month(november()))],
            |s, _| shown(s.ensure_month(november())),
        )
    },
    operation("drop_month", &[|s, _| shown(s.ensure_month(december().next()))], |s, _| {
        shown(s.drop_month(december().next()))
    }),
    operation("copy_rows", &[channels, sent], |s, _| {
        shown(s.copy_rows(november(), december(), None).map_ok(|_| ()))
    }),
    operation("move_records", &[registered], |s, _| {
        shown(s.move_records(november(), december(), None).map_ok(|_| ()))
    }),
    operation("repair_records", &[|s, it| register(s, it, NOW.0 + 86_400_000)], |s, _| {
        let clock =
            storage::maintenance::RepairClock { now: NOW, latest: NOW, last_connect_shards: 1 };
        shown(s.repair_records(clock, None).map_ok(|_| ()))
    }),
    operation("write_rows", &[], |s, it| {
        let rows = [CHANNEL, Chid([1; 16])].map(|chid| {
            storage::copied_rows::CopiedRow::Version(
                it.agent(),
                Notification { chid, version: 3, data: None },
            )
        });
        shown(s.write_rows(storage::maintenance::Table::Notifications, Arc::new(rows.into())))
    }),
    operation("put_key_fingerprints", &[|s, _| reset_keys(s)], |s, _| swap(s, &["a"], &["a", "c"]))
        .beside(&[|s, _| swap(s, &["a"], &["b"])]),
    // A floor that is far ahead gives way.
    operation("raise_id_floor", &[|s, _| raise(s, NOW.0), |s, _| raise(s, 5)], |s, _| raise(s, 7))
        .beside(&[|s, _| raise(s, 9), |s, _| raise(s, 3)]),
    operation("save_notification", &[version], |s, it| saved(s, it, 8))
        .beside(&[|s, it| saved(s, it, 2), |s, it| saved(s, it, 9)]),
    operation("delete_notification", &[version], |s, it| {
        shown(s.delete_notification(it.agent(), CHANNEL, Some(7)))
    })
    .beside(&[|s, it| saved(s, it, 9)]),
    operation("expect_receipt", &[|s, it| expect(s, it, 2)], |s, it| expect(s, it, 1))
        .beside(&[cancel]),
    operation("cancel_receipt", &[|s, it| expect(s, it, 1), |s, it| expect(s, it, 2)], cancel)
        .beside(&[|s, it| expect(s, it, 3)]),
    operation("withdraw_message", &[channels, send_topical], withdraw).beside(&[ack_topical]),
    operation("expire_receipts", &[channels, send_topical], expire_messages)
        .beside(&[ack_topical, cancel]),
    operation(
        "expire_receipts:of an ended subscription",
        &[channels, send_topical, |s, it| expect(s, it, 2), ack_topical],
        |s, _| expire(s, ENDS),
    )
    .beside(&[expire_messages]),
    operation("write_key", &[], write_a).beside(&[publish]),
    operation("write_key:again", &[write_a, publish], write_a).beside(&[publish]),
    operation("republish_key", &[write_a, publish], |s, it| {
        shown(s.republish_key(it.feed(), key("a")))
    })
    .beside(&[publish]),
    operation("delete_key", &[write_a, publish], |s, it| shown(s.delete_key(it.feed(), key("a"))))
        .beside(&[write_a]),
    operation("publish", &[write_a, write_b], publish).beside(&[write_a]),
    operation("forget", &[write_a, write_b, publish], |s, it| {
        shown(s.forget(it.feed(), FeedSyncId(2), 10).map_ok(|_| ()))
    })
    .beside(&[write_a]),
    operation("mark_feed", &[write_a, publish], |s, it| {
        shown(s.mark_feed(it.feed(), FeedMark { number: FeedSyncId(1), at: Time(5) }))
    }),
];

/// The variants of [`StoreOp`].
pub(super) fn ops_of() -> impl Iterator<Item = &'static str> {
    let source = include_str!("../../../../../state_machine/src/store.rs");
    let variants =
        source.split("pub enum StoreOp {").nth(1).unwrap().split("\n}\n").next().unwrap();
    let lines = variants.lines().filter_map(|line| line.strip_prefix("    "));
    let lines = lines.filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()));
    lines.map(|line| line.split([' ', '(']).next().unwrap())
}

fn shown<T: std::fmt::Debug + 'static>(
    answer: impl Future<Output = Result<T, storage::StoreError>> + Send + 'static,
) -> StoreFuture<String> {
    Box::pin(answer.map_ok(|answer| format!("{answer:?}")))
}

fn run(s: &Arc<Dynamo>, op: StoreOp) -> StoreFuture<String> {
    shown(s.execute(op))
}

fn register(s: &Arc<Dynamo>, it: Run, at: u64) -> StoreFuture<String> {
    // The binding before may be missing in the answer.
    let registered =
        s.execute(StoreOp::Register(Registration { uaid: it.agent(), ..registration(at) }));
    shown(registered.map_ok(|answer| match answer {
        StoreAnswer::Registered(storage::RegisterResult::Registered(record, _)) => {
            format!("{record:?}")
        }
        other => format!("{other:?}"),
    }))
}

fn registered(s: &Arc<Dynamo>, it: Run) -> StoreFuture<String> {
    register(s, it, 99)
}

fn marked(s: &Arc<Dynamo>, it: Run) -> StoreFuture<String> {
    shown(s.mark_dropped(it.agent(), None))
}

fn record(it: Run, router_type: RouterType) -> RouterRecord {
    RouterRecord {
        uaid: it.agent(),
        router_type,
        node: None,
        connected_at: Time(99),
        last_connect: LastConnect(9),
        curmonth: november(),
        oldmonth: None,
    }
}

fn recipient() -> BridgeRecipient {
    BridgeRecipient { bridge: BridgeName::Fcm, app: "app".into(), token: "token".into(), aps: None }
}

fn step(it: Run) -> MonthStep {
    MonthStep {
        uaid: it.agent(),
        node: Some(NodeId::new("node")),
        connected_at: Time(99),
        from: november(),
        to: december(),
        last_connect: LastConnect(4711),
    }
}

fn channels(s: &Arc<Dynamo>, it: Run) -> StoreFuture<String> {
    run(s, StoreOp::AddChannels { uaid: it.agent(), month: november(), channels: [CHANNEL].into() })
}

fn channels_in_december(s: &Arc<Dynamo>, it: Run) -> StoreFuture<String> {
    run(s, StoreOp::AddChannels { uaid: it.agent(), month: december(), channels: [CHANNEL].into() })
}

fn store(s: &Arc<Dynamo>, it: Run, message: Message) -> StoreFuture<String> {
    shown(s.store_message(it.agent(), november(), message))
}

/// So many channels that the counts of empty ones are removed.
const MANY: u8 = 20;

fn in_channel(number: u8) -> Message {
    Message { chid: Chid([number; 16]), ..message(u32::from(number) + 100) }
}

fn many_channels(s: &Arc<Dynamo>, it: Run) -> StoreFuture<String> {
    let channels = (0..MANY).map(|number| in_channel(number).chid).collect();
    let added = s.execute(StoreOp::AddChannels { uaid: it.agent(), month: november(), channels });
    let stored = (0..MANY)
        .map(|number| s.store_message(it.agent(), november(), in_channel(number)))
        .collect::<Vec<_>>();
    shown(async move {
        added.await?;
        for stored in stored {
            stored.await?;
        }
        Ok(())
    })
}

fn empty_19(s: &Arc<Dynamo>, it: Run) -> StoreFuture<String> {
    delete(s, it, (0..MANY - 1).map(|number| in_channel(number).key()).collect())
}

fn delete(s: &Arc<Dynamo>, it: Run, messages: Vec<MessageKey>) -> StoreFuture<String> {
    let (uaid, months) = (it.agent(), vec![november()]);
    run(s, StoreOp::Delete { uaid, months, messages, acks: Vec::new() })
}

fn send_to(s: &Arc<Dynamo>, it: Run, channel: u8) -> StoreFuture<String> {
    store(s, it, Message { id: id(7, false), ..in_channel(channel) })
}

fn wanting(it: Run, number: u32) -> Message {
    with_receipt(topical(number), it.subscription())
}

fn expected(it: Run, number: u32) -> ExpectedReceipt {
    ExpectedReceipt::of(&wanting(it, number)).unwrap()
}

fn expect(s: &Arc<Dynamo>, it: Run, number: u32) -> StoreFuture<String> {
    shown(s.expect_receipt(expected(it, number), 100))
}

/// As an endpoint sends a message of the topic whose sender wants a receipt.
fn send(s: &Arc<Dynamo>, it: Run, number: u32) -> StoreFuture<String> {
    let expect = s.expect_receipt(expected(it, number), 100);
    let store = s.clone();
    let (message, expected) = (wanting(it, number), expected(it, number));
    shown(async move {
        expect.await?;
        let stored = store.store_message(it.agent(), november(), message).await?;
        if stored != Stored::Done {
            store.cancel_receipt(expected).await?;
        }
        Ok(stored)
    })
}

fn send_topical(s: &Arc<Dynamo>, it: Run) -> StoreFuture<String> {
    send(s, it, 1)
}

fn stored(s: &Arc<Dynamo>, it: Run) -> StoreFuture<String> {
    store(s, it, message(1))
}

fn sent(s: &Arc<Dynamo>, it: Run) -> StoreFuture<String> {
    store(s, it, message(2))
}

fn month_updated(s: &Arc<Dynamo>, it: Run) -> StoreFuture<String> {
    run(s, StoreOp::UpdateMonth(step(it)))
}

fn move_messages(s: &Arc<Dynamo>, it: Run) -> StoreFuture<String> {
    run(s, StoreOp::MoveMessages { uaid: it.agent(), from: november(), to: december() })
}

fn ack(s: &Arc<Dynamo>, it: Run, message: &Message, wants_receipt: bool) -> StoreFuture<String> {
    let acks = wants_receipt.then_some((message.id, AckCode::Delivered));
    let (months, messages) = (vec![november()], vec![message.key()]);
    let acks = acks.into_iter().collect();
    let acked = s.execute(StoreOp::Delete { uaid: it.agent(), months, messages, acks });
    shown(acked.map_ok(move |answer| match answer {
        // An ack before may have written the receipt, and not deleted the message.
        StoreAnswer::Deleted(settled) if wants_receipt => format!("{:?}", settled.subscriptions),
        other => format!("{other:?}"),
    }))
}

fn raise(s: &Arc<Dynamo>, floor: u64) -> StoreFuture<String> {
    shown(s.raise_id_floor(Time(floor)))
}

fn withdraw(s: &Arc<Dynamo>, it: Run) -> StoreFuture<String> {
    shown(s.withdraw_message(it.agent(), vec![november()], wanting(it, 1).key()))
}

fn ack_topical(s: &Arc<Dynamo>, it: Run) -> StoreFuture<String> {
    ack(s, it, &wanting(it, 1), true)
}

fn cancel(s: &Arc<Dynamo>, it: Run) -> StoreFuture<String> {
    shown(s.cancel_receipt(expected(it, 1)))
}

fn expire_messages(s: &Arc<Dynamo>, _: Run) -> StoreFuture<String> {
    expire(s, NOW + Span::from_secs(3600))
}

/// Until nothing is left. Whether a receipt was written.
fn expire(s: &Arc<Dynamo>, now: Time) -> StoreFuture<String> {
    let store = s.clone();
    shown(async move {
        let mut written = 0;
        loop {
            let expired = store.expire_receipts(now).await?;
            written += expired.receipts;
            if !expired.is_more {
                return Ok(written > 0);
            }
        }
    })
}

/// Until nothing is left.
fn drop_rows(s: &Arc<Dynamo>, it: Run) -> StoreFuture<String> {
    let store = s.clone();
    shown(async move {
        while store.delete_rows(vec![it.agent()], november()).await? {}
        Ok(())
    })
}

fn version(s: &Arc<Dynamo>, it: Run) -> StoreFuture<String> {
    saved(s, it, 7)
}

fn saved(s: &Arc<Dynamo>, it: Run, version: u64) -> StoreFuture<String> {
    shown(s.save_notification(it.agent(), Notification { chid: CHANNEL, version, data: None }))
}

fn key(text: &str) -> FeedKey {
    FeedKey::parse(text).unwrap()
}

fn write_a(s: &Arc<Dynamo>, it: Run) -> StoreFuture<String> {
    write(s, it, "a")
}

fn write_b(s: &Arc<Dynamo>, it: Run) -> StoreFuture<String> {
    write(s, it, "b")
}

fn write(s: &Arc<Dynamo>, it: Run, at: &str) -> StoreFuture<String> {
    // The version counts the writes, also one whose answer was lost.
    shown(s.write_key(it.feed(), key(at), FeedValue::parse("value").unwrap(), 10))
}

fn publish(s: &Arc<Dynamo>, it: Run) -> StoreFuture<String> {
    shown(s.publish(it.feed(), None, 10).map_ok(|_published| ()))
}

fn marks(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn swap(s: &Arc<Dynamo>, before: &[&str], after: &[&str]) -> StoreFuture<String> {
    shown(s.put_key_fingerprints(marks(before), marks(after)))
}

fn reset_keys(s: &Arc<Dynamo>) -> StoreFuture<String> {
    let store = s.clone();
    shown(async move {
        let before = store.key_fingerprints().await?;
        store.put_key_fingerprints(before, marks(&["a"])).await
    })
}
