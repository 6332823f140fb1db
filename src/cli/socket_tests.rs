//! The tests of `admin.sock`, with the commands of the list.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream as BlockingStream};
use std::time::Duration;

use slog::{Discard, Drain, Logger, o};
use state_machine::feed::{FeedKey, FeedName, FeedValue};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::COMMANDS;
use crate::command::client;
use crate::command::fixture::{Fixture, in_month};
use crate::command::printer::Printer;
use crate::command::protocol::{FILE, PATH, VERSION, VERSION_HEADER};
use crate::command::socket::{
    AdminSocket, COMMANDS_MAX, REQUEST_BYTES_MAX, TAILS_MAX, UNFINISHED, start,
};
use crate::command::text::to_json;
use crate::command::{CommandError, Completion, Output, StoreCommand};
use crate::feeds::cli::key_args::KeyArgs;
use crate::feeds::cli::put::Put;
use crate::feeds::cli::tail::FeedTail;
use crate::operate::tables::create::Create;
use crate::operate::tables::list::List;
use crate::operate::users::drop_inactive::DropInactive;

const LIST: List = List { json: false };
const SLOW: DropInactive = DropInactive { months: 2, rate: 1, dry_run: false, since: None };

fn listen(fixture: &Fixture) -> AdminSocket {
    let log = Logger::root(Discard, o!());
    start(fixture.dir.path(), COMMANDS.served(), fixture.context.clone(), &log)
        .expect("a socket can be made")
}

async fn connect(fixture: &Fixture) -> UnixStream {
    client::connect(fixture.dir.path()).await.unwrap()
}

/// Calls the server; what was printed, and the completion.
async fn call<C: StoreCommand>(
    fixture: &Fixture,
    command: C,
) -> (String, Result<Completion, CommandError>) {
    let mut printed = Vec::new();
    let stream = connect(fixture).await;
    let end = call_over(stream, command, &mut printed, std::future::pending::<()>()).await;
    (String::from_utf8(printed).unwrap(), end)
}

async fn call_over<C: StoreCommand>(
    stream: UnixStream,
    command: C,
    to: &mut Vec<u8>,
    stop: impl Future + Send + 'static,
) -> Result<Completion, CommandError> {
    let mut printer = Printer::new(to, false);
    let sink = &mut |output: Output<C::Report>| printer.print(output);
    client::call(stream, (C::NAME, command), sink, stop).await
}

/// Sends bytes over the socket; the whole answer.
async fn send(fixture: &Fixture, bytes: &[u8]) -> String {
    let mut stream = connect(fixture).await;
    // It may be refused before all of it is read.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

/// An HTTP request whose body is complete.
fn http(version: &str, body: &[u8]) -> Vec<u8> {
    let mut request = format!(
        "POST {PATH} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{VERSION_HEADER}: {version}\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(body);
    request
}

/// A job that runs for a minute, and has begun when this returns.
async fn slow_job(fixture: &Fixture) -> UnixStream {
    begin(fixture, SLOW).await
}

/// A job that has written output when this returns. Its request body is not complete.
async fn begin<C: StoreCommand>(fixture: &Fixture, command: C) -> UnixStream {
    let mut stream = connect(fixture).await;
    let body = to_json(&(C::NAME, command));
    let head = http(VERSION, body.as_bytes());
    let longer = String::from_utf8(head).unwrap();
    let longer = longer.replace("content-length: ", "content-length: 1");
    stream.write_all(longer.as_bytes()).await.unwrap();
    let (mut answer, mut byte) = (Vec::new(), [0; 1]);
    while !answer.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).await.unwrap();
        answer.push(byte[0]);
    }
    assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", String::from_utf8_lossy(&answer));
    stream.read_exact(&mut byte).await.unwrap();
    stream
}

#[actix_web::test]
async fn a_command_runs_inside_the_server() {
    let fixture = Fixture::with(&["2026_11"]).await;
    let socket = listen(&fixture);
    let (printed, end) = call(&fixture, Create::default()).await;
    assert!(matches!(end, Ok(Completion::Done)), "{end:?}");
    assert_eq!(printed, "2026_10 is made\n2026_11 was there\n2026_12 is made\n");
    socket.stop().await;
    assert!(!fixture.dir.path().join(FILE).exists());
}

#[actix_web::test]
async fn the_log_has_the_name_and_the_result_of_a_command_and_no_value() {
    let fixture = Fixture::with(&[]).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let json = slog_json::Json::default(file.reopen().unwrap());
    let log = Logger::root(std::sync::Mutex::new(json).fuse(), o!());
    let socket =
        start(fixture.dir.path(), COMMANDS.served(), fixture.context.clone(), &log).unwrap();
    let key = FeedKey::parse("k").unwrap();
    let of = KeyArgs { feed: FeedName::broadcasts(), key, url: None };
    let put = Put { of, value: Some("secret".to_owned()) };
    call(&fixture, put).await.1.unwrap();
    socket.stop().await;
    let logged = fs::read_to_string(file.path()).unwrap();
    for part in ["\"command\":\"feed put\"", "\"result\":\"done\""] {
        assert!(logged.contains(part), "{logged}");
    }
    assert!(!logged.contains("secret"), "{logged}");
}

#[actix_web::test]
async fn only_the_owner_can_connect_and_the_socket_of_a_killed_server_is_replaced() {
    let fixture = Fixture::with(&[]).await;
    for name in [FILE, UNFINISHED] {
        drop(UnixListener::bind(fixture.dir.path().join(name)).unwrap());
    }
    assert!(BlockingStream::connect(fixture.dir.path().join(FILE)).is_err());
    let socket = listen(&fixture);
    let mode = fs::metadata(fixture.dir.path().join(FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    assert!(!fixture.dir.path().join(UNFINISHED).exists());
    assert!(matches!(call(&fixture, LIST).await.1, Ok(Completion::Done)));
    socket.stop().await;
}

#[actix_web::test]
async fn a_malformed_request_is_refused_with_the_reason_and_the_server_goes_on() {
    let fixture = Fixture::with(&[]).await;
    let socket = listen(&fixture);
    let too_long = vec![b'x'; REQUEST_BYTES_MAX + 100];
    for (garbage, expected) in [
        (b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_vec(), "404 Not Found"),
        (b"\n\n\xff\xfe\n".to_vec(), "400 Bad Request"),
        (http("x", b"\"unheard_of\"\n"), "this command is version x and the server is version"),
        (http(VERSION, b"\n"), "does not know this request"),
        (http(VERSION, b"\"unheard_of\"\n"), "does not know this request"),
        (http(VERSION, b"[\"unheard of\",{}]\n"), "does not know this request"),
        (http(VERSION, b"[\"tables list\",{\"json\":1}]\n"), "does not know this request"),
        (
            http(VERSION, b"[\"tables create\",{\"lower_prior\":{\"read\":0,\"write\":1}}]\n"),
            "the request has a number that is out of bounds",
        ),
        (http(VERSION, &too_long), "a request has at most 1576960 bytes"),
    ] {
        let answer = send(&fixture, &garbage).await;
        assert!(answer.contains(expected), "{answer:?}");
    }
    drop(connect(&fixture).await);
    assert!(matches!(call(&fixture, LIST).await.1, Ok(Completion::Done)));
    socket.stop().await;
}

#[actix_web::test]
async fn the_end_of_a_connection_stops_its_job_and_frees_its_permit() {
    let fixture = Fixture::with(&["2026_08"]).await;
    fixture.users_of(0..60, in_month("2026_08")).await;
    let socket = listen(&fixture);
    let mut jobs = Vec::new();
    for _ in 0..COMMANDS_MAX {
        jobs.push(slow_job(&fixture).await);
    }
    let (_, end) = call(&fixture, LIST).await;
    assert!(
        matches!(&end, Err(CommandError::Job(why)) if why.contains("running already")),
        "{end:?}"
    );

    jobs.clear();
    let permit = async { while !matches!(call(&fixture, LIST).await.1, Ok(Completion::Done)) {} };
    timeout(Duration::from_secs(10), permit).await.expect("jobs without a client end");
    assert_eq!(fixture.users().await, 60);
    socket.stop().await;
}

#[actix_web::test]
async fn tails_have_permits_of_their_own() {
    let fixture = Fixture::with(&[]).await;
    let socket = listen(&fixture);
    let (feed, key) = (FeedName::broadcasts(), FeedKey::parse("k").unwrap());
    let (store, value) = (&fixture.context.store, FeedValue::parse("v").unwrap());
    store.write_key(feed.clone(), key, value, 1).await.unwrap();
    store.publish(feed.clone(), None, 1).await.unwrap();
    let (after, count, cursor_file, url) = (0, None, None, None);
    let (once, restart_if_gone, json) = (false, false, false);
    let tail = FeedTail { feed, after, count, once, restart_if_gone, cursor_file, json, url };
    let mut tails = Vec::new();
    for _ in 0..TAILS_MAX {
        tails.push(begin(&fixture, tail.clone()).await);
    }
    let (_, end) = call(&fixture, tail).await;
    assert!(
        matches!(&end, Err(CommandError::Job(why)) if why.starts_with("16 commands follow feeds")),
        "{end:?}"
    );
    assert!(matches!(call(&fixture, LIST).await.1, Ok(Completion::Done)));
    socket.stop().await;
    for mut tail in tails {
        let mut rest = String::new();
        tail.read_to_string(&mut rest).await.unwrap();
        assert!(rest.contains("{\"end\":\"stopped\"}\n"), "{rest}");
    }
}

#[actix_web::test]
async fn an_interrupted_client_still_prints_what_was_done() {
    let fixture = Fixture::with(&["2026_08"]).await;
    fixture.users_of(0..60, in_month("2026_08")).await;
    let socket = listen(&fixture);
    let (stream, mut printed) = (connect(&fixture).await, Vec::new());
    let end = call_over(stream, SLOW, &mut printed, std::future::ready(())).await;
    assert!(matches!(end, Ok(Completion::Stopped)), "{end:?}");
    assert_eq!(fixture.users().await, 60);
    socket.stop().await;
}

#[actix_web::test]
async fn a_server_that_does_not_answer_ends_the_command() {
    tokio::time::pause();
    let (stream, _hung_server) = UnixStream::pair().unwrap();
    let end = call_over(stream, LIST, &mut Vec::new(), std::future::pending::<()>()).await;
    assert!(matches!(end, Err(CommandError::ServerHangs)), "{end:?}");
}

#[actix_web::test]
async fn a_server_that_stops_stops_its_jobs() {
    let fixture = Fixture::with(&["2026_08"]).await;
    fixture.users_of(0..60, in_month("2026_08")).await;
    let socket = listen(&fixture);
    let mut job = slow_job(&fixture).await;
    socket.stop().await;
    let mut rest = Vec::new();
    job.read_to_end(&mut rest).await.unwrap();
    let rest = String::from_utf8(rest).unwrap();
    assert!(rest.contains("{\"end\":\"stopped\"}\n"), "{rest}");
    assert!(client::connect(fixture.dir.path()).await.is_err());
}

#[actix_web::test]
async fn the_path_of_the_directory_may_be_longer_than_a_socket_address() {
    let fixture = Fixture::with(&[]).await;
    let dir = fixture.dir.path().join("x".repeat(200)).join("y".repeat(200));
    fs::create_dir_all(&dir).unwrap();
    let log = Logger::root(Discard, o!());
    let socket = start(&dir, COMMANDS.served(), fixture.context.clone(), &log).unwrap();
    assert!(client::connect(&dir).await.is_ok());
    let mode = fs::metadata(dir.join(FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    socket.stop().await;
    assert!(!dir.join(FILE).exists());
}

#[actix_web::test]
async fn a_directory_without_room_for_the_socket_leaves_the_server_without_one() {
    let fixture = Fixture::with(&[]).await;
    let log = Logger::root(Discard, o!());
    let nowhere = fixture.dir.path().join("nowhere");
    assert!(start(&nowhere, COMMANDS.served(), fixture.context, &log).is_none());
}
