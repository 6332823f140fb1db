//! Firefox's remote control: JSON over TCP, each message behind its length in bytes and a colon.
//!
//! A command is `[0, id, name, parameters]`, its answer `[1, id, error, result]`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

/// Timeout of one command: loading a page, running a script, or quitting.
const ANSWER_WAIT: Duration = Duration::from_secs(30);

/// A session with a running Firefox.
pub(super) struct Marionette {
    stream: BufReader<TcpStream>,
    last_id: u64,
}

impl Marionette {
    /// Connects to Firefox's port and starts a session.
    pub(super) fn connect(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
        let stream = stream.expect("Firefox takes connections on the port it named");
        stream.set_read_timeout(Some(ANSWER_WAIT)).expect("the wait is not zero");
        let mut session = Self { stream: BufReader::new(stream), last_id: 0 };
        let greeting = session.receive();
        assert_eq!(greeting["marionetteProtocol"], 3, "{greeting}");
        session.call("WebDriver:NewSession", &json!({}));
        session
    }

    pub(super) fn open(&mut self, url: &str) {
        self.call("WebDriver:Navigate", &json!({ "url": url }));
    }

    /// Runs the body of an async function in the page, and returns the value of its promise.
    pub(super) fn run(&mut self, script: &str, arguments: &Value) -> Value {
        let script = format!("return (async () => {{ {script}\n }})();");
        let parameters = json!({ "script": script, "args": arguments });
        self.call("WebDriver:ExecuteScript", &parameters)["value"].take()
    }

    /// Like [`run`](Self::run), in the window of the browser with its privileges.
    pub(super) fn run_privileged(&mut self, script: &str, arguments: &Value) -> Value {
        self.call("Marionette:SetContext", &json!({ "value": "chrome" }));
        let value = self.run(script, arguments);
        self.call("Marionette:SetContext", &json!({ "value": "content" }));
        value
    }

    /// Like [`run`](Self::run). None if the script fails, for instance because the page is replaced.
    pub(super) fn try_run(&mut self, script: &str, arguments: &Value) -> Option<Value> {
        let parameters = json!({ "script": script, "args": arguments });
        Some(self.try_call("WebDriver:ExecuteScript", &parameters).ok()?["value"].take())
    }

    /// Presses and releases a key, by its code point in WebDriver.
    pub(super) fn press(&mut self, key: &str) {
        let steps = ["keyDown", "keyUp"].map(|step| json!({"type": step, "value": key}));
        let keyboard = json!([{"type": "key", "id": "keyboard", "actions": steps}]);
        self.call("WebDriver:PerformActions", &json!({ "actions": keyboard }));
    }

    /// The whole page as a PNG in base64.
    pub(super) fn screenshot(&mut self) -> String {
        let taken = self.call("WebDriver:TakeScreenshot", &json!({"full": true}));
        taken["value"].as_str().expect("it is base64").to_owned()
    }

    /// Quits Firefox like a user.
    pub(super) fn quit(&mut self) {
        self.call("Marionette:Quit", &json!({ "flags": ["eAttemptQuit"] }));
    }

    fn call(&mut self, name: &str, parameters: &Value) -> Value {
        let answer = self.try_call(name, parameters);
        answer.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The result of a command, or its error.
    fn try_call(&mut self, name: &str, parameters: &Value) -> Result<Value, Value> {
        self.last_id += 1;
        self.send(&json!([0, self.last_id, name, parameters]));
        let mut answer = self.receive();
        assert_eq!(answer[1], self.last_id, "{name}: not the answer to it: {answer}");
        if answer[2].is_null() { Ok(answer[3].take()) } else { Err(answer[2].take()) }
    }

    fn send(&mut self, message: &Value) {
        let text = message.to_string();
        let sent = write!(self.stream.get_mut(), "{}:{text}", text.len());
        sent.expect("Firefox reads its commands");
    }

    fn receive(&mut self) -> Value {
        let mut length = Vec::new();
        self.stream.read_until(b':', &mut length).expect("Firefox answers in time");
        let length = String::from_utf8_lossy(&length);
        let length = length.strip_suffix(':').and_then(|digits| digits.parse().ok());
        let mut text = vec![0; length.expect("Firefox sends the length of its answer")];
        self.stream.read_exact(&mut text).expect("Firefox answers in time");
        serde_json::from_slice(&text).expect("Firefox answers in JSON")
    }
}
