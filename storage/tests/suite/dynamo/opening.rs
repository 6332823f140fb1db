//! The errors of opening an engine.

use std::env;
use std::process::Command;

use storage_dynamodb::{DynamoOpenError, DynamoOptions};

use crate::dynamo::script::Script;
use crate::dynamo::things::{Tables, options};
use crate::names::output_of;
use crate::wire_engine::{self, wire_server};

fn open(options: &DynamoOptions) -> DynamoOpenError {
    match storage_dynamodb::open_with(options, wire_engine::overrides(None)) {
        Ok(_opened) => panic!("it opens"),
        Err(error) => error,
    }
}

#[test]
fn an_invalid_endpoint_is_reported() {
    for url in ["", "localhost:8000", "http://", "ftp://localhost", "http://local host"] {
        let told = open(&DynamoOptions { endpoint_url: Some(url.to_owned()), ..options() });
        assert!(matches!(told, DynamoOpenError::Endpoint(there) if there == url));
    }
}

/// No server listens on port 1.
#[test]
fn an_unreachable_server_is_reported() {
    let url = "http://127.0.0.1:1";
    let told = open(&DynamoOptions { endpoint_url: Some(url.to_owned()), ..options() });
    assert!(
        matches!(&told, DynamoOpenError::Unreachable { server, .. } if server == url),
        "{told}"
    );
    assert!(told.to_string().contains("Connection refused"), "{told}");
}

#[test]
fn a_missing_router_table_is_reported_if_none_may_be_created() {
    let told = open(&DynamoOptions {
        endpoint_url: Some(wire_server::shared().url.clone()),
        create_tables: false,
        table_prefix: "nowhere-".to_owned(),
        ..options()
    });
    let DynamoOpenError::RouterMissing { table, .. } = &told else { panic!("{told}") };
    assert_eq!(table, "nowhere-router");
}

#[test]
fn refused_credentials_are_reported() {
    for code in
        ["UnrecognizedClientException", "InvalidSignatureException", "AccessDeniedException"]
    {
        let opened = Script::closed(code).open_with(&options());
        let Err(DynamoOpenError::Refused { server, reason }) = opened else { panic!("{code}") };
        assert_eq!(server, "AWS eu-central-1");
        assert_eq!(reason, format!("DescribeTable on table router: {code}: a message"));
    }
}

/// The environment cannot be set within a process: this test is run again in one of its own for
/// each case.
#[test]
fn a_missing_region_or_credential_is_reported() {
    if let Ok(expected) = env::var(EXPECTED) {
        return open_in_environment(&expected);
    }
    let region = ("AWS_REGION", "eu-central-1");
    let keys = [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret")];
    in_process_with(&[region, keys[0], keys[1]], "");
    in_process_with(&keys, "no AWS region is set");
    in_process_with(&[region], "no AWS credentials are found");
    in_process_with(&[region, keys[0]], "no AWS credentials are found");
}

const EXPECTED: &str = "EXPECTED_TO_BE_TOLD";
const ENDPOINT: &str = "ENDPOINT_TO_OPEN";

fn in_process_with(environment: &[(&str, &str)], expected: &str) {
    let home = tempfile::tempdir().unwrap();
    let mut child = Command::new(env::current_exe().unwrap());
    child
        .args(["--exact", "dynamo::opening::a_missing_region_or_credential_is_reported"])
        .env_clear()
        .env("HOME", home.path())
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env(ENDPOINT, &wire_server::shared().url)
        .env(EXPECTED, expected)
        .envs(environment.iter().copied());
    let output = output_of(&mut child);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{expected}: {said}");
}

fn open_in_environment(expected: &str) {
    let endpoint_url = Some(env::var(ENDPOINT).unwrap());
    let told = match storage_dynamodb::open(&DynamoOptions {
        endpoint_url,
        ..wire_engine::options::options()
    }) {
        Ok(_opened) => String::new(),
        Err(error) => error.to_string(),
    };
    assert!(told.starts_with(expected) && told.is_empty() == expected.is_empty(), "{told}");
}

/// Inside of a runtime it must not panic.
#[tokio::test]
async fn an_engine_is_opened_and_dropped_in_a_task() {
    let tables = Tables::new();
    for _again in 0..2 {
        drop(tables.open());
    }
}
