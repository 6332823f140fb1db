//! A proxy in front of a DynamoDB server: counts what is asked of it and what that costs, and makes faults.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use actix_web::dev::ServerHandle;
use actix_web::http::StatusCode;
use actix_web::rt::System;
use actix_web::web::{self, Bytes, Data, PayloadConfig};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};
use awc::Client;
use futures_util::stream::once;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use super::bill::Bill;
use super::wait::until;

/// DynamoDB's own limit of a request (16 MB).
const BODY_BYTES_MAX: usize = 16 << 20;

/// The longest that the server behind may take.
const ANSWER_WAIT: Duration = Duration::from_secs(60);

/// Servers that have asked nothing for so long have done what they do by themselves.
const AT_REST_FOR: Duration = Duration::from_millis(500);

/// How long that may take to come.
const REST_WITHIN: Duration = Duration::from_secs(15);

/// The media type of DynamoDB's answers.
const JSON: &str = "application/x-amz-json-1.0";

/// Headers of a request that are passed on. The body changes, so its length and its digest do not stay.
const PASSED_ON: [&str; 4] = ["content-type", "x-amz-target", "authorization", "x-amz-date"];

/// A running proxy. It ends when this is dropped.
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: ServerHandle,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    behind: String,
    rules: Mutex<Vec<Rule>>,
    bill: Mutex<Bill>,
    /// How often each fault was made, by its name.
    made: Mutex<BTreeMap<&'static str, usize>>,
    /// How many requests are held, and how often all were let go.
    held: watch::Sender<usize>,
    let_go: watch::Sender<usize>,
}

/// What happens to some requests.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    operation: &'static str,
    table: &'static str,
    after: usize,
    every: usize,
    /// How many it fitted that came after the first `after`.
    fitted: usize,
    times: usize,
    fault: Fault,
}

/// A fault.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// Throughput is exceeded; nothing is done.
    Throttled,
    /// DynamoDB's error of this name, with this status; nothing is done.
    Error(u16, &'static str),
    /// The connection ends before anything is done.
    CutBefore,
    /// It is said to be done, and is not.
    Forgotten,
    /// It is done, and the connection ends before anybody hears of it.
    CutAfter,
    /// The request waits until all are let go.
    Held,
    /// The request waits until all are let go; then its connection ends, and nothing was done.
    Swallowed,
    /// The request is passed on after so long.
    Slow(Duration),
    /// A part of the answer, by its JSON pointer, says something else.
    Says(&'static str, Value),
}

impl Rule {
    /// A fault of an operation, as DynamoDB calls it; of all of them where it is empty. It goes on until all is
    /// healed.
    pub(crate) fn on(operation: &'static str, fault: Fault) -> Self {
        Self { operation, table: "", after: 0, every: 1, fitted: 0, times: usize::MAX, fault }
    }

    /// Only for tables with this in their names.
    pub(crate) fn table(self, table: &'static str) -> Self {
        Self { table, ..self }
    }

    /// Only after so many requests went well.
    pub(crate) fn after(self, after: usize) -> Self {
        Self { after, ..self }
    }

    /// Only each so-manieth request: 3 is one in three.
    pub(crate) fn every(self, every: usize) -> Self {
        Self { every, ..self }
    }

    /// Only so often.
    pub(crate) fn times(self, times: usize) -> Self {
        Self { times, ..self }
    }
}

impl Fault {
    /// What a report calls it.
    fn name(&self) -> &'static str {
        match self {
            Self::Throttled => "throttled",
            Self::Error(..) => "failed",
            Self::CutBefore => "cut off",
            Self::Forgotten => "forgotten",
            Self::CutAfter => "done, answer lost",
            Self::Held => "held",
            Self::Swallowed => "swallowed",
            Self::Slow(_) => "slow",
            Self::Says(..) => "answer changed",
        }
    }
}

impl Proxy {
    /// A proxy on a free port, in a thread of its own, in front of the server at this URL.
    pub(crate) fn to(url: &str) -> Self {
        let shared = Arc::new(Shared {
            behind: url.to_owned(),
            rules: Mutex::default(),
            bill: Mutex::default(),
            made: Mutex::default(),
            held: watch::Sender::default(),
            let_go: watch::Sender::default(),
        });
        let (tell, told) = channel();
        let data = Data::from(Arc::clone(&shared));
        let thread = thread::spawn(move || {
            let served = System::new().block_on(async move {
                let app = move || {
                    App::new()
                        .app_data(data.clone())
                        .app_data(Data::new(Client::builder().timeout(ANSWER_WAIT).finish()))
                        .app_data(PayloadConfig::new(BODY_BYTES_MAX))
                        .default_service(web::to(pass_on))
                };
                let server = HttpServer::new(app).workers(1).disable_signals();
                let server = server.bind(("127.0.0.1", 0))?;
                let address = server.addrs()[0];
                let server = server.run();
                tell.send((address, server.handle())).expect("somebody waits for it");
                server.await
            });
            io::Result::expect(served, "the proxy runs until it is told to stop");
        });
        let (address, server) = told.recv().expect("the proxy can be started");
        Self { address, shared, server, thread: Some(thread) }
    }

    /// What a client takes as its endpoint.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Adds a rule. Where several fit, the first one added holds.
    pub(crate) fn rule(&self, rule: Rule) {
        lock(&self.shared.rules).push(rule);
    }

    /// Forgets all rules and lets go of what is held.
    pub(crate) fn heal(&self) {
        lock(&self.shared.rules).clear();
        self.shared.let_go.send_modify(|times| *times += 1);
    }

    /// Waits until so many requests are held.
    pub(crate) async fn held(&self, count: usize) {
        let mut held = self.shared.held.subscribe();
        held.wait_for(|now| *now >= count).await.expect("the proxy is there");
    }

    /// How often each fault was made so far, by its name.
    pub(crate) fn faults(&self) -> BTreeMap<&'static str, usize> {
        lock(&self.shared.made).clone()
    }

    /// What was asked since this was last called.
    pub(crate) fn bill(&self) -> Bill {
        std::mem::take(&mut lock(&self.shared.bill))
    }

    /// Waits until nothing is asked any more, and forgets what was.
    pub(crate) async fn comes_to_rest(&self) {
        let (mut bill, mut since) = (self.bill_so_far(), Instant::now());
        until(REST_WITHIN, "nothing is asked of the store", async || {
            let now = self.bill_so_far();
            if now != bill {
                (bill, since) = (now, Instant::now());
            }
            since.elapsed() >= AT_REST_FOR
        })
        .await;
        self.bill();
    }

    /// What was asked so far, which stays on the bill.
    pub(crate) fn bill_so_far(&self) -> Bill {
        lock(&self.shared.bill).clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.heal();
        // Orders are given when they are called; nobody needs to wait for the answer.
        drop(self.server.stop(false));
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(matches!(ended, Some(Ok(()))) || thread::panicking(), "the proxy panicked");
    }
}

/// One request.
async fn pass_on(
    request: HttpRequest,
    body: Bytes,
    shared: Data<Shared>,
    client: Data<Client>,
) -> HttpResponse {
    let operation = operation(&request);
    let mut asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    let fault = shared.fault(&operation, &asked);
    if let Some(fault) = &fault
        && let Some(refusal) = shared.refusal(fault).await
    {
        lock(&shared.bill).answered(&operation, &Value::Null);
        return refusal;
    }
    ask_for_the_bill(&operation, &mut asked);
    let Some((status, mut answer)) = shared.ask(&client, &request, &asked).await else {
        return cut();
    };
    lock(&shared.bill).answered(&operation, &answer);
    match fault {
        Some(Fault::CutAfter) => return cut(),
        Some(Fault::Says(pointer, value)) => *find(&mut answer, pointer) = value,
        _ => {}
    }
    let mut response = HttpResponse::build(status);
    response.content_type(JSON).body(answer.to_string())
}

impl Shared {
    /// The fault that a rule has for this request.
    fn fault(&self, operation: &str, asked: &Value) -> Option<Fault> {
        let mut rules = lock(&self.rules);
        let table = asked["TableName"].as_str().unwrap_or_default();
        let fits = |rule: &Rule| {
            (rule.operation.is_empty() || rule.operation == operation) && table.contains(rule.table)
        };
        let at = rules.iter().position(fits)?;
        if rules[at].after > 0 {
            rules[at].after -= 1;
            return None;
        }
        rules[at].fitted += 1;
        if !rules[at].fitted.is_multiple_of(rules[at].every) {
            return None;
        }
        let fault = rules[at].fault.clone();
        *lock(&self.made).entry(fault.name()).or_default() += 1;
        rules[at].times -= 1;
        if rules[at].times == 0 {
            rules.remove(at);
        }
        Some(fault)
    }

    /// What is answered in place of the server behind, if anything is.
    async fn refusal(&self, fault: &Fault) -> Option<HttpResponse> {
        match *fault {
            Fault::Throttled => Some(refuse(400, "ProvisionedThroughputExceededException")),
            Fault::Error(status, name) => Some(refuse(status, name)),
            Fault::CutBefore => Some(cut()),
            Fault::Forgotten => Some(HttpResponse::Ok().content_type(JSON).body("{}")),
            Fault::Held => {
                self.hold().await;
                None
            }
            Fault::Swallowed => {
                self.hold().await;
                Some(cut())
            }
            Fault::Slow(wait) => {
                sleep(wait).await;
                None
            }
            Fault::CutAfter | Fault::Says(..) => None,
        }
    }

    /// Waits with all others that are held.
    async fn hold(&self) {
        let mut let_go = self.let_go.subscribe();
        self.held.send_modify(|held| *held += 1);
        // Where the proxy ends there is nobody left who waits.
        let _ = let_go.changed().await;
        self.held.send_modify(|held| *held -= 1);
    }

    /// Asks the server behind; none where it is not there.
    async fn ask(
        &self,
        client: &Client,
        request: &HttpRequest,
        asked: &Value,
    ) -> Option<(StatusCode, Value)> {
        let mut passed = client.post(&self.behind).no_decompress();
        for name in PASSED_ON {
            if let Some(value) = request.headers().get(name) {
                passed = passed.insert_header((name, value));
            }
        }
        let mut response = passed.send_body(asked.to_string()).await.ok()?;
        let body = response.body().limit(BODY_BYTES_MAX).await.ok()?;
        Some((response.status(), serde_json::from_slice(&body).ok()?))
    }
}

/// `DynamoDB_20120810.GetItem` is a `GetItem`.
fn operation(request: &HttpRequest) -> String {
    let target = request.headers().get("x-amz-target").and_then(|target| target.to_str().ok());
    target.and_then(|target| target.split('.').nth(1)).unwrap_or_default().to_owned()
}

/// Has the server say what a request costs, for the table and each index.
fn ask_for_the_bill(operation: &str, asked: &mut Value) {
    if Bill::has_a_price(operation) {
        asked["ReturnConsumedCapacity"] = "INDEXES".into();
    }
}

fn refuse(status: u16, name: &str) -> HttpResponse {
    let status = StatusCode::from_u16(status).expect("tests know what a status is");
    let kind = format!("com.amazonaws.dynamodb.v20120810#{name}");
    let body = json!({"__type": kind, "message": "the test has it so"});
    let mut response = HttpResponse::build(status);
    response.content_type(JSON).body(body.to_string())
}

/// A body that fails has its connection ended.
fn cut() -> HttpResponse {
    let failed = once(async { Err::<Bytes, _>(io::Error::from(io::ErrorKind::ConnectionReset)) });
    HttpResponse::Ok().no_chunking(1).streaming(Box::pin(failed))
}

fn find<'a>(answer: &'a mut Value, pointer: &str) -> &'a mut Value {
    let text = answer.to_string();
    answer.pointer_mut(pointer).unwrap_or_else(|| panic!("no {pointer} in {text}"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
