//! The connections of the server, and the rules of each API.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::{future, thread};

use bytes::Bytes;
use h2::Reason;
use h2::server::SendResponse;
use hyper::{HeaderMap, Request, Response};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use url::form_urlencoded;

use super::{PROJECT, ReceivedMessage, Reply, Shared, TEAM_ID};

/// Streams of one connection, as APNs allows.
const STREAMS_MAX: u32 = 1000;

/// Bytes of all streams that may be on their way. With less, h2 takes the fragments of many requests for an attack.
const WINDOW_BYTES: u32 = 16 << 20;

/// What a request does to its connection.
enum Order {
    GoAway,
    Close,
    Deaf,
}

/// One connection, as its requests know it.
#[derive(Clone)]
struct Connection {
    shared: Arc<Shared>,
    number: usize,
    has_certificate: bool,
    orders: mpsc::UnboundedSender<Order>,
}

/// Serves in a thread of its own, so that no test that waits blocks it.
pub(super) fn start(shared: Arc<Shared>) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.set_nonblocking(true).expect("a socket need not block");
    let address = listener.local_addr().expect("it is bound");
    let tls = TlsAcceptor::from(Arc::new(shared.credentials.tls()));
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime can be made").block_on(accept(listener, tls, shared));
    });
    address
}

async fn accept(listener: std::net::TcpListener, tls: TlsAcceptor, shared: Arc<Shared>) {
    let listener = TcpListener::from_std(listener).expect("the runtime has sockets");
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve(stream, tls.clone(), Arc::clone(&shared)));
    }
}

/// Serves a connection until it ends, for whatever reason.
async fn serve(stream: TcpStream, tls: TlsAcceptor, shared: Arc<Shared>) {
    let Ok(stream) = tls.accept(stream).await else { return };
    let has_certificate = stream.get_ref().1.peer_certificates().is_some();
    let number = shared.connections.fetch_add(1, Ordering::Relaxed) + 1;
    let (orders, mut ordered) = mpsc::unbounded_channel();
    let connection = Connection { shared, number, has_certificate, orders };
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(STREAMS_MAX).initial_connection_window_size(WINDOW_BYTES);
    let handshake = builder.handshake::<_, Bytes>(stream);
    let Ok(mut http) = handshake.await else { return };
    loop {
        tokio::select! {
            order = ordered.recv() => match order {
                Some(Order::GoAway) => http.abrupt_shutdown(Reason::NO_ERROR),
                Some(Order::Close) | None => return,
                Some(Order::Deaf) => future::pending().await,
            },
            request = http.accept() => match request {
                Some(Ok((request, respond))) => {
                    tokio::spawn(connection.clone().handle(request, respond));
                }
                Some(Err(_)) | None => return,
            },
        }
    }
}

impl Connection {
    async fn handle(self, request: Request<h2::RecvStream>, mut respond: SendResponse<Bytes>) {
        let (parts, mut body) = request.into_parts();
        let mut bytes = Vec::new();
        while let Some(Ok(part)) = body.data().await {
            let _ = body.flow_control().release_capacity(part.len());
            bytes.extend_from_slice(&part);
        }
        let reply = match parts.uri.path() {
            "/token" => self.token(&bytes),
            path => self.message(path, parts.headers, &bytes),
        };
        match reply {
            Reply::Answer { status, headers, body, after } => {
                sleep(after).await;
                let mut response = Response::builder().status(status);
                for (name, value) in headers {
                    response = response.header(name, value);
                }
                let response = response.body(()).expect("the test wrote a response");
                // The client may have given up.
                if let Ok(mut stream) = respond.send_response(response, body.is_empty()) {
                    let _ = stream.send_data(Bytes::from(body), true);
                }
            }
            Reply::GoAway => _ = self.orders.send(Order::GoAway),
            Reply::Close => _ = self.orders.send(Order::Close),
            Reply::Reset => respond.send_reset(Reason::REFUSED_STREAM),
            Reply::Silence => future::pending().await,
            Reply::Deaf => {
                _ = self.orders.send(Order::Deaf);
                future::pending::<()>().await;
            }
        }
    }

    /// RFC 7523 §2.1: a token for an assertion that the service account has signed.
    fn token(&self, body: &[u8]) -> Reply {
        let mut state = self.shared.state();
        state.token_requests += 1;
        if let Some(reply) = state.token_replies.pop_front() {
            return reply;
        }
        let assertion = form_urlencoded::parse(body).find(|(name, _)| name == "assertion");
        let claims = assertion.and_then(|(_, token)| self.shared.credentials.verify_rs256(&token));
        let claims = claims.unwrap_or_default();
        let lives_s =
            claims["exp"].as_u64().zip(claims["iat"].as_u64()).map(|(exp, iat)| exp - iat);
        let is_right = lives_s.is_some_and(|lives_s| lives_s <= 3600)
            && claims["iss"] == format!("push@{PROJECT}.example")
            && claims["scope"] == "https://www.googleapis.com/auth/firebase.messaging"
            && claims["aud"].as_str().is_some_and(|audience| audience.ends_with("/token"));
        if !is_right {
            return Reply::json(400, r#"{"error":"invalid_grant"}"#);
        }
        state.tokens_issued += 1;
        let token = format!("access-{}", state.tokens_issued);
        let life = state.token_life_s;
        Reply::json(
            200,
            &json!({"access_token": token, "expires_in": life, "token_type": "Bearer"}).to_string(),
        )
    }

    fn message(&self, path: &str, headers: HeaderMap, body: &[u8]) -> Reply {
        let authorization = headers.get("authorization").and_then(|value| value.to_str().ok());
        let authorization = authorization.unwrap_or_default().to_owned();
        let provider_token = authorization.strip_prefix("bearer ");
        let claims = provider_token.and_then(|token| self.shared.credentials.verify_es256(token));
        let mut state = self.shared.state();
        state.messages.push(ReceivedMessage {
            path: path.to_owned(),
            headers,
            body: serde_json::from_slice(body).unwrap_or_default(),
            claims: claims.clone(),
            connection: self.number,
            has_certificate: self.has_certificate,
        });
        let issued = format!("Bearer access-{}", state.tokens_issued);
        let refusal = if path.starts_with("/3/device/") {
            let is_known = claims.is_some_and(|claims: Value| claims["iss"] == TEAM_ID);
            (!is_known && !self.has_certificate)
                .then(|| Reply::json(403, r#"{"reason":"InvalidProviderToken"}"#))
        } else if path == format!("/v1/projects/{PROJECT}/messages:send") {
            (authorization != issued || state.tokens_issued == 0)
                .then(|| Reply::json(401, r#"{"error":{"code":401,"status":"UNAUTHENTICATED"}}"#))
        } else {
            Some(Reply::json(404, r#"{"error":{"code":404,"status":"NOT_FOUND"}}"#))
        };
        let scripted = || state.replies.pop_front();
        refusal.or_else(scripted).unwrap_or_else(|| state.usual.clone())
    }
}
