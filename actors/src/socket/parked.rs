//! A connection between two requests.
//!
//! After [`PARK_AFTER`] without a request it is parked: its HTTP service ends, which holds two buffers of 8 KiB, and only
//! the socket is kept. The next byte begins a new HTTP service, which gets that byte first.

use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

use super::http::{HttpOptions, Io};
use super::http_stream::NextRequest;
use super::io::Socket;

/// Time without a request after which a connection is parked. It is longer than that for which actix-http reads behind
/// a last answer ([`HttpOptions::linger`]), and long enough that a busy connection is not parked between its requests.
const PARK_AFTER: Duration = Duration::from_secs(2);

/// The time for each request after the first one: to begin, and for its rest to arrive. actix-http limits neither once
/// a part has arrived.
pub(super) struct RequestDeadline {
    headers_timeout: Duration,
    keep_alive: Duration,
    /// The request that is awaited, by the number of those before it, and since when.
    awaited: Option<((u64, NextRequest), Instant)>,
    /// Fires at the deadline or before it.
    timer: Option<Pin<Box<Sleep>>>,
}

/// What happens to a connection that waited for its next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    End,
    /// It is parked, and ends then.
    Park {
        until: Instant,
    },
}

impl RequestDeadline {
    pub(super) fn new(options: &HttpOptions) -> Self {
        let HttpOptions { headers_timeout, keep_alive, .. } = *options;
        Self { headers_timeout, keep_alive, awaited: None, timer: None }
    }

    pub(super) fn poll(
        &mut self,
        awaited: Option<(u64, NextRequest)>,
        cx: &mut Context<'_>,
    ) -> Poll<Due> {
        if self.awaited.map(|(awaited, _)| awaited) != awaited {
            self.awaited = awaited.map(|awaited| (awaited, Instant::now()));
        }
        let Some(((_, next), since)) = self.awaited else { return Poll::Pending };
        let (wait, due) = match next {
            NextRequest::Absent => (PARK_AFTER, Due::Park { until: since + self.keep_alive }),
            // actix-http ends an idle connection by itself, but not one of which it holds a part of a request.
            NextRequest::Unknown => (self.keep_alive + self.headers_timeout, Due::End),
            NextRequest::Begun => (self.headers_timeout, Due::End),
        };
        let at = since + wait;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if timer.deadline() > at {
            timer.as_mut().reset(at);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= at {
                return Poll::Ready(due);
            }
            timer.as_mut().reset(at);
        }
    }
}

/// Waits for the next request, with nothing but the socket, and returns its first byte. None `until` then, when the peer
/// closes the connection, and at shutdown.
pub(super) async fn park<T: Io>(
    options: &HttpOptions,
    socket: &Socket<T>,
    until: Instant,
) -> Option<u8> {
    let (first, stopping) = (pin!(first_byte(socket)), pin!(stopping(options)));
    match timeout_at(until, select(first, stopping)).await {
        Ok(Either::Left((first, _))) => first,
        Ok(Either::Right(_)) | Err(_) => None,
    }
}

/// The next byte; none if the peer has closed the connection.
async fn first_byte<T: AsyncRead + Unpin>(socket: &Socket<T>) -> Option<u8> {
    poll_fn(|cx| {
        let mut first = [0];
        let mut read = ReadBuf::new(&mut first);
        let is_read = ready!(socket.poll_read(cx, &mut read)).is_ok();
        Poll::Ready(read.filled().first().copied().filter(|_| is_read))
    })
    .await
}

pub(super) async fn stopping(options: &HttpOptions) {
    match &options.stopping {
        Some(stopping) => stopping.notified().await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::task::Waker;
    use std::thread::{self, JoinHandle};

    use actix_server::{GracefulShutdownSignal, Server};
    use actix_service::{Service, ServiceFactory, fn_service};
    use actix_web::rt::net::TcpStream;
    use actix_web::rt::{self, System};
    use actix_web::web::{self, Bytes, ServiceConfig};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::task::{LocalSet, spawn_blocking, spawn_local};
    use tokio::time::{advance, sleep, timeout};

    use super::super::service;
    use super::*;

    /// A pause in which a connection is parked.
    const PAUSE: Duration = Duration::from_secs(3);

    const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    const PUT: &str = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\na\r\n\r\nbc";
    const CHUNKED: &str = "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n\r\n\r\n\r\n3\r\nabc\r\n0\r\n\r\n";

    /// The bodies of the answers to them: the routes answer with what they receive.
    const SENT: [(&str, &str); 3] = [(GET, ""), (PUT, "a\r\n\r\nbc"), (CHUNKED, "\r\n\r\nabc")];

    /// A client whose connection is served as those of a port are.
    struct Client(DuplexStream);

    impl Client {
        async fn connect() -> Self {
            Self::connect_until(None).await
        }

        async fn connect_until(stopping: Option<GracefulShutdownSignal>) -> Self {
            let options = HttpOptions {
                headers_timeout: Duration::from_secs(5),
                keep_alive: Duration::from_secs(75),
                linger: Duration::from_secs(1),
                allows_half_closed: true,
                bad_request: str::to_owned,
                stopping,
            };
            let routes = |service: &mut ServiceConfig| {
                let echo = async |body: Bytes| body;
                service.route("/", web::get().to(echo)).route("/", web::put().to(echo));
            };
            let service = service(&options, routes).new_service(()).await.unwrap();
            let (client, server) = duplex(64 * 1024);
            spawn_local(
                async move { Service::call(&service, (server, None, Arc::default())).await },
            );
            Self(client)
        }

        async fn send(&mut self, bytes: &[u8]) {
            self.0.write_all(bytes).await.unwrap();
        }

        /// The body of the next answer.
        async fn answer(&mut self) -> String {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(self.0.read_u8().await.expect("more arrives"));
            }
            let head = String::from_utf8(head).unwrap();
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
            let (_, length) = head.split_once("content-length: ").unwrap();
            let mut body = vec![0; length.split_once('\r').unwrap().0.parse().unwrap()];
            self.0.read_exact(&mut body).await.unwrap();
            String::from_utf8(body).unwrap()
        }

        /// What arrives until the connection ends.
        async fn rest(&mut self) -> String {
            let mut rest = String::new();
            timeout(Duration::from_secs(1000), self.0.read_to_string(&mut rest))
                .await
                .unwrap()
                .unwrap();
            rest
        }
    }

    async fn run(test: impl Future) {
        LocalSet::new().run_until(test).await;
    }

    /// What the deadline says when so much time has passed.
    async fn due(
        deadline: &mut RequestDeadline,
        next: Option<(u64, NextRequest)>,
        after_ms: u64,
    ) -> Option<Due> {
        advance(Duration::from_millis(after_ms)).await;
        match deadline.poll(next, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(due) => Some(due),
            Poll::Pending => None,
        }
    }

    fn deadline() -> RequestDeadline {
        let (headers_timeout, keep_alive) = (Duration::from_secs(5), Duration::from_secs(75));
        RequestDeadline { headers_timeout, keep_alive, awaited: None, timer: None }
    }

    #[tokio::test(start_paused = true)]
    async fn a_further_request_has_its_time_to_begin_and_its_time_to_arrive() {
        let idle = Some((1, NextRequest::Unknown));
        let (begun, busy) = (Some((1, NextRequest::Begun)), None);
        for steps in [
            [(idle, 0), (idle, 79_000), (busy, 0), (idle, 5_000), (idle, 79_000), (idle, 1_001)],
            [(idle, 0), (idle, 79_000), (begun, 0), (begun, 4_000), (begun, 500), (begun, 501)],
            [
                (begun, 0),
                (begun, 4_000),
                (idle, 4_000),
                (begun, 4_000),
                (begun, 4_000),
                (begun, 1_001),
            ],
        ] {
            let mut deadline = deadline();
            let (last, before) = steps.split_last().unwrap();
            for (next, after_ms) in before {
                assert_eq!(due(&mut deadline, *next, *after_ms).await, None, "{steps:?}");
            }
            assert_eq!(due(&mut deadline, last.0, last.1).await, Some(Due::End), "{steps:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_parked_two_seconds_after_its_last_request_for_the_rest_of_its_time() {
        let mut deadline = deadline();
        // Requests that are answered in one poll.
        for begun in 1..100 {
            let next = Some((begun, NextRequest::Absent));
            assert_eq!(due(&mut deadline, next, 1_500).await, None);
        }
        let until = Instant::now() + Duration::from_secs(75);
        let next = Some((99, NextRequest::Absent));
        assert_eq!(due(&mut deadline, next, 1_900).await, None);
        assert_eq!(due(&mut deadline, next, 101).await, Some(Due::Park { until }));
    }

    #[tokio::test(start_paused = true)]
    async fn two_requests_are_answered_wherever_their_bytes_are_parted_by_a_pause() {
        run(async {
            for ((first, first_body), (second, second_body)) in
                SENT.into_iter().flat_map(|first| SENT.map(|second| (first, second)))
            {
                let sent = [first, second].concat();
                for cut in 1..sent.len() {
                    let mut client = Client::connect().await;
                    client.send(&sent.as_bytes()[..cut]).await;
                    sleep(PAUSE).await;
                    client.send(&sent.as_bytes()[cut..]).await;
                    let answers = async { [client.answer().await, client.answer().await] };
                    let answers = timeout(PAUSE, answers).await;
                    assert_eq!(
                        answers.as_ref().map(|answers| answers.each_ref().map(String::as_str)),
                        Ok([first_body, second_body]),
                        "{sent:?} in two at {cut}"
                    );
                }
            }
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_parked_connection_is_used_again_and_again_and_ends_when_its_time_is_over() {
        run(async {
            let mut client = Client::connect().await;
            for (sent, body) in [SENT[0], SENT[1], SENT[0]] {
                client.send(sent.as_bytes()).await;
                assert_eq!(client.answer().await, body);
                sleep(Duration::from_secs(74)).await;
            }
            client.send(GET.as_bytes()).await;
            client.answer().await;
            let began = Instant::now();
            assert_eq!(client.rest().await, "");
            assert_eq!(began.elapsed().as_secs(), 75);
        })
        .await;
    }

    /// A server that does nothing but stop, which gives the signal.
    struct Stopping {
        signal: GracefulShutdownSignal,
        stop: mpsc::Sender<()>,
        server: JoinHandle<()>,
    }

    impl Stopping {
        fn new() -> Self {
            let ((stop, stopped), (give, given)) = (mpsc::channel(), mpsc::channel());
            let server = thread::spawn(move || {
                System::new().block_on(async {
                    let server = Server::build().workers(1).disable_signals();
                    give.send(server.graceful_shutdown_signal()).unwrap();
                    let service = || fn_service(async |_: TcpStream| Ok::<_, ()>(()));
                    let server = server.bind("none", "127.0.0.1:0", service).unwrap().run();
                    let handle = server.handle();
                    rt::spawn(server);
                    spawn_blocking(move || stopped.recv()).await.unwrap().unwrap();
                    handle.stop(true).await;
                });
            });
            Self { signal: given.recv().unwrap(), stop, server }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_parked_connection_ends_when_the_server_stops() {
        run(async {
            let stopping = Stopping::new();
            let mut client = Client::connect_until(Some(stopping.signal)).await;
            client.send(GET.as_bytes()).await;
            client.answer().await;
            sleep(PAUSE).await;
            let began = Instant::now();
            stopping.stop.send(()).unwrap();
            // Meanwhile the clock stands still.
            spawn_blocking(|| stopping.server.join().unwrap()).await.unwrap();
            assert_eq!(client.rest().await, "");
            assert_eq!(began.elapsed(), Duration::ZERO);
        })
        .await;
    }
}
