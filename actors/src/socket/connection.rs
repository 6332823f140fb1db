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
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_codec::{Encoder, Framed};
use actix_http::body::{BodySize, BoxBody, MessageBody, to_bytes};
use actix_http::error::DispatchError;
use actix_http::h1::{Codec, Message, SendResponse};
use actix_http::{ConnectionType, HttpService, Method, Request, Response, StatusCode, Version};
use actix_service::{Service, ServiceFactory, apply_fn_factory, fn_factory, fn_service};
use actix_web::Error;
use actix_web::dev::ServiceResponse;
use actix_web::web::ServiceConfig;
use tokio::time::{Sleep, sleep, timeout};

use super::event_stream::{EndlessBody, EventStream, awaiting_handover};
use super::http::{HttpOptions, Io, Opened, Routes, app, refusal};
use super::http_stream::{HttpFlow, HttpStream};
use super::io::Socket;
use super::parked::{Due, RequestDeadline, park};
use super::pieces::{PIECE_BYTES, in_pieces};
use super::taken_socket::{Ended, Part, TakenSocket, close};
use super::websocket::Session;

/// Polls of an HTTP connection that move no byte, before each further one waits for [`RESTLESS_WAIT`].
const RESTLESS_POLLS_MAX: u32 = 128;
const RESTLESS_WAIT: Duration = Duration::from_millis(50);

/// The answer to an upgrade by another method.
const NOT_GET: &str = "an upgrade to a WebSocket is a GET";

/// The answer to an upgrade of an event stream. After an upgrade only a session sends bytes.
const STREAM: &str = "an event stream does not begin with an upgrade";

/// actix-http's part of a connection.
trait ServesHttp<T>: Service<HttpIo<T>, Response = (), Error = DispatchError> + 'static {}

impl<T, S> ServesHttp<T> for S where
    S: Service<HttpIo<T>, Response = (), Error = DispatchError> + 'static
{
}

/// What serves the connections of one thread. `configure` adds the routes.
pub fn service<T: Io, C>(
    options: &HttpOptions,
    configure: C,
) -> impl ServiceFactory<Opened<T>, Config = (), Response = (), Error = DispatchError, InitError = ()>
+ use<T, C>
where
    C: FnOnce(&mut ServiceConfig) + Clone + 'static,
{
    let options = options.clone();
    let HttpOptions {
        headers_timeout, keep_alive, linger, allows_half_closed, bad_request, ..
    } = options;
    let mut http = HttpService::build()
        .client_request_timeout(headers_timeout)
        .keep_alive(keep_alive)
        .client_disconnect_timeout(linger)
        .h1_write_buffer_size(PIECE_BYTES)
        .h1_allow_half_closed(allows_half_closed)
        .on_connect_ext(|stream: &HttpStream<T>, data| {
            data.insert(Rc::clone(&stream.flow));
            data.insert(Rc::clone(&stream.socket));
        });
    if let Some(stopping) = options.stopping.clone() {
        http = http.graceful_shutdown_signal(move || {
            let stopping = stopping.clone();
            async move { stopping.notified().await }
        });
    }
    let upgrade = apply_fn_factory(app(configure.clone()), move |request, app: &_| {
        answer_upgrade(request, app, linger, bad_request)
    });
    let routes = apply_fn_factory(app(configure), move |request, app: &_| {
        answer_request::<T, _>(request, app, linger, allows_half_closed)
    });
    let http = http.upgrade(upgrade).h1(routes);
    fn_factory(move || {
        let (service, options) = (http.new_service(()), options.clone());
        async move {
            let server = Rc::new(HttpServer { service: service.await?, options });
            let connection = move |(io, peer, usage)| {
                let socket = Rc::new(Socket::new(io));
                let stream = HttpStream::new(Rc::clone(&socket), None, usage);
                Connection(Box::pin(Http::begin(Rc::clone(&server), stream, peer)))
            };
            Ok(fn_service::<_, _, _, _, _, ()>(connection))
        }
    })
}

/// What HTTP/1 knows of the connection of a request: see `on_connect_ext` in [`service`].
fn connection_data<D: Clone + 'static>(request: &Request) -> D {
    request.conn_data::<D>().cloned().expect("each connection has its data")
}

/// Answers a request when it has its [turn](HttpFlow::turn).
fn answer_in_turn<A: Routes>(
    request: Request,
    app: &A,
) -> impl Future<Output = Result<ServiceResponse, Error>> + use<A> {
    let flow = connection_data::<Rc<HttpFlow>>(&request);
    let answer = app.call(request);
    async {
        let _turn = flow.turn().await;
        answer.await
    }
}

/// Answers a request. An endless body gets the socket once the head of its answer is written.
fn answer_request<T: Io, A: Routes>(
    request: Request,
    app: &A,
    linger: Duration,
    allows_half_closed: bool,
) -> impl Future<Output = Result<ServiceResponse, Error>> + use<T, A> {
    let flow = connection_data::<Rc<HttpFlow>>(&request);
    let socket = connection_data::<Rc<Socket<T>>>(&request);
    let is_chunked = request.version() >= Version::HTTP_11;
    let answer = answer_in_turn(request, app);
    async move {
        let answer = answer.await?;
        if answer.response().body().size() == BodySize::Stream {
            flow.streams();
        }
        if !answer.response().extensions().contains::<EndlessBody>() {
            return Ok(answer.map_body(|_, body| in_pieces(body)));
        }
        Ok(answer.map_body(|head, body| {
            head.set_connection_type(ConnectionType::Close);
            head.no_chunking(!is_chunked);
            let output = EventStream::new(Rc::clone(&socket), body, is_chunked, allows_half_closed);
            flow.hand_over(Box::pin(TakenSocket { socket, output }.run(linger)));
            awaiting_handover()
        }))
    }
}

/// Answers a request to upgrade. The answer decides whether the connection becomes a WebSocket.
fn answer_upgrade<T: Io, A: Routes>(
    (request, mut framed): (Request, Framed<HttpStream<T>, Codec>),
    app: &A,
    linger: Duration,
    bad_request: fn(&str) -> String,
) -> impl Future<Output = Result<(), Error>> + use<T, A> {
    // Another method may have a body, which actix-http does not read here.
    let answer = (*request.method() == Method::GET).then(|| answer_in_turn(request, app));
    async move {
        // The answers to earlier requests are sent first. The turn of this request comes after them.
        poll_fn(|cx| Pin::new(&mut framed).flush(cx)).await?;
        let mut answer: Response<BoxBody> = match answer {
            Some(answer) => answer.await?.into(),
            None => refusal(bad_request(NOT_GET)),
        };
        if answer.body().size() == BodySize::Stream {
            answer = refusal(bad_request(STREAM));
        }
        let session = answer.extensions_mut().remove::<Session>();
        match session.filter(|_| answer.status() == StatusCode::SWITCHING_PROTOCOLS) {
            Some(session) => upgrade(answer, session, framed, linger)?,
            None => refuse(answer, framed, linger).await?,
        }
        Ok(())
    }
}

/// Takes the socket from the HTTP service, which ends with this.
fn upgrade<T: Io>(
    answer: Response<BoxBody>,
    session: Session,
    framed: Framed<HttpStream<T>, Codec>,
    linger: Duration,
) -> io::Result<()> {
    let mut parts = framed.into_parts();
    let mut unsent = parts.write_buf;
    parts.codec.encode(Message::Item((answer.drop_body(), BodySize::None)), &mut unsent)?;
    let (flow, socket) = (Rc::clone(&parts.io.flow), Rc::clone(&parts.io.socket));
    socket.add(&unsent);
    let mut bytes = parts.read_buf;
    bytes.unsplit(flow.take_unread());
    let output = session.start(&socket, bytes);
    flow.hand_over(Box::pin(TakenSocket { socket, output }.run(linger)));
    Ok(())
}

/// Sends the last answer of a connection.
async fn refuse<T: Io>(
    answer: Response<BoxBody>,
    framed: Framed<HttpStream<T>, Codec>,
    linger: Duration,
) -> Result<(), Error> {
    let (mut answer, body) = answer.into_parts();
    answer.head_mut().set_connection_type(ConnectionType::Close);
    let body = to_bytes(body).await.unwrap_or_default();
    let framed = SendResponse::new(framed, answer.set_body(body)).await?;
    let _ = timeout(linger, close(framed.into_parts().io)).await;
    Ok(())
}

/// A connection, from its first request on. Every open WebSocket has one, so it is small.
struct Connection(Part);

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

/// The HTTP service of a thread, for connections that begin and for those that were parked.
struct HttpServer<S> {
    service: S,
    options: HttpOptions,
}

/// A connection that speaks HTTP.
struct Http<T, S: Service<HttpIo<T>>> {
    served: Pin<Box<S::Future>>,
    flow: Rc<HttpFlow>,
    restless_polls: u32,
    wait: Option<Pin<Box<Sleep>>>,
    deadline: RequestDeadline,
    server: Rc<HttpServer<S>>,
    socket: Rc<Socket<T>>,
    peer: Option<SocketAddr>,
}

/// What actix-http gets of a connection.
type HttpIo<T> = (HttpStream<T>, Option<SocketAddr>);

impl<T, S: Service<HttpIo<T>>> Http<T, S> {
    fn begin(server: Rc<HttpServer<S>>, stream: HttpStream<T>, peer: Option<SocketAddr>) -> Self {
        let (flow, socket) = (Rc::clone(&stream.flow), Rc::clone(&stream.socket));
        let served = Box::pin(server.service.call((stream, peer)));
        let deadline = RequestDeadline::new(&server.options);
        Self { served, flow, restless_polls: 0, wait: None, deadline, server, socket, peer }
    }
}

impl<T: Io, S: ServesHttp<T>> Future for Http<T, S> {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        let ended = self.poll_http(cx);
        match self.flow.take_handed_over() {
            Some(taken) => Poll::Ready(Ended::Http(taken)),
            None => ended,
        }
    }
}

impl<T: Io, S: ServesHttp<T>> Http<T, S> {
    fn poll_http(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        if let Some(wait) = &mut self.wait {
            ready!(wait.as_mut().poll(cx));
            self.wait = None;
        }
        let (bytes, begun) = (self.flow.bytes(), self.flow.begun());
        if let Poll::Ready(ended) = self.served.as_mut().poll(cx) {
            return Poll::Ready(Ended::Connection(ended));
        }
        if let Poll::Ready(due) = self.deadline.poll(self.flow.awaits(), cx) {
            return Poll::Ready(self.end_wait(due));
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

    fn end_wait(&self, due: Due) -> Ended {
        let Due::Park { until } = due else { return Ended::Connection(Ok(())) };
        let (server, socket, peer) = (Rc::clone(&self.server), Rc::clone(&self.socket), self.peer);
        let usage = Arc::clone(&self.flow.usage);
        Ended::Http(Box::pin(async move {
            let Some(first) = park(&server.options, &socket, until).await else {
                return Ended::Connection(Ok(()));
            };
            let stream = HttpStream::new(socket, Some(first), usage);
            Ended::Http(Box::pin(Self::begin(server, stream, peer)))
        }))
    }
}
