//! What HTTP/1 and HTTP/2 share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actix_http::body::BoxBody;
use actix_http::header::CONTENT_TYPE;
use actix_http::{Request, Response, StatusCode};
use actix_service::{IntoServiceFactory, Service, ServiceFactory, map_config};
use actix_web::dev::{AppConfig, ServiceResponse};
use actix_web::web::ServiceConfig;
use actix_web::{App, Error};
use tokio::io::{AsyncRead, AsyncWrite};

use super::usage::ConnectionUse;

/// What HTTP on a port needs to know.
#[derive(Clone)]
pub struct HttpOptions {
    pub headers_timeout: Duration,
    /// Time for which an idle connection is kept.
    pub keep_alive: Duration,
    /// Time for which a socket is read after the last answer or close frame.
    pub linger: Duration,
    /// Whether a client that has closed its end still waits for the answer.
    pub allows_half_closed: bool,
    /// The JSON of a 400 with this message.
    pub bad_request: fn(&str) -> String,
    /// Fires at shutdown: idle connections end.
    pub stopping: Option<actix_server::GracefulShutdownSignal>,
}

/// The socket of a connection, encrypted or not.
pub trait Io: AsyncRead + AsyncWrite + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Unpin + 'static> Io for T {}

/// A connection that begins: its socket, its peer, and its use.
pub(super) type Opened<T> = (T, Option<SocketAddr>, Arc<ConnectionUse>);

/// The routes of a thread.
pub(super) trait Routes:
    Service<Request, Response = ServiceResponse, Error = Error, Future: 'static> + 'static
{
}

impl<A> Routes for A where
    A: Service<Request, Response = ServiceResponse, Error = Error, Future: 'static> + 'static
{
}

pub(super) fn app(
    configure: impl FnOnce(&mut ServiceConfig) + 'static,
) -> impl ServiceFactory<
    Request,
    Config = (),
    Response = ServiceResponse,
    Error = Error,
    InitError = (),
    Service = impl Routes,
    Future: 'static,
> {
    map_config(App::new().configure(configure).into_factory(), |()| AppConfig::default())
}

pub(super) fn refusal(json: String) -> Response<BoxBody> {
    let mut answer = Response::build(StatusCode::BAD_REQUEST);
    answer.insert_header((CONTENT_TYPE, "application/json")).body(json).map_into_boxed_body()
}
