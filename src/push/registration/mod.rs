//! `/v1/{type}/{app}/registration`: user agents behind bridges register over HTTP, as with autopush. A request with the
//! secret of an agent enters. Calls to [`BridgedAgents`] leave, and JSON with endpoints or a numbered error.
//!
//! | request | answer |
//! |---|---|
//! | `POST registration` | a new uaid with its secret, and its first channel |
//! | `PUT registration/{uaid}` | replaces the token |
//! | `GET registration/{uaid}` | the channels |
//! | `DELETE registration/{uaid}` | removes the agent |
//! | `POST registration/{uaid}/subscription` | a further channel |
//! | `DELETE registration/{uaid}/subscription/{chid}` | removes a channel |
//!
//! The secret is verified before the store is read, so a wrong one and an unknown uaid are answered alike. There are no
//! CORS headers: the clients are applications, not web pages.

mod body;
mod error;
#[cfg(test)]
mod fixture;
mod secrets;
mod target;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::Method;
use actix_web::http::header::{CACHE_CONTROL, HeaderMap};
use actix_web::middleware::DefaultHeaders;
use actix_web::web::{self, Data, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use actors::BridgedAgents;
use serde_json::json;
use slog::{Logger, debug};
use state_machine::bridged_call::BridgedError;
use state_machine::wire::EndpointUrls;
use state_machine::{BridgeName, BridgeRecipient, Uaid};

use super::error::PushError;
use super::port::authorization::authorization;
use super::port::body::read_body;
use super::port::request_id::request_id;
use super::vapid::check_allowed;
use crate::limits::Limits;
use crate::settings::AllowedVapidKeys;
use body::{BODY_BYTES_MAX, Fields, chid};
use error::RegistrationError;
pub use secrets::RegistrationSecrets;
use target::{Resource, Target};

pub struct RegistrationService {
    pub agents: Arc<BridgedAgents>,
    /// The applications of each bridge.
    pub apps: BTreeSet<(BridgeName, Box<str>)>,
    pub secrets: RegistrationSecrets,
    pub urls: Box<dyn EndpointUrls + Send + Sync>,
    pub limits: Arc<Limits>,
    /// The keys of which one must be that of each new channel.
    pub vapid_keys: AllowedVapidKeys,
    /// Whether user agents need an access token: no new one registers here, and those that did remain.
    pub is_closed: bool,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    pub log: Logger,
}

/// Answers requests of bridged agents with `service`.
pub(crate) fn routes(service: &Data<RegistrationService>, config: &mut ServiceConfig) {
    config.service(
        web::scope(target::SCOPE)
            .app_data(service.clone())
            .wrap(DefaultHeaders::new().add((CACHE_CONTROL, "no-store")))
            .default_service(web::route().to(answer)),
    );
}

async fn answer(
    request: HttpRequest,
    payload: Payload,
    service: Data<RegistrationService>,
) -> Result<HttpResponse, RegistrationError> {
    let answer = service.serve(&request, payload).await;
    answer.inspect_err(|error| {
        debug!(service.log, "refused a request of a bridged user agent"; "request" => request_id(request.headers()),
            "errno" => error.errno().number(), "reason" => %error);
    })
}

impl RegistrationService {
    async fn serve(
        &self,
        request: &HttpRequest,
        payload: Payload,
    ) -> Result<HttpResponse, RegistrationError> {
        let headers = request.headers();
        let address = self.limits.address(request.peer_addr(), headers);
        self.limits.connect_from(address)?;
        let target = Target::read(request.uri().path())?;
        let mut apps = self.apps.iter().filter(|(bridge, _)| *bridge == target.bridge).peekable();
        apps.peek().ok_or(RegistrationError::UnknownType)?;
        if !apps.any(|(_, app)| **app == *target.app) {
            return Err(RegistrationError::UnknownApp);
        }
        let body = async || {
            let body = read_body(headers, payload, BODY_BYTES_MAX, self.body_timeout).await?;
            Fields::parse(&body)
        };
        let method = request.method();
        match (target.resource, method) {
            (Resource::New, &Method::POST) if self.is_closed => Err(PushError::Access.into()),
            (Resource::New, &Method::POST) => self.register(&target, &body().await?, address).await,
            (Resource::Agent(uaid), &Method::PUT) => {
                let uaid = self.authorize(uaid, headers)?;
                self.agents.update(uaid, target.recipient(&body().await?)?).await?;
                Ok(HttpResponse::Ok().json(json!({})))
            }
            (Resource::Agent(text), &Method::GET | &Method::HEAD) => {
                let channels = self.agents.channels(self.authorize(text, headers)?).await?;
                let channels: Vec<_> = channels.iter().map(ToString::to_string).collect();
                // The client compares the `uaid` with its own as text: it is answered as it was written, dashed or not.
                Ok(HttpResponse::Ok().json(json!({"uaid": text, "channelIDs": channels})))
            }
            (Resource::Agent(uaid), &Method::DELETE) => {
                self.agents.unregister(self.authorize(uaid, headers)?).await?;
                Ok(HttpResponse::Ok().json(json!({})))
            }
            (Resource::Channels(uaid), &Method::POST) => {
                let uaid = self.authorize(uaid, headers)?;
                self.subscribe(uaid, &body().await?, address).await
            }
            (Resource::Channel(uaid, channel), &Method::DELETE) => {
                let uaid = self.authorize(uaid, headers)?;
                let channel = chid(channel).ok_or(BridgedError::NoSuchChannel)?;
                self.agents.unsubscribe(uaid, channel).await?;
                Ok(HttpResponse::Ok().json(json!({})))
            }
            (Resource::New | Resource::Channels(_), _) => {
                Err(RegistrationError::Method { allow: "POST" })
            }
            (Resource::Agent(_), _) => {
                Err(RegistrationError::Method { allow: "PUT, GET, HEAD, DELETE" })
            }
            (Resource::Channel(..), _) => Err(RegistrationError::Method { allow: "DELETE" }),
        }
    }

    /// Verifies the secret of an agent, and charges its request, also to the connections per second, whose limit
    /// protects the store. Nothing is read from the store before.
    fn authorize(&self, uaid: &str, headers: &HeaderMap) -> Result<Uaid, RegistrationError> {
        let uaid = Uaid::parse(uaid).map_err(|_| RegistrationError::Secret)?;
        let given = authorization(headers, &["webpush", "bearer"])
            .filter(|given| self.secrets.verify(uaid, given));
        given.ok_or(RegistrationError::Secret)?;
        self.limits.request_of_agent(uaid)?;
        Ok(self.limits.try_admit(true).then_some(uaid).ok_or(BridgedError::Unavailable)?)
    }

    async fn register(
        &self,
        target: &Target<'_>,
        fields: &Fields,
        address: Option<IpAddr>,
    ) -> Result<HttpResponse, RegistrationError> {
        let (recipient, chid, key) = (target.recipient(fields)?, fields.channel()?, fields.key()?);
        check_allowed(&self.vapid_keys, key.as_ref()).map_err(PushError::from)?;
        self.limits.new_agent_from(address)?;
        self.limits.register_from(address)?;
        self.limits.try_admit(false).then_some(()).ok_or(BridgedError::Unavailable)?;
        let uaid = self.agents.register(recipient, chid).await?;
        Ok(HttpResponse::Ok().json(json!({
            "uaid": uaid.to_string(),
            "channelID": chid.to_string(),
            "endpoint": self.urls.endpoint(uaid, chid, key.as_ref()),
            "secret": self.secrets.make(uaid),
        })))
    }

    async fn subscribe(
        &self,
        uaid: Uaid,
        fields: &Fields,
        address: Option<IpAddr>,
    ) -> Result<HttpResponse, RegistrationError> {
        let (chid, key) = (fields.channel()?, fields.key()?);
        check_allowed(&self.vapid_keys, key.as_ref()).map_err(PushError::from)?;
        self.limits.register_of_agent(uaid)?;
        self.limits.register_from(address)?;
        self.agents.subscribe(uaid, chid).await?;
        let endpoint = self.urls.endpoint(uaid, chid, key.as_ref());
        Ok(HttpResponse::Ok().json(json!({"channelID": chid.to_string(), "endpoint": endpoint})))
    }
}

impl Target<'_> {
    fn recipient(&self, fields: &Fields) -> Result<BridgeRecipient, RegistrationError> {
        let (token, aps) = (fields.token()?, fields.aps(self.bridge)?);
        Ok(BridgeRecipient { bridge: self.bridge, app: self.app.as_str().into(), token, aps })
    }
}
