//! A headless Firefox, the packaged one, in a profile of its own.

use std::io::PipeWriter;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::log::Log;
use super::marionette::Marionette;

/// The longest that a start may take, on a machine that does other things too.
const START_WAIT: Duration = Duration::from_secs(60);

/// The longest that Firefox may take to write its files and leave.
const QUIT_WAIT: Duration = Duration::from_secs(30);

/// The longest that Firefox may take to ask for broadcasts, which it does when it has been idle for a while, and to
/// hear of one.
const BROADCAST_WAIT: Duration = Duration::from_secs(90);

/// A running Firefox.
pub(super) struct Firefox {
    control: Marionette,
    processes: Processes,
    /// Messages about broadcasts that were looked at.
    broadcasts_heard: usize,
}

impl Firefox {
    /// Starts Firefox with a profile. It shows no page.
    pub(super) fn start(profile: &Path) -> Self {
        let (output, input) = std::io::pipe().expect("a pipe can be made");
        let processes = Processes { leader: spawn(profile, input), log: Log::of(output) };
        let port = processes.log.wait_for(START_WAIT, |line| {
            line.split_once("Marionette\tINFO\tListening on port ")?.1.trim().parse().ok()
        });
        let Some(port) = port else {
            panic!("Firefox did not start within {START_WAIT:?}:\n{}", processes.log.tail(""));
        };
        Self { control: Marionette::connect(port), processes, broadcasts_heard: 0 }
    }

    /// Loads a page.
    pub(super) fn open(&mut self, url: &str) {
        self.control.open(url);
    }

    /// Runs a function's body in the page, waits for the promise that it returns, and gives what
    /// that became.
    pub(super) fn run(&mut self, script: &str, arguments: &Value) -> Value {
        self.control.run(script, arguments)
    }

    /// How often the server has greeted it in this run.
    pub(super) fn greetings(&self) -> usize {
        self.heard("hello").len()
    }

    /// What the server has called it in this run, which it must have done.
    pub(super) fn uaid(&self) -> String {
        let greetings = self.heard("hello");
        let greeting = greetings.last().expect("the server has greeted it");
        greeting["uaid"].as_str().expect("a greeting has a name").to_owned()
    }

    /// The versions of the messages that the server has sent in this run, as they came: those too
    /// that Firefox kept to itself because it had them before.
    pub(super) fn versions(&self) -> Vec<String> {
        let version = |message: &Value| message["version"].as_str().map(str::to_owned);
        let messages = self.heard("notification");
        messages.iter().map(|message| version(message).expect("each has one")).collect()
    }

    /// The version in the next message about a broadcast.
    pub(super) fn hear_broadcast(&mut self, id: &str) -> String {
        let log = &self.processes.log;
        let broadcast = log.wait_for_nth(BROADCAST_WAIT, self.broadcasts_heard, |line| {
            heard(line).filter(|message| message["messageType"] == "broadcast")
        });
        self.broadcasts_heard += 1;
        let broadcast = broadcast.unwrap_or_else(|| {
            panic!("Firefox heard of no broadcast:\n{}", log.tail("roadcast"));
        });
        let version = &broadcast["broadcasts"][id];
        version.as_str().unwrap_or_else(|| panic!("nothing of {id}: {broadcast}")).to_owned()
    }

    /// Waits until it has handed a version of a broadcast to whoever in it subscribed.
    pub(super) fn hands_on_broadcast(&self, id: &str, version: &str) {
        let log = &self.processes.log;
        let is_it = |line: &str| {
            let (_, what) = line.split_once("receivedBroadcastMessage:")?;
            (what.contains(id) && what.contains(version.trim_matches('"'))).then_some(())
        };
        let handed_on = log.wait_for(BROADCAST_WAIT, is_it);
        assert!(handed_on.is_some(), "Firefox kept it to itself:\n{}", log.tail("roadcast"));
    }

    /// What its push client logs of what it hears.
    fn heard(&self, kind: &str) -> Vec<Value> {
        let heard = self.processes.log.find_all(heard);
        heard.into_iter().filter(|message| message["messageType"] == kind).collect()
    }

    /// Closes it, as a user does.
    pub(super) fn quit(mut self) {
        self.control.quit();
        assert!(self.processes.log.wait_for_end(QUIT_WAIT), "Firefox is still there");
    }
}

/// What the server said, if the line tells of it.
fn heard(line: &str) -> Option<Value> {
    let (_, text) = line.split_once(r#"PushServiceWebSocket: "wsOnMessageAvailable()" "#)?;
    let text: String = serde_json::from_str(text).expect("Firefox logs texts in quotes");
    Some(serde_json::from_str(&text).expect("the server speaks JSON"))
}

/// Firefox and its children, which are one process group. Killed when dropped.
struct Processes {
    leader: Child,
    log: Log,
}

impl Drop for Processes {
    fn drop(&mut self) {
        // As long as the leader was not waited for, nobody else can have the group's number. Where
        // all have left already, there is nothing to kill.
        let group = format!("-{}", self.leader.id());
        let mut kill = Command::new("kill");
        let _ = kill.args(["-s", "KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.leader.wait();
        if std::thread::panicking() {
            eprintln!("What Firefox's push client said last:\n{}", self.log.tail("Push"));
        }
    }
}

fn spawn(profile: &Path, output: PipeWriter) -> Child {
    let name = std::env::var_os("FIREFOX").unwrap_or_else(|| "firefox-esr".into());
    let errors = output.try_clone().expect("a pipe can be shared");
    let spawned = Command::new(&name)
        .args(["--headless", "--marionette", "--no-remote", "--profile"])
        .arg(profile)
        .env("HOME", profile)
        .env("MOZ_CRASHREPORTER_DISABLE", "1")
        // Only with this does the preference hold that there are no remote settings.
        .env("MOZ_REMOTE_SETTINGS_DEVTOOLS", "1")
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("XDG_CACHE_HOME")
        .env_remove("DISPLAY")
        .env_remove("WAYLAND_DISPLAY")
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .process_group(0)
        .spawn();
    spawned.unwrap_or_else(|error| {
        panic!("cannot start {name:?}: {error}; install it, or name another in FIREFOX")
    })
}
