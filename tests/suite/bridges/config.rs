//! Errors of the file of bridges and of the files that it names: each names file and field.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use actors::Clock;
use kalends::push::bridges::Bridges;
use kalends::settings::Settings;
use serde_json::{Value, json};
use slog::{Discard, Logger, o};
use state_machine::Time;

use crate::harness::PushService;

/// The error of a start with the file as it is, with the folder cut off.
fn error(service: &PushService) -> String {
    let settings = Settings { bridges_file: Some(service.bridges_file()), ..Settings::default() };
    let loaded =
        Bridges::load(&settings, Clock::starting_at(Time(0)), &Logger::root(Discard, o!()));
    let folder = service.file("").display().to_string();
    loaded.expect_err("the file is wrong").to_string().replace(&folder, "")
}

#[actix_web::test]
async fn without_a_file_there_are_no_bridges() {
    let log = Logger::root(Discard, o!());
    let bridges = Bridges::load(&Settings::default(), Clock::starting_at(Time(0)), &log);
    assert!(bridges.expect("there is nothing to read").is_empty());
}

#[actix_web::test]
async fn every_error_of_the_file_of_bridges_names_file_and_field() {
    let service = PushService::start();
    let text = service.bridges_toml();
    fs::write(service.file("open.p8"), fs::read(service.file("AuthKey.p8")).unwrap()).unwrap();
    fs::set_permissions(service.file("open.p8"), Permissions::from_mode(0o644)).unwrap();
    fs::write(service.file("push.p12"), [0x30, 0x82, 0xff]).unwrap();
    let other = PushService::start();
    fs::copy(other.file("client.pem"), service.file("other.pem")).unwrap();
    let replaced = [
        ("[fcm.example]", "[gcm.example]", "bridges.toml: gcm: expected ca_file"),
        ("[fcm.example]", "[fcm.'a/b']", "bridges.toml: fcm.a/b: the name of an application"),
        ("[apns.certified]", "[apns.example]", "bridges.toml, line "),
        ("ca.pem", "none.pem", "bridges.toml: ca_file: cannot read none.pem: "),
        ("ca.pem", "client.key", "client.key: certificate: expected certificates in PEM"),
        ("\"ca.pem\"", "7", "bridges.toml: ca_file: expected the path"),
        ("service_account =", "account =", "bridges.toml: fcm.example: unknown field `account`"),
        ("service_account = \"service-account.json\"\n", "", "missing field `service_account`"),
        (
            "service-account.json",
            "none.json",
            "bridges.toml: fcm.example.service_account: cannot read none.json: ",
        ),
        ("service-account.json", ".", "cannot read .: it is not a regular file"),
        (
            "[fcm.example]",
            "[fcm.org.example.app]",
            "bridges.toml: fcm.org: quote a name with a dot: [fcm.\"org.example.app\"]",
        ),
        ("AuthKey.p8", "open.p8", "open.p8: it has mode 0644, so other users can read it"),
        (
            "client.pem",
            "push.p12",
            "bridges.toml: apns.certified.certificate: it is not PEM: convert a .p12",
        ),
        (
            "client.pem",
            "other.pem",
            "apns.certified.certificate: key is not the key of this certificate",
        ),
        (
            "ABCDE12345",
            "ABCDE1234",
            "bridges.toml: apns.example.key_id: expected 10 characters of A-Z 0-9",
        ),
        (
            "TEAM567890",
            "team567890",
            "bridges.toml: apns.example.team_id: expected 10 characters of A-Z 0-9",
        ),
        ("team_id = \"TEAM567890\"\n", "", "bridges.toml: apns.example.team_id: it is missing"),
        ("key_id = \"ABCDE12345\"\n", "", "bridges.toml: apns.example.key_id: it is missing"),
        (
            "certificate =",
            "team_id = \"x\"\ncertificate =",
            "apns.certified.certificate: it excludes",
        ),
        ("client.pem", "ca.pem", "bridges.toml: apns.certified.certificate: "),
        ("client.key", "client.pem", "client.pem: key: expected a private key in PEM"),
        ("AuthKey.p8", "client.pem", "client.pem: key: expected a P-256 key"),
        ("topic = \"org.example.app\"", "topic = \"\"", "topic: expected the bundle id"),
        ("topic = \"org.example.app\"", "topic = \"org example\"", "topic: expected the bundle id"),
    ];
    let replaced = replaced.map(|(from, to, expected)| (text.replace(from, to), expected));
    let urls = [
        ("http://push.example", "base_url: expected https: credentials are sent there"),
        ("https://a:b@push.example", "base_url: expected a URL without user and password"),
        ("https://push.example/v1", "base_url: expected an origin and nothing behind it"),
        ("https://a{b", "base_url: expected a URL with the name of a host"),
        ("push.example", "base_url: expected a URL that begins with https://"),
    ];
    let origin = format!("base_url = \"{}\"", service.origin());
    let base_url = |url: &str| text.replace(&origin, &format!("base_url = \"{url}\""));
    let urls = urls.map(|(url, expected)| (base_url(url), expected));
    let whole = [
        (
            format!("fcm = 7\n{}", text.replace("[fcm.example]", "[x]")),
            "bridges.toml: fcm: expected ca_file",
        ),
        ("[fcm]\nexample = 7\n".to_owned(), "bridges.toml: fcm.example: expected a table"),
        ("[fcm".to_owned(), "bridges.toml, line 1: "),
        (String::new(), "bridges.toml has no [fcm.APP] and no [apns.APP]"),
    ];
    for (changed, expected) in replaced.into_iter().chain(urls).chain(whole) {
        println!("{expected}");
        service.write_bridges(&changed);
        let error = error(&service);
        assert!(error.contains(expected), "{error}\n  does not contain {expected}");
    }
}

#[actix_web::test]
async fn a_key_of_another_curve_is_no_key_of_apple() {
    let service = PushService::start();
    let text = fs::read_to_string(service.file("service-account.json")).unwrap();
    let account: Value = serde_json::from_str(&text).unwrap();
    fs::write(service.file("AuthKey.p8"), account["private_key"].as_str().unwrap()).unwrap();
    assert!(error(&service).starts_with("AuthKey.p8: key: expected a P-256 key"));
}

#[actix_web::test]
async fn every_error_of_a_service_account_names_file_and_field_and_quotes_no_key() {
    let service = PushService::start();
    let path = service.file("service-account.json");
    let right: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let key = fs::read_to_string(service.file("AuthKey.p8")).unwrap();
    let mut wrong = vec![
        ("type", "not JSON".to_owned()),
        ("type", "[]".to_owned()),
        ("type", json!({"project_info": {}}).to_string()),
    ];
    for (field, value) in [
        ("type", json!("authorized_user")),
        ("project_id", json!("a/b")),
        ("project_id", json!("..")),
        ("project_id", json!("a".repeat(65))),
        ("token_uri", json!("https://a{b/token")),
        ("token_uri", json!("http://oauth2.example/token")),
        ("token_uri", json!("token")),
        ("private_key", json!("secret")),
        ("private_key", json!(key)),
    ] {
        let mut changed = right.clone();
        changed[field] = value;
        wrong.push((field, changed.to_string()));
    }
    for field in ["project_id", "private_key_id", "private_key", "client_email", "token_uri"] {
        for value in [Value::Null, json!(7), json!("")] {
            let mut changed = right.clone();
            changed[field] = value;
            wrong.push((field, changed.to_string()));
        }
    }
    for (field, text) in wrong {
        fs::write(&path, &text).unwrap();
        let error = error(&service);
        assert!(error.starts_with(&format!("service-account.json: {field}: ")), "{error}");
        assert!(!error.contains("BEGIN") && !error.contains("secret"), "{error}");
    }
    fs::write(&path, "x".repeat(2_000_000)).unwrap();
    assert!(error(&service).contains("it is larger than 1048576 bytes"));
}
