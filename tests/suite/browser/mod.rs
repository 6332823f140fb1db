//! A real Firefox, a page that subscribes, and a third-party sender.

mod admin_page;
mod bad_states;
mod dev_view;
mod firefox;
mod log;
mod marionette;
mod page_check;
mod profile;
mod relay;
mod sender;
mod site;
mod turn;
mod web_page;

use std::collections::BTreeSet;
use std::fs;

use actix_web::rt::System;
use serde_json::{Value, json};
use state_machine::{RouterRecord, Uaid};
use storage::Store;
use storage_sqlite::{Embedded, EmbeddedOptions};

use crate::harness::{Authority, Launch, Server};
use crate::rollover::Calendar;
use firefox::Firefox;
use profile::Profile;
use relay::TcpRelay;
use sender::{Answer, Push, Sender};
use site::Site;
pub(crate) use turn::Turn;

/// The largest message that a push service must accept is 4096 bytes (RFC 8030 §7.2), of which
/// `aes128gcm` takes 103 (RFC 8291 §4).
const LARGEST_MESSAGE_BYTES: usize = 4096 - 103;

#[test]
fn firefox_receives_every_kind_of_message_that_pywebpush_sends() {
    let mut user = BrowserUser::subscribed();
    let largest = "k".repeat(LARGEST_MESSAGE_BYTES);
    let text = Push::of("Salvete! 🏛 Kalendae sunt.");
    let sent = [
        text,
        Push { text: Some(&largest), ..text },
        Push { text: None, ..text },
        Push { text: Some("in the old encoding"), encoding: "aesgcm", ..text },
        Push { text: Some("signed the old way too"), encoding: "aesgcm", scheme: "WebPush" },
    ];
    user.accepted(&sent);
    assert_eq!(user.site.next_messages(5), sent.map(|push| push.text.map(str::to_owned)));
    assert_eq!(user.firefox().versions().len(), 5);
}

#[test]
fn messages_sent_while_firefox_was_closed_arrive_once_and_in_order() {
    let mut user = BrowserUser::subscribed();
    user.close_firefox();
    user.pywebpush(&["one", "two", "three"]);
    user.kalends("four");
    user.pywebpush(&["five"]);
    user.kalends("six");

    user.start_firefox();
    // Firefox decrypts several messages at once and does not always keep their order. Versions
    // increase from push to push.
    let received: BTreeSet<_> = user.next_messages(6).into_iter().collect();
    assert_eq!(received, ["one", "two", "three", "four", "five", "six"].map(str::to_owned).into());
    let versions = user.firefox().versions();
    assert_eq!(versions.len(), 6);
    assert!(versions.is_sorted(), "{versions:?}");
    assert_eq!(user.subscription_now(), user.subscription);

    user.assert_nothing_pending();
}

#[test]
fn firefox_reconnects_after_the_server_was_stopped() {
    comes_back_after(|server| assert!(server.terminate().success()));
}

#[test]
fn firefox_reconnects_after_the_server_was_killed() {
    comes_back_after(Server::kill);
}

fn comes_back_after(end: impl FnOnce(&mut Server)) {
    let mut user = BrowserUser::subscribed();
    assert_eq!(user.firefox().hello_count(), 1);
    end(&mut user.server);
    user.server.restart();
    user.kalends("sent while Firefox waits before it connects");
    assert_eq!(user.firefox().hello_count(), 1, "Firefox came back too soon for this test");
    assert_eq!(user.next_messages(1), ["sent while Firefox waits before it connects"]);
    user.pywebpush(&["sent when it is back"]);
    assert_eq!(user.next_messages(1), ["sent when it is back"]);
    assert_eq!((user.firefox().hello_count(), user.firefox().versions().len()), (2, 2));
    assert_eq!(user.subscription_now(), user.subscription);
}

#[test]
fn a_message_whose_ack_was_lost_is_redelivered_and_firefox_drops_it() {
    let server = Server::start();
    let relay = TcpRelay::to(server.address());
    let mut user = BrowserUser::subscribed_at(server, &relay.socket_url());
    relay.discard();
    user.kalends("once");
    assert_eq!(user.next_messages(1), ["once"]);
    relay.cut();
    user.kalends("while it is away");
    assert_eq!(user.next_messages(1), ["while it is away"]);
    assert_eq!((user.firefox().hello_count(), user.firefox().versions().len()), (2, 3));
    user.assert_nothing_pending();
}

#[test]
fn firefox_and_its_senders_use_a_server_with_tls() {
    let authority = Authority::new();
    let server = authority.server(&[]);
    let push_url = format!("wss://{}/", server.address());
    let mut user = BrowserUser::visiting(server, &push_url);
    user.sender.trust(authority.path("ca.pem"));
    let certificate = fs::read_to_string(authority.path("ca.pem")).expect("the test wrote it");
    user.firefox().trust(&certificate);
    user.subscribe();
    let largest = "k".repeat(LARGEST_MESSAGE_BYTES);
    user.pywebpush(&["one", &largest]);
    assert_eq!(user.next_messages(2), ["one", &largest]);
    user.close_firefox();
    user.kalends("while it is closed");
    user.start_firefox();
    assert_eq!(user.next_messages(1), ["while it is closed"]);
    user.assert_nothing_pending();
}

#[test]
fn an_unsubscribed_endpoint_is_gone_and_a_new_subscription_works() {
    let mut user = BrowserUser::subscribed();
    assert_eq!(user.firefox().run("return unsubscribe();", &json!([])), true);
    let answers = user.sender.pywebpush(&user.subscription, &[Push::of("too late")]);
    assert!(matches!(answers[..], [Answer { status: 410, .. }]), "{answers:?}");
    user.subscribe();
    user.pywebpush(&["in time"]);
    assert_eq!(user.next_messages(1), ["in time"]);
}

/// Firefox moves with the month like every user agent, and neither it nor a page notices.
///
/// The pushes are not signed: the server's clock is days ahead, and signatures are valid for hours.
#[test]
fn firefox_moves_to_december_with_messages_sent_while_it_was_closed() {
    let calendar = Calendar::next_november();
    let server = Server::launch(Launch::default().with(&calendar.in_november()));
    let push_url = server.socket_url();
    let mut user = BrowserUser::subscribed_without_key(server, &push_url);
    let uaid = user.firefox().uaid();
    user.close_firefox();
    user.unsigned("sent in November");
    assert!(user.server.terminate().success());

    user.server.restart_as(Launch::default().with(&calendar.in_december()));
    user.start_firefox();
    assert_eq!(user.next_messages(1), ["sent in November"]);
    assert_eq!(user.subscription_now(), user.subscription);
    user.unsigned("sent in December");
    assert_eq!(user.next_messages(1), ["sent in December"]);
    assert_eq!((user.firefox().hello_count(), user.firefox().versions().len()), (1, 2));
    assert_eq!(user.firefox().uaid(), uaid);

    user.close_firefox();
    assert!(user.server.terminate().success());
    let record = user.record(&uaid);
    assert_eq!((record.curmonth, record.oldmonth), (calendar.december, None));
}

/// Firefox requests this broadcast about 19 s after its start.
const MONITOR_CHANGES: &str = "remote-settings/monitor_changes";

#[test]
fn firefox_receives_missed_and_live_broadcast_versions() {
    let spread = ["--broadcast-fanout-ms", "500"];
    let server = Server::launch(Launch::default().with(&spread));
    let put = |version: &str| {
        let words = ["broadcast", "put", MONITOR_CHANGES, version];
        System::new().block_on(server.run(&words)).succeeded();
    };
    // Firefox stores versions with quotes.
    let [missed, changed] = ["\"1789999999998\"", "\"1789999999999\""];
    put(missed);
    let push_url = server.socket_url();
    let profile = Profile::new(&push_url);
    let _turn = Turn::wait();
    let mut firefox = Firefox::start(profile.path());
    assert_eq!(firefox.next_broadcast_version(MONITOR_CHANGES), missed);
    put(changed);
    assert_eq!(firefox.next_broadcast_version(MONITOR_CHANGES), changed);
    firefox.wait_for_broadcast_delivery(MONITOR_CHANGES, changed);
}

/// A browser, the page in it, and the application server of that page.
///
/// Fields are dropped in this order.
struct BrowserUser {
    firefox: Option<Firefox>,
    profile: Profile,
    site: Site,
    server: Server,
    sender: Sender,
    subscription: Value,
    _turn: Turn,
}

impl BrowserUser {
    /// Starts a user and subscribes the page.
    fn subscribed() -> Self {
        let server = Server::start();
        let push_url = server.socket_url();
        Self::subscribed_at(server, &push_url)
    }

    /// Like [`subscribed`](Self::subscribed), with `push_url` as Firefox's push service.
    fn subscribed_at(server: Server, push_url: &str) -> Self {
        let mut user = Self::visiting(server, push_url);
        user.subscribe();
        user
    }

    /// Like [`subscribed_at`](Self::subscribed_at), with a subscription without a VAPID key.
    fn subscribed_without_key(server: Server, push_url: &str) -> Self {
        let mut user = Self::visiting(server, push_url);
        user.subscribe_for(None);
        user
    }

    fn visiting(server: Server, push_url: &str) -> Self {
        let turn = Turn::wait();
        let mut user = Self {
            firefox: None,
            profile: Profile::new(push_url),
            site: Site::start(),
            server,
            sender: Sender::new(),
            subscription: Value::Null,
            _turn: turn,
        };
        user.start_firefox();
        user.visit();
        user
    }

    fn subscribe(&mut self) {
        let key = self.sender.public_key().to_owned();
        self.subscribe_for(Some(&key));
    }

    fn subscribe_for(&mut self, key: Option<&str>) {
        let key = json!([key]);
        self.subscription = self.firefox().run("return subscribe(arguments[0]);", &key);
        let endpoint = self.subscription["endpoint"].as_str().expect("a subscription has one");
        let ours = format!("://{}/wpush/", self.server.address());
        assert!(endpoint.contains(&ours), "{endpoint}");
    }

    /// The subscription, as the page reads it from the browser.
    fn subscription_now(&mut self) -> Value {
        self.visit();
        self.firefox().run("return subscription();", &json!([]))
    }

    fn start_firefox(&mut self) {
        self.firefox = Some(Firefox::start(self.profile.path()));
    }

    fn close_firefox(&mut self) {
        self.firefox.take().expect("Firefox runs").quit();
    }

    /// Reconnects, and checks that the server sends nothing that was acknowledged before.
    fn assert_nothing_pending(&mut self) {
        self.close_firefox();
        self.start_firefox();
        self.kalends("at last");
        assert_eq!(self.next_messages(1), ["at last"]);
        assert_eq!((self.firefox().hello_count(), self.firefox().versions().len()), (1, 1));
    }

    fn visit(&mut self) {
        let url = self.site.url().to_owned();
        self.firefox().open(&url);
    }

    fn firefox(&mut self) -> &mut Firefox {
        self.firefox.as_mut().expect("Firefox runs")
    }

    /// Sends a message with `kalends push`.
    fn kalends(&self, text: &str) {
        self.sender.kalends(&self.subscription, text);
    }

    /// Sends a message with `kalends push` and without a signature.
    fn unsigned(&self, text: &str) {
        self.sender.kalends_unsigned(&self.subscription, text);
    }

    /// The router record of a user agent; the server must be stopped.
    fn record(&self, uaid: &str) -> RouterRecord {
        let store = Embedded::open(&self.server.data_dir(), &EmbeddedOptions::new(4096));
        let store = store.expect("the server has let go of its files");
        let uaid = Uaid::parse(uaid).expect("the server sends a valid uaid");
        let record = System::new().block_on(store.record(uaid));
        record.expect("the store answers").expect("a user record is never lost")
    }

    /// Sends messages with pywebpush.
    fn pywebpush(&self, texts: &[&str]) {
        let pushes: Vec<_> = texts.iter().map(|text| Push::of(text)).collect();
        self.accepted(&pushes);
    }

    fn accepted(&self, pushes: &[Push<'_>]) {
        for Answer { status, body } in self.sender.pywebpush(&self.subscription, pushes) {
            assert_eq!(status, 201, "{body}");
        }
    }

    /// Waits for the next messages of the page's service worker.
    fn next_messages(&self, count: usize) -> Vec<String> {
        let messages = self.site.next_messages(count).into_iter();
        messages.map(|text| text.expect("the message has a payload")).collect()
    }
}
