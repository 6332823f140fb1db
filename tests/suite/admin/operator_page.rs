//! The operator's page over HTTP: who gets in, what it shows, and what it changes. `browser/admin_page.rs` has it in
//! Firefox.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use hyper::Method;
use serde_json::Value;

use super::access::hello;
use super::{AdminFixture, months_ago};
use crate::harness::{AT_ONCE, Agent, Answer, Raw, Sender, Server, until};
use crate::metrics::{metrics_url, scrape};

pub(super) const PORT: &str = "--metrics-listen=127.0.0.1:0";

/// Streams of one port at once, and wrong logins in a minute.
const STREAMS_MAX: usize = 32;
const WRONG_PER_MINUTE_MAX: usize = 10;

/// A browser without a screen.
pub(super) struct Operator {
    sender: Sender,
    address: SocketAddr,
    cookie: String,
}

impl Operator {
    async fn of(server: &Server) -> Self {
        let url = metrics_url(server).await;
        let address = url.trim_start_matches("http://").trim_end_matches("/metrics");
        let address = address.parse().expect("the log has an address");
        Self { sender: Sender::new(), address, cookie: String::new() }
    }

    pub(super) async fn signed_in(server: &Server) -> Self {
        let mut operator = Self::of(server).await;
        let answer = operator.sign_in(&operator.link(server).await).await;
        assert_eq!((answer.status, answer.header("location")), (303, Some("/admin")), "{answer}");
        let cookie = answer.header("set-cookie").expect("there is a session");
        let rest = "; Path=/admin; Max-Age=43200; HttpOnly; SameSite=Strict";
        cookie
            .strip_suffix(rest)
            .expect("a cookie is bound to the page")
            .clone_into(&mut operator.cookie);
        operator
    }

    /// The link of `kalends access operator`.
    async fn link(&self, server: &Server) -> String {
        let printed = server.run(&["access", "operator"]).await.succeeded();
        let start = format!("http://{}/admin/login?link=", self.address);
        assert!(printed.starts_with(&start), "{printed}");
        printed.trim().to_owned()
    }

    async fn sign_in(&self, link: &str) -> Answer {
        self.post("/admin/login", &self.origin(), &[("link", link)]).await
    }

    pub(super) fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], String::new()).await
    }

    pub(super) async fn post(&self, path: &str, origin: &str, fields: &[(&str, &str)]) -> Answer {
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        let body = form.extend_pairs(fields).finish();
        let origin = [("origin", origin)];
        let headers = if origin[0].1.is_empty() { &origin[1..] } else { &origin[..] };
        self.send(Method::POST, path, headers, body).await
    }

    /// Posts a form of this session.
    pub(super) async fn submit(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let page = self.get("/admin/people").await.to_string();
        let (_, rest) = page.split_once("name=\"form\" value=\"").expect("the page has a form");
        let (token, _) = rest.split_once('"').expect("the form has a token");
        self.post(path, &self.origin(), &[fields, &[("form", token)]].concat()).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, &str)],
        body: String,
    ) -> Answer {
        let request = self.sender.request(method, &format!("{}{path}", self.origin()));
        let mut request = request.header("cookie", &self.cookie);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request.raw_body(body).send().await
    }

    /// A request whose answer is a stream.
    pub(super) async fn stream(&self) -> Raw {
        let mut raw = self.raw().await;
        let (host, cookie) = (self.address, &self.cookie);
        raw.write(format!(
            "GET /admin/events HTTP/1.1\r\nhost: {host}\r\ncookie: {cookie}\r\n\r\n"
        ))
        .await;
        raw
    }

    async fn raw(&self) -> Raw {
        Raw::open_from(IpAddr::V4(Ipv4Addr::LOCALHOST), self.address).await
    }
}

/// The first values that a page of the server shows.
pub(crate) async fn values_of(server: &Server) -> Value {
    values_with(server, |_| true).await
}

/// The first values for which the condition holds.
pub(crate) async fn values_with(server: &Server, holds: impl Fn(&Value) -> bool) -> Value {
    let operator = Operator::signed_in(server).await;
    event_with(&mut operator.stream().await, holds).await
}

pub(super) fn body(answer: &Answer) -> String {
    String::from_utf8(answer.body.clone()).expect("pages are UTF-8")
}

#[actix_web::test]
async fn a_link_signs_in_once_and_wrong_ones_are_refused_alike_slowly_and_seldom() {
    let fixture = AdminFixture::embedded(&[PORT]);
    let operator = Operator::of(&fixture.server).await;
    assert_eq!(operator.get("/admin").await.status, 401);
    let link = operator.link(&fixture.server).await;
    let start = operator.get("/").await;
    assert_eq!((start.status, start.header("location")), (303, Some("/admin")), "{start}");
    // The preview of a link does not use it.
    let asked = operator.get(link.trim_start_matches(&operator.origin())).await;
    let token = link.rsplit_once('=').unwrap().1;
    assert!(asked.status == 200 && body(&asked).contains(token), "{asked}");
    for (name, expected) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "same-origin"),
        ("cache-control", "no-store"),
    ] {
        assert_eq!(asked.header(name), Some(expected));
    }
    let policy = asked.header("content-security-policy").unwrap();
    for part in
        ["default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"]
    {
        assert!(policy.contains(part) && !policy.contains("unsafe"), "{policy}");
    }
    for origin in ["", "null", "http://evil.example"] {
        let answer = operator.post("/admin/login", origin, &[("link", token)]).await;
        assert_eq!(answer.status, 403, "{origin}");
    }
    assert_eq!(operator.sign_in(&link).await.status, 303, "a refused form uses no link");

    let start = Instant::now();
    let used = operator.sign_in(&link).await;
    let foreign = operator.sign_in(&token.replace('.', ".1")).await;
    let session =
        Operator { cookie: used_cookie(&operator), ..Operator::of(&fixture.server).await };
    let unknown = session.get("/admin").await;
    assert!(start.elapsed() >= Duration::from_secs(3), "{:?}", start.elapsed());
    for answer in [&foreign, &unknown] {
        assert_eq!((answer.status, &answer.body), (401, &used.body), "{answer}");
    }
    let wrong = (0..WRONG_PER_MINUTE_MAX).map(|_| operator.sign_in("x"));
    let statuses: Vec<_> = join_all(wrong).await.iter().map(|answer| answer.status).collect();
    assert!(statuses.contains(&429) && statuses.contains(&401), "{statuses:?}");
    let metrics = scrape(&fixture.server).await;
    let count = |result| metrics[&format!("kalends_operator_logins_total{{result=\"{result}\"}}")];
    assert!(count("refused") >= 10.0 && count("over_limit") >= 1.0 && count("succeeded") == 1.0);
    fixture.server.logged("without a valid link or session are refused").await;
    // Wrong logins of others do not keep an operator out.
    let operator = Operator::signed_in(&fixture.server).await;
    assert_eq!(operator.get("/admin").await.status, 200);

    // A page whose name resolves to this address.
    let mut rebound = operator.raw().await;
    let cookie = &operator.cookie;
    rebound
        .write(format!("GET /admin HTTP/1.1\r\nhost: evil.example\r\ncookie: {cookie}\r\n\r\n"))
        .await;
    assert_eq!(rebound.answer().await.status, 421);
}

/// A cookie of the right name whose session no server made.
fn used_cookie(operator: &Operator) -> String {
    format!("kalends_admin_{}=0123.456.abc", operator.address.port())
}

/// Waits for a `now` event for which the condition holds.
async fn event_with(stream: &mut Raw, holds: impl Fn(&Value) -> bool) -> Value {
    let mut event = Value::Null;
    until(AT_ONCE, "such an event", async || {
        stream.until(AT_ONCE, "event: now\ndata: ").await;
        let text = stream.until(AT_ONCE, "\n\n").await;
        event = serde_json::from_str(text.trim()).expect("an event is JSON");
        holds(&event)
    })
    .await;
    event
}

#[actix_web::test]
async fn events_follow_a_push_and_end_with_the_session() {
    let fixture = AdminFixture::embedded(&[PORT, "--admin-page-interval-ms=50"]);
    let operator = Operator::signed_in(&fixture.server).await;
    let mut streams = Vec::new();
    for _ in 0..STREAMS_MAX {
        let mut stream = operator.stream().await;
        stream.until(AT_ONCE, "event: history\ndata: ").await;
        let points = stream.until(AT_ONCE, "\n\n").await;
        let points: Value = serde_json::from_str(points.trim()).expect("an event is JSON");
        assert_eq!(points["rings"].as_array().map(Vec::len), Some(4), "{points}");
        streams.push(stream);
    }
    assert_eq!(operator.get("/admin/events").await.status, 503);

    let (mut agent, channel) = Agent::subscribed(&fixture.server).await;
    Sender::new().push_to(&mut agent, &channel, "secret contents").await;
    let is_delivered = |event: &Value| event["samples"]["kalends_pushes_total"]["delivered"] == 1;
    let event = event_with(&mut streams[0], is_delivered).await;
    assert_eq!(event["samples"]["kalends_clients"]["ready"], 1);
    assert!(!event.to_string().contains(agent.uaid()));
    let row = &event["listed"][0];
    let begin = row["begin"].as_str().expect("the user agent is listed");
    assert!(agent.uaid().starts_with(begin) && row["is_connected"] == true, "{row}");
    assert_eq!(row["last_push"]["outcome"], "delivered");
    let found = body(&operator.submit("/admin/inspect", &[("target", begin)]).await);
    assert!(found.contains(agent.uaid()), "{found}");
    event_with(&mut streams[1], |event| event["months"]["agents"].is_object()).await;

    let signed_out = operator.submit("/admin/logout", &[]).await;
    assert_eq!(signed_out.status, 303, "{signed_out}");
    for mut stream in streams {
        // The last chunk, which ends the answer.
        stream.until(AT_ONCE, "\r\n0\r\n\r\n").await;
    }
    assert_eq!(operator.get("/admin").await.status, 401);
    assert_eq!(operator.get("/admin/events").await.status, 401);
}

#[actix_web::test]
async fn on_dynamodb_the_page_and_the_status_show_the_last_count_of_the_months() {
    let fixture = AdminFixture::dynamo(&[PORT]);
    let (_agent, _) = Agent::subscribed(&fixture.server).await;
    assert_eq!(values_of(&fixture.server).await["months"], Value::Null);
    let status = fixture.stdout_of("status").await;
    assert!(!status.contains("by month"), "{status}");
    // The server counts for this command.
    fixture.stdout_of("nodes").await;
    let month = months_ago(0).to_string();
    let is_counted = |page: &Value| page["months"]["agents"][&month] == 1;
    let page = values_with(&fixture.server, is_counted).await;
    assert!(page["months"]["at"].as_u64().is_some_and(|at| at <= page["at"].as_u64().unwrap_or(0)));
    let status = fixture.stdout_of("status").await;
    assert!(
        status.contains(&format!("by month     1 user agent on {month}, counted ")),
        "{status}"
    );
}

#[actix_web::test]
async fn an_agent_is_found_without_its_contents_and_a_revoked_token_closes_it() {
    let fixture = AdminFixture::embedded(&[PORT, "--access=token"]);
    let mut agent = hello(&fixture.server, &fixture.add("alice").await, None).await;
    let channel = agent.register().await;
    let sender = Sender::new();
    sender.push_to(&mut agent, &channel, "secret contents").await;

    let operator = Operator::signed_in(&fixture.server).await;
    for target in [agent.uaid(), &channel.endpoint] {
        let found = body(&operator.submit("/admin/inspect", &[("target", target)]).await);
        assert!(found.contains(agent.uaid()) && found.contains("token alice"), "{found}");
        assert!(!found.contains("secret contents"));
    }
    let hostile = "<script>alert(1)</script>";
    let refused = body(&operator.submit("/admin/inspect", &[("target", hostile)]).await);
    assert!(refused.contains("expected an endpoint") && !refused.contains(hostile), "{refused}");

    let people = body(&operator.get("/admin/people").await);
    assert!(
        people.contains("<th scope=\"row\">alice</th><td data-label=\"State\">valid</td>"),
        "{people}"
    );
    for (name, expected) in [(hostile, "a name has 1 to 64"), ("alice", "with the name alice")] {
        let refused = body(&operator.submit("/admin/people/add", &[("name", name)]).await);
        assert!(refused.contains(expected) && !refused.contains(hostile), "{refused}");
    }
    let added = body(&operator.submit("/admin/people/add", &[("name", "bob")]).await);
    let address = format!("{}/u/kal_", fixture.server.origin());
    assert!(added.contains(&format!("The address of bob, shown once: {address}")), "{added}");
    let token = added.split("/u/").nth(1).and_then(|rest| rest.split('<').next());
    let token = token.expect("an address has a token");
    hello(&fixture.server, &format!("/u/{token}"), None).await;
    assert!(!body(&operator.get("/admin/people").await).contains(token), "it is shown once");
    let confirmed = [("name", "alice"), ("confirmed", "yes")];
    let other = operator.post("/admin/people", &operator.origin(), &confirmed).await;
    assert_eq!(other.status, 403, "without the token of the form");
    let asked = body(&operator.submit("/admin/people", &[("name", "alice")]).await);
    assert!(asked.contains("Revoke alice?"), "{asked}");
    agent.sync().await;
    let unknown =
        body(&operator.submit("/admin/people", &[("name", hostile), ("confirmed", "yes")]).await);
    assert!(unknown.contains("this is no name") && !unknown.contains(hostile), "{unknown}");
    let revoked = body(&operator.submit("/admin/people", &confirmed).await);
    assert!(revoked.contains("revoked alice"), "{revoked}");
    agent.ended().await;
    until(AT_ONCE, "the list follows", async || {
        let people = body(&operator.get("/admin/people").await);
        people.contains("<th scope=\"row\">alice</th><td data-label=\"State\">revoked</td>")
    })
    .await;
    let answer = sender.post(&channel.endpoint).ttl(60).body("x").send().await;
    assert_eq!(answer.status, 410);
}

#[actix_web::test]
async fn a_server_without_the_page_has_no_link_to_it() {
    let fixture = AdminFixture::embedded(&[PORT, "--admin-page=false"]);
    let operator = Operator::of(&fixture.server).await;
    assert_eq!(operator.get("/admin").await.status, 404);
    assert_eq!(operator.get("/metrics").await.status, 200);
    let reason = "the server has no operator's page: set admin_page";
    fixture.run("access operator").await.failed(1, reason);
    let off = AdminFixture::embedded(&["--metrics-listen=off"]);
    off.run("access operator").await.failed(1, reason);
    let mut stopped = Server::start();
    stopped.terminate();
    let ended = stopped.run(&["access", "operator"]).await;
    ended.failed(1, "no server runs on this data directory");
}
