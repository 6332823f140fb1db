//! Names for months, channels and messages, and reads to the end.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use state_machine::feed::{FeedKey, FeedName};
use state_machine::{
    Chid, Encoding, Message, MessageId, Month, Payload, ReceiptRequest, Span, Time, Topic, Uaid,
};
use storage::{PageLimit, Store};

use crate::store_calls::StoreCalls;

/// A time in November 2026, in milliseconds.
pub(crate) const NOW: Time = Time(1_793_700_000_000);

/// No read of a test has as many pages.
const PAGES_MAX: usize = 10_000;

pub(crate) fn month(name: &str) -> Month {
    name.parse().unwrap()
}

pub(crate) fn chid(number: u16) -> Chid {
    let mut bytes = [0xc0; 16];
    bytes[14..].copy_from_slice(&number.to_be_bytes());
    Chid(bytes)
}

pub(crate) fn chids(numbers: impl IntoIterator<Item = u16>) -> BTreeSet<Chid> {
    numbers.into_iter().map(chid).collect()
}

/// A message whose id is in the order of `number`, a minute to live.
pub(crate) fn message(number: u32, chid: Chid, accepted_at: Time) -> Message {
    let payload = Some(payload(format!("message {number}")));
    Message { payload, ..Message::new(id(number, false), chid, accepted_at, Span::from_secs(60)) }
}

/// The same message with a topic.
pub(crate) fn with_topic(number: u32, topic: &str, message: Message) -> Message {
    Message { id: id(number, true), topic: Some(Topic::parse(topic).unwrap()), ..message }
}

/// A subscription that ends before [`NOW`] plus two days.
pub(crate) fn subscription() -> FeedName {
    FeedName::receipts(NOW + Span::from_secs(86_400), 7)
}

/// The same message with the wish for a receipt.
pub(crate) fn with_receipt(message: Message, subscription: FeedName) -> Message {
    let id = message.id.with_receipt(true);
    let key = FeedKey::parse(&format!("/m/{id}")).unwrap();
    Message { id, receipt: Some(Box::new(ReceiptRequest { subscription, key })), ..message }
}

pub(crate) fn payload(data: impl Into<Bytes>) -> Payload {
    Payload { data: data.into(), encoding: Encoding::Aes128Gcm }
}

pub(crate) fn id(number: u32, has_topic: bool) -> MessageId {
    MessageId::from_uuid_v7((u128::from(number) << 80) | 0x7000 << 64 | 0x5ee4, has_topic)
}

/// Reads pages until the last one, after which there is no position. Returns how many there were.
pub(crate) async fn each_page<C: Clone + Debug>(
    mut read: impl AsyncFnMut(Option<C>) -> Option<C>,
) -> usize {
    let mut after = None;
    for pages in 1..=PAGES_MAX {
        after = read(after.clone()).await;
        if after.is_none() {
            return pages;
        }
    }
    panic!("the pages do not end, there is one after {after:?}");
}

/// Repeats a step until there is nothing left to do.
pub(crate) async fn until_done(mut step: impl AsyncFnMut() -> bool) {
    each_page(async |_| step().await.then_some(())).await;
}

/// Every page of an agent's messages that live at a time.
pub(crate) async fn all_messages(
    store: &dyn Store,
    uaid: Uaid,
    month: Month,
    limit: PageLimit,
    at: Time,
) -> Vec<Message> {
    let (mut messages, mut after) = (Vec::new(), None);
    for _page in 0..PAGES_MAX {
        let page = store.fetch_messages(uaid, month, after, limit, at).await.unwrap();
        messages.extend(page.messages);
        after = page.next;
        if after.is_none() {
            return messages;
        }
    }
    panic!("the pages do not end, there is one after {after:?}");
}

/// The longest wait for a child or for a disk. Only what never happens reaches it.
pub(crate) const WAIT: Duration = Duration::from_secs(300);

/// What a child process printed, once it has ended.
pub(crate) fn output_of(command: &mut Command) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (ended, output) = mpsc::channel();
    thread::spawn(move || drop(ended.send(child.wait_with_output().unwrap())));
    let output = output.recv_timeout(WAIT);
    output.unwrap_or_else(|_| panic!("a child process does not end: {command:?}"))
}
