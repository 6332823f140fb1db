//! docs/standards.md and docs/unifiedpush.md: each row has a test that exists, or a reason.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::harness::{Sender, Server, Signer};

/// Fewer rows mean that the page is not read as it should be.
const ROWS_MIN: usize = 100;

#[test]
fn each_clause_of_the_standards_has_a_test_that_exists_or_a_reason() {
    let page = |name| fs::read_to_string(root().join("docs").join(name)).expect("the page exists");
    let mut rows = Vec::new();
    for (name, rows_min) in [("standards.md", ROWS_MIN), ("unifiedpush.md", 5)] {
        // An entry is wrapped, and its further lines are indented.
        let page = page(name).replace("\n  ", " ");
        let found = page.lines().filter_map(|line| line.strip_prefix("- §")).map(str::to_owned);
        let before = rows.len();
        rows.extend(found);
        assert!(rows.len() >= before + rows_min, "only {} rows in {name}", rows.len() - before);
    }
    let faults: Vec<_> =
        rows.iter().filter_map(|row| Some(format!("{row}\n  {}", fault(row)?))).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn an_entry_without_a_test_or_a_reason_and_one_with_an_unknown_test_are_found() {
    for row in [
        "5: MUST be good.",
        "5: MUST be good. Test: .",
        "5: MUST be good. Not done.",
        "5: MUST be good. Test: `suite vapid::no_such_test`.",
        "5: MUST be good. Test: `elsewhere a::b`.",
        "5: MUST be good. Test: `suite no_module::x`.",
        "5: MUST be good. Test: `session no_such_script`.",
    ] {
        assert!(fault(row).is_some(), "{row}");
    }
    let known = "vapid::a_restricted_endpoint_accepts_only_its_own_key";
    assert_eq!(fault(&format!("5: MUST be good. Test: `suite {known}`.")), None);
}

#[actix_web::test]
async fn a_replacement_has_a_resource_of_its_own_and_the_old_one_is_gone() {
    let (_server, _, channel) = Server::with_offline(&[]).await;
    let sender = Sender::new();
    let push = async || sender.push_topic(&channel.endpoint, "news", "text").await.location();
    let (old, new) = (push().await, push().await);
    assert_ne!(old, new);
    sender.delete(&old).await.assert_error(404, 102);
    assert_eq!(sender.delete(&new).await.status, 204);
    sender.delete(&new).await.assert_error(404, 102);
}

#[actix_web::test]
async fn neither_credentials_nor_topic_nor_urgency_reach_the_agent() {
    let (server, mut agent) = Server::with_agent(&["--ack-wait-ms", "200"]).await;
    let (signer, sender) = (Signer::new(), Sender::new());
    let channel = agent.register_for(&signer.key()).await;
    let post = sender.post(&channel.endpoint).ttl(60).body("text");
    let post = post.header("topic", "news").header("urgency", "high");
    let post = post.signed(&signer, &server.origin()).send();
    let (answer, frame) = tokio::join!(post, agent.socket().receive());
    let frame = frame.expect("a notification arrives");
    assert_eq!(frame["headers"], json!({"encoding": "aes128gcm"}));
    let mut fields: Vec<_> = frame.as_object().expect("it is an object").keys().collect();
    fields.sort();
    assert_eq!(fields, ["channelID", "data", "headers", "messageType", "version"]);
    assert_eq!(answer.status, 201, "{answer}");
}

#[actix_web::test]
async fn no_two_urls_of_an_agent_have_a_part_in_common() {
    const PART: usize = 6;
    let (_server, mut agent) = Server::with_agent(&[]).await;
    let channels = [agent.register().await, agent.register().await];
    agent.leave().await;
    let sender = Sender::new();
    let mut urls: Vec<_> = channels.iter().map(|channel| channel.endpoint.clone()).collect();
    for channel in &channels {
        for _ in 0..2 {
            urls.push(sender.push(&channel.endpoint, "text").await.location());
        }
    }
    let ids: Vec<_> = urls.iter().filter_map(|url| url.rsplit('/').next()).collect();
    for (place, id) in ids.iter().enumerate() {
        let parts: Vec<_> = id.as_bytes().windows(PART).collect();
        for other in &ids[place + 1..] {
            let shared = other.as_bytes().windows(PART).find(|part| parts.contains(part));
            assert_eq!(shared, None, "{id} {other}");
        }
    }
}

/// What is wrong with an entry.
fn fault(row: &str) -> Option<String> {
    let Some((_, tests)) = row.split_once(" Test: ") else {
        let reason = row.split_once(". Not ").is_some_and(|(_, reason)| reason.contains(": "));
        return (!reason).then(|| "neither a test nor a reason".to_owned());
    };
    let mut tests =
        tests.split('`').skip(1).step_by(2).filter(|text| text.contains(' ')).peekable();
    if tests.peek().is_none() {
        return Some("no test is named".to_owned());
    }
    tests.find(|test| !exists(test)).map(|test| format!("there is no test {test}"))
}

/// Whether the sources of a crate have a test of this path, as `suite vapid::NAME`; `session NAME` is a script.
pub(crate) fn exists(test: &str) -> bool {
    let Some((of, path)) = test.rsplit_once(' ') else { return false };
    let sources = match of {
        "session" => return root().join(format!("fixtures/sessions/{path}.session")).exists(),
        "suite" => "tests/suite",
        "kalends" => "src",
        "actors" => "actors/src",
        "actors suite" => "actors/tests/suite",
        "storage suite" => "storage/tests/suite",
        _ => return false,
    };
    let Some((module, name)) = path.rsplit_once("::") else { return false };
    let module = PathBuf::from(module.replace("::", "/"));
    // Tests of a file are in its module `tests`, in the same file or in one of its own.
    let modules = [Some(module.as_path()), module.parent().filter(|_| module.ends_with("tests"))];
    modules.into_iter().flatten().any(|module| {
        let base = root().join(sources).join(module);
        let files = [base.with_extension("rs"), base.join("mod.rs")];
        let text = files.iter().find_map(|file| fs::read_to_string(file).ok()).unwrap_or_default();
        text.contains(&format!("fn {name}("))
    })
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
