//! Starts that cannot work: one precise message, exit code 1, and nothing listens.

use std::net::TcpListener;
use std::path::PathBuf;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, TimeToLiveSpecification, TimeToLiveStatus};
use tempfile::TempDir;

use crate::harness::{
    Ended, Fault, Program, Proxy, Rule, Server, WireServer, dynamo, kalends, shared_wire_server,
};

/// A start, with nothing of this machine's in its environment.
pub(super) struct Start {
    home: TempDir,
    url: String,
    more: Vec<&'static str>,
    variables: Vec<(&'static str, &'static str)>,
}

const CREDENTIALS: [(&str, &str); 2] =
    [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret")];

const REGION: &str = "--dynamodb-region=eu-central-1";

/// What is not there is not waited for.
const IMPATIENT: [&str; 2] = ["--dynamodb-attempts-max=2", "--dynamodb-backoff-ms=1"];

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

    /// Not there before the first start.
    pub(super) fn data_dir(&self) -> PathBuf {
        self.home.path().join("data")
    }

    async fn ends(&self, command: &str) -> Ended {
        self.begins(command).ended().await
    }

    fn begins(&self, command: &str) -> Program {
        let mut command = kalends(&[command, "--store=dynamodb", "--listen=127.0.0.1:0"]);
        command.arg("--data-dir").arg(self.data_dir());
        command.arg(format!("--dynamodb-endpoint-url={}", self.url));
        command.args(&self.more).args(IMPATIENT);
        command.env_clear().envs(self.variables.iter().copied());
        // Nobody asks the machine who it is: there may be no answer for long.
        command.env("HOME", self.home.path()).env("AWS_EC2_METADATA_DISABLED", "true");
        Program::start(command)
    }

    /// The server does not start and says all of this in its last line; `kalends preflight` says it too. It may go
    /// well another time.
    pub(super) async fn is_refused(&self, says: &[&str]) {
        self.is_no_start_as("serve", 1, says).await;
        self.is_found(says).await;
    }

    /// One that does not, until somebody has put other keys there.
    pub(super) async fn is_refused_for_its_keys(&self, says: &[&str]) {
        self.is_no_start_as("serve", 2, says).await;
        self.is_found(says).await;
    }

    pub(super) async fn is_no_start_as(&self, role: &str, code: i32, says: &[&str]) {
        let ended = self.ends(role).await;
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(ended.stdout.is_empty(), "{ended:?}");
        assert!(!ended.stderr.contains("panicked"), "{ended:?}");
        let last = ended.stderr.lines().last().expect("an error is told");
        assert!(last.starts_with("kalends: "), "{ended:?}");
        for text in says {
            assert!(last.contains(text), "{text:?} is not said: {ended:?}");
        }
    }

    /// Found by `kalends preflight`, among the checks where it came so far.
    pub(super) async fn is_found(&self, says: &[&str]) {
        let ended = self.ends("preflight").await;
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let mut lines = ended.stdout.lines().chain(ended.stderr.lines());
        let is_it = |line: &str| says.iter().all(|text| line.contains(text));
        assert!(lines.any(is_it), "{says:?} is not said: {ended:?}");
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
async fn credentials_that_are_refused_are_said_to_be() {
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
async fn a_start_that_waits_for_its_store_ends_when_it_is_told_to() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let start = Start::at(&format!("http://{}", silent.local_addr().unwrap()));
    let starting = start.with(&["--dynamodb-attempt-timeout-ms=600000"]).begins("serve");
    let asked = tokio::task::spawn_blocking(move || silent.accept().map(|asked| (silent, asked)));
    let _held = asked.await.unwrap().unwrap();
    starting.terminate();
    let ended = starting.ended().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("stopped before it had started"), "{ended:?}");
}

#[actix_web::test]
async fn an_endpoint_where_nothing_listens_or_something_else_does_is_refused() {
    let nobody = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let url = format!("http://{}", nobody.local_addr().expect("it has an address"));
    drop(nobody);
    Start::at(&url).is_refused(&["no DynamoDB is reached", &url]).await;

    let kalends = Server::start();
    Start::at(&kalends.origin()).is_refused(&[&kalends.origin()]).await;
}

#[actix_web::test]
async fn an_endpoint_that_is_no_url_is_a_bad_setting() {
    for wrong in ["127.0.0.1:8000", "ftp://a", "http://"] {
        let ended = Start::at(wrong).ends("serve").await;
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains("dynamodb_endpoint_url"), "{ended:?}");
    }
}

#[actix_web::test]
async fn missing_tables_are_named_where_none_may_be_made() {
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
async fn a_table_of_another_shape_is_refused() {
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
async fn an_index_that_is_missing_or_half_made_is_refused() {
    let wire = WireServer::start();
    let mut server = Server::launch(dynamo::launch(&wire.url));
    assert!(server.terminate().success());
    let status = "/Table/GlobalSecondaryIndexes/0/IndexStatus";
    for (pointer, value, says) in [
        (status, "CREATING".into(), "still being built"),
        (status, "DELETING".into(), "being deleted"),
        ("/Table/GlobalSecondaryIndexes", serde_json::json!([]), "has no index AccessIndex"),
    ] {
        let proxy = Proxy::to(&wire.url);
        proxy.rule(Rule::on("DescribeTable", Fault::Says(pointer, value)).table("router"));
        Start::at(&proxy.url()).is_refused(&["router", "AccessIndex", says]).await;
    }
}

/// A table that is being made is waited for: the server is not there before it. `kalends preflight` does
/// not wait for those of the months.
#[actix_web::test]
async fn a_table_that_is_being_made_is_waited_for() {
    let wire = WireServer::start();
    let mut server = Server::launch(dynamo::launch(&wire.url));
    assert!(server.terminate().success());
    let proxy = Proxy::to(&wire.url);
    let creating = || Fault::Says("/Table/TableStatus", "CREATING".into());
    proxy.rule(Rule::on("DescribeTable", creating()).table("router").times(3));
    proxy.rule(Rule::on("DescribeTable", creating()).table("message_").times(3));
    server.restart_as(dynamo::launch(&proxy.url()));
    assert!(proxy.bill().count(&["DescribeTable"]) > 6);
    proxy.rule(Rule::on("DescribeTable", creating()).table("message_"));
    Start::at(&proxy.url()).is_found(&["message_", "being made"]).await;
}

async fn newest_table(client: &Client) -> String {
    let tables = client.list_tables().send().await.expect("the server answers");
    let months = tables.table_names().iter().filter(|name| name.starts_with("message_"));
    months.max().expect("there is one").clone()
}

/// Records of an installation whose message tables have another prefix: new keys would be of no use to
/// them, and no way back.
#[actix_web::test]
async fn no_keys_are_made_beside_users_whose_records_cannot_be_read() {
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

/// A server that is killed between making a table and switching its TTL on leaves one that is listed.
#[actix_web::test]
async fn a_table_that_was_left_half_made_is_finished_by_the_next_start() {
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
async fn sizes_that_no_item_can_have_are_bad_settings() {
    let wire = shared_wire_server();
    for (flag, name) in [
        ("--payload-bytes-max=400000", "payload_bytes_max"),
        ("--channels-max=20000", "channels_max"),
    ] {
        let ended = Start::at(&wire.url).with(&[flag]).ends("serve").await;
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stdout.is_empty() && ended.stderr.contains(name), "{ended:?}");
        assert!(ended.stderr.contains("dynamodb"), "{ended:?}");
    }
}
