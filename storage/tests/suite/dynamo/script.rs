//! A server with one scripted reply per request.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_sdk_dynamodb::config::http::{HttpRequest, HttpResponse};
use aws_sdk_dynamodb::config::{HttpClient, RuntimeComponents, SharedHttpClient};
use aws_sdk_dynamodb::error::ConnectorError;
use aws_smithy_http_client::test_util::{ReplayEvent, StaticReplayClient};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::http::StatusCode;
use aws_smithy_types::body::SdkBody;
use storage_dynamodb::{Dynamo, DynamoOpenError, DynamoOptions};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use crate::dynamo::things::options;
use crate::wire_engine::overrides;

/// The longest wait for a request, which comes at once.
const REQUEST_WAIT: Duration = Duration::from_secs(60);

/// What becomes of one request.
pub(crate) enum Step {
    /// It is answered with this status and JSON.
    Reply(u16, String),
    /// The server does it and answers so, and the answer is lost.
    Lost(String),
    /// No reply at all.
    Silence,
    /// The test releases the reply.
    Held(oneshot::Receiver<()>, String),
}

/// A reply of success.
pub(crate) fn ok(json: &str) -> Step {
    Step::Reply(200, json.to_owned())
}

/// A reply of refusal, as DynamoDB words it.
pub(crate) fn refused(code: &str) -> Step {
    failed(400, code)
}

pub(crate) fn failed(status: u16, code: &str) -> Step {
    Step::Reply(status, error(code, ""))
}

/// The body of a refusal; `more` goes on with its fields.
pub(crate) fn error(code: &str, more: &str) -> String {
    format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{code}","message":"a message"{more}}}"#)
}

/// The steps, and what was asked. It describes the router table by itself.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    replies: StaticReplayClient,
    faults: Arc<Mutex<VecDeque<Fault>>>,
    /// Why the router table is not described.
    closed: Option<&'static str>,
    /// A permit for each request that came.
    came: Arc<Semaphore>,
}

/// What stands in the way of a reply.
#[derive(Debug)]
enum Fault {
    None,
    Lost,
    Silence,
    Held(oneshot::Receiver<()>),
}

impl Script {
    pub(crate) fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        let (replies, faults): (Vec<_>, VecDeque<_>) = steps.into_iter().map(step).unzip();
        Self {
            replies: StaticReplayClient::new(replies),
            faults: Arc::new(Mutex::new(faults)),
            closed: None,
            came: Arc::new(Semaphore::new(0)),
        }
    }

    /// A server that refuses to describe the router table.
    pub(crate) fn closed(code: &'static str) -> Self {
        Self { closed: Some(code), ..Self::new([]) }
    }

    /// An engine that talks to the server.
    pub(crate) fn open(&self) -> Dynamo {
        self.open_with(&options()).unwrap()
    }

    pub(crate) fn open_with(&self, options: &DynamoOptions) -> Result<Dynamo, DynamoOpenError> {
        storage_dynamodb::open_with(options, overrides(Some(SharedHttpClient::new(self.clone()))))
    }

    /// The operations that were asked for, in order, but for the description of the router table.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.replies.actual_requests().map(|request| operation(request).to_owned()).collect()
    }

    /// The bodies of the requests.
    pub(crate) fn bodies(&self) -> Vec<String> {
        self.replies.actual_requests().map(body).collect()
    }

    /// Waits for the next request.
    pub(crate) async fn next_request(&self) {
        let came = timeout(REQUEST_WAIT, self.came.acquire()).await;
        came.unwrap_or_else(|_| panic!("no further request after {:?}", self.asked()))
            .unwrap()
            .forget();
    }

    /// Every step was taken.
    pub(crate) fn is_done(&self) -> bool {
        self.faults.lock().unwrap().is_empty()
    }
}

fn step(step: Step) -> (ReplayEvent, Fault) {
    let (status, json, fault) = match step {
        Step::Reply(status, json) => (status, json, Fault::None),
        Step::Lost(json) => (200, json, Fault::Lost),
        Step::Silence => (200, String::new(), Fault::Silence),
        Step::Held(released, json) => (200, json, Fault::Held(released)),
    };
    (ReplayEvent::new(HttpRequest::new(SdkBody::empty()), response(status, json)), fault)
}

fn response(status: u16, json: String) -> HttpResponse {
    HttpResponse::new(StatusCode::try_from(status).unwrap(), SdkBody::from(json))
}

fn operation(request: &HttpRequest) -> &str {
    request.headers().get("x-amz-target").and_then(|target| target.split('.').next_back()).unwrap()
}

fn body(request: &HttpRequest) -> String {
    String::from_utf8(request.body().bytes().unwrap().to_vec()).unwrap()
}

impl HttpConnector for Script {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        if operation(&request) == "DescribeTable" && body(&request).contains(r#""router""#) {
            let described = match self.closed {
                Some(code) => response(400, error(code, "")),
                None => response(200, ROUTER.to_owned()),
            };
            return HttpConnectorFuture::ready(Ok(described));
        }
        let fault = self.faults.lock().unwrap().pop_front();
        let reply = self.replies.call(request);
        self.came.add_permits(1);
        HttpConnectorFuture::new(async move {
            match fault.unwrap_or(Fault::None) {
                Fault::None => reply.await,
                Fault::Lost => Err(ConnectorError::io("connection reset".into())),
                Fault::Silence => std::future::pending().await,
                Fault::Held(released) => {
                    released.await.unwrap();
                    reply.await
                }
            }
        })
    }
}

impl HttpClient for Script {
    fn http_connector(
        &self,
        _settings: &HttpConnectorSettings,
        _components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

/// The router table as it should be.
pub(crate) const ROUTER: &str = r#"{"Table": {
    "TableName": "router", "TableStatus": "ACTIVE",
    "KeySchema": [{"AttributeName": "uaid", "KeyType": "HASH"}],
    "AttributeDefinitions": [
        {"AttributeName": "uaid", "AttributeType": "S"},
        {"AttributeName": "last_connect", "AttributeType": "N"}
    ],
    "GlobalSecondaryIndexes": [{
        "IndexName": "AccessIndex", "IndexStatus": "ACTIVE",
        "KeySchema": [{"AttributeName": "last_connect", "KeyType": "HASH"}],
        "Projection": {"ProjectionType": "KEYS_ONLY"}
    }]
}}"#;
