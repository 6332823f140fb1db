//! HTTP/2, for application servers. A connection has one task, and each of its requests another one, on the same thread.
//!
//! hyper bounds what a peer may make the server hold: streams and streams that it resets at once, headers, bytes of
//! bodies that it sends and does not take. It also answers a peer that no longer reads with the end of the connection.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_http::body::{BodySize, BoxBody, MessageBody};
use actix_http::error::{DispatchError, PayloadError};
use actix_http::header::{HOST, HeaderName, HeaderValue};
use actix_http::{BoxedPayloadStream, ConnectionType, Method, Payload, Request, Version};
use actix_service::{ServiceFactory, fn_factory, fn_service};
use actix_web::web::ServiceConfig;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::http::HeaderMap;
use hyper::http::request::Parts;
use hyper::rt::Executor;
use hyper::server::conn::http2::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::{Instant, sleep_until, timeout};

use super::event_stream::EndlessBody;
use super::http::{HttpOptions, Io, Opened, Routes, app, refusal};
use super::http2_budget::{Budget, Budgeted};
use super::parked::stopping;
use super::usage::ConnectionUse;

/// Requests of one connection at once. A peer that opens more is refused these.
const STREAMS_MAX: u32 = 100;

/// Bytes of the headers of a request.
const HEADERS_BYTES_MAX: u32 = 16 * 1024;

/// Bytes of a body that a peer may send before they are read, and bytes of an answer that wait for a peer that does not
/// take them, of each request.
const STREAM_BYTES_MAX: u32 = 64 * 1024;

/// Bytes of all bodies of a connection that a peer may send before they are read.
const CONNECTION_BYTES_MAX: u32 = 256 * 1024;

/// Bytes of a refused request that are read and dropped before its answer. Some clients report a reset, instead of the
/// answer, if they are still sending (curl 7.88).
const DISCARDED_BYTES_MAX: usize = 1024 * 1024;

/// Streams that a peer has reset before they were accepted. A peer with more is disconnected.
const RESETS_MAX: usize = 20;

/// Interval of pings, and time for the answer. A peer that does not read is disconnected.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_WAIT: Duration = Duration::from_secs(10);

/// The answer to a request that only one of the libraries accepts.
const NOT_VALID: &str = "the request is not valid HTTP/2";

/// What serves the HTTP/2 connections of one thread. `configure` adds the routes.
pub fn http2<T: Io, C>(
    options: &HttpOptions,
    configure: C,
) -> impl ServiceFactory<Opened<T>, Config = (), Response = (), Error = DispatchError, InitError = ()>
+ use<T, C>
where
    C: FnOnce(&mut ServiceConfig) + Clone + 'static,
{
    let (options, app) = (options.clone(), app(configure));
    fn_factory(move || {
        let (app, options) = (app.new_service(()), options.clone());
        async move {
            let app = Rc::new(app.await?);
            let connection = move |opened| serve(opened, Rc::clone(&app), options.clone());
            Ok(fn_service::<_, _, _, _, _, ()>(connection))
        }
    })
}

/// What a connection did last.
struct Activity {
    at: Cell<Instant>,
    /// Requests that are not answered, and endless bodies.
    in_progress: Cell<usize>,
    /// Whether an answer asks for the end of the connection.
    must_close: Cell<bool>,
    usage: Arc<ConnectionUse>,
    budget: Rc<Budget>,
}

/// A request that is not answered, or an endless body.
struct InProgress(Rc<Activity>);

/// The body of an answer.
struct AnswerBody {
    body: BoxBody,
    /// Whether only its size is sent (RFC 9110 §9.3.2).
    is_head: bool,
    activity: Rc<Activity>,
    _endless: Option<InProgress>,
    /// A request whose body is dropped before the answer ends is reset with CANCEL, for which clients discard the
    /// answer. After the answer it is reset with NO_ERROR (RFC 9113 §8.1).
    _request: RequestBody,
}

/// The body of a request, which its answer keeps.
type RequestBody = Rc<RefCell<Incoming>>;

/// Runs the requests of a connection on its thread.
#[derive(Clone)]
struct ThisThread;

async fn serve<T: Io, A: Routes>(
    (io, peer, usage): Opened<T>,
    app: Rc<A>,
    options: HttpOptions,
) -> Result<(), DispatchError> {
    let budget = Budget::new();
    let io = Budgeted::new(io, Rc::clone(&budget), Arc::clone(&usage), HEADERS_BYTES_MAX);
    let activity = Rc::new(Activity::new(usage, budget));
    let service = hyper::service::service_fn({
        let activity = Rc::clone(&activity);
        let options = options.clone();
        move |request| answer(request, peer, Rc::clone(&app), Rc::clone(&activity), options.clone())
    });
    let mut connection = pin!(builder().serve_connection(TokioIo::new(io), service));
    let mut stopping = pin!(stopping(&options));
    let (mut is_closing, mut look_at) = (false, Instant::now() + options.headers_timeout);
    loop {
        tokio::select! {
            // A peer that breaks a rule or is gone is no failure of the server.
            _ = &mut connection => return Ok(()),
            () = &mut stopping, if !is_closing => activity.must_close.set(true),
            () = sleep_until(look_at) => {
                let wait = if is_closing { options.linger } else { options.keep_alive };
                if activity.ends_at(wait) <= Instant::now() {
                    if is_closing {
                        return Ok(());
                    }
                    activity.must_close.set(true);
                }
            }
        }
        if activity.must_close.get() && !is_closing {
            is_closing = true;
            connection.as_mut().graceful_shutdown();
        }
        look_at = Instant::now() + options.linger;
    }
}

fn builder() -> Builder<ThisThread> {
    let mut builder = Builder::new(ThisThread);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADERS_BYTES_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .initial_stream_window_size(STREAM_BYTES_MAX)
        .initial_connection_window_size(CONNECTION_BYTES_MAX)
        .max_send_buf_size(STREAM_BYTES_MAX as usize)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_WAIT);
    builder
}

async fn answer<A: Routes>(
    request: hyper::Request<Incoming>,
    peer: Option<SocketAddr>,
    app: Rc<A>,
    activity: Rc<Activity>,
    options: HttpOptions,
) -> Result<hyper::Response<AnswerBody>, Infallible> {
    let in_progress = InProgress::new(Rc::clone(&activity));
    let (head, body) = request.into_parts();
    activity.budget.requested(head.headers.len(), list_bytes(&head.headers));
    let body = Rc::new(RefCell::new(body));
    let answer = match convert(&head, Rc::clone(&body), peer) {
        Some(request) => match app.call(request).await {
            Ok(answer) => answer.into(),
            Err(error) => actix_http::Response::from(error),
        },
        None => refusal((options.bad_request)(NOT_VALID)),
    };
    let _ = timeout(options.linger, discard(&body)).await;
    let is_endless = answer.extensions().contains::<EndlessBody>();
    if answer.head().connection_type() == ConnectionType::Close && !is_endless {
        activity.must_close.set(true);
    }
    let mut converted = hyper::Response::builder().status(answer.status().as_u16());
    for (name, value) in answer.headers() {
        converted = converted.header(name.as_str(), value.as_bytes());
    }
    let _endless = is_endless.then_some(in_progress);
    let body = AnswerBody {
        body: answer.into_body(),
        is_head: head.method == hyper::Method::HEAD,
        activity,
        _endless,
        _request: body,
    };
    Ok(converted.body(body).expect("statuses and headers of both libraries are the same"))
}

/// The size of a header list without pseudo-headers (RFC 9113 §6.5.2).
fn list_bytes(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum()
}

/// The request as actix-web takes it. None if only one of the libraries accepts it.
fn convert(head: &Parts, body: RequestBody, peer: Option<SocketAddr>) -> Option<Request> {
    let payload: BoxedPayloadStream = Box::pin(chunks(body));
    let mut request = Request::with_payload(Payload::Stream { payload });
    let converted = request.head_mut();
    converted.method = Method::from_bytes(head.method.as_str().as_bytes()).ok()?;
    converted.uri = head.uri.path_and_query().map_or("/", |path| path.as_str()).parse().ok()?;
    converted.version = Version::HTTP_2;
    converted.peer_addr = peer;
    for (name, value) in &head.headers {
        let name = HeaderName::from_bytes(name.as_str().as_bytes()).ok()?;
        converted.headers.append(name, HeaderValue::from_bytes(value.as_bytes()).ok()?);
    }
    if let Some(authority) = head.uri.authority() {
        converted.headers.insert(HOST, HeaderValue::from_str(authority.as_str()).ok()?);
    }
    Some(request)
}

fn chunks(body: RequestBody) -> impl Stream<Item = Result<Bytes, PayloadError>> {
    let frames = stream::unfold(body, async |body| Some((next_frame(&body).await?, body)));
    frames.filter_map(async |frame| match frame {
        // A frame is a part of a larger buffer of h2, which it would keep.
        Ok(frame) => frame.data_ref().map(|data| Ok(Bytes::copy_from_slice(data))),
        Err(error) => Some(Err(PayloadError::Io(io::Error::other(error)))),
    })
}

async fn next_frame(body: &RequestBody) -> Option<Result<Frame<Bytes>, hyper::Error>> {
    poll_fn(|cx| Pin::new(&mut *body.borrow_mut()).poll_frame(cx)).await
}

/// Reads the rest of a body, up to [`DISCARDED_BYTES_MAX`].
async fn discard(body: &RequestBody) {
    let mut bytes = 0;
    while bytes <= DISCARDED_BYTES_MAX
        && let Some(Ok(frame)) = next_frame(body).await
    {
        bytes += frame.data_ref().map_or(0, Bytes::len);
    }
}

impl Activity {
    fn new(usage: Arc<ConnectionUse>, budget: Rc<Budget>) -> Self {
        let at = Cell::new(Instant::now());
        Self { at, in_progress: Cell::new(0), must_close: Cell::new(false), usage, budget }
    }

    /// When the connection ends if nothing happens for `wait`.
    fn ends_at(&self, wait: Duration) -> Instant {
        if self.in_progress.get() > 0 {
            self.at.set(Instant::now());
        }
        self.at.get() + wait
    }
}

impl InProgress {
    fn new(activity: Rc<Activity>) -> Self {
        activity.in_progress.set(activity.in_progress.get() + 1);
        activity.usage.begin_request();
        Self(activity)
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.in_progress.set(self.0.in_progress.get() - 1);
        if self.0.in_progress.get() == 0 {
            self.0.usage.end_request();
        }
        self.0.at.set(Instant::now());
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let chunk = Pin::new(&mut self.body).poll_next(cx);
        if chunk.is_ready() {
            self.activity.at.set(Instant::now());
        }
        chunk.map(|chunk| {
            let failed = |error: Box<dyn std::error::Error>| io::Error::other(error.to_string());
            chunk.map(|chunk| chunk.map(Frame::data).map_err(failed))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.is_head || matches!(self.body.size(), BodySize::None | BodySize::Sized(0))
    }

    fn size_hint(&self) -> SizeHint {
        match self.body.size() {
            BodySize::None => SizeHint::with_exact(0),
            BodySize::Sized(bytes) => SizeHint::with_exact(bytes),
            BodySize::Stream => SizeHint::default(),
        }
    }
}

impl<F: Future<Output: 'static> + 'static> Executor<F> for ThisThread {
    fn execute(&self, request: F) {
        actix_web::rt::spawn(request);
    }
}
