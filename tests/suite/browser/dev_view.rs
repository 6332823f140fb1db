//! The page of `kalends dev view`, in a real Firefox.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};

use super::firefox::Firefox;
use super::page_check::assert_page;
use super::profile::Profile;
use super::turn::Turn;
use crate::harness::child;

const RIGHT: &str = "\u{E014}";
const LEFT: &str = "\u{E012}";
const HOME: &str = "\u{E011}";
const END: &str = "\u{E010}";

/// It expects another close than that of the machine, and an effect that the machine does not order.
const WRONG: &str = "# An ack is <b>wrong</b>.
at 2026-11-03T10:00:00Z

agent> <closes>
close< 1001 server is shutting down
registry< deregister U1
";

/// What a page shows: the position, the lit phases, the current event, its effects, and what waits.
const SHOWN: &str = "const texts = (selector) => [...document.querySelectorAll(selector)].map((it) => it.textContent);
    return { position: texts('#position')[0], phases: texts('.phase[aria-current]'), taken: texts('.taken').length,
        event: texts('#events [aria-current]'), effects: texts('#effects li'), unacked: texts('#unacked td'),
        deadlines: texts('#deadlines li') };";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn dev_view(files: &[PathBuf], output: &Path) -> Output {
    let mut command = child(env!("CARGO_BIN_EXE_kalends"));
    command
        .args(["dev", "view"])
        .args(files)
        .arg("--output")
        .arg(output)
        .output()
        .expect("it starts")
}

fn open(profile: &Profile, page: &Path) -> Firefox {
    let mut firefox = Firefox::start(profile.path());
    firefox.open(&format!("file://{}", page.display()));
    firefox
}

fn shown(firefox: &mut Firefox) -> Value {
    firefox.run(SHOWN, &json!([]))
}

fn press(firefox: &mut Firefox, keys: &[&str]) -> Value {
    keys.iter().for_each(|key| firefox.press(key));
    shown(firefox)
}

fn profile() -> Profile {
    Profile::new("ws://127.0.0.1:9/")
}

#[test]
fn a_session_is_played_forward_and_back_with_the_keyboard() {
    let _turn = Turn::wait();
    let folder = tempfile::tempdir().expect("a folder can be made");
    let page = folder.path().join("page.html");
    let written =
        dev_view(&[root().join("fixtures/sessions/direct_push_unconfirmed.session")], &page);
    assert!(written.status.success(), "{written:?}");
    assert_eq!(String::from_utf8_lossy(&written.stdout).trim(), page.display().to_string());
    let profile = profile();
    let mut firefox = open(&profile, &page);

    let first = shown(&mut firefox);
    assert_eq!(first["position"], "Step 1 of 12, at +0 s");
    assert_eq!((&first["phases"], &first["taken"]), (&json!(["Identified"]), &json!(1)));
    assert_eq!(first["effects"], json!(["registry< register U1", "store< 0 register U1 at=+0ms"]));

    let ready = press(&mut firefox, &[RIGHT, RIGHT]);
    assert_eq!((&ready["phases"], &ready["taken"]), (&json!(["Ready"]), &json!(1)));
    assert_eq!(ready["event"], json!(["store> 1 channels [C1]"]));
    let pushed = press(&mut firefox, &[RIGHT, RIGHT]);
    assert_eq!(pushed["event"], json!(["push> 7 M1 C1 ttl=60s"]));
    assert_eq!(
        (&pushed["unacked"], &pushed["taken"]),
        (&json!(["M1", "C1", "sent 0 s ago"]), &json!(0))
    );
    assert_eq!(pushed["deadlines"][0], "ack wait in 1 s, at +1 s");
    assert_page(&mut firefox, "dev-view");

    let late = press(&mut firefox, &[RIGHT, RIGHT]);
    assert_eq!(late["effects"], json!(["push< 7 unconfirmed M1 C1"]));
    assert_eq!(late["unacked"], json!(["M1", "C1", "overdue"]));
    let back = press(&mut firefox, &[LEFT, LEFT]);
    assert_eq!(back, pushed);
    let last = press(&mut firefox, &[END, RIGHT]);
    assert_eq!(
        (&last["position"], &last["unacked"]),
        (&json!("Step 12 of 12, at +1 s"), &json!([]))
    );
    assert_eq!(press(&mut firefox, &[HOME, LEFT]), first);
}

#[test]
fn a_script_that_fails_shows_the_expected_and_the_real_effects() {
    let _turn = Turn::wait();
    let folder = tempfile::tempdir().expect("a folder can be made");
    let [wrong, page] = ["wrong.session", "page.html"].map(|name| folder.path().join(name));
    fs::write(&wrong, WRONG).expect("the folder was made");
    let names = fs::read_to_string(root().join("fixtures/shown.txt"))
        .expect("it is part of the repository");
    let mut files = vec![wrong];
    files.extend(names.lines().map(|name| root().join(name)));
    let written = dev_view(&files, &page);
    assert!(written.status.success(), "{written:?}");
    let profile = profile();
    let mut firefox = open(&profile, &page);

    let columns = firefox.run(
        "return [...document.querySelectorAll('.both > div')].map((column) => [column.querySelector('h4').textContent,
            [...column.querySelectorAll('li')].map((item) => item.className + ' ' + item.textContent)]);",
        &json!([]),
    );
    let expected = json!([
        "Expected",
        ["wrong close< 1001 server is shutting down", "wrong registry< deregister U1"]
    ]);
    assert_eq!(columns, json!([expected, ["Real", ["wrong close< socket closed"]]]));
    let title = firefox.run("return document.getElementById('title').textContent;", &json!([]));
    assert_eq!(title, "An ack is <b>wrong</b>.");
    let failing = shown(&mut firefox);
    assert_eq!(failing["position"], "Step 1 of 1, which fails, at +0 s");
    assert_eq!(failing["phases"], json!(["Closed"]));
    assert_page(&mut firefox, "dev-view-fails");

    for (name, machines) in [
        ("agent_moves_to_another_node.agent", json!(["here: Closed", "there: Ready"])),
        ("two_publishers_race.feed", json!(["P1: Idle", "P2: Idle", "C1: CaughtUp"])),
        (
            "bridge_whose_recipient_was_replaced.delivery",
            json!(["delivery: Done (from SendingToBridge)"]),
        ),
    ] {
        let script = "const index = [...document.querySelectorAll('#script option')].findIndex((option) =>
                JSON.parse(document.getElementById('recordings').textContent)[option.value].file.endsWith(arguments[0]));
            const chooser = document.getElementById('script');
            chooser.value = chooser.options[index].value;
            chooser.dispatchEvent(new Event('change'));
            document.getElementById('last').click();
            return [...document.querySelectorAll('figcaption')].map((it) => it.textContent);";
        assert_eq!(firefox.run(script, &json!([name])), machines, "{name}");
        let extension = name.rsplit('.').next().expect("it has one");
        assert_page(&mut firefox, &format!("dev-view-{extension}"));
    }
}

#[test]
fn a_bad_file_is_an_error_and_leaves_no_page() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let [bad, page] = ["bad.agent", "page.html"].map(|name| folder.path().join(name));
    fs::write(&bad, "# Bad.\nat 2026-11-03T10:00:00Z\nover.agent> {}\n")
        .expect("the folder was made");
    for file in [bad, folder.path().join("missing.feed")] {
        let failed = dev_view(std::slice::from_ref(&file), &page);
        let error = String::from_utf8_lossy(&failed.stderr).into_owned();
        assert!(
            failed.status.code() == Some(1) && error.contains(&file.display().to_string()),
            "{error}"
        );
        assert!(!page.exists());
    }
    let usage =
        child(env!("CARGO_BIN_EXE_kalends")).args(["dev", "view"]).output().expect("it starts");
    assert_eq!(usage.status.code(), Some(2));
}
