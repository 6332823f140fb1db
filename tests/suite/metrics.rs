//! Metrics: exact counts of a scripted sequence, and what Prometheus reads of a server.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use kalends::monitoring::table;
use serde_json::{Value, json};

use crate::feeds::FeedClient;
use crate::harness::{
    AT_ONCE, Agent, Channel, Cluster, ClusterPlan, Launch, Notification, Sender, Server, Signer,
    child, free_port, seen_metrics, until,
};
use crate::judgement::is_warned_without_metrics;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The URL of the metrics, from the log.
pub(crate) async fn metrics_url(server: &Server) -> String {
    let mut line = None;
    until(AT_ONCE, "the port of metrics is logged", async || {
        let log = server.log();
        // The server may be writing its last line.
        let is_port = |line: &&str| {
            line.ends_with('\n') && line.contains("listening for scrapers of metrics")
        };
        line = log.split_inclusive('\n').rfind(is_port).map(str::to_owned);
        line.is_some()
    })
    .await;
    let line: Value = serde_json::from_str(&line.expect("waited for")).expect("the log is JSON");
    format!("http://{}/metrics", line["address"].as_str().expect("the line has an address"))
}

pub(crate) async fn scrape(server: &Server) -> BTreeMap<String, f64> {
    scrape_at(&metrics_url(server).await).await
}

pub(crate) async fn scrape_at(url: &str) -> BTreeMap<String, f64> {
    let get = Sender::new();
    let get = get.request(hyper::Method::GET, url);
    let answer = get.header("accept", "application/openmetrics-text").send().await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some(OPEN_METRICS)));
    let text = String::from_utf8(answer.body).expect("metrics are UTF-8 with numbers");
    assert!(text.ends_with("# EOF\n"));
    seen_metrics::record(&text);
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let read = |line: &str| {
        let (name, value) = line.rsplit_once(' ').expect("metrics are UTF-8 with numbers");
        (name.to_owned(), value.parse().expect("metrics are UTF-8 with numbers"))
    };
    samples.map(read).collect()
}

async fn ack_with(agent: &mut Agent, notification: &Notification, code: u16) {
    let update =
        json!({"channelID": notification.channel, "version": notification.version, "code": code});
    agent.socket().send_json(&json!({"messageType": "ack", "updates": [update]})).await;
}

/// Pushes to a connected agent, which acks with this code.
async fn push_direct(sender: &Sender, agent: &mut Agent, channel: &Channel, code: u16) {
    let acked = async {
        let notification = agent.notification().await;
        ack_with(agent, &notification, code).await;
    };
    tokio::join!(sender.push(&channel.endpoint, "direct"), acked);
}

#[actix_web::test]
async fn each_metric_counts_exactly_what_a_script_does() {
    let server = Server::start_with(&[
        "--metrics-listen=127.0.0.1:0",
        "--channel-messages-max=2",
        "--expiry-interval-s=1",
    ]);
    let (sender, signer) = (Sender::new(), Signer::new());
    let mut agent = Agent::new(&server).await;
    let (first, signed) = (agent.register().await, agent.register_for(&signer.key()).await);
    for code in [100, 101, 102, 7] {
        push_direct(&sender, &mut agent, &first, code).await;
    }
    // Without credentials, and with a token that is none.
    assert_eq!(sender.post(&signed.endpoint).ttl(60).send().await.status, 401);
    let garbage = sender.post(&first.endpoint).ttl(60).header("authorization", "vapid t=x,k=y");
    assert_eq!(garbage.send().await.status, 401);
    let gone = agent.register().await;
    agent.unregister(&gone).await;
    assert_eq!(sender.post(&gone.endpoint).ttl(60).send().await.status, 410);
    let uaid = agent.leave().await;
    // Two are stored, of which one expires; a third one is above the bound.
    sender.push(&first.endpoint, "stored").await;
    assert_eq!(sender.post(&first.endpoint).ttl(1).body("short").send().await.status, 201);
    assert_eq!(sender.post(&first.endpoint).ttl(60).body("full").send().await.status, 429);
    until(AT_ONCE, "the message has expired", async || {
        scrape(&server).await["kalends_messages_expired_total"] == 1.0
    })
    .await;
    let mut agent = Agent::reconnect(&server, &uaid).await;
    agent.take(1).await;
    agent.sync().await;
    until(AT_ONCE, "the acked row is deleted", async || {
        scrape(&server).await["kalends_time_in_storage_seconds_count"] == 1.0
    })
    .await;

    let metrics = scrape(&server).await;
    for (name, expected) in [
        (r#"kalends_pushes_total{outcome="delivered"}"#, 4.0),
        (r#"kalends_pushes_total{outcome="stored"}"#, 2.0),
        (r#"kalends_pushes_total{outcome="no_such_channel"}"#, 1.0),
        (r#"kalends_pushes_total{outcome="full"}"#, 1.0),
        (r#"kalends_push_responses_total{status="201"}"#, 6.0),
        (r#"kalends_push_responses_total{status="401"}"#, 2.0),
        (r#"kalends_push_responses_total{status="410"}"#, 1.0),
        (r#"kalends_push_responses_total{status="429"}"#, 1.0),
        (r#"kalends_vapid_checks_total{result="invalid"}"#, 1.0),
        (r#"kalends_limit_refusals_total{limit="user_messages_max"}"#, 1.0),
        ("kalends_push_direct_seconds_count", 4.0),
        (r#"kalends_acks_total{code="100"}"#, 2.0),
        (r#"kalends_acks_total{code="101"}"#, 1.0),
        (r#"kalends_acks_total{code="102"}"#, 1.0),
        (r#"kalends_acks_total{code="other"}"#, 1.0),
        (r#"kalends_push_answers_total{answer="accepted"}"#, 4.0),
        (r#"kalends_push_answers_total{answer="no_such_channel"}"#, 1.0),
        (r#"kalends_clients{phase="ready"}"#, 1.0),
        ("kalends_connections", 1.0),
        ("kalends_broadcasts_lag", 0.0),
        ("kalends_feed_followers_behind", 0.0),
        (r#"kalends_mailbox_messages{mailbox="registry"}"#, 0.0),
        (r#"kalends_mailbox_messages_max{mailbox="registry"}"#, 4096.0),
    ] {
        assert_eq!(metrics.get(name), Some(&expected), "{name} in {metrics:#?}");
    }
    assert!(!metrics.keys().any(|name| name.contains(&uaid)), "no label has a uaid");
    assert!(metrics["process_resident_memory_bytes"] > 1e6, "{metrics:#?}");
    assert!(metrics["process_open_fds"] > 10.0, "{metrics:#?}");
}

#[actix_web::test]
async fn a_scrape_of_two_hundred_connections_counts_them_all() {
    let server = Server::start_with(&["--metrics-listen=127.0.0.1:0"]);
    let mut agents = Vec::new();
    for _ in 0..200 {
        let mut agent = Agent::new(&server).await;
        agent.register().await;
        agents.push(agent);
    }
    let metrics = scrape(&server).await;
    assert_eq!(metrics[r#"kalends_clients{phase="ready"}"#], 200.0);
    assert_eq!(metrics["kalends_connections"], 200.0);
}

#[actix_web::test]
async fn a_taken_address_of_metrics_ends_the_start_and_off_opens_no_port() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let flag = format!("--metrics-listen={}", taken.local_addr().unwrap());
    let error = Server::try_launch(Launch::default().with(&[flag])).err().unwrap().to_string();
    assert!(error.contains("metrics_listen: cannot listen on 127.0.0.1:"), "{error}");
    let server = Server::start_with(&["--metrics-listen=off"]);
    assert!(!server.log().contains("listening for scrapers"), "{}", server.log());
}

#[actix_web::test]
async fn a_server_starts_without_metrics_if_the_default_port_is_taken() {
    // It is taken in either case: by this test or by another program.
    let _taken = TcpListener::bind("127.0.0.1:8082");
    let mut launch = Launch::default();
    launch.variables.push(("KALENDS_METRICS_LISTEN", "127.0.0.1:8082".to_owned()));
    let server = Server::launch(launch);
    let warning =
        "cannot listen on the default of metrics_listen, there are no metrics for Prometheus";
    assert!(server.log().contains(warning), "{}", server.log());
    Agent::new(&server).await.register().await;
    let found = "the server cannot listen on metrics_listen = 127.0.0.1:8082";
    is_warned_without_metrics(&server, "metrics_port", found).await;
    let health = server.health().await;
    let check = &health.json()["findings"][0]["check"];
    assert_eq!((health.status, check), (200, &json!("metrics_port")));
    let found = server.run(&["doctor", "--json", "--idle-s=0"]).await.succeeded();
    assert!(found.contains(r#"{"level":"warn","check":"metrics_port","found":""#), "{found}");
}

#[actix_web::test]
async fn an_endpoint_node_counts_what_dynamodb_does_and_the_breaker_of_a_dead_node() {
    let plan = ClusterPlan::of(1, 1).with_endpoint_arguments(&["--metrics-listen=127.0.0.1:0"]);
    let mut cluster = Cluster::launch(plan);
    let (sender, router) = (Sender::new(), cluster.connection_nodes[0].router_url());
    let (mut agent, channel) = Agent::subscribed(&cluster.connection_nodes[0]).await;
    sender.push_to(&mut agent, &channel, "direct").await;
    let node = &cluster.endpoint_nodes[0];
    let metrics = scrape(node).await;
    let breaker =
        |state: &str| format!(r#"kalends_node_breaker{{node="{router}",state="{state}"}}"#);
    assert_eq!((metrics[&breaker("closed")], metrics[&breaker("open")]), (1.0, 0.0));
    let reads = r#"kalends_store_operation_seconds_count{by="push",operation="read_record"}"#;
    assert!(metrics.get(reads).is_some_and(|reads| *reads >= 1.0), "{metrics:#?}");
    assert!(!metrics.contains_key("kalends_connections"), "it holds no user agents");
    cluster.connection_nodes[0].kill();
    let node = &cluster.endpoint_nodes[0];
    until(AT_ONCE, "the breaker is open", async || {
        assert_eq!(sender.post(&channel.endpoint).ttl(60).body("x").send().await.status, 201);
        scrape(node).await[&breaker("open")] == 1.0
    })
    .await;
}

#[actix_web::test]
async fn broadcasts_that_a_node_has_not_read_yet_are_its_lag() {
    // The connection node reads the feed when it starts, and not again.
    let cluster = Cluster::launch(ClusterPlan::of(1, 1));
    let node = &cluster.connection_nodes[0];
    Agent::new(node).await;
    let broadcasts = FeedClient::at(&cluster.endpoint_nodes[0], "broadcasts");
    for version in ["1", "2", "3"] {
        broadcasts.put("a-source/an-id", version).await;
        until(AT_ONCE, "it is the lag", async || {
            scrape(node).await["kalends_broadcasts_lag"].to_string() == version
        })
        .await;
    }
}

#[actix_web::test]
async fn waiting_messages_are_counted_when_a_server_starts() {
    let (mut server, _, channel) = Server::with_offline(&["--metrics-listen=127.0.0.1:0"]).await;
    let sender = Sender::new();
    for body in ["four", "another"] {
        sender.push(&channel.endpoint, body).await;
    }
    server.crash();
    until(AT_ONCE, "the second port is logged", async || {
        server.log().matches("listening for scrapers of metrics").count() == 2
    })
    .await;
    until(AT_ONCE, "they are counted", async || {
        let metrics = scrape(&server).await;
        let [messages, bytes] =
            ["messages", "bytes"].map(|of| metrics.get(&format!("kalends_waiting_{of}")).copied());
        (messages, bytes) == (Some(2.0), Some(11.0))
    })
    .await;
}

#[actix_web::test]
async fn a_statsd_server_gets_counters_as_packets() {
    let statsd = UdpSocket::bind("127.0.0.1:0").unwrap();
    statsd.set_nonblocking(true).unwrap();
    let flag = format!("--statsd-address={}", statsd.local_addr().unwrap());
    let (_server, mut agent, channel) =
        Server::with_subscribed(&[&flag, "--statsd-interval-s=1"]).await;
    Sender::new().push_to(&mut agent, &channel, "direct").await;
    let mut text = String::new();
    until(Duration::from_secs(20), "the counter arrives", async || {
        let mut packet = [0; 2000];
        while let Ok(bytes) = statsd.recv(&mut packet) {
            assert!(bytes <= 1432);
            text.push_str(std::str::from_utf8(&packet[..bytes]).unwrap());
        }
        text.contains("kalends_pushes_total.delivered:1|c\n")
    })
    .await;
}

#[actix_web::test]
async fn prometheus_scrapes_a_server_and_knows_each_metric_of_the_board_and_the_rules() {
    let (server, mut agent, channel) =
        Server::with_subscribed(&["--metrics-listen=127.0.0.1:0"]).await;
    Sender::new().push_to(&mut agent, &channel, "direct").await;
    let url = metrics_url(&server).await;
    let text = Sender::new().get(&url).await;
    assert_eq!(text.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    checked_by_promtool(&text.body);
    let rules = deploy("alerts.yml");
    let output = child("promtool").args(["check", "rules"]).arg(&rules).output().unwrap();
    assert!(output.status.success(), "{output:?}");

    let text = fs::read_to_string(&rules).expect("the rules are a text");
    for rule in text.split("- alert: ").skip(1) {
        let link = rule.split("runbook_url: ").nth(1).expect("each rule has a page").trim_end();
        let (page, anchor) = link.split_once('#').expect("a link names a section");
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
        let page = fs::read_to_string(page).expect("the page of a rule is there");
        let heads = page.lines().filter(|line| line.starts_with('#'));
        let anchors: Vec<_> = heads
            .map(|head| head.trim_start_matches(['#', ' ']))
            .map(|head| head.to_lowercase().replace(' ', "-"))
            .collect();
        assert!(
            anchors.iter().any(|known| known == anchor) && rule.contains("severity: "),
            "{rule}"
        );
    }

    let target = url.trim_start_matches("http://").trim_end_matches("/metrics").to_owned();
    let prometheus = Prometheus::start(&target, &rules);
    until(Duration::from_secs(30), "Prometheus has scraped the server", async || {
        let found = prometheus.query(r#"kalends_pushes_total{outcome="delivered"}"#).await;
        found.is_some_and(|found| found["data"]["result"][0]["value"][1] == "1")
    })
    .await;
    // Series of other nodes exist in a cluster alone, those of a move while user agents move.
    let is_rare =
        |expression: &str| expression.contains("kalends_node_") || expression.contains("phase!~");
    for expression in of_board().iter().filter(|expression| !is_rare(expression)) {
        until(Duration::from_secs(30), &format!("{expression} has data"), async || {
            let found = prometheus.query(expression).await;
            found.is_some_and(|found| found["data"]["result"][0].is_object())
        })
        .await;
    }
    for expression in expressions() {
        let answer = prometheus.query(&expression).await.expect("Prometheus answers");
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        for name in metrics_in(&expression) {
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let is_known = |known: &&&table::Metric| known.name == base.unwrap_or(&name);
            assert!(table::ALL.iter().any(|known| is_known(&known)), "{name} in {expression}");
        }
        for (label, value) in labels_in(&expression) {
            let is_known = LABELS_OF_PROMETHEUS.contains(&&*label)
                || table::ALL.iter().flat_map(|metric| metric.labels).any(|known| {
                    known.name == label && value.as_ref().is_none_or(|it| known.values.contains(it))
                });
            assert!(is_known, "{label} {value:?} in {expression}");
        }
    }
}

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/deploy").join(file)
}

fn checked_by_promtool(text: &[u8]) {
    let mut promtool = child("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = promtool.spawn().expect("`make test` installs what the tests need");
    promtool.stdin.take().expect("promtool runs").write_all(text).expect("promtool runs");
    let output = promtool.wait_with_output().expect("promtool runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The labels that Prometheus or the form of histograms adds.
const LABELS_OF_PROMETHEUS: [&str; 3] = ["job", "instance", "le"];

/// The labels that an expression groups by or compares, with each value that it compares with.
fn labels_in(expression: &str) -> Vec<(String, Option<String>)> {
    let parts = |open: &str, close: char| -> Vec<String> {
        let after = expression.split(open).skip(1);
        after.filter_map(|rest| rest.split(close).next()).map(str::to_owned).collect()
    };
    let grouped = parts("by (", ')');
    let grouped = grouped.iter().flat_map(|list| list.split(','));
    let mut labels: Vec<_> = grouped.map(|label| (label.trim().to_owned(), None)).collect();
    for matcher in parts("{", '}').iter().flat_map(|list| list.split(',')) {
        let (label, values) = matcher.split_once(['=', '!']).expect("it compares a label");
        let values = values.trim_matches(|c| "=~\"".contains(c)).split('|');
        labels.extend(values.map(|value| (label.trim().to_owned(), Some(value.to_owned()))));
    }
    labels
}

/// The expressions of the board and of the rules.
fn expressions() -> Vec<String> {
    let rules = fs::read_to_string(deploy("alerts.yml")).expect("the board has expressions");
    let of_rules = rules.split("expr: ").skip(1).map(|rest| {
        let text = rest.split("\n        for:").next().expect("the board has expressions");
        text.trim_start_matches(">-").split_whitespace().collect::<Vec<_>>().join(" ")
    });
    let all: Vec<_> = of_board().into_iter().chain(of_rules).collect();
    assert!(all.len() > 30, "the board and the rules are where this test looks");
    all
}

/// What a query of the board has in place of the nodes that were selected.
const SELECTED: &str = r#"instance=~"$instance""#;

fn board() -> Value {
    let board = fs::read_to_string(deploy("grafana.json")).expect("the board has expressions");
    serde_json::from_str(&board).expect("the board has expressions")
}

/// The queries of all panels.
fn queries(board: &Value) -> Vec<String> {
    let panels = board["panels"].as_array().expect("the board has expressions").iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    targets
        .map(|target| target["expr"].as_str().expect("the board has expressions").to_owned())
        .collect()
}

/// The queries of all panels and the metrics of each role, with all nodes selected.
fn of_board() -> Vec<String> {
    let board = board();
    let [_, roles, _] = variables(&board);
    let roles = roles["options"].as_array().expect("a variable has options").iter();
    let roles = roles.map(|role| role["value"].as_str().expect("it is a metric").to_owned());
    let queries = queries(&board).into_iter().map(|query| query.replace("$instance", ".+"));
    queries.chain(roles).collect()
}

fn variables(board: &Value) -> [&Value; 3] {
    let list = board["templating"]["list"].as_array().expect("the board has variables");
    let list: Vec<_> = list.iter().collect();
    list.try_into().expect("source, role and instance")
}

#[test]
fn each_query_of_the_board_is_of_the_nodes_that_are_selected_and_each_latency_of_one() {
    let board = board();
    for query in queries(&board) {
        let metrics = metrics_in(&query).count();
        assert_eq!(query.matches(SELECTED).count(), metrics, "each metric of {query}");
        let is_latency = query.contains("histogram_quantile");
        assert!(!is_latency || query.contains("sum by (instance, le"), "{query}");
    }
    let [source, role, instance] = variables(&board);
    let names = [source, role, instance].map(|variable| &variable["name"]);
    assert_eq!(names, ["datasource", "role", "instance"]);
    // A node has a role if it has the metric of it.
    let options = role["options"].as_array().expect("a variable has options").iter();
    let text = |value: &Value| value.as_str().expect("it is a text").to_owned();
    let pair = |option: &Value| text(&option["text"]) + " : " + &text(&option["value"]);
    let options: Vec<_> = options.map(pair).collect();
    assert_eq!(role["query"], options.join(", "));
    assert_eq!(instance["query"]["query"], "label_values($role, instance)");
}

fn metrics_in(expression: &str) -> impl Iterator<Item = String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| word.starts_with("kalends_") || word.starts_with("process_"))
        .map(str::to_owned)
}

/// A Prometheus that scrapes one server. It ends when this is dropped.
struct Prometheus {
    process: std::process::Child,
    origin: String,
    _dir: tempfile::TempDir,
}

impl Prometheus {
    fn start(target: &str, rules: &Path) -> Self {
        let dir = tempfile::TempDir::new().expect("Prometheus gets a directory and a port");
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{}']\nscrape_configs:\n- job_name: kalends\n  static_configs: [{{targets: ['{target}']}}]\n",
            rules.display()
        );
        fs::write(dir.path().join("prometheus.yml"), config)
            .expect("Prometheus gets a directory and a port");
        // Prometheus does not say which port it has taken.
        let free = free_port();
        let process = child("prometheus")
            .arg(format!("--config.file={}", dir.path().join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()))
            .arg(format!("--web.listen-address={free}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("`make test` installs what the tests need");
        Self { process, origin: format!("http://{free}"), _dir: dir }
    }

    /// The answer to a query; none while Prometheus starts.
    async fn query(&self, expression: &str) -> Option<Value> {
        let query: String = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("query", expression)
            .finish();
        let sender = Sender::new();
        let get =
            sender.request(hyper::Method::GET, &format!("{}/api/v1/query?{query}", self.origin));
        let answer = get.try_send().await.ok()?;
        serde_json::from_slice(&answer.body).ok()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
