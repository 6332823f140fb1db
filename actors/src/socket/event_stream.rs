//! An endless body after the head of its answer: the connection keeps the socket and nothing of what HTTP needed.
//!
//! actix-http writes the head, followed by a body of which nothing comes ([`awaiting_handover`]). Then the connection
//! takes the socket as an upgrade does, and [`EventStream`] writes the real body.

use std::convert::Infallible;
use std::io::Write;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use actix_http::body::{BodyStream, BoxBody, MessageBody};
use actix_web::Error;
use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use futures_util::stream::pending;
use tokio::io::{AsyncRead, ReadBuf};

use super::io::Socket;
use super::taken_socket::{Output, UNSENT_BYTES_MAX};

/// Bytes after the request of an endless body that are read, and dropped: requests that will have no answer. Further
/// ones stay in the socket, and TCP holds the peer back.
const DROPPED_BYTES_MAX: usize = 8 * 1024;

/// In the extensions of an answer: its body may rest, and the connection ends with it. A body without this is ended
/// like an idle connection when it rests.
#[derive(Debug, Clone, Copy)]
pub struct EndlessBody;

/// What is written to a socket after the head of an answer with an [`EndlessBody`].
pub(super) struct EventStream<T> {
    socket: Rc<Socket<T>>,
    /// None after its end.
    body: Option<BoxBody>,
    /// HTTP/1.1 has chunks. A body of HTTP/1.0 ends with the connection.
    is_chunked: bool,
    /// Whether the peer still waits for the body when it has closed its end.
    allows_half_closed: bool,
    /// Bytes of the peer that are still read.
    readable_bytes: usize,
}

/// The body of an answer whose socket is about to be taken from HTTP: nothing comes of it.
pub(super) fn awaiting_handover() -> BoxBody {
    BodyStream::new(pending::<Result<Bytes, Infallible>>()).boxed()
}

impl<T: AsyncRead + Unpin> EventStream<T> {
    pub(super) fn new(
        socket: Rc<Socket<T>>,
        body: BoxBody,
        is_chunked: bool,
        allows_half_closed: bool,
    ) -> Self {
        let readable_bytes = DROPPED_BYTES_MAX;
        Self { socket, body: Some(body), is_chunked, allows_half_closed, readable_bytes }
    }

    /// Whether the peer is gone. Reads what it sends, which is how its close is noticed.
    fn is_peer_gone(&mut self, cx: &mut Context<'_>) -> bool {
        let mut bytes = [0; 512];
        while self.readable_bytes > 0 {
            let mut read = ReadBuf::new(&mut bytes);
            match self.socket.poll_read(cx, &mut read) {
                Poll::Pending => return false,
                Poll::Ready(Err(_)) => return true,
                Poll::Ready(Ok(())) if read.filled().is_empty() => {
                    self.readable_bytes = 0;
                    return !self.allows_half_closed;
                }
                Poll::Ready(Ok(())) => {
                    let dropped = read.filled().len();
                    self.readable_bytes = self.readable_bytes.saturating_sub(dropped);
                }
            }
        }
        false
    }

    /// What the body has now, to be written at once; none if it has nothing yet.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Result<Option<BytesMut>, Error> {
        let mut bytes = BytesMut::new();
        while bytes.len() < UNSENT_BYTES_MAX
            && let Some(body) = &mut self.body
            && let Poll::Ready(part) = Pin::new(body).poll_next(cx)
        {
            match part.transpose().map_err(Error::from)? {
                Some(part) => bytes.extend_from_slice(&part),
                None => self.body = None,
            }
        }
        Ok((!bytes.is_empty()).then_some(bytes))
    }
}

impl<T: AsyncRead + Unpin> Stream for EventStream<T> {
    type Item = Result<Bytes, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.body.is_none() || self.is_peer_gone(cx) {
            return Poll::Ready(None);
        }
        let part = match self.poll_body(cx) {
            Ok(part) => part,
            // Without the last chunk the peer knows that something is missing.
            Err(error) => return Poll::Ready(Some(Err(error))),
        };
        let is_last = self.body.is_none();
        match part {
            None if !is_last => Poll::Pending,
            part => {
                let part = part.unwrap_or_default().freeze();
                let bytes = if self.is_chunked { chunked(&part, is_last) } else { part };
                Poll::Ready(Some(Ok(bytes)))
            }
        }
    }
}

impl<T: AsyncRead + Unpin> Output for EventStream<T> {}

/// A chunk (RFC 9112 §7.1), and the last one behind it. An empty chunk would be the last one.
fn chunked(part: &[u8], is_last: bool) -> Bytes {
    const ENDS: usize = "ffffffffffffffff\r\n\r\n0\r\n\r\n".len();
    let mut bytes = Vec::with_capacity(part.len() + ENDS);
    if !part.is_empty() {
        let _ = write!(bytes, "{:x}\r\n", part.len());
        bytes.extend_from_slice(part);
        bytes.extend_from_slice(b"\r\n");
    }
    if is_last {
        bytes.extend_from_slice(b"0\r\n\r\n");
    }
    bytes.into()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use actix_service::{Service, ServiceFactory};
    use actix_web::web::{self, Data, ServiceConfig};
    use actix_web::{HttpResponse, error};
    use futures_util::stream;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::sync::{Mutex, mpsc};
    use tokio::task::{LocalSet, spawn_local};
    use tokio::time::{sleep, timeout};

    use super::super::{HttpOptions, service};
    use super::*;

    /// What a connection of a test takes before its peer reads.
    const PIPE_BYTES: usize = 1024;

    type Part = Result<Bytes, Error>;

    const REQUEST: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    const HEAD: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n";

    /// A connection whose endless body a test writes.
    struct Peer {
        client: DuplexStream,
        parts: mpsc::Sender<Part>,
    }

    impl Peer {
        /// One that has received the head of its answer.
        async fn after(request: &str, head: &str, allows_half_closed: bool) -> Self {
            let options = HttpOptions {
                headers_timeout: Duration::from_secs(5),
                keep_alive: Duration::from_secs(75),
                linger: Duration::from_secs(1),
                allows_half_closed,
                bad_request: str::to_owned,
                stopping: None,
            };
            let (parts, body) = mpsc::channel(1);
            let body = Data::new(Mutex::new(Some(body)));
            let routes = move |service: &mut ServiceConfig| {
                service.app_data(body).route("/", web::get().to(answer));
            };
            let service = service(&options, routes).new_service(()).await.unwrap();
            let (client, server) = duplex(PIPE_BYTES);
            spawn_local(
                async move { Service::call(&service, (server, None, Arc::default())).await },
            );
            let mut peer = Self { client, parts };
            peer.client.write_all(request.as_bytes()).await.unwrap();
            assert!(peer.until("\r\n\r\n").await.starts_with(head));
            peer
        }

        async fn send(&self, part: &'static str) {
            self.parts.send(Ok(Bytes::from_static(part.as_bytes()))).await.unwrap();
        }

        fn end(&mut self) {
            self.parts = mpsc::channel(1).0;
        }

        /// What arrives up to `end`.
        async fn until(&mut self, end: &str) -> String {
            let mut read = Vec::new();
            while !read.ends_with(end.as_bytes()) {
                read.push(self.client.read_u8().await.expect("more arrives"));
            }
            String::from_utf8(read).unwrap()
        }

        /// What arrives up to the end of the connection.
        async fn rest(&mut self) -> String {
            let mut read = String::new();
            self.client.read_to_string(&mut read).await.unwrap();
            read
        }
    }

    async fn answer(parts: Data<Mutex<Option<mpsc::Receiver<Part>>>>) -> HttpResponse {
        let parts = parts.lock().await.take().expect("a connection has one endless body");
        let next = async |mut parts: mpsc::Receiver<Part>| Some((parts.recv().await?, parts));
        let mut answer = HttpResponse::Ok().streaming(stream::unfold(parts, next));
        answer.extensions_mut().insert(EndlessBody);
        answer
    }

    async fn run(test: impl Future) {
        LocalSet::new().run_until(test).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_parts_of_a_body_are_chunks_and_its_end_ends_the_connection() {
        run(async {
            let mut peer = Peer::after(REQUEST, HEAD, true).await;
            for (part, chunk) in [
                ("one", "3\r\none\r\n"),
                ("a part of 20 bytes..", "14\r\na part of 20 bytes..\r\n"),
            ] {
                peer.send(part).await;
                assert_eq!(peer.until(&format!("{part}\r\n")).await, chunk);
            }
            peer.end();
            assert_eq!(peer.rest().await, "0\r\n\r\n");
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_of_http_1_0_has_no_chunks() {
        run(async {
            let mut peer = Peer::after("GET / HTTP/1.0\r\n\r\n", "HTTP/1.0 200 OK\r\n", true).await;
            peer.send("one").await;
            peer.send("two").await;
            assert_eq!(peer.until("two").await, "onetwo");
            peer.end();
            assert_eq!(peer.rest().await, "");
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_fails_has_no_last_chunk() {
        run(async {
            let mut peer = Peer::after(REQUEST, HEAD, true).await;
            peer.send("one").await;
            assert_eq!(peer.until("one\r\n").await, "3\r\none\r\n");
            peer.parts.send(Err(error::ErrorInternalServerError("failed"))).await.unwrap();
            assert_eq!(peer.rest().await, "");
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_may_rest_for_longer_than_an_idle_connection() {
        run(async {
            let mut peer = Peer::after(REQUEST, HEAD, true).await;
            for _ in 0..2 {
                sleep(Duration::from_secs(200)).await;
                peer.send("beat").await;
                assert_eq!(peer.until("beat\r\n").await, "4\r\nbeat\r\n");
            }
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn requests_behind_it_are_dropped_and_more_than_eight_kib_of_them_are_not_read() {
        run(async {
            let mut peer = Peer::after(&REQUEST.repeat(3), HEAD, true).await;
            let flood = REQUEST.repeat(2 * DROPPED_BYTES_MAX / REQUEST.len());
            let flood = timeout(Duration::from_secs(1), peer.client.write_all(flood.as_bytes()));
            assert!(flood.await.is_err(), "the server reads everything");
            peer.send("one").await;
            assert_eq!(peer.until("one\r\n").await, "3\r\none\r\n");
            peer.end();
            assert_eq!(peer.until("0\r\n\r\n").await, "0\r\n\r\n");
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_ends_when_its_peer_closes_unless_half_closed_connections_are_allowed() {
        run(async {
            let mut peer = Peer::after(REQUEST, HEAD, true).await;
            peer.client.shutdown().await.unwrap();
            sleep(Duration::from_secs(1)).await;
            peer.send("one").await;
            assert_eq!(peer.until("one\r\n").await, "3\r\none\r\n");

            let mut peer = Peer::after(REQUEST, HEAD, false).await;
            peer.client.shutdown().await.unwrap();
            timeout(Duration::from_secs(1), peer.parts.closed()).await.expect("the body ends");
            assert_eq!(peer.rest().await, "");
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_does_not_read_costs_eight_kib_and_one_part() {
        const PART: &str = "a part of 20 bytes..";
        run(async {
            let mut peer = Peer::after(REQUEST, HEAD, true).await;
            let mut taken = 0;
            let second = Duration::from_secs(1);
            while timeout(second, peer.send(PART)).await.is_ok() {
                taken += 1;
            }
            // Each part has six bytes of a chunk. The pipe takes some, and one waits for the connection.
            let kept = taken * (PART.len() + 6) - PIPE_BYTES;
            let bound = UNSENT_BYTES_MAX..UNSENT_BYTES_MAX + 4 * PART.len();
            assert!(bound.contains(&kept), "{kept} bytes");
            for _ in 0..taken {
                assert_eq!(peer.until("..\r\n").await, format!("14\r\n{PART}\r\n"));
            }
        })
        .await;
    }
}
