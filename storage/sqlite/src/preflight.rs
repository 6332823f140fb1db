//! Tries the operations of a node on each file, in one transaction that leaves no row.

use bytes::Bytes;
use rusqlite::{Connection, params};
use state_machine::{
    Chid, Encoding, LastConnect, Message, MessageId, Month, NodeId, Payload, RouterType, Span,
    Time, Urgency,
};
use storage::feeds::{FeedKey, FeedName, FeedSyncId, FeedValue};
use storage::maintenance::PREFLIGHT_UAID;
use storage::notifications::Notification;
use storage::registration::NewRecord;
use storage::rules::feed_rows::FeedRows;
use storage::rules::feeds as rules;
use storage::rules::finished;
use storage::store::{PageLimit, Registration};

use crate::router_file::RouterFile;
use crate::{channels, messages, notifications, router};

const CHID: Chid = Chid([0xde; 16]);

/// Writes, reads and removes a record, a notification and a feed.
pub(crate) fn try_router(conn: &Connection) -> rusqlite::Result<()> {
    let registration = Registration {
        uaid: PREFLIGHT_UAID,
        router_type: RouterType::WebPush,
        node: NodeId::new("preflight"),
        connected_at: Time(1),
        last_connect: LastConnect(0),
        create_in: Some(Month::of(Time(0))),
    };
    router::register(conn, &NewRecord::from(&registration))?;
    let written = router::read(conn, PREFLIGHT_UAID)?;
    written.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    router::drop_user(conn, PREFLIGHT_UAID)?;
    let notification = Notification { chid: CHID, version: 1, data: None };
    notifications::save(conn, PREFLIGHT_UAID, &notification)?;
    notifications::delete(conn, PREFLIGHT_UAID, CHID, None)?;
    try_feed(conn)
}

/// Writes, publishes, fetches and removes a key.
fn try_feed(conn: &Connection) -> rusqlite::Result<()> {
    let key = FeedKey::parse("preflight").expect("nine letters are a key");
    let value = FeedValue::parse("preflight").expect("nine letters are a value");
    // A receipt subscription that ended before there were any.
    let feed = FeedName::receipts(Time(0), 0);
    finished(rules::write(&RouterFile(conn), &feed, &key, &value, 1))?;
    finished(rules::publish(&RouterFile(conn), &feed, None, 1))?;
    let limit = PageLimit { rows: 1, bytes: 1 };
    let page = finished(rules::fetch(&RouterFile(conn), &feed, FeedSyncId::NONE, limit))?;
    let there = page.filter(|page| page.updates.len() == 1);
    there.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    while finished(RouterFile(conn).remove_ended(Time(1000)))?.1 {}
    Ok(())
}

/// Writes, reads and removes a channel and a message.
pub(crate) fn try_month(conn: &Connection) -> rusqlite::Result<()> {
    let message = message();
    channels::add(conn, PREFLIGHT_UAID, &[CHID].into())?;
    messages::insert(conn, PREFLIGHT_UAID, &message)?;
    let limit = PageLimit { rows: 1, bytes: 1 };
    let fetched = messages::fetch(conn, PREFLIGHT_UAID, None, limit, Time(0))?;
    if fetched.page.messages[..] != [message] {
        return Err(rusqlite::Error::QueryReturnedNoRows);
    }
    messages::delete_all(conn, PREFLIGHT_UAID)?;
    channels::remove(conn, PREFLIGHT_UAID, CHID)?;
    conn.execute(channels::REMOVE, params![PREFLIGHT_UAID.0, &[][..]]).map(|_known| ())
}

fn message() -> Message {
    Message {
        id: MessageId::from_uuid_v7(0, false),
        chid: CHID,
        topic: None,
        urgency: Urgency::Normal,
        accepted_at: Time(0),
        ttl: Span::from_secs(1),
        offers: 0,
        receipt: None,
        payload: Some(Payload {
            data: Bytes::from_static(b"preflight"),
            encoding: Encoding::Aes128Gcm,
        }),
    }
}
