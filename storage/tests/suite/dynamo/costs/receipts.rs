//! What receipts cost, beside the same operations without them.

use std::collections::BTreeSet;

use state_machine::{AckCode, Message, Span, Time};
use storage::{ExpectedReceipt, FeedTables, ReceiptTables, Store, Stored};

use super::{Bill, Shop, assert_documented};
use crate::dynamo::things::*;
use crate::names::{subscription, with_receipt};
use crate::store_calls::StoreCalls;

/// The messages of a subscription.
const MESSAGES_MAX: u64 = 1000;

fn wanting(number: u32) -> Message {
    with_receipt(message(number), subscription())
}

impl Shop {
    async fn expect(&self, message: &Message) -> Bill {
        let expected = ExpectedReceipt::of(message).unwrap();
        assert_eq!(self.store.expect_receipt(expected, MESSAGES_MAX).await, Ok(true));
        self.bill()
    }

    async fn put(&self, message: Message) -> Bill {
        let stored = self.store.store_message(AGENT, november(), message).await;
        assert_eq!(stored, Ok(Stored::Done));
        self.bill()
    }

    /// As the delete after an ack does it: the method depends on the id.
    async fn ack(&self, message: &Message) -> Bill {
        let months = vec![november()];
        if message.id.may_want_receipt() {
            let acked = vec![(message.key(), AckCode::Delivered)];
            self.store.settle_messages(AGENT, months, acked).await.unwrap();
        } else {
            self.store.delete_messages(AGENT, months, vec![message.key()]).await.unwrap();
        }
        self.bill()
    }

    async fn publish_receipts(&self) -> Bill {
        self.store.publish(subscription(), None, 100).await.unwrap().unwrap();
        self.bill()
    }

    async fn expire(&self, now: Time) -> Bill {
        self.store.expire_receipts(now).await.unwrap();
        self.bill()
    }
}

/// Each step in the documentation, measured where the steps before it have led.
async fn measured(shop: &Shop) -> Vec<(&'static str, Bill)> {
    let (plain, first, second) = (message(1), wanting(2), wanting(3));
    let mut rows = vec![
        ("store a message", shop.put(plain.clone()).await),
        ("delete it after the ack", shop.ack(&plain).await),
        ("expect the first receipt of a subscription", shop.expect(&first).await),
        ("expect another", shop.expect(&second).await),
        ("store a message with a receipt", shop.put(first.clone()).await),
    ];
    shop.put(second.clone()).await;
    rows.push(("write the receipt, and delete the message", shop.ack(&first).await));
    rows.push(("publish a receipt", shop.publish_receipts().await));
    rows.push(("look for expired receipts, none is due", shop.expire(NOW).await));
    let ended = second.kept_until() + Span::from_secs(1);
    rows.push(("write *expired* for one", shop.expire(ended).await));
    rows
}

#[tokio::test]
async fn the_documentation_has_the_measured_costs_of_receipts() {
    let shop = Shop::open().await;
    shop.store.ensure_month(november()).await.unwrap();
    shop.store.add_channels(AGENT, november(), BTreeSet::from([CHANNEL])).await.unwrap();
    shop.bill();
    assert_documented("receipts.md", &measured(&shop).await);
}
