//! A server, its store, and an operator at its side.

use std::path::Path;

use state_machine::{Month, Time};
use tokio::process::Command;

use crate::harness::{Ended, Launch, Program, Server, WireServer, dynamo, kalends, unix_now_s};

/// Four months, so that whoever was last seen then is stale, and his month's table old.
const LONG_AGO_S: u64 = 120 * 24 * 60 * 60;

/// Times to live, in seconds, that are over by no means.
const YEAR: u32 = 365 * 24 * 60 * 60;

/// A server with its store.
pub(super) struct Place {
    pub(super) server: Server,
    /// What starts the server, and what names its store to a command.
    launch: Launch,
    /// Where its tables are, if not in its data directory.
    wire_server: Option<WireServer>,
}

impl Place {
    /// A server with its files in a directory.
    pub(super) fn embedded(arguments: &[&str]) -> Self {
        Self::start(Launch::default().with(arguments), None)
    }

    /// A server with its tables in DynamoDB.
    pub(super) fn dynamo(arguments: &[&str]) -> Self {
        let wire_server = WireServer::start();
        let launch = dynamo::launch(&wire_server.url).with(arguments);
        // Months are looked through key by key, and there is next to nothing to be found.
        Self::start(launch.with(&["--last-connect-shards=1"]), Some(wire_server))
    }

    /// Both, four months ago.
    pub(super) fn long_ago(arguments: &[&str]) -> [Self; 2] {
        let (ago, ttl) = (format!("--clock-offset-s=-{LONG_AGO_S}"), format!("--ttl-max-s={YEAR}"));
        let arguments = [arguments, &["--dev", &ago, &ttl]].concat();
        [Self::embedded(&arguments), Self::dynamo(&arguments)]
    }

    /// A server that makes no tables itself, with those in DynamoDB that `kalends tables create` made.
    pub(super) async fn prepared(arguments: &[&str]) -> Self {
        let wire_server = WireServer::start();
        let launch = dynamo::launch(&wire_server.url).with(arguments);
        let mut ensure = kalends(&["tables", "create"]);
        ensure.args(&launch.arguments).envs(launch.variables.clone());
        let ended = Program::run(ensure).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        Self::start(launch.with(&["--create-tables=false"]), Some(wire_server))
    }

    fn start(launch: Launch, wire_server: Option<WireServer>) -> Self {
        Self { server: Server::launch(launch.clone()), launch, wire_server }
    }

    /// Starts the server, which was stopped, in the present.
    pub(super) fn restart_now(&mut self) {
        self.launch.arguments.retain(|word| word != "--dev" && !word.starts_with("--clock-offset"));
        self.server.restart_as(self.launch.clone());
    }

    /// Tells commands something else than the server was told.
    pub(super) fn say_instead(&mut self, said: &str, instead: &str) {
        let word = self.launch.arguments.iter_mut().find(|word| *word == said);
        instead.clone_into(word.expect("the server was told so"));
    }

    /// Whether the server owns its store.
    pub(super) fn is_embedded(&self) -> bool {
        self.wire_server.is_none()
    }

    /// `kalends` with these words, on the store of the server.
    pub(super) fn command(&self, words: &[&str]) -> Command {
        self.command_in(&self.server.data_dir(), words)
    }

    /// The same with another data directory.
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

    /// How it ends.
    pub(super) async fn run(&self, words: &str) -> Ended {
        let words: Vec<_> = words.split(' ').collect();
        Program::run(self.command(&words)).await
    }

    /// What it says, which must go well.
    pub(super) async fn done(&self, words: &str) -> String {
        let ended = self.run(words).await;
        assert_eq!(ended.code, Some(0), "{words}: {ended:?}");
        ended.stdout
    }

    /// Why it is refused.
    pub(super) async fn refused(&self, words: &str) -> String {
        let ended = self.run(words).await;
        assert_eq!(ended.code, Some(1), "{words}: {ended:?}");
        let last = ended.stderr.lines().last().expect("it says why");
        assert!(last.starts_with("kalends: "), "{ended:?}");
        last.to_owned()
    }
}

/// The month so many months before the present one.
pub(super) fn months_ago(count: usize) -> Month {
    (0..count).fold(this_month(), |month, _| month.previous())
}

fn this_month() -> Month {
    Month::of(Time(unix_now_s() * 1000))
}

/// The month of a server of long ago.
pub(super) fn long_ago() -> Month {
    Month::of(Time((unix_now_s() - LONG_AGO_S) * 1000))
}
