//! A proxy in front of a DynamoDB server: it counts requests and capacity units, and injects
//! faults.

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
use futures_util::stream::once;
use hyper::Method;
use hyper::header::HeaderValue;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use super::http_client::HttpClient;
use super::usage::CapacityUsage;
use super::wait::{AT_ONCE, until};

/// DynamoDB's limit for the size of a request (16 MB).
const BODY_BYTES_MAX: usize = 16 << 20;

/// Timeout of a request to the upstream server.
const ANSWER_WAIT: Duration = Duration::from_secs(60);

/// The nodes are idle when the proxy received no request for this long.
const IDLE_FOR: Duration = Duration::from_millis(500);

/// The media type of DynamoDB's answers.
const JSON: &str = "application/x-amz-json-1.0";

/// The request headers that the proxy forwards. It changes the body, so length and digest are not
/// valid any more.
const FORWARDED_HEADERS: [&str; 4] =
    ["content-type", "x-amz-target", "authorization", "x-amz-date"];

/// A running proxy, which stops when this is dropped.
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: ServerHandle,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    upstream: String,
    rules: Mutex<Vec<Rule>>,
    usage: Mutex<CapacityUsage>,
    /// How often each fault was injected, by its name.
    injected: Mutex<BTreeMap<&'static str, usize>>,
    /// The number of held requests, and how often they were released.
    held: watch::Sender<usize>,
    released: watch::Sender<usize>,
}

/// Selects requests and names the fault to inject.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    operation: &'static str,
    table: &'static str,
    after: usize,
    every: usize,
    /// The number of matching requests after the first `after`.
    fitted: usize,
    times: usize,
    fault: Fault,
}

/// What happens to a request that matches a rule.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// Answers that the throughput is exceeded, without executing the request.
    Throttled,
    /// Answers with this status and DynamoDB's error of this name, without executing the request.
    Error(u16, &'static str),
    /// Closes the connection without executing the request.
    CutBefore,
    /// Answers with success without executing the request.
    NotExecuted,
    /// Executes the request and closes the connection without an answer.
    CutAfter,
    /// Holds the request until all held requests are released, and then executes it.
    Held,
    /// Holds the request until all are released, and then closes the connection without executing
    /// it.
    HeldThenCut,
    /// Executes the request after this delay.
    Slow(Duration),
    /// Executes the request and replaces the value at a JSON pointer of the answer.
    ReplaceAnswer(&'static str, Value),
}

impl Rule {
    /// Injects the fault into requests of this DynamoDB operation, or of all operations if it is
    /// empty, until the rules are cleared.
    pub(crate) fn on(operation: &'static str, fault: Fault) -> Self {
        Self { operation, table: "", after: 0, every: 1, fitted: 0, times: usize::MAX, fault }
    }

    /// Restricts the rule to tables whose name contains this text.
    pub(crate) fn table(self, table: &'static str) -> Self {
        Self { table, ..self }
    }

    /// Lets the first `after` matching requests pass.
    pub(crate) fn after(self, after: usize) -> Self {
        Self { after, ..self }
    }

    /// Injects the fault into one of `every` matching requests.
    pub(crate) fn every(self, every: usize) -> Self {
        Self { every, ..self }
    }

    /// Ends the rule after this number of faults.
    pub(crate) fn times(self, times: usize) -> Self {
        Self { times, ..self }
    }
}

impl Fault {
    /// The name of the fault in a report.
    fn name(&self) -> &'static str {
        match self {
            Self::Throttled => "throttled",
            Self::Error(..) => "failed",
            Self::CutBefore => "cut off",
            Self::NotExecuted => "confirmed, not done",
            Self::CutAfter => "done, answer lost",
            Self::Held => "held",
            Self::HeldThenCut => "swallowed",
            Self::Slow(_) => "slow",
            Self::ReplaceAnswer(..) => "answer changed",
        }
    }
}

impl Proxy {
    /// Starts a proxy in its own thread on a free port, in front of the server at this URL.
    pub(crate) fn to(url: &str) -> Self {
        let shared = Arc::new(Shared {
            upstream: url.to_owned(),
            rules: Mutex::default(),
            usage: Mutex::default(),
            injected: Mutex::default(),
            held: watch::Sender::default(),
            released: watch::Sender::default(),
        });
        let (sender, receiver) = channel();
        let data = Data::from(Arc::clone(&shared));
        let thread = thread::spawn(move || {
            let served = System::new().block_on(async move {
                let app = move || {
                    App::new()
                        .app_data(data.clone())
                        .app_data(Data::new(HttpClient::new()))
                        .app_data(PayloadConfig::new(BODY_BYTES_MAX))
                        .default_service(web::to(forward))
                };
                let server = HttpServer::new(app).workers(1).disable_signals();
                let server = server.bind(("127.0.0.1", 0))?;
                let address = server.addrs()[0];
                let server = server.run();
                sender.send((address, server.handle())).expect("the constructor waits for it");
                server.await
            });
            io::Result::expect(served, "the proxy runs until it is stopped");
        });
        let (address, server) = receiver.recv().expect("the proxy can be started");
        Self { address, shared, server, thread: Some(thread) }
    }

    /// The endpoint URL for DynamoDB clients.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Adds a rule. Of several matching rules, the one that was added first applies.
    pub(crate) fn rule(&self, rule: Rule) {
        lock(&self.shared.rules).push(rule);
    }

    /// Removes all rules and releases held requests.
    pub(crate) fn clear_rules(&self) {
        lock(&self.shared.rules).clear();
        self.shared.released.send_modify(|times| *times += 1);
    }

    /// Waits until this number of requests is held.
    pub(crate) async fn held(&self, count: usize) {
        let mut held = self.shared.held.subscribe();
        held.wait_for(|now| *now >= count).await.expect("the proxy is there");
    }

    /// How often each fault was injected so far, by its name.
    pub(crate) fn faults(&self) -> BTreeMap<&'static str, usize> {
        lock(&self.shared.injected).clone()
    }

    /// Returns the usage since the last call and resets it.
    pub(crate) fn take_usage(&self) -> CapacityUsage {
        std::mem::take(&mut lock(&self.shared.usage))
    }

    /// Waits until no request arrives any more, and resets the usage.
    pub(crate) async fn wait_until_idle(&self) {
        let (mut usage, mut since) = (self.usage(), Instant::now());
        until(AT_ONCE, "nothing is asked of the store", async || {
            let now = self.usage();
            if now != usage {
                (usage, since) = (now, Instant::now());
            }
            since.elapsed() >= IDLE_FOR
        })
        .await;
        self.take_usage();
    }

    /// The usage since the last reset.
    pub(crate) fn usage(&self) -> CapacityUsage {
        lock(&self.shared.usage).clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.clear_rules();
        // The server stops even if the returned future is dropped.
        drop(self.server.stop(false));
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(matches!(ended, Some(Ok(()))) || thread::panicking(), "the proxy panicked");
    }
}

/// Forwards a request, or injects the fault of the first matching rule.
async fn forward(
    request: HttpRequest,
    body: Bytes,
    shared: Data<Shared>,
    client: Data<HttpClient>,
) -> HttpResponse {
    let operation = operation(&request);
    let mut body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let fault = shared.fault(&operation, &body);
    if let Some(fault) = &fault
        && let Some(refusal) = shared.refusal(fault).await
    {
        lock(&shared.usage).answered(&operation, &Value::Null);
        return refusal;
    }
    request_consumed_capacity(&operation, &mut body);
    let Some((status, mut answer)) = shared.send(&client, &request, &body).await else {
        return cut();
    };
    lock(&shared.usage).answered(&operation, &answer);
    match fault {
        Some(Fault::CutAfter) => return cut(),
        Some(Fault::ReplaceAnswer(pointer, value)) => *find(&mut answer, pointer) = value,
        _ => {}
    }
    let mut response = HttpResponse::build(status);
    response.content_type(JSON).body(answer.to_string())
}

impl Shared {
    /// The fault of the first matching rule, whose counters it updates.
    fn fault(&self, operation: &str, body: &Value) -> Option<Fault> {
        let mut rules = lock(&self.rules);
        let table = body["TableName"].as_str().unwrap_or_default();
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
        *lock(&self.injected).entry(fault.name()).or_default() += 1;
        rules[at].times -= 1;
        if rules[at].times == 0 {
            rules.remove(at);
        }
        Some(fault)
    }

    /// The answer that replaces the upstream server's, if the fault has one.
    async fn refusal(&self, fault: &Fault) -> Option<HttpResponse> {
        match *fault {
            Fault::Throttled => Some(refuse(400, "ProvisionedThroughputExceededException")),
            Fault::Error(status, name) => Some(refuse(status, name)),
            Fault::CutBefore => Some(cut()),
            Fault::NotExecuted => Some(HttpResponse::Ok().content_type(JSON).body("{}")),
            Fault::Held => {
                self.hold().await;
                None
            }
            Fault::HeldThenCut => {
                self.hold().await;
                Some(cut())
            }
            Fault::Slow(wait) => {
                sleep(wait).await;
                None
            }
            Fault::CutAfter | Fault::ReplaceAnswer(..) => None,
        }
    }

    /// Waits until all held requests are released.
    async fn hold(&self) {
        let mut released = self.released.subscribe();
        self.held.send_modify(|held| *held += 1);
        // Fails only when the proxy stops, which ends the wait as well.
        let _ = released.changed().await;
        self.held.send_modify(|held| *held -= 1);
    }

    /// Sends the request upstream; `None` if the server does not answer.
    async fn send(
        &self,
        client: &HttpClient,
        request: &HttpRequest,
        body: &Value,
    ) -> Option<(StatusCode, Value)> {
        let headers = FORWARDED_HEADERS.iter().filter_map(|name| {
            let value = request.headers().get(*name)?.as_bytes();
            Some((*name, HeaderValue::from_bytes(value).ok()?))
        });
        let (headers, body) = (headers.collect::<Vec<_>>(), body.to_string());
        let sent = client.send(Method::POST, &self.upstream, &headers, body, ANSWER_WAIT).await;
        let (status, _headers, body) = sent.ok()?;
        let status = StatusCode::from_u16(status.as_u16()).expect("it is a status");
        Some((status, serde_json::from_slice(&body).ok()?))
    }
}

/// `DynamoDB_20120810.GetItem` is a `GetItem`.
fn operation(request: &HttpRequest) -> String {
    let target = request.headers().get("x-amz-target").and_then(|target| target.to_str().ok());
    target.and_then(|target| target.split('.').nth(1)).unwrap_or_default().to_owned()
}

/// Requests the consumed capacity of the table and of each index.
fn request_consumed_capacity(operation: &str, body: &mut Value) {
    if CapacityUsage::is_billed(operation) {
        body["ReturnConsumedCapacity"] = "INDEXES".into();
    }
}

fn refuse(status: u16, name: &str) -> HttpResponse {
    let status = StatusCode::from_u16(status).expect("tests know what a status is");
    let kind = format!("com.amazonaws.dynamodb.v20120810#{name}");
    let body = json!({"__type": kind, "message": "injected by the test"});
    let mut response = HttpResponse::build(status);
    response.content_type(JSON).body(body.to_string())
}

/// A response whose body fails, so that the connection is closed.
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
