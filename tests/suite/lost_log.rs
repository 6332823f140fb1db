//! A server whose log cannot be written: it is unhealthy, and serves.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use hyper::Method;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use serde_json::{Value, json};

use crate::harness::{AT_ONCE, Agent, Launch, Sender, Server, seen_metrics, until};

const LOST: &str = r#"kalends_log_lines_lost_total{reason="write_failed"}"#;

/// The status of `/__heartbeat__`, and its failed checks.
async fn heartbeat(server: &Server) -> (u16, Vec<String>) {
    let answer = Sender::new().get(&format!("{}/__heartbeat__", server.origin())).await;
    let health = answer.json();
    let checks = health["checks"].as_object().into_iter().flatten();
    let failed = checks.filter(|(_, passed)| **passed == json!(false));
    (answer.status, failed.map(|(name, _)| name.clone()).collect())
}

fn log_failed() -> (u16, Vec<String>) {
    (503, vec!["log".to_owned()])
}

/// Checks that a push is delivered, and another one after the agent was offline.
async fn delivers(server: &Server) {
    let mut agent = Agent::new(server).await;
    let (channel, sender) = (agent.register().await, Sender::new());
    sender.push_to(&mut agent, &channel, "direct").await;
    let uaid = agent.leave().await;
    sender.push(&channel.endpoint, "stored").await;
    let _agent = Agent::returned_to(server, &uaid, "stored").await;
}

/// A server whose log is written to this file or pipe.
fn server(log_to: PathBuf, argument: &str) -> Server {
    let launch = Launch { log_to: Some(log_to), ..Launch::default() };
    Server::launch(launch.with(&["--metrics-listen=127.0.0.1:0", argument]))
}

/// Waits for the line of the log that has the address of the metrics.
async fn metrics_url(log: &mut File) -> String {
    let (mut read, mut url) = (Vec::new(), None);
    until(AT_ONCE, "the port of metrics is logged", async || {
        // It ends with an error where the log ends for now.
        let _ = log.read_to_end(&mut read);
        let lines = read.split_inclusive(|byte| *byte == b'\n');
        let mut lines = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
        let line = lines.find(|line| line["msg"] == "listening for scrapers of metrics");
        url = line.map(|line| line["address"].as_str().expect("it has an address").to_owned());
        url.is_some()
    })
    .await;
    format!("http://{}/metrics", url.expect("waited for"))
}

async fn metrics(url: &str) -> BTreeMap<String, f64> {
    let answer = Sender::new().get(url).await;
    let text = String::from_utf8(answer.body).expect("metrics are UTF-8");
    seen_metrics::record(&text);
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let samples = samples.filter_map(|line| line.rsplit_once(' '));
    samples.map(|(name, value)| (name.to_owned(), value.parse().expect("a number"))).collect()
}

#[actix_web::test]
async fn a_server_whose_log_is_on_a_full_disk_is_unhealthy_and_delivers() {
    for format in ["--log-format=json", "--log-format=human"] {
        let server = server("/dev/full".into(), format);
        until(AT_ONCE, "the loss is noticed", async || heartbeat(&server).await == log_failed())
            .await;
        delivers(&server).await;
        // The line of an unhealthy heartbeat is lost too.
        assert_eq!(heartbeat(&server).await, log_failed());
        let sender = Sender::new();
        let beat = sender.get(&format!("{}/__lbheartbeat__", server.origin())).await;
        assert_eq!(beat.status, 200);
        let page = sender.request(Method::GET, &server.origin()).header("accept", "text/html");
        let page = page.send().await;
        assert_eq!(page.status, 503);
        assert!(String::from_utf8_lossy(&page.body).contains("this server cannot write its log"));
    }
}

#[actix_web::test]
async fn a_server_whose_log_has_no_reader_any_more_delivers_and_ends_at_a_signal() {
    let dir = tempfile::tempdir().unwrap();
    let (pipe, mut both_ends) = pipe_in(dir.path());
    // Nothing more fits into the pipe, so that the first line waits.
    while both_ends.write(&[b'\n'; 1024]).is_ok() {}
    while both_ends.write(b"\n").is_ok() {}
    let mut server = server(pipe, "--log-level=debug");
    delivers(&server).await;
    server.signal("TERM");
    assert!(server.ended_within(AT_ONCE).await.success());
    both_ends.read_exact(&mut [0; 1024]).expect("the pipe is full");
}

/// A pipe, and a file that keeps it open at both ends. A pipe that is opened so does not wait for its other end.
fn pipe_in(dir: &Path) -> (PathBuf, File) {
    let pipe = dir.join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe can be made");
    let mut both = OpenOptions::new();
    both.read(true).write(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let both = both.open(&pipe).expect("it can be opened");
    (pipe, both)
}

#[actix_web::test]
async fn a_log_whose_reader_has_ended_is_noticed_and_continues_with_a_new_reader() {
    let dir = tempfile::tempdir().unwrap();
    let (pipe, mut reader) = pipe_in(dir.path());
    let server = server(pipe.clone(), "--log-level=debug");
    let url = metrics_url(&mut reader).await;
    assert_eq!(heartbeat(&server).await, (200, vec![]));

    drop(reader);
    until(AT_ONCE, "the loss is noticed", async || heartbeat(&server).await == log_failed()).await;
    delivers(&server).await;
    assert!(metrics(&url).await[LOST] > 0.0);

    let read = read_lines(File::open(&pipe).unwrap());
    until(AT_ONCE, "it is healthy", async || heartbeat(&server).await.0 == 200).await;
    let report = || {
        let lines = read.lock().unwrap();
        let lines = lines.iter().filter(|line| !line.is_empty());
        let mut lines = lines.map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        lines.find(|line| line["msg"] == "the log could not be written, lines were lost")
    };
    until(AT_ONCE, "the loss is logged", async || report().is_some()).await;
    let lost = report().unwrap()["lines"].as_f64().unwrap();
    assert_eq!(metrics(&url).await[LOST], lost);
    delivers(&server).await;
}

/// The lines of a pipe so far. The thread that reads it ends with the pipe.
fn read_lines(pipe: File) -> Arc<Mutex<Vec<String>>> {
    let read = Arc::<Mutex<Vec<String>>>::default();
    let lines = Arc::clone(&read);
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines() {
            lines.lock().expect("no test panics with it").push(line.expect("the log is UTF-8"));
        }
    });
    read
}
