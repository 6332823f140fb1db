//! The routes of the public port.

use actix_web::http::header;
use actix_web::web::{self, Data, Path, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse, Resource};

use super::app::{AppState, EndpointRole, LocalEndpoint};
use super::port::methods::{cors, nothing_here, page, preflight_or_refused, read};
use super::urls::endpoint_token::TokenVersion;
use super::web::{errors, files};
use super::{endpoint, health, matrix, messages, simplepush, socket, web_push};

/// The routes of one worker, by the roles of the node.
pub fn of(node: &AppState) -> impl FnOnce(&mut ServiceConfig) + use<> {
    let node = node.clone();
    move |service| {
        // Endpoints first: each path with a name in braces is a regular expression, which is tried in this order.
        if let Some(endpoints) = &node.endpoints {
            of_endpoints(endpoints, service);
        }
        if let Some(connections) = &node.connections {
            service
                .app_data(connections.clone())
                .service(page("/", read().to(socket::connect)))
                .service(page("/u/{token}", read().to(socket::connect)))
                .service(page("/u/{token}/", read().to(socket::connect)));
        }
        service
            .app_data(Data::new(node))
            .service(page("/__heartbeat__", read().to(health::heartbeat)))
            .service(page("/health", read().to(health::heartbeat)))
            .service(page("/__lbheartbeat__", read().to(health::alive)))
            .service(page("/__version__", read().to(health::version)))
            .service(page("/status", read().to(health::version)))
            .service(page("/openapi.json", read().to(openapi)))
            .service(errors())
            .service(files())
            .default_service(nothing_here());
    }
}

fn of_endpoints(endpoints: &Data<EndpointRole>, service: &mut ServiceConfig) {
    if endpoints.matrix_gateway {
        service.service(matrix::resource());
    }
    let push = |path, version| push_to(path, version, endpoints.simplepush);
    service
        .app_data(Data::new(LocalEndpoint::new(endpoints.clone())))
        .app_data(endpoints.clone())
        .service(
            web::scope("/wpush")
                .wrap(cors())
                .service(push("/r/{token}", TokenVersion::Restricted))
                .service(push("/{token}", TokenVersion::Short))
                .service(push("/v1/{token}", TokenVersion::V1))
                .service(push("/v2/{token}", TokenVersion::V2))
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

/// The resource of an endpoint path whose tokens have this version. With `simplepush` it also accepts PUT.
fn push_to(path: &'static str, version: TokenVersion, simplepush: bool) -> Resource {
    let post = move |request: HttpRequest,
                     token: Path<String>,
                     payload: Payload,
                     app: Data<LocalEndpoint>| async move {
        let answer = web_push::post(&request, version, &token, payload, &app).await;
        endpoint::answer(&app, &request, ("push", version, &token), answer)
    };
    let put = move |request: HttpRequest,
                    token: Path<String>,
                    payload: Payload,
                    app: Data<LocalEndpoint>| async move {
        let answer = simplepush::put(&request, version, &token, payload, &app).await;
        endpoint::answer(&app, &request, ("version", version, &token), answer)
    };
    let get = move |request: HttpRequest, token: Path<String>, app: Data<LocalEndpoint>| async move {
        endpoint::discover(&request, version, &token, &app)
    };
    let resource = web::resource(path).post(post).route(read().to(get));
    match simplepush {
        true => {
            resource.put(put).default_service(preflight_or_refused("GET, HEAD, POST, PUT, OPTIONS"))
        }
        false => resource.default_service(preflight_or_refused("GET, HEAD, POST, OPTIONS")),
    }
}

/// The description of the interface. It has no secret of the server, so any page may read it.
async fn openapi() -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"))
        .content_type("application/json")
        .body(include_str!("../../docs/openapi.json"))
}
