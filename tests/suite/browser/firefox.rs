//! The packaged Firefox, headless, with its own profile.

use std::fs;
use std::io::PipeWriter;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::log::Log;
use super::marionette::Marionette;
use crate::harness::{Group, child};

/// Maximum time until Firefox has started, on a busy machine.
const START_WAIT: Duration = Duration::from_secs(60);

/// Maximum time until Firefox has written its files and ended.
const QUIT_WAIT: Duration = Duration::from_secs(30);

/// Maximum time until Firefox subscribes to broadcasts, which it does when it has been idle for a
/// while, and receives one.
const BROADCAST_WAIT: Duration = Duration::from_secs(90);

/// A desktop window is wide enough for each width, and the page resizes with its element. The window of a notification may
/// have taken the focus.
const SHOW: &str = "
    const [width, scheme] = arguments;
    window.focus();
    window.gBrowser.selectedBrowser.focus();
    window.resizeTo(1400, 1000);
    const browser = window.gBrowser.selectedBrowser;
    browser.style.setProperty('width', width + 'px');
    browser.style.setProperty('max-width', width + 'px');
    browser.browsingContext.prefersColorSchemeOverride = scheme;";

/// The page is in another process than its window.
const SHOWN: &str = "
    const [width, scheme] = arguments;
    const scheme_now = window.matchMedia(`(prefers-color-scheme: ${scheme})`);
    while (window.innerWidth !== width || !scheme_now.matches) await new Promise(requestAnimationFrame);";

/// `C`: it signs certificates of servers.
const TRUST: &str = "
    const database = Cc['@mozilla.org/security/x509certdb;1'].getService(Ci.nsIX509CertDB);
    database.addCertFromBase64(arguments[0], 'C,,');";

/// Warnings of Firefox about itself have no page as their source.
const TAKE_ERRORS: &str = "
    const messages = Services.console.getMessageArray();
    Services.console.reset();
    return messages
        .filter(message => message instanceof Ci.nsIScriptError)
        .filter(message => message.category.startsWith('CSP') || /^https?:/.test(message.sourceName))
        .map(message => `${message.category}: ${message.errorMessage} (${message.sourceName}:${message.lineNumber})`);";

/// A running Firefox process.
pub(super) struct Firefox {
    control: Marionette,
    processes: Processes,
    /// The number of broadcast messages that were examined.
    broadcasts_seen: usize,
}

impl Firefox {
    /// Starts Firefox with a profile and without a page.
    pub(super) fn start(profile: &Path) -> Self {
        let (output, input) = std::io::pipe().expect("a pipe can be made");
        let group = Group::new();
        let main = spawn(profile, &group, input);
        let processes = Processes { main, group, log: Log::of(output) };
        let port = processes.log.wait_for(START_WAIT, |line| {
            line.split_once("Marionette\tINFO\tListening on port ")?.1.trim().parse().ok()
        });
        let Some(port) = port else {
            panic!("Firefox did not start within {START_WAIT:?}:\n{}", processes.log.tail(""));
        };
        Self { control: Marionette::connect(port), processes, broadcasts_seen: 0 }
    }

    pub(super) fn open(&mut self, url: &str) {
        self.control.open(url);
    }

    /// Trusts a certificate authority, whose certificate is in PEM. The profile keeps it.
    pub(super) fn trust(&mut self, authority: &str) {
        let base64: String = authority.lines().filter(|line| !line.starts_with("-----")).collect();
        self.control.run_privileged(TRUST, &json!([base64]));
    }

    /// Runs the body of an async function in the page, and returns the value of its promise.
    pub(super) fn run(&mut self, script: &str, arguments: &Value) -> Value {
        self.control.run(script, arguments)
    }

    /// Like [`run`](Self::run). None if the page is replaced before the script ends.
    pub(super) fn try_run(&mut self, script: &str, arguments: &Value) -> Option<Value> {
        self.control.try_run(script, arguments)
    }

    pub(super) fn press(&mut self, key: &str) {
        self.control.press(key);
    }

    /// Shows the page as in a window of this width, which may be narrower than a window of Firefox can be, and in a
    /// color scheme, `light` or `dark`.
    pub(super) fn show(&mut self, width: u32, scheme: &str) {
        let arguments = json!([width, scheme]);
        self.control.run_privileged(SHOW, &arguments);
        self.control.run(SHOWN, &arguments);
    }

    /// The errors and warnings of pages since the last call, from the browser's console: of scripts, of styles, and of content
    /// security policies.
    pub(super) fn take_errors(&mut self) -> Vec<String> {
        let errors = self.control.run_privileged(TAKE_ERRORS, &json!([]));
        serde_json::from_value(errors).expect("it is a list of texts")
    }

    /// Writes a picture of the whole page into `target/screenshots`.
    pub(super) fn screenshot(&mut self, name: &str) {
        let image = STANDARD.decode(self.control.screenshot()).expect("it is base64");
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/screenshots");
        fs::create_dir_all(&dir).expect("the target folder can be written");
        fs::write(dir.join(format!("{name}.png")), image).expect("the folder was made");
    }

    /// The number of answered hellos in this run.
    pub(super) fn hello_count(&self) -> usize {
        self.received("hello").len()
    }

    /// The uaid that the server assigned in this run.
    pub(super) fn uaid(&self) -> String {
        let greetings = self.received("hello");
        let greeting = greetings.last().expect("the server has greeted it");
        greeting["uaid"].as_str().expect("a greeting has a name").to_owned()
    }

    /// The versions of all notifications of this run in order, including repeats that Firefox
    /// dropped.
    pub(super) fn versions(&self) -> Vec<String> {
        let version = |message: &Value| message["version"].as_str().map(str::to_owned);
        let messages = self.received("notification");
        messages.iter().map(|message| version(message).expect("each has one")).collect()
    }

    /// Waits for the next message about a broadcast, and returns its version.
    pub(super) fn next_broadcast_version(&mut self, id: &str) -> String {
        let log = &self.processes.log;
        let broadcast = log.wait_for_nth(BROADCAST_WAIT, self.broadcasts_seen, |line| {
            received(line).filter(|message| message["messageType"] == "broadcast")
        });
        self.broadcasts_seen += 1;
        let broadcast = broadcast.unwrap_or_else(|| {
            panic!("Firefox heard of no broadcast:\n{}", log.tail("roadcast"));
        });
        let version = &broadcast["broadcasts"][id];
        version.as_str().unwrap_or_else(|| panic!("nothing of {id}: {broadcast}")).to_owned()
    }

    /// Waits until Firefox has delivered this version of a broadcast to its subscriber.
    pub(super) fn wait_for_broadcast_delivery(&self, id: &str, version: &str) {
        let log = &self.processes.log;
        let is_it = |line: &str| {
            let (_, what) = line.split_once("receivedBroadcastMessage:")?;
            (what.contains(id) && what.contains(version.trim_matches('"'))).then_some(())
        };
        let handed_on = log.wait_for(BROADCAST_WAIT, is_it);
        assert!(handed_on.is_some(), "Firefox kept it to itself:\n{}", log.tail("roadcast"));
    }

    /// The messages of this kind that the push client logged.
    fn received(&self, kind: &str) -> Vec<Value> {
        let messages = self.processes.log.find_all(received);
        messages.into_iter().filter(|message| message["messageType"] == kind).collect()
    }

    /// Closes Firefox like a user, so that it saves its state.
    pub(super) fn quit(mut self) {
        self.control.quit();
        assert!(self.processes.log.wait_for_end(QUIT_WAIT), "Firefox is still there");
    }
}

/// The server's message in a line of the log, if there is one.
fn received(line: &str) -> Option<Value> {
    let (_, text) = line.split_once(r#"PushServiceWebSocket: "wsOnMessageAvailable()" "#)?;
    let text: String = serde_json::from_str(text).expect("Firefox logs texts in quotes");
    Some(serde_json::from_str(&text).expect("the server speaks JSON"))
}

/// Firefox and its processes, which are killed when this is dropped.
struct Processes {
    main: Child,
    group: Group,
    log: Log,
}

impl Drop for Processes {
    fn drop(&mut self) {
        self.group.kill();
        let _ = self.main.wait();
        if std::thread::panicking() {
            eprintln!("What Firefox's push client text last:\n{}", self.log.tail("Push"));
        }
    }
}

fn spawn(profile: &Path, group: &Group, output: PipeWriter) -> Child {
    let name = std::env::var_os("FIREFOX").unwrap_or_else(|| "firefox-esr".into());
    let errors = output.try_clone().expect("a pipe can be shared");
    let spawned = child(&name)
        .args(["--headless", "--marionette", "--no-remote"])
        // Tests resize pages and read the console.
        .args(["--remote-allow-system-access", "--profile"])
        .arg(profile)
        .env("HOME", profile)
        .env("MOZ_CRASHREPORTER_DISABLE", "1")
        // Remote settings are off only if this is set as well.
        .env("MOZ_REMOTE_SETTINGS_DEVTOOLS", "1")
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("XDG_CACHE_HOME")
        .env_remove("DISPLAY")
        .env_remove("WAYLAND_DISPLAY")
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .process_group(group.id())
        .spawn();
    spawned.unwrap_or_else(|error| {
        panic!("cannot start {name:?}: {error}; install it, or name another in FIREFOX")
    })
}
