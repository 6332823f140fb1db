//! The results of the checks, which the command prints when each is there.

use std::io::{self, Write, stderr, stdout};

use serde::Serialize;

use super::trouble::Trouble;

/// The result of a check, and what the operator should do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub level: Level,
    pub check: &'static str,
    pub found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Ok,
    Warn,
    Fail,
}

/// How good it is, what was found, and the remedy, which is not shown where all is well.
pub(super) type Verdict = (Level, String, &'static str);

/// How a command prints a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Text,
    Json,
}

/// The findings in their order. Each is printed when it is there, unless the caller shows all of them at the end.
pub(super) struct Findings {
    pub(super) printed: Option<Format>,
    pub(super) all: Vec<Finding>,
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
        let remedy = (level != Level::Ok).then(|| remedy.to_owned());
        let finding = Finding { level, check, found, remedy };
        match self.printed {
            None => {}
            Some(Format::Text) => writeln!(stdout(), "{}", finding.text())?,
            Some(Format::Json) => {
                let text = serde_json::to_string(&finding).map_err(io::Error::other)?;
                writeln!(stdout(), "{text}")?;
            }
        }
        self.all.push(finding);
        Ok(())
    }

    pub(super) fn failed(&self) -> usize {
        self.all.iter().filter(|finding| finding.level == Level::Fail).count()
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

    /// Announces that the next check takes long.
    pub(super) fn wait(&self, what: &str) {
        if self.printed.is_some() {
            // It may be closed.
            let _ = writeln!(stderr(), "      {what}");
        }
    }
}

impl Finding {
    fn text(&self) -> String {
        let remedy = self.remedy.as_ref().map(|remedy| format!("\n      {remedy}"));
        let (level, remedy) = (self.level.name(), remedy.unwrap_or_default());
        format!("{level:4}  {}: {}{remedy}", self.check, self.found)
    }
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
        }
    }
}
