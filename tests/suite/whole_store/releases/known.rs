//! What is known of the store of a release, and what must be true of it in each later version.

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::admin::access;
use crate::harness::{Agent, Sender, Server, Signer};
use crate::receipts::Receipts;
use crate::simplepush::SimpleAgent;
use crate::whole_store::dump::{Dump, files};

/// URLs are without their origin: each server of a test has another port.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Known {
    /// Seconds since 1970. Messages of the store have not expired then.
    pub(super) made_at_s: i64,
    pub(super) uaid: String,
    pub(super) endpoint: String,
    /// The bodies that wait for the agent, besides the withdrawn one.
    pub(super) waiting: Vec<String>,
    /// The location of a message to withdraw.
    pub(super) location: String,
    /// The receipt subscription of the last waiting message, and the location of that.
    pub(super) receipts: String,
    pub(super) receipt_of: String,
    /// An endpoint that takes only pushes of this key pair, as PKCS #8 in base64.
    pub(super) restricted_endpoint: String,
    pub(super) vapid_pkcs8: String,
    pub(super) simple_uaid: String,
    pub(super) simple_channel: String,
    pub(super) simple_endpoint: String,
    pub(super) simple_version: u64,
    /// The path of an access token, and the agent that connected with it.
    pub(super) access_path: String,
    pub(super) access_uaid: String,
    /// A token for the feed, which has a key with a value.
    pub(super) feed: String,
    pub(super) feed_token: String,
    pub(super) feed_key: String,
    pub(super) feed_value: String,
    /// The number of rows of each table of the data directory.
    pub(super) rows: BTreeMap<String, usize>,
}

/// A server lets messages, feeds and receipts end by itself.
const KEPT: [&str; 3] = ["router", "notifications", "channels"];

/// The numbers of rows of the tables that keep theirs.
pub(super) fn kept_rows(dump: &Dump) -> BTreeMap<String, usize> {
    KEPT.map(|table| (table.to_owned(), dump[table].len())).into()
}

/// Waits for a message with this body, among those of a new release that have not expired yet.
async fn arrives(agent: &mut Agent, body: &str) {
    while agent.take(1).await[0].body() != body {}
}

impl Known {
    /// Everything that users and senders of the release had works.
    pub(super) async fn is_served(&self, server: &Server) {
        let (origin, sender) = (server.origin(), Sender::new());
        let endpoint = format!("{origin}{}", self.endpoint);
        let inspected = server.run(&["inspect", &endpoint, "--json"]).await.succeeded();
        let inspected: Value = serde_json::from_str(&inspected).expect("it is JSON");
        let months = inspected["months"].as_array().expect("it has months");
        assert!(months.iter().any(|month| month["has_channel"] == true), "{inspected}");
        let withdrawn = sender.delete(&format!("{origin}{}", self.location)).await;
        assert_eq!(withdrawn.status, 204, "{withdrawn}");
        let mut agent = Agent::reconnect(server, &self.uaid).await;
        let taken = agent.take(self.waiting.len()).await;
        let bodies: Vec<_> = taken.iter().map(|message| message.body()).collect();
        assert_eq!(bodies, self.waiting);
        agent.ack_all(&taken).await;
        let mut receipts = Receipts::at(&format!("{origin}{}", self.receipts));
        let receipt = receipts.next().await;
        assert_eq!((receipt.len(), receipt[0].status.as_str()), (1, "delivered"), "{receipt:?}");
        assert!(receipt[0].message.ends_with(&self.receipt_of), "{receipt:?}");
        drop(agent);
        self.endpoints_work(server).await;
        let mut simple = SimpleAgent::connect(server, Some(&self.simple_uaid)).await;
        let update = json!({"channelID": self.simple_channel, "version": self.simple_version});
        simple.gets(update).await;
        self.feed_is_read(server).await;
    }

    /// Subscriptions keep their agents and URLs.
    pub(super) async fn endpoints_work(&self, server: &Server) {
        let (origin, sender) = (server.origin(), Sender::new());
        let mut agent = Agent::reconnect(server, &self.uaid).await;
        let pushed = sender.post(&format!("{origin}{}", self.endpoint)).ttl(60).body("direct");
        let (answer, ()) = tokio::join!(pushed.send(), arrives(&mut agent, "direct"));
        assert_eq!(answer.status, 201, "{answer}");
        let signer = Signer::from_pkcs8(&STANDARD.decode(&self.vapid_pkcs8).expect("it is base64"));
        let restricted = format!("{origin}{}", self.restricted_endpoint);
        let signed = |signer: &Signer| signer.authorization_at(server.now_s(), &origin);
        let push = |signer| {
            let post = sender.post(&restricted).ttl(60).body("signed");
            post.header("authorization", &signed(signer))
        };
        let stranger = Signer::new();
        let refused = push(&stranger).send().await;
        assert!(refused.status >= 400, "another key is accepted: {refused}");
        let (answer, ()) = tokio::join!(push(&signer).send(), arrives(&mut agent, "signed"));
        assert_eq!(answer.status, 201, "{answer}");
        let of_token = access::hello(server, &self.access_path, Some(&self.access_uaid)).await;
        assert_eq!(of_token.uaid(), self.access_uaid);
        let simple = sender.request(Method::PUT, &format!("{origin}{}", self.simple_endpoint));
        let version = format!("version={}", self.simple_version);
        let answer = simple.raw_body(version).send().await;
        assert!(answer.status < 300, "{answer}");
    }

    async fn feed_is_read(&self, server: &Server) {
        let url = format!("{}/v1/feeds/{}", server.origin(), self.feed);
        let sender = Sender::new();
        let get = sender.request(Method::GET, &url);
        let page = get.header("authorization", &format!("Bearer {}", self.feed_token));
        let page: Value = page.send().await.json();
        let updates = page["updates"].as_array().expect("a page has updates");
        let update = updates.iter().find(|update| update["key"] == *self.feed_key);
        assert_eq!(update.map(|update| &update["value"]), Some(&json!(self.feed_value)), "{page}");
    }

    /// A server of today had the data directory open.
    pub(super) fn has_kept_its_rows(&self, dir: &Path) {
        assert_eq!(kept_rows(&files(dir)), self.rows);
    }
}
