//! The page at `/`: who gets it, and its headers. `browser::web_page` opens it.

use hyper::Method;

use crate::harness::{AT_ONCE, Answer, Sender, Server, Socket, until};

async fn get(server: &Server, path: &str, accept: &str) -> Answer {
    let (sender, url) = (Sender::new(), format!("{}{path}", server.origin()));
    let ask = sender.request(Method::GET, &url).header("accept", accept);
    ask.header("user-agent", FIREFOX).send().await
}

fn text(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

const FIREFOX: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0";

/// The `Accept` header of Firefox ESR.
const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

#[actix_web::test]
async fn a_browser_gets_the_page_and_other_programs_get_426() {
    let server = Server::start();
    let page = get(&server, "/", BROWSER).await;
    assert_eq!(page.status, 200, "{page}");
    assert!(text(&page).contains(&server.socket_url()), "{page}");
    let policy = page.header("content-security-policy").expect("it has a policy");
    assert!(policy.starts_with("default-src 'none'; script-src 'self'"), "{policy}");
    for accept in ["*/*", "application/json"] {
        let answer = get(&server, "/", accept).await;
        let ends = answer.header("connection").is_some_and(|value| value.contains("close"));
        assert!(answer.status == 426 && ends, "{answer}");
    }
    for file in ["page.css", "page.js", "worker.js"] {
        let answer = get(&server, &format!("/web/{file}"), "*/*").await;
        assert_eq!(
            (answer.status, answer.header("x-content-type-options")),
            (200, Some("nosniff"))
        );
    }
    assert_eq!(get(&server, "/web/page.html", BROWSER).await.status, 404);
    let (sender, file) = (Sender::new(), format!("{}/web/page.css", server.origin()));
    assert_eq!(sender.request(Method::POST, &file).send().await.status, 405);
}

#[actix_web::test]
async fn the_page_can_be_switched_off_and_a_closed_server_shows_it_with_a_token_only() {
    let off = Server::start_with(&["--web-page=false"]);
    assert_eq!(get(&off, "/", BROWSER).await.status, 426);
    let closed = Server::start_with(&["--access=token"]);
    let added = closed.run(&["access", "add", "alice", "--json"]).await.succeeded();
    let token: serde_json::Value = serde_json::from_str(&added).unwrap();
    let path = format!("/u/{}", token["token"].as_str().unwrap());
    for wrong in ["/", "/u/kal_x", "/u/%3Cscript%3E"] {
        let page = get(&closed, wrong, BROWSER).await;
        assert_eq!(page.status, 403, "{wrong}: {page}");
        let is_private = text(&page).contains("<h1>Private push server</h1>");
        assert!(is_private && !text(&page).contains("script"), "{page}");
        assert!(page.header("content-security-policy").is_some(), "{page}");
        assert_eq!(get(&closed, wrong, "*/*").await.status, 426, "{wrong}");
    }
    until(AT_ONCE, "the token is known", async || get(&closed, &path, BROWSER).await.status == 200)
        .await;
    let page = get(&closed, &path, BROWSER).await;
    assert!(text(&page).contains(&format!("{path}<")), "{page}");
}

#[actix_web::test]
async fn a_token_that_is_in_use_as_often_as_it_may_be_shows_the_page() {
    let server = Server::start_with(&["--access=token"]);
    let added = server.run(&["access", "add", "alice", "--agents-max", "1", "--json"]).await;
    let token: serde_json::Value = serde_json::from_str(&added.succeeded()).unwrap();
    let path = format!("/u/{}", token["token"].as_str().unwrap());
    let mut agent = None;
    until(AT_ONCE, "the token is known", async || {
        agent = Socket::open_at(&server, &path).await.ok();
        agent.is_some()
    })
    .await;
    let refused = Socket::open_at(&server, &path).await;
    assert!(refused.is_err_and(|error| error.to_string().contains("429")), "the token is full");
    let page = get(&server, &path, BROWSER).await;
    assert!(page.status == 200 && text(&page).contains(&format!("{path}<")), "{page}");
}

#[actix_web::test]
async fn the_page_begins_with_the_device_of_its_visitor() {
    let server = Server::start_with(&["--public-url=https://push.example.net"]);
    let (sender, url) = (Sender::new(), format!("{}/", server.origin()));
    for (agent, first) in [
        (FIREFOX, "<h3>Firefox on a computer</h3>"),
        ("Mozilla/5.0 (Android 15; Mobile; rv:140.0) Firefox/140.0", "<h3>Android</h3>"),
        ("Mozilla/5.0 (X11) Chrome/140.0.0.0 Safari/537.36", "<strong>This browser cannot use"),
    ] {
        let ask = sender.request(Method::GET, &url).header("accept", BROWSER);
        let page = text(&ask.header("user-agent", agent).send().await);
        let at = |what: &str| page.find(what).unwrap_or_else(|| panic!("no {what}: {page}"));
        assert!(at(first) < at("<details>"), "{page}");
        assert_eq!(page.contains("<svg role=\"img\""), !agent.contains("Android"), "{agent}");
        assert!(!page.contains("class=\"notice\"") && !page.contains("{{"), "{page}");
    }
    let local = Server::start();
    let page = text(&get(&local, "/", BROWSER).await);
    assert!(page.contains("Phones cannot reach this address") && !page.contains("<svg"), "{page}");
}

#[actix_web::test]
async fn the_page_states_what_health_finds() {
    let server = Server::start();
    let page = text(&get(&server, "/", BROWSER).await);
    assert!(page.contains("class=\"up\">This server is running.<"), "{page}");
    let full = Server::start_with(&["--disk-free-min=1000000000000"]);
    let page = get(&full, "/", BROWSER).await;
    assert_eq!(page.status, 503, "{page}");
    let page = text(&page);
    let at = |what: &str| page.find(what).unwrap_or_else(|| panic!("no {what}: {page}"));
    let state = at("class=\"down\">Push messages for devices that are away are refused, ");
    // The steps are folded behind it, and the note on phones is one of them.
    let fold = at("<details id=\"setup\" data-state=\"down\">");
    assert!(state < fold && fold < at("Phones cannot reach") && fold < at("<h3>Firefox"), "{page}");
    assert!(!page.contains(&full.data_dir().display().to_string()), "{page}");
}

#[actix_web::test]
async fn nothing_that_a_stranger_sends_is_on_the_page() {
    let server = Server::start();
    for name in
        ["host", "x-forwarded-host", "x-forwarded-proto", "forwarded", "user-agent", "cookie"]
    {
        for value in ["<script>stranger</script>", "stranger\"><img>", "stranger.example"] {
            let url = format!("{}/?stranger", server.origin());
            let sender = Sender::new();
            let request = sender.request(Method::GET, &url).header("accept", BROWSER);
            let answer = request.header(name, value).send().await;
            assert!(matches!(answer.status, 200 | 400), "{name}: {answer}");
            assert!(!text(&answer).contains("stranger"), "{name}: {answer}");
        }
    }
}

/// Size of the page and all its files, which are not compressed.
const PAGE_BYTES_MAX: usize = 60 * 1024;

#[actix_web::test]
async fn the_page_weighs_little_and_is_complete_without_scripts() {
    let server = Server::start();
    let page = get(&server, "/", BROWSER).await;
    let mut bytes = page.body.len();
    for file in text(&page).split("\"/web/").skip(1).map(|rest| rest.split('"').next().unwrap()) {
        bytes += get(&server, &format!("/web/{file}"), "*/*").await.body.len();
    }
    bytes += get(&server, "/web/worker.js", "*/*").await.body.len();
    assert!((10_000..PAGE_BYTES_MAX).contains(&bytes), "{bytes}");
    // The buttons do nothing without the script, which shows them.
    let page = text(&page);
    for button in page.split("<button ").skip(1) {
        assert!(button.split('>').next().unwrap().ends_with(" hidden"), "{button}");
    }
    assert!(page.contains("<noscript>") && page.contains(&server.socket_url()), "{page}");
}
