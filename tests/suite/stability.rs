//! What docs/stability.md promises for 1.x: today's settings, metrics, routes, errors, answers, commands and frames have all
//! that `fixtures/stability/1.0` lists.
//!
//! `UPDATE_DOCS=1 cargo test --workspace --test suite stability` adds what is new, and removes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use hyper::Method;
use kalends::system::errno::ALL;
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{Agent, Program, Sender, Server, WireServer, dynamo};
use crate::openapi;

/// Commands whose JSON is not compared, each with the test that has it.
const WITH_OTHER_TESTS: [(&str, &str); 3] = [
    ("push", "src/dev/push/tests.rs"),
    ("subscribe", "src/dev/subscribe/tests.rs"),
    ("dev replay", "docs/sessions.md: `dev` is not kept"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).expect("the page is there")
}

fn frozen_file(list: &str) -> PathBuf {
    root().join(format!("fixtures/stability/1.0/{list}.txt"))
}

/// Adds to a file of frozen lines, if that is wanted, and returns its lines.
fn frozen(list: &str, add: impl FnOnce(&str) -> String) -> String {
    let file = frozen_file(list);
    let text = fs::read_to_string(&file).unwrap_or_default();
    if std::env::var_os("UPDATE_DOCS").is_none() {
        return text;
    }
    let text = add(&text);
    fs::create_dir_all(file.parent().expect("a file has a folder")).expect("it is writable");
    fs::write(file, &text).expect("it is writable");
    text
}

/// Checks that today's lines have every frozen one, and that none is new before 1.0 is released.
fn keeps(list: &str, today: &BTreeSet<String>) {
    assert!(!today.is_empty(), "nothing is found for {list}");
    let text = frozen(list, |text| {
        let all: BTreeSet<_> = text.lines().chain(today.iter().map(String::as_str)).collect();
        all.into_iter().fold(String::new(), |text, line| text + line + "\n")
    });
    let frozen: BTreeSet<_> = text.lines().map(str::to_owned).collect();
    let lost: Vec<_> = frozen.difference(today).collect();
    assert!(
        lost.is_empty(),
        "docs/stability.md promises these {list} until 2.0: restore them, a setting as a former name in \
         src/settings/renamed.rs: {lost:#?}"
    );
    let new: Vec<_> = today.difference(&frozen).collect();
    assert!(
        new.is_empty() || !env!("CARGO_PKG_VERSION").starts_with("0."),
        "{list} of 1.0 are not frozen yet: UPDATE_DOCS=1 cargo test --workspace --test suite stability: {new:#?}"
    );
}

#[test]
fn every_setting_keeps_its_name_flag_and_variable() {
    let lines = page("settings.md").replace("\n  ", " ");
    let heads = lines.lines().filter(|line| line.starts_with("- **`"));
    let names = heads.map(|line| {
        line.split("). Default").next().unwrap_or(line).replace(['*', '`', '(', ')', ','], "")
    });
    keeps("settings", &names.map(|name| name.trim_start_matches("- ").to_owned()).collect());
}

#[test]
fn every_metric_keeps_its_kind_labels_and_values() {
    let mut lines = BTreeSet::new();
    for item in
        page("metrics.md").replace("\n  ", " ").lines().filter(|line| line.starts_with("- **`"))
    {
        let (name, rest) = item[5..].split_once("`** (").expect("a name");
        let kind = rest.split(')').next().expect("a kind");
        lines.insert(format!("{name} {kind}"));
        for label in rest.split("Label `").skip(1) {
            let (label, values) = label.split_once("`: ").expect("a label has values");
            let mut values: Vec<_> = values.split('`').skip(1).step_by(2).collect();
            if !item.contains(&format!("Label `{label}`: `")) {
                values = vec!["*"];
            }
            lines.extend(values.iter().map(|value| format!("{name} {label}={value}")));
        }
    }
    keeps("metrics", &lines);
}

#[test]
fn every_route_keeps_its_methods() {
    let routes = openapi::described().into_iter();
    let routes = routes.flat_map(|(path, methods)| {
        methods.into_iter().map(move |method| format!("{method} {path}")).collect::<Vec<_>>()
    });
    keeps("routes", &routes.collect());
}

#[test]
fn every_errno_keeps_its_status() {
    let lines = ALL.iter().flat_map(|error| {
        let number = error.errno.number();
        error.statuses().split(", ").map(|status| format!("{number} {status}")).collect::<Vec<_>>()
    });
    let lines: BTreeSet<_> = lines.collect();
    keeps("errnos", &lines);
}

/// The paths of all keys in a value. Keys that are dates or ids, and places in arrays, are alike.
fn key_paths(value: &Value, start: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let is_fixed = !key.contains(|sign: char| sign.is_ascii_digit() || sign == '-');
                let path = format!("{start}.{}", if is_fixed { key } else { "*" });
                found.insert(path.clone());
                key_paths(value, &path, found);
            }
        }
        Value::Array(items) => {
            items.iter().for_each(|item| key_paths(item, &format!("{start}[]"), found));
        }
        _ => {}
    }
}

/// The properties of a schema of docs/openapi.json.
fn properties(schema: &Value, start: &str, found: &mut BTreeSet<String>) {
    if let Some(name) = schema["$ref"].as_str() {
        found.insert(format!("{start} is {name}"));
        return;
    }
    for (key, value) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{start}.{key}");
        found.insert(path.clone());
        properties(value, &path, found);
    }
    for part in ["items", "additionalProperties"].iter().filter(|part| schema[**part].is_object()) {
        properties(&schema[*part], &format!("{start}[]"), found);
    }
    for part in ["allOf", "anyOf", "oneOf"] {
        for schema in schema[part].as_array().into_iter().flatten() {
            properties(schema, start, found);
        }
    }
}

#[test]
fn every_answer_keeps_the_fields_of_its_json() {
    let description: Value = serde_json::from_str(&page("openapi.json")).expect("it is JSON");
    let mut found = BTreeSet::new();
    for (path, item) in description["paths"].as_object().expect("there are paths") {
        for (method, operation) in item.as_object().expect("a path has operations") {
            for (status, answer) in operation["responses"].as_object().into_iter().flatten() {
                let start = format!("{} {path} {status}", method.to_uppercase());
                if let Some(name) = answer["$ref"].as_str() {
                    found.insert(format!("{start} is {name}"));
                    continue;
                }
                let schema = &answer["content"]["application/json"]["schema"];
                properties(schema, &start, &mut found);
            }
        }
    }
    for (name, answer) in description["components"]["responses"].as_object().into_iter().flatten() {
        let schema = &answer["content"]["application/json"]["schema"];
        properties(schema, &format!("#/components/responses/{name}"), &mut found);
    }
    for (name, schema) in description["components"]["schemas"].as_object().into_iter().flatten() {
        properties(schema, &format!("#/components/schemas/{name}"), &mut found);
    }
    keeps("answers", &found);
}

/// The commands, each with its arguments and flags that are no settings, from the manual pages.
async fn commands() -> BTreeMap<String, BTreeSet<String>> {
    let dir = TempDir::new().expect("a temporary directory can be made");
    let dir_text = dir.path().to_str().expect("the path is text");
    crate::harness::run(&["dev", "man", dir_text]).await.succeeded();
    let settings = page("settings.md");
    let mut commands = BTreeMap::new();
    for entry in fs::read_dir(dir.path()).expect("it was made") {
        let text = fs::read_to_string(entry.expect("it can be read").path()).expect("it is text");
        let text = text.replace("\\-", "-");
        let synopsis = text.split(".SH SYNOPSIS\n").nth(1).and_then(|text| text.lines().next());
        let mut words = synopsis
            .expect("each page has one")
            .split("\\f")
            .filter_map(|part| ["B", "I"].iter().find_map(|kind| part.strip_prefix(kind)));
        let command =
            words.next().expect("its name").trim_start_matches("kalends").trim().to_owned();
        let words = words.filter(|word| !word.starts_with('-') || word.starts_with("--"));
        let words = words.filter(|word| !["--help", "subcommands"].contains(word));
        let words = words.filter(|word| !settings.contains(&format!("(`{word}`,")));
        commands.insert(command, words.map(str::to_owned).collect());
    }
    commands.retain(|command, _| !command.starts_with("dev"));
    commands
}

#[actix_web::test]
async fn every_command_keeps_its_arguments_and_flags() {
    let mut lines = BTreeSet::new();
    for (command, words) in commands().await {
        let command = format!("kalends {command}").trim_end().to_owned();
        lines.extend(words.iter().map(|word| format!("{command} {word}")));
        lines.insert(command);
    }
    keeps("commands", &lines);
}

/// Prints JSON by a command on the server, and adds the paths of its keys, which begin with `name`.
async fn add_json(server: &Server, name: &str, words: &str, found: &mut BTreeSet<String>) {
    let printed = server.run(&words.split(' ').collect::<Vec<_>>()).await;
    let mut count = 0;
    for value in serde_json::Deserializer::from_str(&printed.stdout).into_iter::<Value>() {
        let value = value.unwrap_or_else(|error| panic!("{error}: {printed:?}"));
        key_paths(&value, &format!("{name} "), found);
        count += 1;
    }
    assert!(count > 0, "{printed:?}");
}

#[actix_web::test]
async fn every_command_keeps_the_fields_of_its_json() {
    let commands = commands().await;
    let wire_server = WireServer::start();
    let mut server = Server::launch(dynamo::launch(&wire_server.url));
    let (uaid, channel) = Agent::offline(&server).await;
    let stored = Sender::new().push(&channel.endpoint, "a text").await;
    let refused = Sender::new().request(Method::POST, &channel.endpoint).send().await;
    assert_eq!(refused.status, 400, "it has no TTL");
    let mut found = BTreeSet::new();
    for words in [
        "access add alice --expires 9d --json",
        "access rotate alice --json",
        "access list --json",
        "broadcast put news v1",
        "broadcast list --json",
        "feed put prices eur 1",
        "feed list --json",
        "feed tail prices --once --json",
        "nodes --json",
        "tables list --json",
        "tables status --json",
        // A server that is not there is a finding with a remedy.
        "doctor --public-url http://127.0.0.1:1 --json",
        "refusals --json",
        "status --json",
        &format!("health --url {} --json", server.origin()),
        &format!("inspect {uaid} --json"),
        &format!("inspect {} --json", channel.endpoint),
        &format!("inspect {} --json", stored.location()),
    ] {
        let name = commands.keys().filter(|name| words.starts_with(&format!("{name} ")));
        let name = name.max_by_key(|name| name.len()).expect("it is a command");
        match words.ends_with("--json") {
            true => add_json(&server, name, words, &mut found).await,
            false => drop(server.run(&words.split(' ').collect::<Vec<_>>()).await.succeeded()),
        }
    }
    assert!(server.terminate().success());
    let data = TempDir::new().expect("a temporary directory can be made");
    fs::copy(server.data_dir().join("keys.toml"), data.path().join("keys.toml"))
        .expect("a file can be copied");
    let words =
        ["store", "copy", "--from", "dynamodb", "--to", "embedded", "--server-stopped", "--json"];
    let mut copy = dynamo::launch(&wire_server.url).command(&words);
    copy.arg("--data-dir").arg(data.path());
    let copied: Value =
        serde_json::from_str(&Program::run(copy).await.succeeded()).expect("it prints JSON");
    key_paths(&copied, "store copy ", &mut found);

    let run: BTreeSet<_> =
        found.iter().map(|line| line.split(" .").next().expect("a part")).collect();
    let run: BTreeSet<_> =
        run.iter().map(|line| line.split(" [").next().expect("a part")).collect();
    for (command, words) in commands {
        let is_known = WITH_OTHER_TESTS.iter().any(|(other, _)| *other == command);
        let has_json = words.contains("--json") && !is_known;
        assert!(
            !has_json || run.contains(&*command),
            "`kalends {command}` is not run here: {run:?}"
        );
    }
    keeps("json", &found);
}

/// What the agent of each session script sends and receives.
fn sessions() -> BTreeMap<String, Vec<String>> {
    let scripts = fs::read_dir(root().join("fixtures/sessions")).expect("the scripts are there");
    let of_agent =
        |line: &&str| ["agent>", "agent<", "close<"].iter().any(|start| line.starts_with(start));
    scripts
        .map(|entry| {
            let path = entry.expect("it can be read").path();
            let text = fs::read_to_string(&path).expect("a script is text");
            let name = path.file_stem().expect("it has a name").to_string_lossy().into_owned();
            (name, text.lines().filter(of_agent).map(str::to_owned).collect())
        })
        .collect()
}

/// The scripts of a file in which a line begins with its script.
fn parse_sessions(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut sessions = BTreeMap::<_, Vec<_>>::new();
    for line in text.lines() {
        let (name, line) = line.split_once(": ").expect("a script and its line");
        sessions.entry(name.to_owned()).or_default().push(line.to_owned());
    }
    sessions
}

/// Whether a line of today is the frozen one, or a frame to the agent that has all of its fields.
fn is_kept(frozen: &str, today: &str) -> bool {
    let json = |line: &str| serde_json::from_str::<Value>(line.strip_prefix("agent< ")?).ok();
    frozen == today
        || json(frozen).zip(json(today)).is_some_and(|(frozen, today)| {
            let fields = frozen.as_object().into_iter().flatten();
            fields.into_iter().all(|(key, value)| today.get(key) == Some(value))
        })
}

/// The scripts of today run on the machine, the actor and a socket, so no frozen one has to.
#[test]
fn every_session_script_keeps_the_frames_of_its_agent() {
    let today = sessions();
    let text = frozen("sessions", |text| {
        let mut all = today.clone();
        all.extend(parse_sessions(text));
        let mut text = String::new();
        for (name, lines) in &all {
            lines.iter().for_each(|line| writeln!(text, "{name}: {line}").expect("a text grows"));
        }
        text
    });
    let frozen = parse_sessions(&text);
    assert!(frozen.len() > 150, "{}", frozen.len());
    for (name, lines) in frozen {
        let promise = "docs/stability.md promises the frames of the session";
        let now = today.get(&name).unwrap_or_else(|| panic!("{promise} {name}: it is not tested"));
        let kept = lines.iter().zip(now).all(|(frozen, now)| is_kept(frozen, now));
        assert!(kept && lines.len() == now.len(), "{promise} {name}:\n{lines:#?}\nnow:\n{now:#?}");
    }
}

#[test]
fn a_frame_may_gain_a_field_and_lose_none() {
    let frame = r#"agent< {"messageType":"hello","status":200}"#;
    for (today, is_fine) in [
        (r#"agent< {"messageType":"hello","status":200,"new":1}"#, true),
        (r#"agent< {"messageType":"hello","status":201}"#, false),
        (r#"agent< {"messageType":"hello"}"#, false),
        (r#"agent> {"messageType":"hello","status":200}"#, false),
    ] {
        assert_eq!(is_kept(frame, today), is_fine, "{today}");
    }
}
