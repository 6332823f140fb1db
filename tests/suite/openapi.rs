//! docs/openapi.json against a running server, by schemathesis: it makes requests from the description, and compares the
//! answers with it.

use std::fs;
use std::path::Path;

use tokio::process::Command;

use crate::harness::{Agent, Program, Server, kalends};

/// What must hold for each answer.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_schema_conformance,unsupported_method";

/// Requests with random values for each operation, beside those at the limits of each parameter.
const EXAMPLES_MAX: &str = "20";

/// Makes a token that may read and write a feed.
async fn feed_token(server: &Server) -> String {
    let mut token = kalends(&["feed", "token", "prices", "--read", "--write", "--data-dir"]);
    token.arg(server.data_dir());
    Program::run(token).await.stdout.trim().to_owned()
}

#[actix_web::test]
async fn every_answer_is_as_described_and_none_is_an_error_of_the_server() {
    let server = Server::start();
    let (_, channel) = Agent::offline(&server).await;
    let endpoint = channel.endpoint.rsplit('/').next().expect("a URL has a path");
    let (home, token) = (tempfile::tempdir().unwrap(), feed_token(&server).await);
    let config = home.path().join("schemathesis.toml");
    // With an endpoint and a feed that exist, requests get behind the checks of their tokens.
    let text = format!(
        "auth.openapi.feedToken.bearer = \"{token}\"\n\
         parameters.feed = \"prices\"\n\
         [[operations]]\ninclude-path = \"/wpush/{{token}}\"\nparameters.token = \"{endpoint}\"\n"
    );
    fs::write(&config, text).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut run = Command::new(root.join("target/python/bin/schemathesis"));
    run.arg("--config-file").arg(&config).arg("run").arg(root.join("docs/openapi.json"));
    run.args(["--url", &server.origin(), "--checks", CHECKS]);
    run.args(["--max-examples", EXAMPLES_MAX, "--phases", "coverage,fuzzing", "--no-color"]);
    let ended = run.current_dir(home.path()).output().await.unwrap();
    let report = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{report}{}", String::from_utf8_lossy(&ended.stderr));
    assert!(report.contains("Tested: 38"), "all operations are tried: {report}");
}
