//! The router port over TCP.

use std::net::{SocketAddr, TcpListener};

use actix_web::dev::ServerHandle;
use actix_web::http::Method;
use actix_web::rt;
use state_machine::Time;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream as Socket;
use tokio::sync::mpsc::UnboundedReceiver;

use super::fixture::*;
use super::*;
use crate::cluster::about::CallingNode;
use crate::cluster::callers::NAMED_MAX;

struct Listening {
    address: SocketAddr,
    server: ServerHandle,
    pushes: UnboundedReceiver<DirectPush>,
}

impl Listening {
    fn with(limits: PortLimits) -> Self {
        let Scene { port, pushes, .. } = Scene::of(NotifyResult::Delivered);
        let port = Data::into_inner(port);
        let mut port = Arc::into_inner(port).expect("it has one owner");
        port.limits = limits;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = port.serve(listener, || ()).unwrap();
        let handle = server.handle();
        rt::spawn(server);
        Self { address, server: handle, pushes }
    }

    /// A connection on which these bytes were sent.
    async fn send(&self, bytes: &[u8]) -> Socket {
        let mut socket = Socket::connect(self.address).await.unwrap();
        socket.write_all(bytes).await.unwrap();
        socket
    }
}

/// A signed request as it is sent, with these headers for its body.
fn bytes(asked: &Asked, framing: &str) -> Vec<u8> {
    let (method, path, signature) = (&asked.method, &asked.path, asked.sign().0);
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: a\r\nauthorization: {signature}\r\n{framing}\r\n\r\n"
    );
    [head.as_bytes(), &asked.body].concat()
}

fn whole(asked: &Asked) -> Vec<u8> {
    bytes(asked, &format!("content-length: {}", asked.body.len()))
}

/// Reads the head of one answer.
async fn head(socket: &mut Socket) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// Reads until the port closes the connection.
async fn rest(mut socket: Socket) -> String {
    let mut all = Vec::new();
    // A connection that is reset is closed too.
    let _ = socket.read_to_end(&mut all).await;
    String::from_utf8(all).unwrap()
}

#[actix_web::test]
async fn an_operator_learns_what_the_node_is_and_which_nodes_call_it() {
    let node = Listening::with(limits());
    let mut socket = node.send(b"").await;
    let caller = CallingNode {
        name: "a.example:8080".to_owned(),
        role: "endpoint".to_owned(),
        version: "1.2.3".to_owned(),
        called_s_ago: 0,
        clock_ahead_s: 0,
    };
    let question = Asked::new(Method::PUT, &format!("/notif/{PREFLIGHT_UAID}"), Vec::new());
    let introduction = Asked::introduction(&caller.name);
    let with_callers = AboutNode { callers: vec![caller], ..about() };
    for (asked, told) in [
        (&Asked::stored(), None),
        (&question, Some(about())),
        (&introduction, None),
        (&question, Some(with_callers)),
    ] {
        socket.write_all(&whole(asked)).await.unwrap();
        let head = head(&mut socket).await;
        let mut read = header(&head, ABOUT_HEADER).and_then(AboutNode::parse);
        // However slow this machine is.
        let callers = read.iter_mut().flat_map(|about| &mut about.callers);
        callers.for_each(|caller| caller.called_s_ago = 0);
        assert_eq!(read, told, "{head}");
        assert_eq!(header(&head, ABOUT_MAC_HEADER).is_some(), told.is_some());
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(": "));
    fields.find(|(known, _)| *known == name).map(|(_, value)| value)
}

#[actix_web::test]
async fn callers_beyond_those_that_an_answer_names_are_counted() {
    let node = Listening::with(limits());
    let mut socket = node.send(b"").await;
    for number in 0..NAMED_MAX + 4 {
        let introduction = Asked::introduction(&format!("n{number}:1"));
        socket.write_all(&whole(&introduction)).await.unwrap();
        head(&mut socket).await;
    }
    let question = Asked::new(Method::PUT, &format!("/notif/{PREFLIGHT_UAID}"), Vec::new());
    socket.write_all(&whole(&question)).await.unwrap();
    let head = head(&mut socket).await;
    let about = header(&head, ABOUT_HEADER).and_then(AboutNode::parse).unwrap();
    assert_eq!((about.callers.len(), about.callers_left_out), (NAMED_MAX, 4));
}

#[actix_web::test]
async fn a_connection_is_kept_and_answers_have_no_body() {
    let mut node = Listening::with(limits());
    let mut socket = node.send(b"").await;
    for (answer, status) in [(NodeAnswer::Accepted, 200), (NodeAnswer::Busy, 503)] {
        socket.write_all(&whole(&Asked::push(&message()))).await.unwrap();
        node.pushes.recv().await.unwrap().reply.send(answer).unwrap();
        let head = head(&mut socket).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
        assert!(head.contains("\r\nkalends-mac: ") && head.contains("\r\ncontent-length: 0\r\n"));
    }
    node.server.stop(false).await;
}

#[actix_web::test]
async fn a_push_is_cancelled_when_the_node_closes_its_connection() {
    let hour = Duration::from_secs(3600);
    let mut node = Listening::with(PortLimits { answer_wait: hour, ..limits() });
    let socket = node.send(&whole(&Asked::push(&message()))).await;
    let mut push = node.pushes.recv().await.unwrap();
    assert!(!push.reply.is_closed());
    drop(socket);
    timeout(Duration::from_secs(10), push.reply.closed()).await.unwrap();
    node.server.stop(false).await;
}

#[actix_web::test]
async fn a_body_that_does_not_arrive_in_time_is_answered_408() {
    let limits = PortLimits { body_timeout: Duration::from_millis(20), ..limits() };
    let mut node = Listening::with(limits);
    let asked = Asked::push(&message());
    for framing in ["content-length: 4000", "transfer-encoding: chunked"] {
        let head = bytes(&Asked { body: Vec::new(), ..Asked::push(&message()) }, framing);
        let answer = rest(node.send(&head).await).await;
        assert!(answer.starts_with("HTTP/1.1 408 "), "{framing}: {answer}");
        assert!(!answer.contains(ANSWER_MAC_HEADER));
    }
    let late = Asked { at: Time(NOW.0 - 3_600_000), body: Vec::new(), ..Asked::push(&message()) };
    let late = node.send(&bytes(&late, "content-length: 4000")).await;
    assert!(rest(late).await.starts_with("HTTP/1.1 408 "));
    // A body that ends too early is rejected, if the connection is still open.
    let cut = whole(&asked);
    let mut socket = node.send(&cut[..cut.len() - 1]).await;
    socket.shutdown().await.unwrap();
    assert!(!rest(socket).await.contains(ANSWER_MAC_HEADER));
    assert!(node.pushes.try_recv().is_err());
    node.server.stop(false).await;
}

#[actix_web::test]
async fn an_unsigned_request_is_answered_before_its_body_and_its_connection_closed() {
    let node = Listening::with(limits());
    let signed_at = |at| Asked { at, ..Asked::stored() }.sign().0;
    let (valid, old) = (signed_at(NOW), signed_at(Time(NOW.0 - 90_000_000)));
    for (framing, signature) in [
        ("content-length: 1000000000", None),
        ("transfer-encoding: chunked", None),
        ("content-length: 0", None),
        ("content-length: 4000", Some("Bearer a")),
        ("content-length: 4000", Some(&valid[..valid.len() - 1])),
        ("transfer-encoding: chunked", Some(&*old)),
    ] {
        let signature = signature.map(|text| format!("authorization: {text}\r\n"));
        let request = format!(
            "PUT /push/{AGENT} HTTP/1.1\r\nhost: a\r\n{}{framing}\r\n\r\n",
            signature.unwrap_or_default()
        );
        let socket = node.send(request.as_bytes()).await;
        let answer = timeout(Duration::from_secs(10), rest(socket)).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 401 "), "{framing}: {answer}");
        assert!(!answer.contains(ANSWER_MAC_HEADER));
    }
    node.server.stop(false).await;
}

#[actix_web::test]
async fn a_node_with_another_clock_calls_again_on_the_same_connection() {
    let node = Listening::with(limits());
    let late = Asked { at: Time(NOW.0 - 3_600_000), ..Asked::stored() };
    let mut socket = node.send(&whole(&late)).await;
    let refusal = head(&mut socket).await;
    assert!(refusal.starts_with("HTTP/1.1 401 "), "{refusal}");
    assert!(refusal.contains("\r\nkalends-time: ") && refusal.contains("\r\nkalends-mac: "));
    socket.write_all(&whole(&Asked::stored())).await.unwrap();
    assert!(head(&mut socket).await.starts_with("HTTP/1.1 200 "));
    node.server.stop(false).await;
}
