//! Connections that begin as HTTP. A WebSocket and an event stream keep their socket and nothing of what HTTP needed.
//!
//! actix-http holds two buffers of 8 KiB, timers and the place of a request for as long as it has a connection. So the
//! socket is taken away from it: the routes answer the request like any other, a [`Session`] or an [`EndlessBody`] in
//! the answer gets the socket, and the HTTP service of the connection ends.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_codec::{Encoder, Framed};
use actix_http::body::{BodySize, BoxBody, MessageBody, to_bytes};
use actix_http::error::DispatchError;
use actix_http::h1::{Codec, Message, SendResponse};
use actix_http::{ConnectionType, HttpService, Method, Request, Response, StatusCode, Version};
use actix_service::{IntoServiceFactory, Service, ServiceFactory, apply_fn_factory, map_config};
use actix_web::dev::{AppConfig, ServiceResponse};
use actix_web::web::ServiceConfig;
use actix_web::{App, Error};
use bytes::Bytes;
use futures_util::Stream;
use futures_util::future::LocalBoxFuture;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, Sleep, sleep, sleep_until, timeout};

use super::event_stream::{AwaitingHandover, EndlessBody, EventStream};
use super::http_stream::{HttpFlow, HttpStream};
use super::{Session, Socket};

/// Bytes that a connection keeps for a peer that does not read. Above it, its output is not polled.
pub(super) const UNSENT_BYTES_MAX: usize = 8 * 1024;

/// Polls of an HTTP connection that move no byte, before each further one waits for [`RESTLESS_WAIT`].
const RESTLESS_POLLS_MAX: u32 = 128;
const RESTLESS_WAIT: Duration = Duration::from_millis(50);

/// The answer to an upgrade by another method.
const NOT_GET: &str = "an upgrade to a WebSocket is a GET";

/// The answer to an upgrade of an event stream. After an upgrade only a session sends bytes.
const STREAM: &str = "an event stream does not begin with an upgrade";

/// What HTTP/1 on a port needs to know.
#[derive(Clone)]
pub struct HttpOptions {
    pub headers_timeout: Duration,
    /// Time for which an idle connection is kept.
    pub keep_alive: Duration,
    /// Time for which a socket is read after the last answer or close frame.
    pub linger: Duration,
    /// Whether a client that has closed its end still waits for the answer.
    pub allows_half_closed: bool,
    /// Fires at shutdown: idle connections end.
    pub stopping: Option<actix_server::GracefulShutdownSignal>,
}

/// What serves the connections of one thread. `configure` adds the routes.
pub fn service<T, C>(
    options: &HttpOptions,
    configure: C,
) -> impl ServiceFactory<
    (T, Option<SocketAddr>),
    Config = (),
    Response = (),
    Error = DispatchError,
    InitError = (),
> + use<T, C>
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
    C: FnOnce(&mut ServiceConfig) + Clone + 'static,
{
    let HttpOptions { headers_timeout, keep_alive, linger, allows_half_closed, stopping } =
        options.clone();
    let mut http = HttpService::build()
        .client_request_timeout(headers_timeout)
        .keep_alive(keep_alive)
        .client_disconnect_timeout(linger)
        .h1_allow_half_closed(allows_half_closed)
        .on_connect_ext(|stream: &HttpStream<T>, data| {
            data.insert(Rc::clone(stream.flow()));
            data.insert(Rc::clone(stream.socket()));
        });
    if let Some(stopping) = stopping {
        http = http.graceful_shutdown_signal(move || {
            let stopping = stopping.clone();
            async move { stopping.notified().await }
        });
    }
    let upgrade = apply_fn_factory(app(configure.clone()), move |request, app: &_| {
        answer_upgrade(request, app, linger)
    });
    let routes = apply_fn_factory(app(configure), move |request, app: &_| {
        answer_request::<T, _>(request, app, linger, allows_half_closed)
    });
    apply_fn_factory(http.upgrade(upgrade).h1(routes), move |(io, peer), http: &_| {
        let (socket, flow) = (Rc::new(Socket::new(io)), Rc::<HttpFlow>::default());
        let served = Service::call(http, (HttpStream::new(socket, Rc::clone(&flow)), peer));
        let deadline = RequestDeadline { headers_timeout, keep_alive, awaited: None, timer: None };
        Connection(Box::pin(Http {
            served: Box::pin(served),
            flow,
            restless_polls: 0,
            wait: None,
            deadline,
        }))
    })
}

fn app(
    configure: impl FnOnce(&mut ServiceConfig) + 'static,
) -> impl ServiceFactory<
    Request,
    Config = (),
    Response = ServiceResponse,
    Error = Error,
    InitError = (),
    Service = impl Service<Request, Response = ServiceResponse, Error = Error, Future: 'static>
              + 'static,
    Future: 'static,
> {
    map_config(App::new().configure(configure).into_factory(), |()| AppConfig::default())
}

/// What HTTP/1 knows of the connection of a request: see `on_connect_ext` in [`service`].
fn connection_data<D: Clone + 'static>(request: &Request) -> D {
    request.conn_data::<D>().cloned().expect("each connection has its data")
}

/// Answers a request when it has its [turn](HttpFlow::turn).
fn answer_in_turn<A>(
    request: Request,
    app: &A,
) -> impl Future<Output = Result<ServiceResponse, Error>> + use<A>
where
    A: Service<Request, Response = ServiceResponse, Error = Error>,
{
    let flow = connection_data::<Rc<HttpFlow>>(&request);
    let answer = app.call(request);
    async {
        let _turn = flow.turn().await;
        answer.await
    }
}

/// Answers a request. An endless body gets the socket once the head of its answer is written.
fn answer_request<T, A>(
    request: Request,
    app: &A,
    linger: Duration,
    allows_half_closed: bool,
) -> impl Future<Output = Result<ServiceResponse, Error>> + use<T, A>
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
    A: Service<Request, Response = ServiceResponse, Error = Error>,
{
    let flow = connection_data::<Rc<HttpFlow>>(&request);
    let socket = connection_data::<Rc<Socket<T>>>(&request);
    let is_chunked = request.version() >= Version::HTTP_11;
    let answer = answer_in_turn(request, app);
    async move {
        let answer = answer.await?;
        if !answer.response().extensions().contains::<EndlessBody>() {
            return Ok(answer);
        }
        Ok(answer.map_body(|head, body| {
            head.set_connection_type(ConnectionType::Close);
            head.no_chunking(!is_chunked);
            let output = EventStream::new(Rc::clone(&socket), body, is_chunked, allows_half_closed);
            flow.hand_over(Box::pin(TakenSocket { socket, output }.run(linger)));
            AwaitingHandover.boxed()
        }))
    }
}

/// Answers a request to upgrade. The answer decides whether the connection becomes a WebSocket.
fn answer_upgrade<T, A>(
    (request, mut framed): (Request, Framed<HttpStream<T>, Codec>),
    app: &A,
    linger: Duration,
) -> impl Future<Output = Result<(), Error>> + use<T, A>
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
    A: Service<Request, Response = ServiceResponse, Error = Error>,
{
    // Another method may have a body, which actix-http does not read here.
    let answer = (*request.method() == Method::GET).then(|| answer_in_turn(request, app));
    async move {
        // The answers to earlier requests are sent first. The turn of this request comes after them.
        poll_fn(|cx| Pin::new(&mut framed).flush(cx)).await?;
        let mut answer: Response<BoxBody> = match answer {
            Some(answer) => answer.await?.into(),
            None => bad_request(NOT_GET),
        };
        if answer.body().size() == BodySize::Stream {
            answer = bad_request(STREAM);
        }
        let session = answer.extensions_mut().remove::<Session>();
        match session.filter(|_| answer.status() == StatusCode::SWITCHING_PROTOCOLS) {
            Some(session) => upgrade(answer, session, framed, linger)?,
            None => refuse(answer, framed, linger).await?,
        }
        Ok(())
    }
}

fn bad_request(reason: &'static str) -> Response<BoxBody> {
    Response::with_body(StatusCode::BAD_REQUEST, reason).map_into_boxed_body()
}

/// Takes the socket from the HTTP service, which ends with this.
fn upgrade<T>(
    answer: Response<BoxBody>,
    session: Session,
    framed: Framed<HttpStream<T>, Codec>,
    linger: Duration,
) -> io::Result<()>
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let mut parts = framed.into_parts();
    let mut unsent = parts.write_buf;
    parts.codec.encode(Message::Item((answer.drop_body(), BodySize::None)), &mut unsent)?;
    let (flow, socket) = (Rc::clone(parts.io.flow()), Rc::clone(parts.io.socket()));
    socket.add(&unsent);
    let output = session.start(&socket, parts.read_buf);
    flow.hand_over(Box::pin(TakenSocket { socket, output }.run(linger)));
    Ok(())
}

/// Sends the last answer of a connection.
async fn refuse<T>(
    answer: Response<BoxBody>,
    framed: Framed<HttpStream<T>, Codec>,
    linger: Duration,
) -> Result<(), Error>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let (mut answer, body) = answer.into_parts();
    answer.head_mut().set_connection_type(ConnectionType::Close);
    let body = to_bytes(body).await.unwrap_or_default();
    let framed = SendResponse::new(framed, answer.set_body(body)).await?;
    let _ = timeout(linger, close(framed.into_parts().io)).await;
    Ok(())
}

/// A socket that was taken from HTTP.
struct TakenSocket<T, O> {
    socket: Rc<Socket<T>>,
    /// The client of a WebSocket, which writes to the socket itself, or the rest of an answer.
    output: O,
}

impl<T, O> TakenSocket<T, O>
where
    T: AsyncRead + AsyncWrite + Unpin,
    O: Stream<Item = Result<Bytes, Error>> + Unpin,
{
    /// Writes the output until it ends, and then waits a moment for the peer to close its end.
    #[expect(clippy::manual_async_fn, reason = "it would have room for the output twice")]
    fn run(mut self, linger: Duration) -> impl Future<Output = Ended> {
        async move {
            if poll_fn(|cx| self.poll_output(cx)).await.is_ok() {
                // In an allocation of its own, which no open connection has.
                let _ = Box::pin(timeout(linger, self.close())).await;
            }
            Ended::Connection(Ok(()))
        }
    }

    /// The output is polled while the peer reads: an answer to each of its frames is bounded by that.
    fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.socket.write(cx)? < UNSENT_BYTES_MAX {
            match Pin::new(&mut self.output).poll_next(cx) {
                Poll::Ready(Some(Ok(bytes))) => self.socket.add(&bytes),
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(Ok(())),
                Poll::Pending => {
                    self.socket.write(cx)?;
                    break;
                }
            }
        }
        Poll::Pending
    }

    async fn close(self) -> io::Result<()> {
        let Self { socket, output } = self;
        drop(output);
        let Some((mut io, unsent)) = Rc::into_inner(socket).map(Socket::into_parts) else {
            return Ok(());
        };
        io.write_all(&unsent).await?;
        close(io).await
    }
}

/// Closes this end, and reads until the peer has closed its own: else what it still sends would reset the connection,
/// and it might not receive the last bytes.
async fn close<T: AsyncRead + AsyncWrite + Unpin>(mut io: T) -> io::Result<()> {
    io.shutdown().await?;
    let mut unread = [0; 512];
    while io.read(&mut unread).await? > 0 {}
    Ok(())
}

/// A connection, from its first request on. Every open WebSocket has one, so it is small.
struct Connection(Part);

/// What a connection does now.
pub(super) type Part = LocalBoxFuture<'static, Ended>;

/// The end of a part.
pub(super) enum Ended {
    Connection(Result<(), DispatchError>),
    /// The connection continues as a WebSocket or an event stream.
    Http(Part),
}

impl Future for Connection {
    type Output = Result<(), DispatchError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match ready!(self.0.as_mut().poll(cx)) {
                Ended::Connection(ended) => return Poll::Ready(ended),
                Ended::Http(taken) => self.0 = taken,
            }
        }
    }
}

/// A connection that speaks HTTP.
struct Http<F> {
    served: Pin<Box<F>>,
    flow: Rc<HttpFlow>,
    restless_polls: u32,
    wait: Option<Pin<Box<Sleep>>>,
    deadline: RequestDeadline,
}

impl<F: Future<Output = Result<(), DispatchError>>> Future for Http<F> {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        let ended = self.poll_http(cx);
        match self.flow.take_handed_over() {
            Some(taken) => Poll::Ready(Ended::Http(taken)),
            None => ended.map(Ended::Connection),
        }
    }
}

impl<F: Future<Output = Result<(), DispatchError>>> Http<F> {
    fn poll_http(&mut self, cx: &mut Context<'_>) -> Poll<F::Output> {
        if let Some(wait) = &mut self.wait {
            ready!(wait.as_mut().poll(cx));
            self.wait = None;
        }
        let (bytes, begun) = (self.flow.bytes(), self.flow.begun());
        let ended = self.served.as_mut().poll(cx);
        if ended.is_ready() {
            return ended;
        }
        if self.deadline.poll(self.flow.awaits_request(), cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        if self.flow.begun() > begun {
            // actix-http leaves requests undecoded while others wait, and does not return to them by itself.
            cx.waker().wake_by_ref();
        }
        self.restless_polls = if self.flow.bytes() == bytes { self.restless_polls + 1 } else { 0 };
        if self.restless_polls > RESTLESS_POLLS_MAX {
            // actix-http wakes itself without an end while its read buffer is full and a request waits.
            self.restless_polls = RESTLESS_POLLS_MAX;
            let wait = self.wait.insert(Box::pin(sleep(RESTLESS_WAIT)));
            // It has just begun.
            let _ = wait.as_mut().poll(cx);
        }
        Poll::Pending
    }
}

/// The time for each request after the first one: to begin, and for its rest to arrive. actix-http limits neither once
/// a part has arrived.
struct RequestDeadline {
    headers_timeout: Duration,
    keep_alive: Duration,
    /// Since when a request is awaited, and whether a part of it has arrived.
    awaited: Option<(bool, Instant)>,
    /// Fires at the deadline or before it.
    timer: Option<Pin<Box<Sleep>>>,
}

impl RequestDeadline {
    fn poll(&mut self, has_part: Option<bool>, cx: &mut Context<'_>) -> Poll<()> {
        if self.awaited.map(|(had_part, _)| had_part) != has_part {
            self.awaited = has_part.map(|has_part| (has_part, Instant::now()));
        }
        let Some((has_part, since)) = self.awaited else { return Poll::Pending };
        // actix-http ends an idle connection by itself, but not one of which it holds a part of a request.
        let wait =
            if has_part { self.headers_timeout } else { self.keep_alive + self.headers_timeout };
        let at = since + wait;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if timer.deadline() > at {
            timer.as_mut().reset(at);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= at {
                return Poll::Ready(());
            }
            timer.as_mut().reset(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::time::advance;

    use super::*;

    /// Whether the deadline is over when so much time has passed.
    async fn is_over(
        deadline: &mut RequestDeadline,
        has_part: Option<bool>,
        after_ms: u64,
    ) -> bool {
        advance(Duration::from_millis(after_ms)).await;
        deadline.poll(has_part, &mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[tokio::test(start_paused = true)]
    async fn a_further_request_has_its_time_to_begin_and_its_time_to_arrive() {
        let (idle, begun, busy) = (Some(false), Some(true), None);
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
            let (headers_timeout, keep_alive) = (Duration::from_secs(5), Duration::from_secs(75));
            let mut deadline =
                RequestDeadline { headers_timeout, keep_alive, awaited: None, timer: None };
            let (last, before) = steps.split_last().unwrap();
            for (has_part, after_ms) in before {
                assert!(!is_over(&mut deadline, *has_part, *after_ms).await, "{steps:?}");
            }
            assert!(is_over(&mut deadline, last.0, last.1).await, "{steps:?}");
        }
    }
}
