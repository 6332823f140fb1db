//! The results of the checks, printed as they come.

use std::io::{self, IsTerminal, Write, stderr, stdout};

use serde::Serialize;

use super::trouble::Trouble;

/// The result of a check, and what the operator should do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    level: Level,
    check: &'static str,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    Ok,
    Warn,
    Fail,
}

/// How good it is, what was found, and the remedy, which is not shown where all is well.
pub(super) type Verdict = (Level, String, &'static str);

/// Prints each finding when it is there.
pub(super) struct Findings {
    pub(super) is_json: bool,
    pub(super) failed: usize,
}

impl Findings {
    pub(super) fn ok(&mut self, check: &'static str, found: impl Into<String>) -> io::Result<()> {
        self.verdict(check, (Level::Ok, found.into(), ""))
    }

    pub(super) fn warn(
        &mut self,
        check: &'static str,
        found: impl Into<String>,
        remedy: &str,
    ) -> io::Result<()> {
        self.verdict(check, (Level::Warn, found.into(), remedy))
    }

    pub(super) fn fail(
        &mut self,
        check: &'static str,
        found: impl Into<String>,
        remedy: &str,
    ) -> io::Result<()> {
        self.verdict(check, (Level::Fail, found.into(), remedy))
    }

    pub(super) fn verdict(
        &mut self,
        check: &'static str,
        (level, found, remedy): (Level, String, &str),
    ) -> io::Result<()> {
        self.failed += usize::from(level == Level::Fail);
        let remedy = (level != Level::Ok).then(|| remedy.to_owned());
        let finding = Finding { level, check, found, remedy };
        let text = match self.is_json {
            true => serde_json::to_string(&finding).map_err(io::Error::other)?,
            false => finding.text(),
        };
        writeln!(stdout(), "{text}")
    }

    /// What a check has found, or why it failed.
    pub(super) fn result(
        &mut self,
        check: &'static str,
        result: Result<impl Into<String>, impl ToString>,
        remedy: &str,
    ) -> io::Result<()> {
        match result {
            Ok(found) => self.ok(check, found),
            Err(why) => self.fail(check, why.to_string(), remedy),
        }
    }

    /// What a step has found, or why it failed, with the remedy of its trouble if it has one.
    pub(super) fn step(
        &mut self,
        check: &'static str,
        result: Result<impl Into<String>, Trouble>,
        remedy: &str,
    ) -> io::Result<()> {
        match result {
            Ok(found) => self.ok(check, found),
            Err(Trouble { why, remedy: own }) => self.fail(check, why, own.unwrap_or(remedy)),
        }
    }

    /// Tells a person that the next check takes long.
    pub(super) fn wait(&self, what: &str) {
        if stderr().is_terminal() {
            // It may be closed.
            let _ = writeln!(stderr(), "      {what}");
        }
    }
}

impl Finding {
    fn text(&self) -> String {
        let level = match self.level {
            Level::Ok => "ok  ",
            Level::Warn => "warn",
            Level::Fail => "FAIL",
        };
        let remedy = self.remedy.as_ref().map(|remedy| format!("\n      {remedy}"));
        format!("{level}  {}: {}{}", self.check, self.found, remedy.unwrap_or_default())
    }
}
