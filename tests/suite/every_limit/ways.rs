//! The ways into a server. An asker sends one request by one of them, again and again, and names what refuses it.

use std::cell::Cell;

use hyper::Method;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Error;
use uuid::Uuid;

use crate::bridges::phones::{Phone, register};
use crate::feeds::FeedClient;
use crate::harness::push_service::APP;
use crate::harness::{Agent, Answer, Launch, PushService, Sender, Server, Signer, Socket};

/// The routes of one kind, and what is no route. Those of a kind share their code, and so meet the same limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    Post,
    Put,
    Matrix,
    Upgrade,
    Page,
    Hello,
    Register,
    /// An ack, a nack, an unregister, a subscription to broadcasts or a ping.
    Frame,
    PhoneNew,
    PhoneRequest,
    PhoneChannel,
    FeedRead,
    /// A long poll or an event stream.
    FeedWait,
    FeedWrite,
    FeedChange,
    Receipts,
    Delete,
    /// An answer that depends on no sender.
    Fixed,
    Handshake,
    /// A connection to the port of `http_listen`.
    Plain,
}

/// How the addresses of a sender are written.
#[derive(Debug, Clone, Copy)]
pub(super) enum Family {
    V4,
    V6,
    /// IPv4, with and without the prefix of IPv6.
    Mapped,
}

/// A server that takes all requests behind a proxy.
pub(super) struct World {
    pub(super) server: Server,
    _bridge: PushService,
    /// The setting that it is started with.
    setting: &'static str,
    sender: Sender,
    /// Askers so far, each at a site of its own.
    askers: Cell<u16>,
}

/// One that asks. Nothing that counts for it counts for another.
pub(super) struct Asker<'a> {
    world: &'a World,
    way: Way,
    family: Family,
    number: u16,
    /// Of a push, in bytes.
    size: usize,
    asked: u16,
    signer: Signer,
    /// Endpoints of one agent, which is away.
    endpoints: Vec<String>,
    uaid: String,
    session: Option<Agent>,
    /// Connections that stay open.
    open: Vec<Socket>,
    phone: Option<Phone>,
    feed: FeedClient,
}

/// What a refused request names: its status or close code, its number, and its policy.
type Refusal = String;

impl Family {
    pub(super) const ALL: [Self; 3] = [Self::V4, Self::V6, Self::Mapped];

    /// An address of a site, as its request of this number shows it.
    fn address(self, site: u16, request: u16) -> String {
        let (site, host) = (site & 0xff, request & 0xff);
        match self {
            Self::V4 => format!("192.0.2.{site}"),
            Self::V6 => format!("2001:db8:0:{site:02x}{host:02x}::{:x}", request + 1),
            Self::Mapped if request.is_multiple_of(2) => format!("::ffff:198.51.100.{site}"),
            Self::Mapped => format!("198.51.100.{site}"),
        }
    }
}

impl World {
    pub(super) fn start(setting: &'static str, value: &str) -> Self {
        let bridge = PushService::start();
        let file = bridge.bridges_file();
        let launch = Launch::default().with(&[
            &format!("--{}={value}", setting.replace('_', "-")),
            &format!("--bridges-file={}", file.display()),
            "--trusted-proxies=127.0.0.1",
            "--simplepush=true",
            "--metrics-listen=127.0.0.1:0",
        ]);
        let (server, sender) = (Server::launch(launch), Sender::new());
        Self { server, _bridge: bridge, setting, sender, askers: Cell::new(0) }
    }

    /// An asker whose requests carry so many bytes.
    pub(super) async fn asker(&self, way: Way, family: Family, size: usize) -> Asker<'_> {
        let number = self.askers.replace(self.askers.get() + 1);
        let mut asker = Asker {
            world: self,
            way,
            family,
            number,
            size,
            asked: 0,
            signer: Signer::new(),
            endpoints: Vec::new(),
            uaid: String::new(),
            session: None,
            open: Vec::new(),
            phone: None,
            feed: FeedClient::at(&self.server, &format!("feed-{number}")),
        };
        match way {
            Way::Put => asker.subscribe_simple().await,
            Way::Post | Way::Matrix | Way::Hello => asker.subscribe().await,
            Way::PhoneRequest | Way::PhoneChannel => {
                let token = format!("token-of-{number}");
                let origin = self.server.origin();
                asker.phone = Some(register(&self.sender, &origin, "fcm", &token).await);
            }
            _ => {}
        }
        asker
    }
}

impl Asker<'_> {
    async fn subscribe(&mut self) {
        let mut agent = Agent::new(&self.world.server).await;
        for _ in 0..2 {
            self.endpoints.push(agent.register().await.endpoint);
        }
        self.uaid = agent.leave().await;
    }

    async fn subscribe_simple(&mut self) {
        let mut agent = crate::simplepush::SimpleAgent::connect(&self.world.server, None).await;
        for _ in 0..2 {
            self.endpoints.push(agent.register().await.1);
        }
        agent.leave().await;
    }

    /// Sends the request once more.
    pub(super) async fn ask(&mut self) -> Result<(), Refusal> {
        let address = self.family.address(self.number, self.asked);
        self.asked += 1;
        match self.way {
            Way::Post | Way::Put | Way::Matrix | Way::FeedWrite => self.send(&address).await,
            Way::Upgrade => {
                self.open.push(self.connect(&address).await?);
                Ok(())
            }
            Way::Hello => {
                let mut socket = self.connect(&address).await?;
                let hello = json!({"messageType": "hello", "uaid": self.uaid, "use_webpush": true});
                socket.send_json(&hello).await;
                let answer = socket.receive().await;
                answer.map(drop).map_err(|closed| format!("closed {}", closed.0.unwrap_or(0)))
            }
            Way::Register => self.register(&address).await,
            Way::Page | Way::PhoneNew | Way::PhoneRequest | Way::PhoneChannel => {
                self.request(&address).await
            }
            Way::Frame
            | Way::FeedRead
            | Way::FeedWait
            | Way::FeedChange
            | Way::Receipts
            | Way::Delete
            | Way::Fixed
            | Way::Handshake
            | Way::Plain => panic!("{:?} is driven elsewhere", self.way),
        }
    }

    /// A request with a body of the size, to both endpoints in turn.
    async fn send(&self, address: &str) -> Result<(), Refusal> {
        let (sender, origin) = (&self.world.sender, self.world.server.origin());
        let endpoint = self.endpoints.get(usize::from(self.asked) % 2).map_or("", String::as_str);
        let text = "x".repeat(self.size);
        let answer = match self.way {
            Way::Post => {
                let push = sender.post(endpoint).ttl(60).body(text).signed(&self.signer, &origin);
                // Each asks for a receipt subscription of its own.
                let asks = self.world.setting.starts_with("receipt_");
                let push = if asks { push.header("prefer", "respond-async") } else { push };
                push.header("x-forwarded-for", address).send().await
            }
            Way::Put => {
                let put = sender.request(Method::PUT, endpoint).signed(&self.signer, &origin);
                let form = format!("version={}&data={text}", self.asked);
                put.header("x-forwarded-for", address).raw_body(form).send().await
            }
            Way::Matrix => {
                let around = json!({"notification": {"event_id": ""}}).to_string().len();
                let event = "e".repeat(self.size.saturating_sub(around));
                let devices = json!([{"app_id": "a", "pushkey": endpoint}]);
                let body = json!({"notification": {"event_id": event, "devices": devices}});
                let post = sender.post(&format!("{origin}/_matrix/push/v1/notify"));
                let post = post.header("x-forwarded-for", address);
                post.raw_body(body.to_string()).send().await
            }
            _ => self.feed.request(Method::PUT, &format!("/{}", self.asked), &text).await,
        };
        named(&answer)
    }

    /// Registers a channel. Where new agents are limited, each is one.
    async fn register(&mut self, address: &str) -> Result<(), Refusal> {
        let is_new = self.world.setting == "address_new_agents_per_minute_max";
        if is_new || self.session.is_none() {
            let socket = self.connect(address).await?;
            self.session = Agent::hello(socket, None).await.ok();
        }
        let id = Uuid::new_v4().to_string();
        let register = json!({"messageType": "register", "channelID": id});
        let agent = self.session.as_mut().expect("the hello is answered");
        let answer = agent.request(&register).await.expect("the session continues");
        let reason = answer["reason"].as_str().unwrap_or_default();
        match answer["status"].as_u64() {
            Some(200) => Ok(()),
            status => Err(format!("register {} {reason}", status.unwrap_or(0))),
        }
    }

    /// A request of a browser or of a phone.
    async fn request(&self, address: &str) -> Result<(), Refusal> {
        let (sender, origin) = (&self.world.sender, self.world.server.origin());
        let of_phone = |method, below, body| {
            let phone = self.phone.as_ref().expect("it is registered");
            phone.request(sender, &origin, method, below, &body)
        };
        let request = match self.way {
            Way::Page => {
                let page = sender.request(Method::GET, &format!("{origin}/"));
                page.header("accept", "text/html")
            }
            Way::PhoneNew => {
                let token = format!("token-{}-{}", self.number, self.asked);
                let new = sender.post(&format!("{origin}/v1/fcm/{APP}/registration"));
                new.raw_body(json!({"token": token}).to_string())
            }
            Way::PhoneRequest => of_phone(Method::GET, "", Value::Null),
            _ => of_phone(Method::POST, "/subscription", json!({})),
        };
        named(&request.header("x-forwarded-for", address).send().await)
    }

    async fn connect(&self, address: &str) -> Result<Socket, Refusal> {
        let address = address.parse().expect("it is an address");
        match Socket::open_from(self.world.server.address(), address).await {
            Ok(socket) => Ok(socket),
            Err(Error::Http(refused)) => {
                let policy = refused.headers().get("ratelimit-policy");
                let policy = policy.and_then(|policy| policy.to_str().ok());
                Err(name(refused.status().as_u16(), "upgrade", policy))
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Whether an answer accepts its request, or what it names.
fn named(answer: &Answer) -> Result<(), Refusal> {
    if answer.status < 300 {
        return Ok(());
    }
    let json = answer.json();
    let number = match &json["errno"] {
        Value::Null => json["errcode"].as_str().unwrap_or_default().to_owned(),
        errno => errno.to_string(),
    };
    Err(name(answer.status, &number, answer.header("ratelimit-policy")))
}

fn name(status: u16, number: &str, policy: Option<&str>) -> Refusal {
    let policy = policy.and_then(|policy| policy.split('"').nth(1)).unwrap_or_default();
    format!("{status} {number} {policy}").trim_end().to_owned()
}
