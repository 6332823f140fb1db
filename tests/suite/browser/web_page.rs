//! The page at `/`, in a real Firefox.

use std::fs;
use std::time::Instant;

use actix_web::rt::System;
use serde_json::{Value, json};

use super::firefox::Firefox;
use super::page_check::{ENTER, TAB, assert_accessible, assert_page};
use super::profile::Profile;
use super::turn::Turn;
use crate::harness::{AT_ONCE, Server, until};

/// Presses the button of the trial without a mouse, and waits for its end. Returns the result, its class and the hops.
fn try_it(firefox: &mut Firefox) -> (String, String, Vec<String>) {
    let focused =
        |firefox: &mut Firefox| firefox.run("return document.activeElement.id;", &json!([]));
    let tabs = (0..20).take_while(|_| {
        firefox.press(TAB);
        focused(firefox) != "start"
    });
    assert!(tabs.count() < 20, "the button is reached by the keyboard");
    firefox.press(ENTER);
    let wait = "const result = document.getElementById('result');
        while (!result.textContent) await new Promise(done => setTimeout(done, 20));
        const hops = [...document.querySelectorAll('#hops li')].map(hop => hop.textContent.replace(/\\d+ ms$/, 'done'));
        return [result.textContent, result.className, hops];";
    let shown = firefox.run(wait, &json!([]));
    let text = |value: &Value| value.as_str().expect("it is a text").to_owned();
    let hops = shown[2].as_array().expect("it is a list").iter().map(text).collect();
    (text(&shown[0]), text(&shown[1]), hops)
}

/// Activates each button for copying, and returns what it copied.
const COPY_ALL: &str = "
    const copied = [];
    navigator.clipboard.writeText = async (text) => { copied.push(text); };
    for (const button of document.querySelectorAll('[data-copy]')) button.click();
    await new Promise(requestAnimationFrame);
    return copied;";

fn start(profile: &Profile, server: &Server) -> Firefox {
    let mut firefox = Firefox::start(profile.path());
    firefox.open(&format!("{}/", server.origin()));
    firefox
}

#[test]
fn the_page_sends_itself_a_push_by_the_keyboard_alone() {
    let _turn = Turn::wait();
    let mut server = Server::start();
    let profile = Profile::new(&server.socket_url());
    let mut firefox = start(&profile, &server);
    let address = firefox.run("return document.getElementById('socket').textContent;", &json!([]));
    assert_eq!(address, server.socket_url());
    let copied = firefox.run(COPY_ALL, &json!([]));
    let values = [
        "dom.push.serverURL",
        &server.socket_url(),
        "dom.push.testing.allowInsecureServerURL",
        &server.origin(),
        &server.origin(),
    ];
    assert_eq!(copied, json!(values));
    for _ in 0..2 {
        let (result, class, hops) = try_it(&mut firefox);
        assert_eq!(
            (&*result, &*class),
            ("It works: this browser receives push messages through this server.", "good"),
            "{hops:?}"
        );
        let expected = [
            "This browser allows notifications done",
            "The service worker of this page runs done",
            "Subscribed at this server done",
            "Accepted by the server done",
            "Arrived at this browser done",
            // Firefox without a screen has none.
            "Shown not shown: this browser has no notifications",
        ];
        assert_eq!(hops, expected);
        firefox.run("document.activeElement.blur();", &json!([]));
    }
    assert_page(&mut firefox, "page");
    // The server returns with another key for trials, which the page reads.
    server.kill();
    wait_for_state(
        &mut firefox,
        "This server does not answer. This page tries again until it does.",
        "down",
    );
    assert_accessible(&mut firefox);
    server.restart();
    wait_for_state(&mut firefox, "This server is running.", "up");
    assert_eq!(try_it(&mut firefox).1, "good");
}

/// What a browser may not answer, the hop that shows it, and a word of the result.
const SILENT: [(&str, &str, &str); 6] = [
    ("Notification.requestPermission = never;", "This browser allows notifications", "answer it"),
    ("ServiceWorkerContainer.prototype.register = never;", "The service worker", "not started"),
    ("PushManager.prototype.subscribe = never;", "Subscribed", "has not reached its push server"),
    ("window.fetch = never;", "Accepted", "has not answered the push"),
    ("ServiceWorkerContainer.prototype.addEventListener = () => {};", "Arrived", "not received it"),
    (
        "PushManager.prototype.subscribe = () => Promise.reject(new Error('no way'));",
        "Subscribed",
        "no way",
    ),
];

/// The time of a trial, and what a busy machine adds.
const TRIAL_MS_MAX: u64 = 10_000 + 5_000;

#[test]
fn the_trial_ends_in_ten_seconds_whatever_the_browser_does() {
    let _turn = Turn::wait();
    let server = Server::start();
    let profile = Profile::new(&server.socket_url());
    let mut firefox = start(&profile, &server);
    for (silent, hop, word) in SILENT {
        firefox.open(&format!("{}/", server.origin()));
        firefox.run(&format!("const never = () => new Promise(() => {{}}); {silent}"), &json!([]));
        let began = Instant::now();
        let (result, class, hops) = try_it(&mut firefox);
        let took = u64::try_from(began.elapsed().as_millis()).expect("it is short");
        assert!(
            class == "bad" && result.contains(word) && took < TRIAL_MS_MAX,
            "{silent}: {result} {took}"
        );
        let failed: Vec<_> = hops.iter().filter(|hop| hop.ends_with(" failed")).collect();
        assert!(failed.iter().any(|failed| failed.starts_with(hop)), "{silent}: {hops:?}");
    }
    assert_page(&mut firefox, "page-failed");
    // What cannot be removed again is no failure of the trial.
    for silent in ["never", "() => Promise.reject(new Error('no way'))"] {
        firefox.open(&format!("{}/", server.origin()));
        let script =
            "const never = () => new Promise(() => {}); PushSubscription.prototype.unsubscribe =";
        firefox.run(&format!("{script} {silent};"), &json!([]));
        assert_eq!(try_it(&mut firefox).1, "good", "{silent}");
    }
}

#[test]
fn the_page_of_a_closed_server_names_its_operator() {
    let _turn = Turn::wait();
    let server = Server::start_with(&["--access=token"]);
    let profile = Profile::new(&server.socket_url());
    let mut firefox = start(&profile, &server);
    let title = firefox.run("return document.title;", &json!([]));
    assert_eq!(title, "Private push server");
    assert_page(&mut firefox, "page-closed");
}

#[test]
fn the_page_of_a_public_server_has_a_code_for_phones() {
    let _turn = Turn::wait();
    let server = Server::start_with(&["--public-url=https://push.example.net"]);
    let profile = Profile::new(&server.socket_url());
    let mut firefox = start(&profile, &server);
    let open = "document.querySelectorAll('details').forEach(fold => { fold.open = true; });
        return document.querySelector('.qr svg').getBoundingClientRect().width;";
    let width = firefox.run(open, &json!([]));
    assert!(width.as_f64().is_some_and(|width| width > 100.0), "{width}");
    assert_page(&mut firefox, "page-public");
}

#[test]
fn the_files_for_firefox_arrive_under_their_names_with_the_address() {
    let _turn = Turn::wait();
    let server = Server::start();
    let profile = Profile::new(&server.socket_url());
    let mut firefox = start(&profile, &server);
    let mut download = |name: &str| {
        let click = "document.querySelector(`a[download='${arguments[0]}']`).click();";
        firefox.run(click, &json!([name]));
        let file = profile.downloads().join(name);
        // Firefox reserves the name with an empty file.
        let is_whole = async || fs::metadata(&file).is_ok_and(|found| found.len() > 0);
        System::new().block_on(until(AT_ONCE, name, is_whole));
        fs::read_to_string(file).expect("it is a text")
    };
    let user_js = download("user.js");
    let set = format!("user_pref(\"dom.push.serverURL\", \"{}\");\n", server.socket_url());
    assert!(user_js.starts_with(&set), "{user_js}");
    let policies: Value = serde_json::from_str(&download("policies.json")).expect("it is JSON");
    let set = &policies["policies"]["Preferences"]["dom.push.serverURL"]["Value"];
    assert_eq!(*set, server.socket_url(), "{policies}");
    assert_eq!(firefox.take_errors(), [""; 0]);
}

#[test]
fn the_page_of_errors_shows_the_section_of_a_number() {
    let _turn = Turn::wait();
    let server = Server::start();
    let profile = Profile::new(&server.socket_url());
    let mut firefox = Firefox::start(profile.path());
    firefox.open(&format!("{}/errors#117", server.origin()));
    let shown = "const { top } = document.querySelector(':target h2').getBoundingClientRect();
        return top >= 0 && top < window.innerHeight;";
    assert_eq!(firefox.run(shown, &json!([])), true, "the section is in the window");
    assert_page(&mut firefox, "errors");
}

/// Waits until the page states this about the server, by itself.
fn wait_for_state(firefox: &mut Firefox, sentence: &str, class: &str) {
    let wait = "const [sentence, kind] = arguments;
        const state = document.getElementById('state');
        while (state.textContent !== sentence) await new Promise(done => setTimeout(done, 20));
        return state.className === kind;";
    assert_eq!(firefox.run(wait, &json!([sentence, class])), true, "{sentence}");
}

#[test]
fn a_browser_of_another_push_server_is_told_how_to_change_it() {
    let _turn = Turn::wait();
    let (server, other) = (Server::start(), Server::start());
    let profile = Profile::new(&other.socket_url());
    let mut firefox = start(&profile, &server);
    let (result, class, _) = try_it(&mut firefox);
    let expected =
        format!("the push server of this browser is {}: set it to this one", other.origin());
    assert!(class == "bad" && result.contains(&expected), "{result}");
    assert_page(&mut firefox, "page-other");
}
