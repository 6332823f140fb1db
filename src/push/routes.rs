//! The routes of the public port.

use std::future::ready;
use std::sync::Arc;

use actix_web::guard;
use actix_web::http::{Method, StatusCode, header};
use actix_web::middleware::DefaultHeaders;
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse, Resource, ResponseError, Route};

use super::app::{AppState, EndpointRole, LocalEndpoint};
use super::endpoint_token::TokenVersion;
use super::web::files;
use super::{PushError, health, matrix, messages, socket, web_push};

/// The routes of one worker, by the roles of the node.
pub fn of(node: &AppState) -> impl FnOnce(&mut ServiceConfig) + use<> {
    let node = node.clone();
    move |service| {
        if let Some(connections) = &node.connections {
            service
                .app_data(connections.clone())
                .service(page("/", read().to(socket::connect)))
                .service(page("/u/{token}", read().to(socket::connect)))
                .service(page("/u/{token}/", read().to(socket::connect)));
        }
        if let Some(endpoints) = &node.endpoints {
            of_endpoints(endpoints, service);
        }
        service
            .app_data(Data::new(node))
            .service(page("/__heartbeat__", read().to(health::heartbeat)))
            .service(page("/health", read().to(health::heartbeat)))
            .service(page("/__lbheartbeat__", read().to(health::alive)))
            .service(page("/__version__", read().to(health::version)))
            .service(page("/status", read().to(health::version)))
            .service(page("/openapi.json", read().to(openapi)))
            .service(files())
            .default_service(nothing_here());
    }
}

fn of_endpoints(endpoints: &Data<EndpointRole>, service: &mut ServiceConfig) {
    if endpoints.matrix_gateway {
        service.service(matrix::resource());
    }
    let push = |path, version| web_push::resource(path, version, endpoints.simplepush);
    service
        .app_data(Data::new(LocalEndpoint::new(Arc::clone(&endpoints.shared))))
        .app_data(endpoints.clone())
        .service(
            web::scope("/wpush")
                .wrap(cors())
                .service(push("/v1/{token}", TokenVersion::V1))
                .service(push("/v2/{token}", TokenVersion::V2))
                .service(push("/r/{token}", TokenVersion::Restricted))
                .service(push("/{token}", TokenVersion::Short))
                .default_service(nothing_here()),
        )
        .service(
            web::scope("/m")
                .wrap(cors())
                .service(
                    web::resource("/{id}")
                        .delete(messages::delete)
                        .default_service(preflight_or_refused("DELETE, OPTIONS")),
                )
                .default_service(nothing_here()),
        );
}

/// Allows pushes from web pages: an endpoint is a capability, whatever the origin.
pub(crate) fn cors() -> DefaultHeaders {
    DefaultHeaders::new().add((header::ACCESS_CONTROL_ALLOW_ORIGIN, "*")).add((
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
        "allow, location, ttl, link, retry-after, ratelimit, ratelimit-policy, www-authenticate, \
         x-request-id",
    ))
}

/// The default route of a resource: answers a CORS preflight, and any other method with 405.
pub(crate) fn preflight_or_refused(allow: &'static str) -> Route {
    web::route().to(move |request: HttpRequest| {
        let is_preflight = *request.method() == Method::OPTIONS;
        ready(if is_preflight { preflight(allow) } else { refused(allow) })
    })
}

fn preflight(allow: &'static str) -> HttpResponse {
    HttpResponse::NoContent()
        .insert_header((header::ALLOW, allow))
        .insert_header((header::ACCESS_CONTROL_ALLOW_METHODS, allow))
        .insert_header((
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            "authorization, content-encoding, content-type, crypto-key, encryption, last-event-id, \
             link, prefer, topic, ttl, urgency",
        ))
        .insert_header((header::ACCESS_CONTROL_MAX_AGE, "86400"))
        .finish()
}

/// A route for GET and HEAD, whose answer actix-http sends without its body.
pub(super) fn read() -> Route {
    web::route().guard(guard::Any(guard::Get()).or(guard::Head()))
}

/// A resource that can only be read.
pub(super) fn page(path: &str, read: Route) -> Resource {
    web::resource(path).route(read).default_service(preflight_or_refused("GET, HEAD, OPTIONS"))
}

/// A 405, which lists the allowed methods (RFC 9110 §15.5.6).
pub(super) fn refused(allow: &'static str) -> HttpResponse {
    let mut response = PushError::Http(StatusCode::METHOD_NOT_ALLOWED).error_response();
    response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static(allow));
    response
}

/// The description of the interface. It has no secret of the server, so any page may read it.
async fn openapi() -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"))
        .content_type("application/json")
        .body(include_str!("../../docs/openapi.json"))
}

/// The default route of a scope: a 404.
pub fn nothing_here() -> Route {
    web::route().to(async || PushError::NotFound.error_response())
}
