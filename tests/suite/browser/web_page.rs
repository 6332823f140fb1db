//! The page at `/`, in a real Firefox.

use std::sync::PoisonError;

use serde_json::{Value, json};

use super::TURN;
use super::firefox::Firefox;
use super::page_check::{ENTER, TAB, assert_page};
use super::profile::Profile;
use crate::harness::Server;

/// Presses the button of the trial without a mouse, and waits for its end. Returns the result, its class and the hops.
fn try_it(firefox: &mut Firefox) -> (String, String, Vec<String>) {
    let watch = "window.violations = 0; document.addEventListener('securitypolicyviolation', () => window.violations++);";
    firefox.run(watch, &json!([]));
    let focused =
        |firefox: &mut Firefox| firefox.run("return document.activeElement.id;", &json!([]));
    let tabs = (0..10).take_while(|_| {
        firefox.press(TAB);
        focused(firefox) != "start"
    });
    assert!(tabs.count() < 10, "the button is reached by the keyboard");
    firefox.press(ENTER);
    let wait = "const result = document.getElementById('result');
        while (!result.textContent) await new Promise(done => setTimeout(done, 20));
        const hops = [...document.querySelectorAll('#hops li')].map(hop => hop.firstChild.textContent);
        return [result.textContent, result.className, hops, window.violations];";
    let shown = firefox.run(wait, &json!([]));
    assert_eq!(shown[3], 0, "the page follows its own policy");
    let text = |value: &Value| value.as_str().expect("it is a text").to_owned();
    let hops = shown[2].as_array().expect("it is a list").iter().map(text).collect();
    (text(&shown[0]), text(&shown[1]), hops)
}

fn start(profile: &Profile, server: &Server) -> Firefox {
    let mut firefox = Firefox::start(profile.path());
    firefox.open(&format!("{}/", server.origin()));
    firefox
}

#[test]
fn the_page_sends_itself_a_push_by_the_keyboard_alone() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let server = Server::start();
    let profile = Profile::new(&server.socket_url())
        .with("layout.css.prefers-color-scheme.content-override", "1");
    let mut firefox = start(&profile, &server);
    let address = firefox.run("return document.getElementById('socket').textContent;", &json!([]));
    assert_eq!(address, server.socket_url());
    for _ in 0..2 {
        let (result, class, mut hops) = try_it(&mut firefox);
        assert_eq!(
            (&*result, &*class),
            ("It works: this browser receives push messages through this server.", "good"),
            "{hops:?}"
        );
        // The server's answer and the push may arrive in either order.
        hops.sort();
        let expected = [
            "accepted by the server, and acked by this browser, ",
            // Firefox without a screen has none.
            "not shown: this browser has no notifications, ",
            "received by this browser, ",
            "subscribed, ",
        ];
        assert_eq!(hops, expected);
        firefox.run("document.activeElement.blur();", &json!([]));
    }
    assert_page(&mut firefox, "page");
}

#[test]
fn a_browser_of_another_push_server_is_told_how_to_change_it() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (server, other) = (Server::start(), Server::start());
    let profile = Profile::new(&other.socket_url())
        .with("layout.css.prefers-color-scheme.content-override", "0");
    let mut firefox = start(&profile, &server);
    let (result, class, _) = try_it(&mut firefox);
    let expected =
        format!("the push server of this browser is {}: set it to this one", other.origin());
    assert!(class == "bad" && result.contains(&expected), "{result}");
    assert_page(&mut firefox, "page-other");
}
