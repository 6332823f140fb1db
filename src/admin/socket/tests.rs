use std::os::unix::net::UnixStream as BlockingStream;

use slog::{Discard, o};
use state_machine::feed::{FeedKey, FeedName, FeedValue};

use super::*;
use crate::admin::bar::Bar;
use crate::admin::client;
use crate::admin::command::AdminError;
use crate::admin::feed::{FeedTail, Name};
use crate::admin::fixture::{Fixture, in_month};
use crate::admin::print::Printer;
use crate::admin::request::{Create, DropInactive, VERSION};

fn listen(fixture: &Fixture) -> AdminSocket {
    let log = Logger::root(Discard, o!());
    start(fixture.dir.path(), fixture.context.clone(), &log).expect("a socket can be made")
}

async fn connect(fixture: &Fixture) -> UnixStream {
    client::connect(fixture.dir.path()).await.unwrap()
}

/// Asks over the socket; what was printed, and how it ended.
async fn ask(fixture: &Fixture, request: &Request) -> (String, Result<Completion, AdminError>) {
    let mut printed = Vec::new();
    let mut printer = Printer::new(&mut printed, false, Bar::new(false));
    let stream = connect(fixture).await;
    let end = client::ask(stream, request, &mut printer, std::future::pending::<()>()).await;
    (String::from_utf8(printed).unwrap(), end)
}

/// Says something over the socket; all that is answered.
async fn say(fixture: &Fixture, text: &[u8]) -> String {
    let mut stream = connect(fixture).await;
    // It may be refused before all of it is read.
    let _ = stream.write_all(text).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

/// A job that takes for ever, at work once this returns.
async fn slow_job(fixture: &Fixture) -> UnixStream {
    let slow = DropInactive { months: 2, rate: 1, dry_run: false, since: None };
    begin(fixture, &Request::DropInactive(slow)).await
}

/// A job that has told something once this returns.
async fn begin(fixture: &Fixture, request: &Request) -> UnixStream {
    let mut stream = connect(fixture).await;
    stream.write_all(request.to_line().as_bytes()).await.unwrap();
    let mut first = [0; 1];
    stream.read_exact(&mut first).await.unwrap();
    stream
}

#[tokio::test]
async fn a_command_is_done_inside_the_server() {
    let fixture = Fixture::with(&["2026_11"]).await;
    let socket = listen(&fixture);
    let (printed, end) = ask(&fixture, &Request::Create(Create { lower_prior: None })).await;
    assert!(matches!(end, Ok(Completion::Done)), "{end:?}");
    assert_eq!(printed, "2026_10 is made\n2026_11 was there\n2026_12 is made\n");
    socket.stop().await;
    assert!(!fixture.dir.path().join(FILE).exists());
}

#[tokio::test]
async fn only_the_owner_can_connect_and_what_a_killed_server_left_is_replaced() {
    let fixture = Fixture::with(&[]).await;
    for name in [FILE, UNFINISHED] {
        drop(BlockingListener::bind(fixture.dir.path().join(name)).unwrap());
    }
    assert!(BlockingStream::connect(fixture.dir.path().join(FILE)).is_err());
    let socket = listen(&fixture);
    let mode = fs::metadata(fixture.dir.path().join(FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    assert!(!fixture.dir.path().join(UNFINISHED).exists());
    assert!(matches!(ask(&fixture, &Request::List).await.1, Ok(Completion::Done)));
    socket.stop().await;
}

#[tokio::test]
async fn garbage_is_answered_with_what_is_wrong_and_hurts_nobody() {
    let fixture = Fixture::with(&[]).await;
    let socket = listen(&fixture);
    let too_long = vec![b'x'; REQUEST_BYTES_MAX + 100];
    let other = r#"{"version": "9.9.9", "request": "list"}"#;
    let unknown = format!(r#"{{"version": "{VERSION}", "request": "unheard_of"}}"#);
    for (garbage, expected) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "that is no request of a kalends command"),
        (b"\n", "that is no request"),
        (b"\xff\xfe\n", "that is no request"),
        (&too_long, "a request has at most 1576960 bytes"),
        (format!("{other}\n").as_bytes(), "this command is version 9.9.9"),
        (format!("{unknown}\n").as_bytes(), "does not know this request"),
    ] {
        let answer = say(&fixture, garbage).await;
        assert!(answer.contains("failed") && answer.contains(expected), "{answer:?}");
    }
    drop(connect(&fixture).await);
    assert!(matches!(ask(&fixture, &Request::List).await.1, Ok(Completion::Done)));
    socket.stop().await;
}

#[tokio::test]
async fn a_client_that_goes_away_stops_its_job_and_makes_room() {
    let fixture = Fixture::with(&["2026_08"]).await;
    fixture.users_of(0..60, in_month("2026_08")).await;
    let socket = listen(&fixture);
    let mut jobs = Vec::new();
    for _ in 0..COMMANDS_MAX {
        jobs.push(slow_job(&fixture).await);
    }
    let (_, end) = ask(&fixture, &Request::List).await;
    assert!(matches!(end, Ok(Completion::Failed(why)) if why.contains("at work already")));

    jobs.clear();
    let taken =
        async { while !matches!(ask(&fixture, &Request::List).await.1, Ok(Completion::Done)) {} };
    timeout(Duration::from_secs(10), taken).await.expect("jobs that nobody wants end");
    assert_eq!(fixture.users().await, 60);
    socket.stop().await;
}

#[tokio::test]
async fn those_who_follow_feeds_have_places_of_their_own() {
    let fixture = Fixture::with(&[]).await;
    let socket = listen(&fixture);
    let (feed, key) = (FeedName::broadcasts(), FeedKey::parse("k").unwrap());
    let (store, value) = (&fixture.context.store, FeedValue::parse("v").unwrap());
    store.write_key(feed.clone(), key, value, 1).await.unwrap();
    store.publish(feed.clone(), None, 1).await.unwrap();
    let tail = FeedTail { feed: Name(feed), after: 0, count: None, once: false };
    let tail = Request::FeedTail(tail);
    let mut tails = Vec::new();
    for _ in 0..TAILS_MAX {
        tails.push(begin(&fixture, &tail).await);
    }
    let (_, end) = ask(&fixture, &tail).await;
    assert!(
        matches!(end, Ok(Completion::Failed(why)) if why.starts_with("16 commands follow feeds"))
    );
    assert!(matches!(ask(&fixture, &Request::List).await.1, Ok(Completion::Done)));
    socket.stop().await;
    for mut tail in tails {
        let mut rest = String::new();
        tail.read_to_string(&mut rest).await.unwrap();
        assert!(rest.ends_with("{\"end\":\"stopped\"}\n"), "{rest}");
    }
}

#[tokio::test]
async fn a_client_that_is_interrupted_hears_what_was_done() {
    let fixture = Fixture::with(&["2026_08"]).await;
    fixture.users_of(0..60, in_month("2026_08")).await;
    let socket = listen(&fixture);
    let (stream, mut printed) = (connect(&fixture).await, Vec::new());
    let mut printer = Printer::new(&mut printed, false, Bar::new(false));
    let slow =
        Request::DropInactive(DropInactive { months: 2, rate: 1, dry_run: false, since: None });
    let end = client::ask(stream, &slow, &mut printer, std::future::ready(())).await;
    assert!(matches!(end, Ok(Completion::Stopped)), "{end:?}");
    assert_eq!(fixture.users().await, 60);
    socket.stop().await;
}

#[tokio::test]
async fn a_server_that_stops_stops_its_jobs() {
    let fixture = Fixture::with(&["2026_08"]).await;
    fixture.users_of(0..60, in_month("2026_08")).await;
    let socket = listen(&fixture);
    let mut job = slow_job(&fixture).await;
    socket.stop().await;
    let mut rest = Vec::new();
    job.read_to_end(&mut rest).await.unwrap();
    let rest = String::from_utf8(rest).unwrap();
    assert!(rest.ends_with("{\"end\":\"stopped\"}\n"), "{rest}");
    assert!(client::connect(fixture.dir.path()).await.is_err());
}

#[tokio::test]
async fn a_directory_with_a_long_path_is_no_obstacle() {
    let fixture = Fixture::with(&[]).await;
    let dir = fixture.dir.path().join("x".repeat(200));
    fs::create_dir(&dir).unwrap();
    let log = Logger::root(Discard, o!());
    let socket = start(&dir, fixture.context.clone(), &log).unwrap();
    assert!(client::connect(&dir).await.is_ok());
    let mode = fs::metadata(dir.join(FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    socket.stop().await;
    assert!(!dir.join(FILE).exists());
}

#[tokio::test]
async fn a_directory_that_nothing_can_be_made_in_leaves_the_server_without_a_socket() {
    let fixture = Fixture::with(&[]).await;
    let log = Logger::root(Discard, o!());
    assert!(start(&fixture.dir.path().join("nowhere"), fixture.context.clone(), &log).is_none());
}
