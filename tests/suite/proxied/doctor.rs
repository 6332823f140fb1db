//! `kalends doctor` behind proxies that are right, and wrong in one way each.

use serde_json::Value;

use super::{Kind, ProxiedServer, Sample};
use crate::harness::{Server, run};

/// The address of each proxy.
const TRUSTED: &str = "--trusted-proxies=127.0.0.1";

/// Lines of the sample of nginx.
const UPGRADE: &str = "        proxy_set_header Upgrade $http_upgrade;\n";
const BODY: &str = "        client_max_body_size 512k;\n";

/// What the doctor finds, and whether it is content.
async fn examined(server: &Server, url: &str, idle_s: u64) -> (bool, Vec<Value>) {
    examined_with(server, url, &[&format!("--idle-s={idle_s}")]).await
}

async fn examined_with(server: &Server, url: &str, more: &[&str]) -> (bool, Vec<Value>) {
    let listen = format!("--listen={}", server.address());
    let ended =
        server.run(&[&["doctor", "--json", "--public-url", url, &listen], more].concat()).await;
    let findings = ended.stdout.lines().map(|line| serde_json::from_str(line).expect("it is JSON"));
    (ended.code == Some(0), findings.collect())
}

/// The check, what was found, and the remedy of each finding that is not fine.
fn troubles(findings: &[Value]) -> Vec<String> {
    let wrong = findings.iter().filter(|finding| finding["level"] != "ok");
    // The limit of open files belongs to this machine.
    let wrong = wrong.filter(|finding| finding["check"] != "open files");
    let text = |finding: &Value, field| finding[field].as_str().unwrap_or_default().to_owned();
    wrong.map(|of| ["check", "found", "remedy"].map(|field| text(of, field)).join(" | ")).collect()
}

/// Checks that this change of a sample leads to exactly one finding, with these texts. Returns whether the doctor is
/// content nevertheless.
async fn is_told(
    kind: Kind,
    change: impl FnOnce(Sample) -> Sample,
    idle_s: u64,
    told: [&str; 3],
) -> bool {
    let proxied = ProxiedServer::start_with(kind, &[TRUSTED], change).await;
    let origin = proxied.proxy_process.origin();
    let (is_content, findings) = examined(&proxied.server, &origin, idle_s).await;
    let troubles = troubles(&findings);
    let [check, found, remedy] = told;
    assert_eq!(troubles.len(), 1, "{troubles:#?} {findings:?}");
    assert!(troubles[0].starts_with(&format!("{check} | ")), "{troubles:?}");
    assert!(troubles[0].contains(found) && troubles[0].contains(remedy), "{troubles:?}");
    is_content
}

#[actix_web::test]
async fn a_good_proxy_passes_every_check() {
    for kind in Kind::ALL {
        let proxied = ProxiedServer::start_with(kind, &[TRUSTED], |sample| sample).await;
        let origin = proxied.proxy_process.origin();
        let (is_content, findings) = examined(&proxied.server, &origin, 0).await;
        assert!(is_content && troubles(&findings).is_empty(), "{kind:?}: {findings:#?}");
        for check in [
            "data directory",
            "keys",
            "disk",
            "message tables",
            "clock",
            "limits by address",
            "user agent",
            "endpoint",
            "push",
            "large push",
            "stored push",
            "silent connection",
        ] {
            assert!(findings.iter().any(|finding| finding["check"] == check), "{check}");
        }
    }
}

#[actix_web::test]
async fn each_fault_of_an_nginx_is_told() {
    const FORWARDED: &str = "        proxy_set_header X-Forwarded-For $remote_addr;\n";
    for (from, to, idle_s, told, is_warning) in [
        (UPGRADE, "", 0, ["user agent", "answered 426", "Upgrade and Connection"], false),
        (
            "client_max_body_size 512k",
            "client_max_body_size 1k",
            0,
            ["large push", "answered 413", "client_max_body_size"],
            false,
        ),
        (
            BODY,
            "        return 301 https://push.example.net$uri;\n",
            0,
            ["push", "answered 301", "let it pass POST"],
            false,
        ),
        (
            "client_max_body_size 512k;",
            "client_max_body_size 512k; proxy_hide_header Location;",
            0,
            ["push", "header Location", "unchanged"],
            true,
        ),
        (
            "client_max_body_size 512k;",
            "client_max_body_size 512k; proxy_hide_header TTL;",
            0,
            ["push", "header TTL", "unchanged"],
            true,
        ),
        (
            "proxy_read_timeout 10m;",
            "proxy_read_timeout 3s;",
            8,
            ["silent connection", "closed", "proxy_read_timeout"],
            false,
        ),
        (
            &format!("{FORWARDED}{UPGRADE}"),
            UPGRADE,
            0,
            ["limits by address", "the server sees 127.0.0.1", "name it in trusted_proxies"],
            true,
        ),
    ] {
        println!("{told:?}");
        let is_content =
            is_told(Kind::Nginx, |sample| sample.replace(from, to), idle_s, told).await;
        assert_eq!(is_content, is_warning);
    }
}

#[actix_web::test]
async fn a_rule_that_answers_in_the_place_of_kalends_is_told() {
    for (line, rule, check) in [
        (BODY, "        if ($http_content_encoding) { return 403; }\n", "push"),
        (UPGRADE, "        if ($http_upgrade) { return 403; }\n", "user agent"),
    ] {
        let told = [check, "answered 403", "this is not an answer of Kalends"];
        let change = |sample: Sample| sample.replace(line, rule);
        assert!(!is_told(Kind::Nginx, change, 0, told).await, "the check fails");
    }
}

#[actix_web::test]
async fn a_proxy_that_is_not_trusted_is_told() {
    let proxied = ProxiedServer::start(Kind::Caddy).await;
    let origin = proxied.proxy_process.origin();
    let (is_content, findings) = examined(&proxied.server, &origin, 0).await;
    let troubles = troubles(&findings);
    assert!(is_content && troubles.len() == 1, "{troubles:?}");
    assert!(troubles[0].contains("name it in trusted_proxies"), "{troubles:?}");
}

#[actix_web::test]
async fn caddy_that_answers_with_another_site_is_told() {
    let change = |sample: Sample| {
        sample.replace(
            "\thandle @agents {\n",
            "\thandle @agents {\n\t\trespond \"another site\"\n\t}\n\thandle /none {\n",
        )
    };
    is_told(Kind::Caddy, change, 0, ["user agent", "answered 200", "another site"]).await;
}

#[actix_web::test]
async fn a_clock_that_is_wrong_by_years_is_told() {
    let change = |sample: Sample| {
        let date = "\theader {\n\t\tDate \"Thu, 01 Jan 2015 00:00:00 GMT\"\n\t\tdefer\n\t}\n\thandle @agents {\n";
        sample.replace("\thandle @agents {\n", date)
    };
    let told = ["clock", "s behind this machine's", "run NTP"];
    assert!(!is_told(Kind::Caddy, change, 0, told).await, "the check fails");
}

#[actix_web::test]
async fn a_name_without_an_address_is_told() {
    let server = Server::start();
    let (is_content, findings) = examined(&server, "http://push.invalid", 0).await;
    let troubles = troubles(&findings);
    assert!(!is_content && troubles.len() == 1, "{troubles:?}");
    assert!(troubles[0].starts_with("DNS | push.invalid has no address: "), "{troubles:?}");
}

#[actix_web::test]
async fn caddy_that_keeps_pushes_for_itself_is_told() {
    let change = |sample: Sample| {
        sample.replace("\t@health path /health", "\t@pushes path /wpush/*\n\thandle @pushes {\n\t\trespond 404\n\t}\n\t@health path /health")
    };
    is_told(Kind::Caddy, change, 0, ["push", "answered 404", "does not pass this path"]).await;
}

#[actix_web::test]
async fn a_proxy_without_its_server_is_told() {
    for kind in Kind::ALL {
        let mut proxied = ProxiedServer::start_with(kind, &[TRUSTED], |sample| sample).await;
        proxied.server.kill();
        let origin = proxied.proxy_process.origin();
        let (is_content, findings) = examined(&proxied.server, &origin, 0).await;
        let troubles = troubles(&findings);
        assert!(!is_content && troubles.len() == 2, "{kind:?}: {troubles:?}");
        assert!(troubles[0].contains("no server runs on "), "{troubles:?}");
        assert!(troubles[1].contains("the proxy does not reach the server"), "{troubles:?}");
    }
}

#[actix_web::test]
async fn a_closed_server_is_checked_with_a_token() {
    let server = Server::start_with(&["--access=token"]);
    closed_server_is_checked(&server, &server.origin()).await;
    for kind in Kind::ALL {
        let closed = [TRUSTED, "--access=token"];
        let proxied = ProxiedServer::start_with(kind, &closed, |sample| sample).await;
        closed_server_is_checked(&proxied.server, &proxied.proxy_process.origin()).await;
    }
}

async fn closed_server_is_checked(server: &Server, origin: &str) {
    let (is_content, findings) = examined(server, origin, 0).await;
    let told = troubles(&findings);
    assert!(!is_content && told.len() == 1 && told[0].contains("--access-token"), "{told:?}");
    let added = server.run(&["access", "add", "doctor", "--expires=10m", "--json"]).await;
    let added: Value = serde_json::from_str(&added.succeeded()).expect("it is JSON");
    let token = added["token"].as_str().expect("it is printed");
    let with = ["--idle-s=0", "--access-token", token];
    let (is_content, findings) = examined_with(server, origin, &with).await;
    assert!(is_content && troubles(&findings).is_empty(), "{findings:#?}");
    assert!(!format!("{findings:?}").contains(token), "no finding has the token");
}

#[actix_web::test]
async fn a_server_for_listed_keys_is_checked_with_one_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("vapid.pem");
    let file = file.to_str().expect("a path is text");
    let listed = run(&["keys", "vapid", file]).await.succeeded();
    let server = Server::start_with(&[&format!("--vapid-keys-allowed={}", listed.trim())]);
    let (is_content, findings) = examined(&server, &server.origin(), 0).await;
    let told = troubles(&findings);
    assert!(!is_content && told.len() == 1, "{findings:#?}");
    assert!(
        told[0].contains("refused register with status 403") && told[0].contains("--vapid-key"),
        "{told:?}"
    );
    let with = ["--idle-s=0", "--vapid-key", file];
    let (is_content, findings) = examined_with(&server, &server.origin(), &with).await;
    assert!(is_content && troubles(&findings).is_empty(), "{findings:#?}");
}

#[actix_web::test]
async fn a_public_url_that_is_not_that_of_endpoints_is_told() {
    let server = Server::start_with(&["--public-url=https://push.example.net"]);
    let (is_content, findings) = examined(&server, &server.origin(), 0).await;
    let troubles = troubles(&findings);
    assert!(!is_content && troubles.len() == 1, "{troubles:?}");
    let told = "endpoint | endpoints begin with https://push.example.net, and the public URL is http://127.0.0.1:";
    assert!(
        troubles[0].starts_with(told) && troubles[0].contains("set public_url"),
        "{troubles:?}"
    );
}

#[actix_web::test]
async fn another_server_at_the_public_url_is_told() {
    let other = Server::start();
    let server = Server::start_with(&[&format!("--public-url={}", other.origin())]);
    let (is_content, findings) = examined(&server, &other.origin(), 0).await;
    let found = findings.iter().find(|finding| finding["check"] == "endpoint");
    let found = found.and_then(|finding| finding["found"].as_str()).unwrap_or_default();
    assert!(!is_content && found.starts_with("another Kalends server answers"), "{findings:?}");
}

#[actix_web::test]
async fn files_that_others_can_read_and_lost_keys_are_told() {
    use std::fs::{Permissions, remove_file, set_permissions};
    use std::os::unix::fs::PermissionsExt;
    let server = Server::start();
    let file = server.data_dir().join("router.db");
    set_permissions(file, Permissions::from_mode(0o644)).unwrap();
    remove_file(server.data_dir().join("keys.toml")).unwrap();
    let (is_content, findings) = examined(&server, &server.origin(), 0).await;
    let troubles = troubles(&findings);
    assert!(!is_content && troubles.len() == 2, "{findings:#?}");
    assert!(
        troubles[0].starts_with("data directory | ") && troubles[0].contains("chmod"),
        "{troubles:?}"
    );
    assert!(troubles[1].starts_with("keys | "), "{troubles:?}");
}
