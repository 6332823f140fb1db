//! What a command writes while it runs. Between server and command it is one JSON value a line.

use std::fmt::Debug;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::text::to_json;

/// A piece of output, printed as soon as it arrives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output<R> {
    /// Progress of a long step.
    Progress(Progress),
    /// A sentence for standard output.
    Note(String),
    /// The result of the command, or a part of it.
    Report(R),
    /// A temporary failure, after which the job continues by itself. Printed on standard error.
    Problem(String),
    /// The last output of every command.
    End(Completion),
}

/// The result of a command.
pub trait Report: Debug + PartialEq + Serialize + DeserializeOwned + 'static {
    /// The result for people. The head of a list is that of the first part alone.
    fn text(&self, is_first: bool) -> String;

    /// The result as JSON: one object a line.
    fn json(&self) -> String {
        to_json(self)
    }
}

/// The result of a command that has sentences only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoReport {}

impl Report for NoReport {
    fn text(&self, _is_first: bool) -> String {
        match *self {}
    }
}

/// The progress of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The step, such as `counting agents`.
    pub what: String,
    pub done: u64,
    /// Items in all if that is known; DynamoDB's counts are hours old.
    pub of: Option<u64>,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Completion {
    /// The command did its work.
    Done,
    /// The command did its work, and a check failed.
    Unwell,
    /// The command was stopped between two steps; completed steps remain.
    Stopped,
    /// The command failed or was refused: the reason, and what to do.
    Failed(String),
}

impl Completion {
    /// Its name in the log. The operator has the reason of a failure.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Unwell => "a check failed",
            Self::Stopped => "stopped",
            Self::Failed(_) => "failed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_output_is_read_from_the_line_it_was_written_as() {
        for output in [
            Output::Progress(Progress { what: "users".into(), done: 1, of: Some(2) }),
            Output::Note("made 2026_11\nreally".into()),
            Output::Report(7),
            Output::Problem("down".into()),
            Output::End(Completion::Done),
            Output::End(Completion::Failed("why".into())),
        ] {
            let line = to_json(&output);
            assert_eq!(line.matches('\n').count(), 1);
            assert_eq!(serde_json::from_str::<Output<u8>>(&line).unwrap(), output);
        }
    }
}
