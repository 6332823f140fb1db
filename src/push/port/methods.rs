//! The methods of a URL: what reads it, the CORS preflight, and the answer to any other method.

use std::future::ready;

use actix_web::http::{Method, StatusCode, header};
use actix_web::middleware::DefaultHeaders;
use actix_web::{HttpRequest, HttpResponse, Resource, ResponseError, Route, guard, web};

use crate::push::error::PushError;

/// Allows pushes from web pages: an endpoint is a capability, whatever the origin.
pub fn cors() -> DefaultHeaders {
    DefaultHeaders::new().add((header::ACCESS_CONTROL_ALLOW_ORIGIN, "*")).add((
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
        "allow, location, ttl, link, retry-after, ratelimit, ratelimit-policy, www-authenticate, \
         x-request-id",
    ))
}

/// The default route of a resource: answers a CORS preflight, and any other method with 405.
pub fn preflight_or_refused(allow: &'static str) -> Route {
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
pub fn read() -> Route {
    web::route().guard(guard::Any(guard::Get()).or(guard::Head()))
}

/// A resource that can only be read.
pub fn page(path: &str, read: Route) -> Resource {
    web::resource(path).route(read).default_service(preflight_or_refused("GET, HEAD, OPTIONS"))
}

/// A 405, which lists the allowed methods (RFC 9110 §15.5.6).
pub fn refused(allow: &'static str) -> HttpResponse {
    let mut response = PushError::Http(StatusCode::METHOD_NOT_ALLOWED).error_response();
    response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static(allow));
    response
}

/// The default route of a scope: a 404.
pub fn nothing_here() -> Route {
    web::route().to(async || PushError::NotFound.error_response())
}
