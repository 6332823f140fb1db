//! A service for tests, over a store of its own.

use std::sync::Arc;
use std::time::Duration;

use actix_web::App;
use actix_web::http::Method;
use actix_web::test::{TestRequest, call_service, init_service, read_body};
use actix_web::web::Data;
use actors::{BridgedAgents, BridgedLimits, Clock};
use serde_json::{Value, json};
use slog::{Discard, Logger, o};
use state_machine::wire::{EndpointUrls, VapidKey};
use state_machine::{BridgeName, Chid, Time, Uaid};
use storage_sqlite::{Embedded, EmbeddedOptions};
use tempfile::TempDir;
use unkind_store::UnkindStore;

use super::{RegistrationSecrets, RegistrationService, routes};
use crate::limits::Limits;
use crate::settings::Settings;
use crate::settings::keys::Keys;
use crate::settings::store::message_tables::MonthTables;

pub(super) const NOW: Time = Time(1_796_000_000_000);

pub(super) const TOKEN: &str = "cQ3:APA91bH_a-token-of-FCM";

/// Two applications of FCM and one of APNs.
pub(super) const APPS: [(BridgeName, &str); 3] =
    [(BridgeName::Fcm, "1234"), (BridgeName::Fcm, "org.example"), (BridgeName::Apns, "ios")];

pub(super) struct Scene {
    pub(super) service: Data<RegistrationService>,
    pub(super) store: Arc<UnkindStore>,
    _folder: TempDir,
}

/// An answer with its body.
#[derive(Debug, PartialEq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) json: Value,
    pub(super) headers: Vec<(String, String)>,
}

/// An agent that has registered.
#[derive(Clone)]
pub(super) struct Agent {
    pub(super) uaid: String,
    pub(super) secret: String,
    pub(super) channel: String,
}

/// Endpoints that show what they were made for.
struct ShownUrls;

impl Scene {
    pub(super) async fn new(change: impl FnOnce(&mut Settings)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Embedded::open(folder.path(), &EmbeddedOptions::new(4096)).unwrap();
        MonthTables::new(None, true).make(&store, NOW).await.unwrap();
        let store = UnkindStore::repeating(Arc::new(store));
        let (store, mut settings) = (Arc::new(store), Settings::default());
        change(&mut settings);
        let (clock, log) = (Clock::starting_at(NOW), Logger::root(Discard, o!()));
        let limits = BridgedLimits {
            channels_max: settings.channels_max,
            last_connect_shards: settings.last_connect_shards,
            frozen_month: None,
        };
        let keys = Keys::from_texts(&["A".repeat(43)]).unwrap();
        let keys = keys.with_auth_texts(&["a key of 16 chars".replace(' ', "-")]).unwrap();
        let agents =
            Arc::new(BridgedAgents::new(store.clone(), clock.clone(), limits, log.clone()));
        let service = RegistrationService {
            agents,
            apps: APPS.map(|(bridge, app)| (bridge, app.into())).into(),
            secrets: RegistrationSecrets::new(keys.auth_keys()),
            urls: Box::new(ShownUrls),
            vapid_keys: settings.vapid_keys_allowed.clone(),
            is_closed: false,
            limits: Limits::new(&settings, clock, log.clone()),
            body_timeout: Duration::from_secs(10),
            log,
        };
        Self { service: Data::new(service), store, _folder: folder }
    }

    /// Answers a request as the server does.
    pub(super) async fn send(&self, request: TestRequest) -> Answer {
        let app = App::new().configure(|config| routes(&self.service, config));
        let response = call_service(&init_service(app).await, request.to_request()).await;
        let status = response.status().as_u16();
        let headers = response.headers().iter();
        let headers = headers
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect();
        let json = serde_json::from_slice(&read_body(response).await).unwrap();
        Answer { status, json, headers }
    }

    pub(super) async fn ask(
        &self,
        method: &str,
        path: &str,
        secret: Option<&str>,
        body: &Value,
    ) -> Answer {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = TestRequest::with_uri(path).method(method);
        if let Some(secret) = secret {
            request = request.insert_header(("authorization", format!("webpush {secret}")));
        }
        if !body.is_null() {
            request = request.set_json(body);
        }
        self.send(request).await
    }

    /// A request of an agent, with its secret, for what is `below` its registration.
    pub(super) async fn of(&self, agent: &Agent, method: &str, below: &str, body: Value) -> Answer {
        let path = format!("{}{below}", agent.path());
        self.ask(method, &path, Some(&agent.secret), &body).await
    }

    /// Registers an agent of FCM.
    pub(super) async fn agent(&self) -> Agent {
        let body = json!({"token": TOKEN});
        let answer = self.ask("POST", "/v1/fcm/1234/registration", None, &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let field = |name: &str| answer.json[name].as_str().unwrap().to_owned();
        Agent { uaid: field("uaid"), secret: field("secret"), channel: field("channelID") }
    }
}

impl Answer {
    pub(super) fn code(&self) -> (u16, u64) {
        (self.status, self.json["errno"].as_u64().unwrap_or_default())
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl Agent {
    pub(super) fn path(&self) -> String {
        format!("/v1/fcm/1234/registration/{}", self.uaid)
    }
}

impl EndpointUrls for ShownUrls {
    fn endpoint(&self, uaid: Uaid, chid: Chid, key: Option<&VapidKey>) -> String {
        format!("https://push.example/{uaid}/{chid}/{}", key.is_some())
    }
}
