//! Start-ups that must fail with one precise message and exit code 1, and without listening.

use std::collections::HashMap;
use std::net::TcpListener;
use std::path::PathBuf;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, TimeToLiveSpecification, TimeToLiveStatus};
use tempfile::TempDir;

use crate::harness::{
    ExitOutput, Fault, Program, Proxy, Rule, Server, WireServer, dynamo, free_port, kalends,
    shared_wire_server,
};

/// A start without any environment variable of this machine.
pub(super) struct Start {
    home: TempDir,
    url: String,
    more: Vec<&'static str>,
    variables: Vec<(&'static str, &'static str)>,
}

const CREDENTIALS: [(&str, &str); 2] =
    [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret")];

const REGION: &str = "--dynamodb-region=eu-central-1";

/// A missing server is not waited for.
const SHORT_TIMEOUTS: [&str; 2] = ["--dynamodb-attempts-max=2", "--dynamodb-backoff-ms=1"];

impl Start {
    pub(super) fn at(url: &str) -> Self {
        let home = TempDir::new().expect("a temporary directory can be made");
        let (more, variables) = (vec![REGION], CREDENTIALS.to_vec());
        Self { home, url: url.to_owned(), more, variables }
    }

    pub(super) fn with(mut self, more: &[&'static str]) -> Self {
        self.more.extend(more);
        self
    }

    /// The directory does not exist before the first start.
    pub(super) fn data_dir(&self) -> PathBuf {
        self.home.path().join("data")
    }

    async fn ends(&self, command: &[&str]) -> ExitOutput {
        self.begins(command).ended().await
    }

    fn begins(&self, command: &[&str]) -> Program {
        let mut command = kalends(command);
        command.args(["--store=dynamodb", "--listen=127.0.0.1:0"]);
        command.arg("--data-dir").arg(self.data_dir());
        command.arg(format!("--dynamodb-endpoint-url={}", self.url));
        command.args(&self.more).args(SHORT_TIMEOUTS);
        command.env_clear().envs(self.variables.iter().copied());
        // The instance metadata service is not asked for credentials: its answer may take long.
        command.env("HOME", self.home.path()).env("AWS_EC2_METADATA_DISABLED", "true");
        Program::start(command)
    }

    /// Checks that the start fails, that its last line contains all of these texts, and that
    /// `kalends preflight` prints them too. The exit code allows a retry.
    pub(super) async fn is_refused(&self, expected: &[&str]) {
        self.is_no_start_as("all", 1, expected).await;
        self.is_found(expected).await;
    }

    /// Like [`is_refused`](Self::is_refused), with the exit code for errors that a retry does not
    /// solve.
    pub(super) async fn is_refused_for_its_keys(&self, expected: &[&str]) {
        self.is_no_start_as("all", 2, expected).await;
        self.is_found(expected).await;
    }

    pub(super) async fn is_no_start_as(&self, role: &str, code: i32, expected: &[&str]) {
        self.ends(&["serve", "--role", role]).await.refused_start(code, expected);
    }

    /// Checks that `kalends preflight` reports these texts.
    pub(super) async fn is_found(&self, expected: &[&str]) {
        let ended = self.ends(&["preflight"]).await;
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let mut lines = ended.stdout.lines().chain(ended.stderr.lines());
        let is_it = |line: &str| expected.iter().all(|text| line.contains(text));
        assert!(lines.any(is_it), "{expected:?} is missing: {ended:?}");
    }
}

#[actix_web::test]
async fn a_start_without_credentials_is_refused() {
    let wire = shared_wire_server();
    let mut start = Start::at(&wire.url);
    start.variables.clear();
    start.is_refused(&["no AWS credentials", "AWS_ACCESS_KEY_ID"]).await;
}

#[actix_web::test]
async fn a_start_without_a_region_is_refused() {
    let wire = shared_wire_server();
    let mut start = Start::at(&wire.url);
    start.more.clear();
    start.is_refused(&["no AWS region", "AWS_REGION"]).await;
}

#[actix_web::test]
async fn rejected_credentials_are_reported() {
    let wire = shared_wire_server();
    for error in
        ["UnrecognizedClientException", "InvalidSignatureException", "AccessDeniedException"]
    {
        let proxy = Proxy::to(&wire.url);
        proxy.rule(Rule::on("", Fault::Error(400, error)));
        let url = proxy.url();
        Start::at(&url).is_refused(&["the AWS credentials are refused", &url]).await;
    }
}

#[actix_web::test]
async fn sigterm_ends_a_start_that_waits_for_its_store() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let start = Start::at(&format!("http://{}", silent.local_addr().unwrap()));
    let starting = start.with(&["--dynamodb-attempt-timeout-ms=600000"]).begins(&["serve"]);
    let asked = tokio::task::spawn_blocking(move || silent.accept().map(|asked| (silent, asked)));
    let _held = asked.await.unwrap().unwrap();
    starting.terminate();
    starting.ended().await.failed(0, "stopped during startup");
}

#[actix_web::test]
async fn an_endpoint_without_a_dynamodb_server_is_rejected() {
    let url = format!("http://{}", free_port());
    Start::at(&url).is_refused(&["no DynamoDB is reached", &url]).await;

    let kalends = Server::start();
    Start::at(&kalends.origin()).is_refused(&[&kalends.origin()]).await;
}

#[actix_web::test]
async fn an_invalid_endpoint_url_is_a_bad_setting() {
    for wrong in ["127.0.0.1:8000", "ftp://a", "http://"] {
        Start::at(wrong).ends(&["serve"]).await.failed(2, "dynamodb_endpoint_url");
    }
}

#[actix_web::test]
async fn missing_tables_are_named_if_none_may_be_created() {
    let wire = WireServer::start();
    let start = Start::at(&wire.url).with(&["--create-tables=false"]);
    start.is_refused(&["router", "kalends tables create", "create_tables"]).await;

    let mut server = Server::launch(dynamo::launch(&wire.url));
    assert!(server.terminate().success());
    let client = dynamo::client(&wire.url);
    let this = newest_table(&client).await;
    client.delete_table().table_name(&this).send().await.expect("the table is there");
    start.is_refused(&[&this, "kalends tables create"]).await;
}

#[actix_web::test]
async fn a_table_with_another_schema_is_rejected() {
    use aws_sdk_dynamodb::types::{
        AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
    };
    let wire = WireServer::start();
    let key = KeySchemaElement::builder().attribute_name("id").key_type(KeyType::Hash);
    let attribute = AttributeDefinition::builder().attribute_name("id");
    let table = dynamo::client(&wire.url)
        .create_table()
        .table_name("router")
        .key_schema(key.build().expect("it is whole"))
        .attribute_definitions(
            attribute.attribute_type(ScalarAttributeType::S).build().expect("it is whole"),
        )
        .billing_mode(BillingMode::PayPerRequest);
    table.send().await.expect("the server makes it");
    Start::at(&wire.url).is_refused(&["router", "partition key uaid"]).await;
}

#[actix_web::test]
async fn a_missing_or_unfinished_index_is_rejected() {
    let wire = WireServer::start();
    let mut server = Server::launch(dynamo::launch(&wire.url));
    assert!(server.terminate().success());
    let status = "/Table/GlobalSecondaryIndexes/0/IndexStatus";
    for (pointer, value, expected) in [
        (status, "CREATING".into(), "still being built"),
        (status, "DELETING".into(), "being deleted"),
        ("/Table/GlobalSecondaryIndexes", serde_json::json!([]), "has no index AccessIndex"),
    ] {
        let proxy = Proxy::to(&wire.url);
        proxy.rule(Rule::on("DescribeTable", Fault::ReplaceAnswer(pointer, value)).table("router"));
        Start::at(&proxy.url()).is_refused(&["router", "AccessIndex", expected]).await;
    }
}

/// The server waits for a table that is being created. `kalends preflight` does not wait for the
/// tables of months.
#[actix_web::test]
async fn a_start_waits_for_a_table_that_is_being_created() {
    let wire = WireServer::start();
    let mut server = Server::launch(dynamo::launch(&wire.url));
    assert!(server.terminate().success());
    let proxy = Proxy::to(&wire.url);
    let creating = || Fault::ReplaceAnswer("/Table/TableStatus", "CREATING".into());
    proxy.rule(Rule::on("DescribeTable", creating()).table("router").times(3));
    proxy.rule(Rule::on("DescribeTable", creating()).table("message_").times(3));
    server.restart_as(dynamo::launch(&proxy.url()));
    assert!(proxy.take_usage().count(&["DescribeTable"]) > 6);
    proxy.rule(Rule::on("DescribeTable", creating()).table("message_"));
    Start::at(&proxy.url()).is_found(&["message_", "being created"]).await;
}

async fn newest_table(client: &Client) -> String {
    let tables = client.list_tables().send().await.expect("the server answers");
    let months = tables.table_names().iter().filter(|name| name.starts_with("message_"));
    months.max().expect("there is one").clone()
}

/// Records of an installation with another prefix for message tables: new keys would make its
/// endpoints invalid.
#[actix_web::test]
async fn no_keys_are_generated_if_the_records_cannot_be_read() {
    let wire = WireServer::start();
    let mut server = Server::launch(dynamo::launch(&wire.url));
    assert!(server.terminate().success());
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let record = dynamo::client(&wire.url).put_item().table_name("router");
    let record = record
        .item("uaid", text("0123456789abcdef0123456789abcdef"))
        .item("router_type", text("webpush"))
        .item("curmonth", text("messages_2026_11"));
    record.send().await.expect("the server takes it");
    Start::at(&wire.url).is_refused_for_its_keys(&["keys.toml"]).await;
}

/// What its rows mean is not known here. systemd does not start a server again that ends with 2.
#[actix_web::test]
async fn items_of_a_newer_version_are_refused_and_stay_as_they_are() {
    let wire = WireServer::start();
    let mut server = Server::launch(dynamo::launch(&wire.url));
    assert!(server.terminate().success());
    let client = dynamo::client(&wire.url);
    let of_keys = async || {
        let item = client.get_item().table_name("router");
        let item = item.key("uaid", AttributeValue::S("keys".to_owned())).consistent_read(true);
        item.send().await.expect("the server answers").item.expect("the server has started on it")
    };
    let marks = |item: &HashMap<String, AttributeValue>| item["marks"].as_ss().unwrap().clone();
    let mut item = of_keys().await;
    assert!(marks(&item).contains(&"rows:1/1".to_owned()), "{item:?}");
    for (versions, is_refused) in [("2/1", false), ("3/2", true)] {
        let mut newer = marks(&item);
        newer.retain(|mark| !mark.starts_with("rows:"));
        newer.push(format!("rows:{versions}"));
        item.insert("marks".to_owned(), AttributeValue::Ss(newer));
        let put = client.put_item().table_name("router").set_item(Some(item.clone()));
        put.send().await.expect("the server takes it");
        if is_refused {
            let launch = dynamo::launch(&wire.url);
            let mut command = launch.command(&["serve", "--listen=127.0.0.1:0"]);
            command.arg("--data-dir").arg(server.data_dir());
            let refused = Program::run(command).await;
            refused.failed(2, "the versions 3/2 of their rows, and this one knows 1");
        } else {
            server.restart();
            assert!(server.terminate().success());
        }
        assert!(marks(&of_keys().await).contains(&format!("rows:{versions}")), "it stays");
    }
}

/// A server that is killed between creating a table and enabling its TTL leaves a table without a
/// TTL.
#[actix_web::test]
async fn the_next_start_completes_a_half_created_table() {
    let wire = WireServer::start();
    let mut server = Server::launch(dynamo::launch(&wire.url));
    assert!(server.terminate().success());
    let client = dynamo::client(&wire.url);
    let this = newest_table(&client).await;
    let off = TimeToLiveSpecification::builder().enabled(false).attribute_name("expiry").build();
    let request = client.update_time_to_live().table_name(&this);
    let request = request.time_to_live_specification(off.expect("it is whole"));
    request.send().await.expect("it can be switched off");

    server.restart_as(dynamo::launch(&wire.url));
    let described = client.describe_time_to_live().table_name(&this).send().await;
    let ttl = described.expect("the table is there").time_to_live_description;
    let status = ttl.and_then(|ttl| ttl.time_to_live_status);
    assert_eq!(status, Some(TimeToLiveStatus::Enabled));
}

#[actix_web::test]
async fn sizes_above_the_item_limit_are_bad_settings() {
    let wire = shared_wire_server();
    for (flag, name) in [
        ("--payload-bytes-max=400000", "payload_bytes_max"),
        ("--channels-max=20000", "channels_max"),
    ] {
        let ended = Start::at(&wire.url).with(&[flag]).ends(&["serve"]).await;
        ended.failed(2, name);
        assert!(ended.stdout.is_empty() && ended.stderr.contains("dynamodb"), "{ended:?}");
    }
}
