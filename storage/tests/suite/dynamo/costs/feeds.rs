//! The cost of feeds in DynamoDB, operation by operation.

use state_machine::feed::{FeedKey, FeedName, FeedSyncId, FeedValue, Version};
use storage::{FeedTables, PageLimit, StoreFuture};
use storage_dynamodb::Dynamo;

use super::{Bill, Shop, assert_documented};
use crate::dynamo::feed_replies::{feed, key};

const KEYS_MAX: u64 = 1000;

impl Shop {
    async fn write(&self, name: &str, bytes: usize) -> Bill {
        let value = FeedValue::parse(&"x".repeat(bytes)).unwrap();
        self.store.write_key(feed(), key(name), value, KEYS_MAX).await.unwrap();
        self.bill()
    }

    async fn publish(&self) -> Bill {
        self.store.publish(feed(), None, 100).await.unwrap().unwrap();
        self.bill()
    }

    /// Does something to the key that is there.
    async fn change(
        &self,
        change: impl Fn(&Dynamo, FeedName, FeedKey) -> StoreFuture<Option<Version>>,
    ) -> Bill {
        change(&self.store, feed(), key("key")).await.unwrap().unwrap();
        self.bill()
    }

    async fn list(&self) -> Bill {
        assert_eq!(self.store.feeds(None, 10).await.unwrap().len(), 1);
        self.bill()
    }

    async fn fetch(&self, after: u64) -> Bill {
        let limit = PageLimit { rows: 1000, bytes: 1_000_000 };
        self.store.fetch_feed(feed(), FeedSyncId(after), limit).await.unwrap().unwrap();
        self.bill()
    }
}

/// Each step in the documentation, measured where the steps before it have led.
async fn measured(shop: &Shop) -> Vec<(&'static str, Bill)> {
    let mut rows = vec![
        ("write a new key, 100 bytes", shop.write("key", 100).await),
        ("write a key that waits, 100 bytes", shop.write("key", 100).await),
        ("publish one key, 100 bytes", shop.publish().await),
        ("publish, nothing waits", shop.publish().await),
        ("write a key that was published, 100 bytes", shop.write("key", 100).await),
    ];
    shop.publish().await;
    shop.write("key", 1024).await;
    rows.push(("publish one key, 1 KB", shop.publish().await));
    rows.push(("write a key that was published, 1 KB", shop.write("key", 1024).await));
    shop.publish().await;
    rows.push(("republish a key, 1 KB", shop.change(FeedTables::republish_key).await));
    shop.publish().await;
    rows.push(("delete a key, 1 KB", shop.change(FeedTables::delete_key).await));
    shop.publish().await;
    for number in 0..33 {
        shop.write(&format!("key{number}"), 100).await;
    }
    rows.push(("publish 33 keys, 100 bytes each", shop.publish().await));
    rows.push(("fetch those 33", shop.fetch(0).await));
    rows.push(("fetch, nothing new", shop.fetch(1000).await));
    rows.push(("list the feeds, one", shop.list().await));
    rows
}

#[tokio::test]
async fn the_documentation_has_the_measured_costs_of_feeds() {
    let rows = measured(&Shop::open().await).await;
    assert_documented("storage.md", &rows);
}
