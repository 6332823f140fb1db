//! The line of a node to the wire server, which fails at one request.

use std::fmt;
use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::config::http::{HttpRequest, HttpResponse};
use aws_sdk_dynamodb::config::{HttpClient, RuntimeComponents, SharedHttpClient};
use aws_sdk_dynamodb::error::ConnectorError;
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_types::body::SdkBody;
use futures_util::future::BoxFuture;
use serde_json::Value;
use storage_dynamodb::{Dynamo, DynamoOptions};

use crate::dynamo::script::error;
use crate::wire_engine::overrides;

/// What becomes of one request.
pub(super) enum Fault {
    /// The server does not get it.
    Lost,
    /// The server executes it, and its answer is lost.
    AnswerLost,
    /// Another transaction holds the item: nothing is done. A read is executed.
    Conflict,
    /// Another node has changed the sequence of the transaction, and changed it back: nothing is done. Any other request
    /// is executed.
    Refused,
    /// Another node does this before.
    After(BoxFuture<'static, ()>),
}

/// The fault of the request with a number, which counts from 1.
#[derive(Default)]
struct Plan {
    asked: Vec<String>,
    fault: Option<(usize, Fault)>,
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.asked.fmt(f)
    }
}

#[derive(Debug, Clone)]
pub(super) struct Line<Server> {
    server: Server,
    plan: Arc<Mutex<Plan>>,
}

impl Line<SharedHttpClient> {
    pub(super) fn new() -> Self {
        let server = aws_smithy_http_client::Builder::new().build_http();
        Self { server, plan: Arc::default() }
    }

    pub(super) fn open(&self, options: &DynamoOptions) -> Dynamo {
        storage_dynamodb::open_with(options, overrides(Some(SharedHttpClient::new(self.clone()))))
            .unwrap()
    }

    pub(super) fn fails_at(&self, number: usize, fault: Fault) {
        *self.plan.lock().unwrap() = Plan { asked: Vec::new(), fault: Some((number, fault)) };
    }

    /// Whether the request came, and the requests so far.
    pub(super) fn has_failed(&self) -> (bool, Vec<String>) {
        let mut plan = self.plan.lock().unwrap();
        (plan.fault.take().is_none(), plan.asked.clone())
    }
}

impl HttpConnector for Line<SharedHttpConnector> {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let target = request.headers().get("x-amz-target").unwrap();
        let operation = target.rsplit_once('.').unwrap().1.to_owned();
        let fault = {
            let mut plan = self.plan.lock().unwrap();
            plan.asked.push(operation.clone());
            let number = plan.asked.len();
            plan.fault.take_if(|(at, _)| *at == number)
        };
        let server = self.server.clone();
        let lost = || Err(ConnectorError::io("the line is cut".into()));
        HttpConnectorFuture::new(async move {
            match fault.map(|(_, fault)| fault) {
                None => server.call(request).await,
                Some(Fault::Lost) => lost(),
                Some(Fault::AnswerLost) => {
                    server.call(request).await?;
                    lost()
                }
                Some(Fault::Conflict) => match conflict(&operation, &request) {
                    Some(refused) => Ok(refused),
                    None => server.call(request).await,
                },
                Some(Fault::Refused) if operation == TRANSACT && ends_with_sequence(&request) => {
                    Ok(cancelled("ConditionalCheckFailed", &request))
                }
                Some(Fault::Refused) => server.call(request).await,
                Some(Fault::After(other)) => {
                    other.await;
                    server.call(request).await
                }
            }
        })
    }
}

impl HttpClient for Line<SharedHttpClient> {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let server = self.server.http_connector(settings, components);
        SharedHttpConnector::new(Line { server, plan: self.plan.clone() })
    }
}

const TRANSACT: &str = "TransactWriteItems";

/// None of a request that no transaction refuses.
fn conflict(operation: &str, request: &HttpRequest) -> Option<HttpResponse> {
    match operation {
        TRANSACT => Some(cancelled("TransactionConflict", request)),
        "PutItem" | "UpdateItem" | "DeleteItem" => {
            Some(refusal(error("TransactionConflictException", "")))
        }
        _ => None,
    }
}

fn actions(request: &HttpRequest) -> Vec<Value> {
    let body: Value = serde_json::from_slice(request.body().bytes().unwrap()).unwrap();
    body["TransactItems"].as_array().unwrap().clone()
}

fn ends_with_sequence(request: &HttpRequest) -> bool {
    actions(request).last().is_some_and(|action| action.to_string().contains("sequences\""))
}

/// A transaction that is cancelled for its last action.
fn cancelled(reason: &str, request: &HttpRequest) -> HttpResponse {
    let others = actions(request).len() - 1;
    let others = r#"{"Code": "None"},"#.repeat(others);
    let more = format!(r#","CancellationReasons":[{others}{{"Code": "{reason}"}}]"#);
    refusal(error("TransactionCanceledException", &more))
}

fn refusal(body: String) -> HttpResponse {
    HttpResponse::new(400.try_into().unwrap(), SdkBody::from(body))
}
