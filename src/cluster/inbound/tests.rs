use std::sync::Arc;

use actix_web::http::{Method, Uri};
use actix_web::rt;
use actix_web::test::{TestRequest, call_service, init_service};
use actors::{Directory, NoPeers, RegistryActor};
use futures_util::future::join;
use slog::o;
use state_machine::Time;
use tokio::time::{Instant, pause};

use super::fixture::*;
use super::*;
use crate::fuzz::fuzz;

#[actix_web::test]
async fn each_answer_of_a_connection_has_its_status() {
    for (answer, status) in [
        (NodeAnswer::Accepted, 200),
        (NodeAnswer::Unconfirmed, 202),
        (NodeAnswer::Unreachable, 202),
        (NodeAnswer::NotHere, 404),
        (NodeAnswer::NoSuchChannel, 410),
        (NodeAnswer::Busy, 503),
    ] {
        let Scene { port, mut pushes, .. } = Scene::of(NotifyResult::Delivered);
        let answering = async {
            let push = pushes.recv().await.unwrap();
            assert_eq!((push.uaid, push.message), (AGENT, message()));
            push.reply.send(answer).unwrap();
        };
        let (told, ()) = join(ask(&port, Asked::push(&message())), answering).await;
        assert_eq!(told, Told::Signed(status), "{answer:?}");
    }
}

/// What a node of the next version may send.
#[actix_web::test]
async fn each_message_with_an_unknown_field_has_its_effect() {
    let with_more = |body: &[u8]| {
        let mut json: serde_json::Value = serde_json::from_slice(body).unwrap();
        json["more"] = 1.into();
        json.to_string().into_bytes()
    };
    for request in [
        PeerRequest::DeliverPush(AGENT),
        PeerRequest::MessageStored(AGENT),
        PeerRequest::ConnectedElsewhere(AGENT, Time(77)),
    ] {
        // A new message needs its body here.
        let body = match request {
            PeerRequest::DeliverPush(_) => with_more(&wire_message::to_bytes(&message())),
            PeerRequest::MessageStored(_) | PeerRequest::ConnectedElsewhere(..) => with_more(b"{}"),
        };
        let Scene { port, mut pushes, notices } = Scene::of(NotifyResult::Delivered);
        let asked = Asked::new(request.method().parse().unwrap(), &request.path(), body);
        let answering = async {
            if let PeerRequest::DeliverPush(_) = request {
                let push = pushes.recv().await.unwrap();
                assert_eq!(push.message, message());
                push.reply.send(NodeAnswer::Accepted).unwrap();
            }
        };
        let (told, ()) = join(ask(&port, asked), answering).await;
        assert_eq!(told, Told::Signed(200), "{request:?}");
        let is_push = matches!(request, PeerRequest::DeliverPush(_));
        assert_eq!(notices.lock().unwrap().len(), usize::from(!is_push), "{request:?}");
    }
}

#[actix_web::test]
async fn a_push_is_unconfirmed_if_its_connection_ends() {
    let Scene { port, mut pushes, .. } = Scene::of(NotifyResult::Delivered);
    let ending = async { drop(pushes.recv().await.unwrap()) };
    let (told, ()) = join(ask(&port, Asked::push(&message())), ending).await;
    assert_eq!(told, Told::Signed(202));
}

#[actix_web::test]
async fn a_push_is_unconfirmed_and_cancelled_after_the_timeout() {
    pause();
    let Scene { port, mut pushes, .. } = Scene::of(NotifyResult::Delivered);
    let begun = Instant::now();
    let asking = async {
        let told = ask(&port, Asked::push(&message())).await;
        (told, begun.elapsed())
    };
    let connection = async {
        let mut push = pushes.recv().await.unwrap();
        push.reply.closed().await;
    };
    let ((told, waited), ()) = join(asking, connection).await;
    assert_eq!(told, Told::Signed(202));
    let (least, most) = (limits().answer_wait, limits().answer_wait + Duration::from_millis(5));
    assert!((least..=most).contains(&waited), "{waited:?}");
}

#[actix_web::test]
async fn a_notification_reaches_the_connection() {
    for (heard, status) in [(NotifyResult::Delivered, 200), (NotifyResult::NotConnected, 404)] {
        let scene = Scene::of(heard);
        assert_eq!(scene.ask(Asked::stored()).await, Told::Signed(status));
        assert_eq!(scene.ask(Asked::moved(77)).await, Told::Signed(status));
        assert_eq!(*scene.notices.lock().unwrap(), [(AGENT, None), (AGENT, Some(Time(77)))]);
    }
}

/// A port whose registry has no agent.
fn port_of_nobody() -> RouterPort {
    let log = Logger::root(slog::Discard, o!());
    let peers = Arc::new(NoPeers(NodeAnswer::NotHere));
    let registry = Directory::start(RegistryActor::new(16, peers, log.clone()), None);
    let (node, clock) = (NodeId::new(NODE), Clock::starting_at(NOW));
    RouterPort::new(node, cluster_keys(KEY), &registry, Box::new(about), clock, limits(), log)
}

#[actix_web::test]
async fn only_a_node_of_the_cluster_that_introduces_itself_to_this_node_is_listed() {
    let scene = Scene::of(NotifyResult::NotConnected);
    let elsewhere = "http://127.0.0.1:8082";
    let names = || {
        let callers = scene.port.callers.list(scene.port.clock.now());
        callers.into_iter().map(|caller| caller.name).collect::<Vec<_>>()
    };
    let strange = Asked { keys: cluster_keys(OTHER_KEY), ..Asked::introduction("strange:1") };
    assert_eq!(scene.ask(strange).await, Told::Unsigned(401));
    let to_another = Asked { node: elsewhere, ..Asked::introduction("to-another:1") };
    assert_eq!(scene.ask(to_another).await, Told::Unsigned(401));
    let late = Asked { at: Time(NOW.0 - 1_200_000), ..Asked::introduction("late:1") };
    assert!(matches!(scene.ask(late).await, Told::OtherTime(_)));
    let Asked { method, path, body, .. } = Asked::introduction("unsigned:1");
    let unsigned = TestRequest::with_uri(&path).method(method).set_payload(body);
    assert_eq!(send(&scene.port, unsigned, None).await, Told::Unsigned(401));
    // A node of an older version sends no body.
    assert_eq!(scene.ask(Asked::stored()).await, Told::Signed(404));
    assert_eq!(names(), [""; 0]);
    assert_eq!(scene.ask(Asked::introduction("a.example:8080")).await, Told::Signed(404));
    assert_eq!(names(), ["a.example:8080"]);
}

#[actix_web::test]
async fn an_unknown_agent_is_not_here() {
    let port = Data::new(port_of_nobody());
    for asked in [Asked::push(&message()), Asked::stored(), Asked::moved(1)] {
        assert_eq!(ask(&port, asked).await, Told::Signed(404));
    }
}

#[actix_web::test]
async fn only_a_process_itself_answers_for_its_instance() {
    let scene = Scene::of(NotifyResult::NotConnected);
    let ask = |uaid| scene.ask(Asked::new(Method::PUT, &format!("/notif/{uaid}"), Vec::new()));
    assert_eq!(scene.port.instance(), INSTANCE);
    assert_eq!(ask(INSTANCE).await, Told::Signed(200));
    assert_eq!(*scene.notices.lock().unwrap(), [], "the registry is not asked");
    assert_eq!(ask(AGENT).await, Told::Signed(404));
    let strange = Asked {
        keys: cluster_keys(OTHER_KEY),
        ..Asked::new(Method::PUT, &format!("/notif/{INSTANCE}"), Vec::new())
    };
    assert_eq!(scene.ask(strange).await, Told::Unsigned(401));
}

#[actix_web::test]
async fn each_process_has_its_own_instance() {
    assert_ne!(port_of_nobody().instance(), port_of_nobody().instance());
}

#[actix_web::test]
async fn with_an_overloaded_registry_notifications_are_unknown() {
    pause();
    let scene = Scene::overrun();
    for notice in [Asked::stored(), Asked::moved(1)] {
        let begun = Instant::now();
        assert_eq!(scene.ask(notice).await, Told::Signed(202));
        assert!((REGISTRY_WAIT..2 * REGISTRY_WAIT).contains(&begun.elapsed()));
    }
}

#[actix_web::test]
async fn with_a_stopped_registry_notifications_are_unknown() {
    let scene = Scene::gone();
    // Now it has stopped.
    rt::task::yield_now().await;
    assert_eq!(scene.ask(Asked::stored()).await, Told::Signed(202));
    assert_eq!(scene.ask(Asked::moved(1)).await, Told::Signed(202));
}

#[actix_web::test]
async fn a_request_without_a_valid_signature_is_refused_without_effect() {
    let mut scene = Scene::of(NotifyResult::Delivered);
    type Change = fn(&mut Asked);
    let ways: [(&str, Change); 4] = [
        ("other keys", |asked| asked.keys = cluster_keys(OTHER_KEY)),
        ("long ago", |asked| asked.at = Time(NOW.0 - 86_400_001)),
        ("far ahead", |asked| asked.at = Time(NOW.0 + 86_500_000)),
        ("for another node", |asked| asked.node = "http://127.0.0.1:8082"),
    ];
    for (way, change) in ways {
        for mut asked in [Asked::push(&message()), Asked::stored(), Asked::moved(1)] {
            change(&mut asked);
            assert_eq!(scene.ask(asked).await, Told::Unsigned(401), "{way}");
        }
    }
    assert_eq!((scene.pushed(), scene.notices.lock().unwrap().len()), (0, 0));
}

#[actix_web::test]
async fn a_request_of_another_time_is_told_the_time_and_has_an_effect_when_it_is_signed_with_that()
{
    for ahead in [-86_300_000, -1_200_000, -60_001, 61_000, 1_200_000, 86_300_000] {
        let mut scene = Scene::of(NotifyResult::Delivered);
        let at = Time(NOW.0.saturating_add_signed(ahead));
        for asked in [Asked::push(&message()), Asked::stored(), Asked::moved(1)] {
            let Told::OtherTime(time) = scene.ask(Asked { at, ..asked }).await else {
                panic!("{ahead} ms ahead")
            };
            assert!(time.since(NOW) < Span::from_secs(60) && NOW.since(time) == Span::ZERO);
        }
        assert_eq!((scene.pushed(), scene.notices.lock().unwrap().len()), (0, 0));
        let Told::OtherTime(time) = scene.ask(Asked { at, ..Asked::stored() }).await else {
            panic!("{ahead} ms ahead")
        };
        assert_eq!(scene.ask(Asked { at: time, ..Asked::stored() }).await, Told::Signed(200));
    }
}

/// No time is signed for those who have no key, and a body is bounded before anything is verified.
#[actix_web::test]
async fn only_a_node_of_the_cluster_that_calls_this_node_is_told_the_time() {
    let scene = Scene::of(NotifyResult::Delivered);
    let late = |asked: Asked| Asked { at: Time(NOW.0 - 1_200_000), ..asked };
    let strange = Asked { keys: cluster_keys(OTHER_KEY), ..late(Asked::stored()) };
    assert_eq!(scene.ask(strange).await, Told::Unsigned(401));
    let elsewhere = Asked { node: "http://127.0.0.1:8082", ..late(Asked::stored()) };
    assert_eq!(scene.ask(elsewhere).await, Told::Unsigned(401));
    let push = late(Asked::push(&message()));
    let changed = TestRequest::with_uri(&push.path).method(Method::PUT).set_payload("{}");
    let changed = changed.insert_header((AUTHORIZATION, push.sign().0));
    assert_eq!(send(&scene.port, changed, None).await, Told::Unsigned(401));
    let large = Asked::new(Method::PUT, &push.path, vec![b' '; BODY_BYTES_MAX + 1]);
    assert_eq!(scene.ask(late(large)).await, Told::Unsigned(413));
}

#[actix_web::test]
async fn a_signature_is_valid_for_its_own_request_only() {
    let mut scene = Scene::of(NotifyResult::Delivered);
    let asked = Asked::push(&message());
    let (signature, mac) = asked.sign();
    let send = |method, path: &str, body: Vec<u8>, header: Option<&str>| {
        let mut request = TestRequest::with_uri(path).method(method).set_payload(body);
        if let Some(header) = header {
            request = request.insert_header((AUTHORIZATION, header));
        }
        send(&scene.port, request, Some((&asked.keys, mac)))
    };
    let (path, body) = (asked.path.as_str(), asked.body.clone());
    let other_agent = format!("/push/{}", Uaid([1; 16]));
    let (with_query, with_slash) = (format!("{path}?a=b"), format!("{path}/"));
    let told = [
        send(Method::PUT, path, body.clone(), None).await,
        send(Method::PUT, path, body.clone(), Some("")).await,
        send(Method::PUT, path, body.clone(), Some("Bearer abc")).await,
        send(Method::PUT, path, Vec::new(), Some(&signature)).await,
        send(Method::PUT, path, [&body[..], b" "].concat(), Some(&signature)).await,
        send(Method::POST, path, body.clone(), Some(&signature)).await,
        send(Method::PUT, &other_agent, body.clone(), Some(&signature)).await,
        send(Method::PUT, &with_query, body.clone(), Some(&signature)).await,
        send(Method::PUT, &with_slash, body.clone(), Some(&signature)).await,
        send(Method::GET, "/", Vec::new(), None).await,
        send(Method::GET, "/__heartbeat__", Vec::new(), None).await,
    ];
    assert_eq!(told, [Told::Unsigned(401); 11]);
    assert_eq!(scene.pushed(), 0);
}

#[actix_web::test]
async fn an_unknown_request_is_answered_400_and_not_404() {
    let mut scene = Scene::of(NotifyResult::NotConnected);
    let push = format!("/push/{AGENT}");
    for (method, path, body) in [
        (Method::PUT, "/", ""),
        (Method::PUT, "/unknown", ""),
        (Method::PUT, "/push/abc", "{}"),
        (Method::GET, &push, ""),
        (Method::PUT, &format!("{push}/"), "{}"),
        (Method::PUT, &format!("{push}?v=2"), "{}"),
        (Method::PUT, &push, ""),
        (Method::PUT, &push, "{}"),
        (Method::PUT, &push, "garbage \u{fffd}"),
        (Method::PUT, &push, "[[[["),
    ] {
        let asked = Asked::new(method, path, body.into());
        assert_eq!(scene.ask(asked).await, Told::Signed(400), "{path} {body}");
    }
    assert_eq!((scene.pushed(), scene.notices.lock().unwrap().len()), (0, 0));
}

#[actix_web::test]
async fn a_body_above_the_maximum_is_answered_413() {
    let scene = Scene::of(NotifyResult::Delivered);
    let of = |bytes| Asked::new(Method::PUT, &format!("/push/{AGENT}"), vec![b' '; bytes]);
    assert_eq!(scene.ask(of(BODY_BYTES_MAX)).await, Told::Signed(400));
    assert_eq!(scene.ask(of(BODY_BYTES_MAX + 1)).await, Told::Unsigned(413));
    assert_eq!(scene.ask(of(1_000_000)).await, Told::Unsigned(413));
}

#[test]
fn the_maximum_body_fits_the_largest_message_of_either_encoding() {
    let mut settings = Settings::default();
    let of = |settings: &Settings| PortLimits::from(settings).body_bytes_max;
    assert_eq!(of(&settings), wire_message::bytes_max(5630));
    settings.payload_bytes_max = 100_000;
    assert_eq!(of(&settings), wire_message::bytes_max(100_000));
    assert_eq!(PortLimits::from(&settings).answer_wait, Duration::from_millis(1250));
}

#[actix_web::test]
async fn rejected_requests_are_logged_once_a_second() {
    pause();
    let (logger, mut log) = Log::new();
    let scene = Scene::logging(logger);
    let strange = || Asked { keys: cluster_keys(OTHER_KEY), ..Asked::stored() };
    let line = ["WARN rejected a request of another node"];
    for (after, lines) in [(0, &line[..]), (0, &[]), (1000, &line), (999, &[])] {
        tokio::time::advance(Duration::from_millis(after)).await;
        assert_eq!(scene.ask(strange()).await, Told::Unsigned(401));
        assert_eq!(log.said(), lines);
    }
    assert_eq!(scene.ask(Asked::stored()).await, Told::Signed(200));
    assert_eq!(log.said(), [""; 0]);
}

/// A cluster key may be stolen, and nodes of another version send other requests.
#[test]
fn no_hostile_request_of_a_node_makes_the_port_panic_or_fail() {
    let system = actix::System::new();
    let service = system.block_on(async {
        let port = Data::new(port_of_nobody());
        init_service(actix_web::App::new().configure(RouterPort::routes(&port))).await
    });
    // Method and path, and the body.
    let line = |asked: Asked| {
        [format!("{} {}\n", asked.method, asked.path).as_bytes(), &asked.body].concat()
    };
    let introduction = Asked::introduction("a.example:8080");
    let samples = [Asked::push(&message()), Asked::stored(), Asked::moved(77), introduction];
    let samples = samples.map(line);
    fuzz("peer_requests", &samples, |bytes| {
        let Some(asked) = asked(bytes) else { return };
        let request = TestRequest::with_uri(&asked.path).method(asked.method.clone());
        let request = request.insert_header((AUTHORIZATION, asked.sign().0));
        let request = request.set_payload(asked.body).to_request();
        let answer = system.block_on(call_service(&service, request));
        assert!(!answer.status().is_server_error(), "{}", answer.status());
    });
}

/// A signed request, unless HTTP does not allow its method or path.
fn asked(bytes: &[u8]) -> Option<Asked> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let (method, path) = std::str::from_utf8(&bytes[..end]).ok()?.split_once(' ')?;
    path.parse::<Uri>().ok().filter(|uri| uri.path().starts_with('/'))?;
    let method = Method::from_bytes(method.as_bytes()).ok()?;
    Some(Asked::new(method, path, bytes[end + 1..].to_vec()))
}
