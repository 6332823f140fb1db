//! docs/openapi.json: against the routes of a running server, of the sources and of the manual, and against its answers by
//! schemathesis, which makes requests from the description.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use hyper::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::harness::push_service::APP;
use crate::harness::{Agent, Launch, PushService, Sender, Server, child};
use crate::importer::StaticServer;

/// What must hold for each answer.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_schema_conformance,unsupported_method";

/// Requests with random values for each operation, beside those at the limits of each parameter.
const EXAMPLES_MAX: &str = "20";

/// The methods that a path may take.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"];

/// The paths of feeds and registrations, which are read without routes.
const WITHOUT_ROUTES: [&str; 2] = ["/v1/feeds/", "/v1/{}/{}/registration"];

/// A server with all that is described.
pub(crate) struct World {
    pub(crate) server: Server,
    _bridge: PushService,
    pub(crate) feed_token: String,
}

impl World {
    pub(crate) async fn start() -> Self {
        let bridge = PushService::start();
        let file = bridge.bridges_file();
        let arguments =
            ["--simplepush=true", "--bridges-file", file.to_str().expect("the path is text")];
        let server = Server::launch(Launch::default().with(&arguments));
        let token = server.run(&["feed", "token", "prices", "--read", "--write"]).await;
        let feed_token = token.succeeded().trim().to_owned();
        Self { server, _bridge: bridge, feed_token }
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn description() -> Value {
    let text = fs::read(root().join("docs/openapi.json")).expect("it is there");
    serde_json::from_slice(&text).expect("it is JSON")
}

/// The paths of the description, each with its methods.
pub(crate) fn described() -> BTreeMap<String, BTreeSet<String>> {
    let description = description();
    let paths = description["paths"].as_object().expect("there are paths");
    let methods = |item: &Value| {
        let keys = item.as_object().expect("a path has operations").keys();
        let methods = keys.map(|key| key.to_uppercase());
        methods.filter(|method| METHODS.contains(&method.as_str())).collect()
    };
    paths.iter().map(|(path, item)| (path.clone(), methods(item))).collect()
}

/// The path with its parameters replaced.
pub(crate) fn with_parameters(path: &str, value: impl Fn(&str) -> String) -> String {
    let mut parts = path.split('{');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let (name, rest) = part.split_once('}').expect("a parameter ends");
        text + &value(name) + rest
    })
}

#[actix_web::test]
async fn each_path_takes_the_methods_of_its_description_and_no_others() {
    let world = World::start().await;
    let sender = Sender::new();
    for (path, methods) in described() {
        let url = with_parameters(&path, |name| match name {
            "feed" => "prices".to_owned(),
            "bridge" => "fcm".to_owned(),
            "app" => APP.to_owned(),
            "file" => "page.css".to_owned(),
            _ => "x".to_owned(),
        });
        let url = format!("{}{url}", world.server.origin());
        for method in METHODS {
            let ask = sender.request(method.parse::<Method>().unwrap(), &url);
            let ask = match path.starts_with("/v1/feeds/") {
                true => ask.header("authorization", &format!("Bearer {}", world.feed_token)),
                false => ask,
            };
            let answer = ask.send().await;
            let is_refused = answer.status == 405;
            assert_eq!(is_refused, !methods.contains(method), "{method} {path}: {answer}");
            let text = String::from_utf8_lossy(&answer.body);
            assert!(!text.contains("there is nothing at this URL"), "{method} {path}: {answer}");
            if !is_refused {
                continue;
            }
            let allow = answer.header("allow").expect("a 405 lists the methods");
            let allow: BTreeSet<_> = allow.split(',').map(|it| it.trim().to_owned()).collect();
            assert_eq!(allow, methods, "{method} {path}");
            if method != "HEAD" && !path.starts_with("/_matrix/") {
                answer.assert_error(405, 999);
            }
        }
    }
}

/// Parameters may have other names.
fn without_names(path: &str) -> String {
    with_parameters(path, |_| "{}".to_owned())
}

/// The paths that a source file gives to `resource(`, `page(` and `push(`, behind those of their `scope(`.
fn routes(source: &str) -> Vec<String> {
    let (mut routes, mut scopes) = (Vec::new(), Vec::<(&str, i32)>::new());
    let mut depth = 0;
    for (at, sign) in source.char_indices() {
        match sign {
            '(' => {
                depth += 1;
                let literal = source[at + 1..].trim_start().strip_prefix('"');
                let path = literal.and_then(|text| text.split('"').next());
                let Some(path) = path.filter(|path| path.starts_with('/')) else { continue };
                let called = |names: &[&str]| names.iter().any(|it| source[..at].ends_with(it));
                if called(&["web::scope"]) {
                    // Its services are in the call around it.
                    scopes.push((path, depth - 1));
                } else if called(&["web::resource", "page", "push"]) {
                    let scope: String = scopes.iter().map(|(scope, _)| *scope).collect();
                    routes.push(without_names(&format!("{scope}{path}")));
                }
            }
            ')' => {
                depth -= 1;
                scopes.retain(|(_, of_scope)| depth >= *of_scope);
            }
            _ => {}
        }
    }
    routes
}

/// The source files below a folder, without their tests.
fn sources(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the sources are there");
    let paths: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    let (folders, files): (Vec<_>, Vec<_>) = paths.into_iter().partition(|path| path.is_dir());
    let files = files.iter().filter(|path| path.extension().is_some_and(|end| end == "rs"));
    let texts = files.map(|path| fs::read_to_string(path).expect("a source is text"));
    let texts = texts.map(|text| match text.split_once("#[cfg(test)]\nmod tests") {
        Some((text, _)) => text.to_owned(),
        None => text,
    });
    texts.chain(folders.iter().flat_map(|folder| sources(folder))).collect()
}

#[test]
fn the_routes_of_a_source_are_found_in_their_scopes() {
    let source = r#"service
        .service(page("/a/{b}", read()))
        .service(web::scope("/s").wrap(cors())
            .service(push("/{token}", 1))
            .service(web::resource("/r/{x}").get(answer)))
        .service(web::resource(
            "/last",
        ));"#;
    assert_eq!(routes(source), ["/a/{}", "/s/{}", "/s/r/{}", "/last"]);
}

#[test]
fn each_route_of_the_sources_is_described_and_each_description_has_one() {
    let folders = fs::read_dir(root().join("src")).expect("the sources are there");
    let folders = folders.map(|entry| entry.expect("it can be read").path());
    // Metrics and the operator's page have a port of their own.
    let folders = folders.filter(|path| path.is_dir() && !path.ends_with("monitoring"));
    let sources: Vec<_> = folders.flat_map(|folder| sources(&folder)).collect();
    let routes: BTreeSet<_> = sources.iter().flat_map(|source| routes(source)).collect();
    let described = described().into_keys().map(|path| without_names(&path));
    let read = |path: &String| WITHOUT_ROUTES.iter().any(|start| path.starts_with(start));
    let described: BTreeSet<_> = described.filter(|path| !read(path)).collect();
    assert_eq!(routes, described);
}

#[test]
fn each_request_of_the_manual_is_described() {
    let described: BTreeMap<_, _> =
        described().into_iter().map(|(path, methods)| (without_names(&path), methods)).collect();
    let mut found = 0;
    for page in ["protocol", "feeds", "receipts", "unifiedpush"] {
        let text = fs::read_to_string(root().join(format!("docs/{page}.md"))).expect("it is there");
        // What follows is between nodes, on another port.
        let text = text.split("\n## Between nodes").next().unwrap_or_default();
        for code in text.split('`').skip(1).step_by(2) {
            let Some((method, url)) = code.split_once(' ') else { continue };
            if !METHODS.contains(&method) {
                continue;
            }
            let url = url.replace("...", "/v1/{}/{}");
            let path = without_names(url.split('?').next().unwrap_or_default());
            let methods = described.get(&path);
            let is_described = methods.is_some_and(|methods| methods.contains(method));
            assert!(is_described, "docs/openapi.json has no {method} {path}, as in {page}.md");
            found += 1;
        }
    }
    assert!(found > 20, "{found}");
}

/// Runs schemathesis with a description and more of its settings.
async fn schemathesis(
    description: &Value,
    settings: &str,
    origin: &str,
    arguments: &[&str],
) -> Output {
    let home = TempDir::new().expect("a temporary directory can be made");
    let (config, api) = (home.path().join("schemathesis.toml"), home.path().join("openapi.json"));
    fs::write(&config, settings).expect("a file can be written");
    fs::write(&api, description.to_string()).expect("a file can be written");
    let mut run = Command::from(child(root().join("target/python/bin/schemathesis")));
    run.arg("--config-file").arg(&config).arg("run").arg(&api);
    run.args(["--url", origin, "--checks", CHECKS, "--max-examples", EXAMPLES_MAX]);
    run.args(["--phases", "coverage,fuzzing", "--no-color"]).args(arguments);
    run.current_dir(home.path()).output().await.expect("`make test` installs it")
}

#[actix_web::test]
async fn every_answer_is_as_described_and_none_is_an_error_of_the_server() {
    let world = World::start().await;
    let (server, sender) = (&world.server, Sender::new());
    let (_, channel) = Agent::offline(server).await;
    let endpoint = channel.endpoint.rsplit('/').next().expect("a URL has a path");
    let register = format!("{}/v1/fcm/{APP}/registration", server.origin());
    let register = sender.post(&register).raw_body(r#"{"token":"a-token-of-fcm"}"#);
    let phone = register.send().await.json();
    let field = |name: &str| phone[name].as_str().expect("it is a text").to_owned();
    // With an endpoint, a feed and a phone that exist, requests get behind the checks of their tokens.
    let settings = format!(
        "auth.openapi.feedToken.bearer = \"{}\"\n\
         auth.openapi.webpush.api_key = \"webpush {}\"\n\
         parameters.feed = \"prices\"\nparameters.bridge = \"fcm\"\nparameters.app = \"{APP}\"\n\
         parameters.uaid = \"{}\"\nparameters.channel = \"{}\"\n\
         [[operations]]\ninclude-path = \"/wpush/{{token}}\"\nparameters.token = \"{endpoint}\"\n",
        world.feed_token,
        field("secret"),
        field("uaid"),
        field("channelID"),
    );
    let ended = schemathesis(&description(), &settings, &server.origin(), &[]).await;
    let report = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{report}{}", String::from_utf8_lossy(&ended.stderr));
    let operations: usize = described().values().map(BTreeSet::len).sum();
    let all = format!("Tested: {operations}");
    assert!(report.contains(&all), "all {operations} operations are tried: {report}");
}

#[actix_web::test]
async fn an_answer_that_differs_from_its_description_is_found() {
    let server = Server::start();
    let broken = StaticServer::start();
    broken.answers_with("500 Status", "content-type: application/json\r\n", "{}");
    let (origin, broken) = (server.origin(), broken.origin());
    let good = description();
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut description = good.clone();
        change(&mut description["paths"]);
        description
    };
    let without_404 = changed(&|paths| {
        paths["/m/{id}"]["delete"]["responses"].as_object_mut().unwrap().remove("404");
    });
    let as_text = changed(&|paths| {
        paths["/status"]["get"]["responses"]["200"]["content"] = json!({"text/plain": {}});
    });
    let with_field = changed(&|paths| {
        paths["/status"]["get"]["responses"]["200"]["content"] =
            json!({"application/json": {"schema": {"type": "object", "required": ["another"]}}});
    });
    let without_get =
        changed(&|paths| drop(paths["/status"].as_object_mut().unwrap().remove("get")));
    let with_500 = changed(&|paths| {
        paths["/status"]["get"]["responses"]["500"] = json!({"description": "a failure"});
    });
    for (description, path, origin, failure) in [
        (&good, "/status", &origin, None),
        (&without_404, "/m/{id}", &origin, Some("Undocumented status code")),
        (&as_text, "/status", &origin, Some("Undocumented Content-Type")),
        (&with_field, "/status", &origin, Some("Response violates schema")),
        (&without_get, "/status", &origin, Some("Unsupported method")),
        (&with_500, "/status", &broken, Some("Server error")),
    ] {
        let ended = schemathesis(description, "", origin, &["--include-path", path]).await;
        let report = String::from_utf8_lossy(&ended.stdout);
        assert_eq!(ended.status.success(), failure.is_none(), "{path}: {report}");
        assert!(report.contains(failure.unwrap_or("No issues found")), "{failure:?}: {report}");
    }
}
