//! A server, its store, and the commands of an operator.

use std::path::Path;

use serde_json::Value;
use state_machine::{Month, Time};
use tokio::process::Command;

use crate::harness::{
    ExitOutput, Launch, Program, Server, WireServer, dynamo, kalends, unix_now_s,
};

/// Four months: an agent last seen then is inactive, and the table of its month is old.
const LONG_AGO_S: u64 = 120 * 24 * 60 * 60;

/// TTLs in seconds that do not end during a test.
const YEAR: u32 = 365 * 24 * 60 * 60;

/// A server and its store.
pub(super) struct AdminFixture {
    pub(super) server: Server,
    /// The arguments that start the server, and that name its store to a command.
    launch: Launch,
    /// The server of its tables, if they are not in the data directory.
    wire_server: Option<WireServer>,
}

impl AdminFixture {
    /// A server with SQLite files in its data directory.
    pub(super) fn embedded(arguments: &[&str]) -> Self {
        Self::start(Launch::default().with(arguments), None)
    }

    /// A server with its tables in DynamoDB.
    pub(super) fn dynamo(arguments: &[&str]) -> Self {
        let wire_server = WireServer::start();
        let launch = dynamo::launch(&wire_server.url).with(arguments);
        // Counting records reads every key of the index, of which there are few.
        Self::start(launch.with(&["--last-connect-shards=1"]), Some(wire_server))
    }

    /// A server on each engine.
    pub(super) fn engines(arguments: &[&str]) -> [Self; 2] {
        [Self::embedded(arguments), Self::dynamo(arguments)]
    }

    /// Both engines, with a clock four months behind.
    pub(super) fn long_ago(arguments: &[&str]) -> [Self; 2] {
        let (ago, ttl) = (format!("--clock-offset-s=-{LONG_AGO_S}"), format!("--ttl-max-s={YEAR}"));
        let arguments = [arguments, &["--dev", &ago, &ttl]].concat();
        Self::engines(&arguments)
    }

    /// A server that creates no tables, with those that `kalends tables create` created.
    pub(super) async fn prepared(arguments: &[&str]) -> Self {
        let wire_server = WireServer::start();
        let launch = dynamo::launch(&wire_server.url).with(arguments);
        Program::run(launch.command(&["tables", "create"])).await.succeeded();
        Self::start(launch.with(&["--create-tables=false"]), Some(wire_server))
    }

    fn start(launch: Launch, wire_server: Option<WireServer>) -> Self {
        Self { server: Server::launch(launch.clone()), launch, wire_server }
    }

    /// Starts the stopped server with the present time.
    pub(super) fn restart_now(&mut self) {
        self.launch.arguments.retain(|word| word != "--dev" && !word.starts_with("--clock-offset"));
        self.server.restart_as(self.launch.clone());
    }

    /// Replaces an argument for further commands, but not for the running server.
    pub(super) fn override_argument(&mut self, given: &str, instead: &str) {
        let word = self.launch.arguments.iter_mut().find(|word| *word == given);
        instead.clone_into(word.expect("the server has this argument"));
    }

    /// A client of its tables, if they are in DynamoDB.
    pub(super) fn tables(&self) -> Option<aws_sdk_dynamodb::Client> {
        self.wire_server.as_ref().map(|wire_server| dynamo::client(&wire_server.url))
    }

    /// Replaces an argument of the stopped server and of further commands, and starts the server.
    pub(super) fn restart_with(&mut self, given: &str, instead: &str) {
        self.override_argument(given, instead);
        self.server.restart_as(self.launch.clone());
    }

    /// Whether the store is embedded, so that the server locks it.
    pub(super) fn is_embedded(&self) -> bool {
        self.wire_server.is_none()
    }

    /// A `kalends` command on the server's store.
    pub(super) fn command(&self, words: &[&str]) -> Command {
        self.command_in(&self.server.data_dir(), words)
    }

    /// Like [`command`](Self::command), with another data directory.
    pub(super) fn command_in(&self, data_dir: &Path, words: &[&str]) -> Command {
        let mut command = kalends(words);
        command.arg("--data-dir").arg(data_dir);
        let is_for_all = |word: &&String| {
            ["--store", "--dynamodb", "--last-connect", "--rotation"]
                .iter()
                .any(|name| word.starts_with(name))
        };
        command.args(self.launch.arguments.iter().filter(is_for_all));
        command.envs(self.launch.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs the command and returns how it ended.
    pub(super) async fn run(&self, words: &str) -> ExitOutput {
        let words: Vec<_> = words.split(' ').collect();
        Program::run(self.command(&words)).await
    }

    /// A token of a feed.
    pub(super) async fn token(&self, words: &str) -> String {
        self.stdout_of(&format!("feed token {words}")).await.trim_end().to_owned()
    }

    /// Runs the command with a token over HTTP.
    pub(super) async fn run_at_url(&self, token: &str, words: &str) -> ExitOutput {
        Program::run(at_url(&self.server, token, &words.split(' ').collect::<Vec<_>>())).await
    }

    /// The output of a command that must succeed.
    pub(super) async fn stdout_of(&self, words: &str) -> String {
        println!("{words}");
        self.run(words).await.succeeded()
    }

    /// Runs a command that must succeed and print this.
    pub(super) async fn prints(&self, words: &str, expected: &str) {
        let printed = self.stdout_of(words).await;
        assert!(printed.contains(expected), "{words}: {printed}");
    }

    /// Runs a command that must succeed and print this first.
    pub(super) async fn begins(&self, words: &str, expected: &str) {
        let printed = self.stdout_of(words).await;
        assert!(printed.starts_with(expected), "{words}: {printed}");
    }

    /// Runs commands whose arguments are wrong.
    pub(super) async fn rejects(&self, lines: &[&str]) {
        for words in lines {
            let ended = self.run(words).await;
            assert_eq!(ended.code, Some(2), "{words}: {ended:?}");
        }
    }

    /// The output of a command that must print one JSON value.
    pub(super) async fn json_of(&self, words: &str) -> Value {
        serde_json::from_str(&self.stdout_of(words).await).expect("it is JSON")
    }

    /// Runs a command that must fail with this error.
    pub(super) async fn refuses(&self, words: &str, reason: &str) {
        let why = self.stderr_of(words).await;
        assert!(why.contains(reason), "{words}: {why}");
    }

    /// The error of a command that must fail.
    pub(super) async fn stderr_of(&self, words: &str) -> String {
        let ended = self.run(words).await;
        assert_eq!(ended.code, Some(1), "{words}: {ended:?}");
        let last = ended.stderr.lines().last().expect("the error is printed");
        assert!(last.starts_with("kalends: "), "{ended:?}");
        last.to_owned()
    }
}

/// `kalends` with a token and the URL of a server.
pub(super) fn at_url(server: &Server, token: &str, words: &[&str]) -> Command {
    let mut command = kalends(words);
    command.arg("--url").arg(server.origin()).env("KALENDS_FEED_TOKEN", token);
    command
}

/// The month that is `count` months before the present one.
pub(super) fn months_ago(count: usize) -> Month {
    (0..count).fold(Month::of(Time(unix_now_s() * 1000)), |month, _| month.previous())
}

/// The month of a server with a clock four months behind.
pub(super) fn long_ago() -> Month {
    Month::of(Time((unix_now_s() - LONG_AGO_S) * 1000))
}
