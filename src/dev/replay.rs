//! `kalends dev replay`: a script, run through the state machines.

use std::fmt::Display;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use harness::script::{MachineState, Mismatch, TraceStep};
use harness::scripts::{Language, Script};
use serde::Serialize;
use serde_json::json;
use storage::durable;

use super::error::ToolError;
use super::files::{FileError, print, read_at_most};
use crate::command::failure;
use crate::command::{Command, Commands};

/// What is printed of a script beside its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    Result,
    /// Each step in the form of the file, with the state after it as a comment.
    Trace,
    /// The recording as lines of JSON, also for [`super::view`].
    Json,
}

/// A script that was run, with every step up to the first mismatch.
#[derive(Debug, Serialize)]
pub(super) struct Recording {
    pub(super) file: String,
    /// The name of its language.
    pub(super) language: &'static str,
    pub(super) title: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) start: Option<String>,
    /// The machines before the first step.
    pub(super) machines: Vec<MachineState>,
    pub(super) steps: Vec<TraceStep>,
    /// Why the script ended early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failed: Option<Failure>,
    /// The lines before the first input.
    #[serde(skip)]
    head: String,
}

/// Effects that the script does not expect, or an input that is impossible.
#[derive(Debug, Serialize)]
pub(super) struct Failure {
    line: usize,
    /// The input of that line.
    event: String,
    report: String,
}

#[derive(Debug, Args)]
pub struct Replay {
    /// `.session`, `.feed`, `.delivery` or `.agent` files as in fixtures/
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Print each event, phase and effect
    #[arg(long)]
    trace: bool,
    /// Print the same as lines of JSON, with the unacked messages and all deadlines
    #[arg(long, conflicts_with = "trace")]
    json: bool,
    /// Write the effects of the machines into the scripts, where they are missing or differ
    #[arg(long, conflicts_with_all = ["trace", "json"])]
    write: bool,
}

impl Command for Replay {
    const NAME: &'static str = "dev replay";
    const ABOUT: &'static str = "Run scripts of a session, a feed, a push or an agent on two nodes through the state machines";
    const HELP: &'static str = "\
Examples:
  kalends dev replay fixtures/sessions/hello_of_a_new_agent.session --trace
  kalends dev replay fixtures/feeds/time_table.feed --trace
  kalends dev replay fixtures/deliveries/unconfirmed_then_stored.delivery --trace
  kalends dev replay fixtures/agents/notification_lost.agent --json | jq .
  kalends dev replay --write new.session         fill the effects in";

    /// Replays each file, until one differs.
    fn run(self, _commands: Commands) -> Result<(), failure::Failure> {
        if self.write {
            return Ok(write(&self.files)?);
        }
        let output = match (self.trace, self.json) {
            (true, _) => Output::Trace,
            (_, true) => Output::Json,
            (false, false) => Output::Result,
        };
        Ok(self.files.iter().try_for_each(|file| run(file, output))?)
    }
}

/// Writes the machines' effects into scripts. Files that are right stay as they are, and no file is written if one of
/// them cannot be filled.
fn write(files: &[PathBuf]) -> Result<(), ToolError> {
    let mut filled = Vec::new();
    for file in files {
        let text = read(file)?;
        let done = language(file).fill(&text).map_err(|error| unusable(file, &error))?;
        filled.push((file, done, text));
    }
    for (file, filled, before) in filled {
        let is_changed = filled != before;
        if is_changed {
            let failed = |error| FileError::Unwritable { path: file.clone(), error };
            let mode = fs::metadata(file).map_err(failed)?.permissions().mode();
            durable::replace_with_mode(file, mode, filled).map_err(failed)?;
        }
        let done = if is_changed { "written" } else { "unchanged" };
        print(&[format!("# {}: {done}", file.display())])?;
    }
    Ok(())
}

fn run(file: &Path, output: Output) -> Result<(), ToolError> {
    let recording = record(file)?;
    match output {
        Output::Json => print(&recording.json_lines())?,
        Output::Trace => {
            let steps = recording.steps.iter().map(TraceStep::to_string);
            print(&[vec![recording.head.clone()], steps.collect()].concat())?;
        }
        Output::Result => {}
    }
    if let Some(Failure { line, report, .. }) = recording.failed {
        return Err(unusable(file, &Mismatch { line, report }));
    }
    if output != Output::Json {
        let steps = recording.steps.len();
        print(&[format!("# {}: all {steps} steps as written", file.display())])?;
    }
    Ok(())
}

/// Runs a script in the language that the name of its file says. A script that cannot be read is an error, and one that
/// fails is not.
pub(super) fn record(file: &Path) -> Result<Recording, ToolError> {
    let (language, text) = (language(file), read(file)?);
    let script = Script::parse(language, &text).map_err(|error| unusable(file, &error))?;
    let mut steps = Vec::new();
    let replayed = script.replay(|step| steps.push(step));
    let failure = |Mismatch { line, report }| {
        let event = text.lines().nth(line.saturating_sub(1)).unwrap_or_default().to_owned();
        Failure { line, event, report }
    };
    let first = steps.first().map_or(0, |step| step.line);
    let head: Vec<&str> = text.lines().take(first.saturating_sub(1)).collect();
    Ok(Recording {
        file: file.display().to_string(),
        language: language.extension(),
        title: script.title().to_owned(),
        start: script.start(),
        machines: script.machines(),
        steps,
        failed: replayed.err().map(failure),
        head: head.join("\n").trim_end().to_owned() + "\n",
    })
}

impl Recording {
    /// A line about the script, one for each step, and one about the result.
    fn json_lines(&self) -> Vec<String> {
        let Self { file, language, title, start, machines, steps, failed, .. } = self;
        let head = json!({
            "file": file, "language": language, "title": title, "start": start, "machines": machines,
        });
        let result = match failed {
            Some(failed) => json!({ "failed": failed }),
            None => json!({"replayed": {"steps": steps.len()}}),
        };
        let step = |step| serde_json::to_string(step).expect("a trace always serialises");
        let steps = steps.iter().map(step);
        [head.to_string()].into_iter().chain(steps).chain([result.to_string()]).collect()
    }
}

/// A file without the extension of another language is a session.
fn language(file: &Path) -> Language {
    let extension = file.extension().and_then(|extension| extension.to_str());
    let known = Language::ALL.into_iter().find(|it| Some(it.extension()) == extension);
    known.unwrap_or(Language::Session)
}

fn read(file: &Path) -> Result<String, FileError> {
    read_at_most(file, 16, "larger than 16 MiB")
}

/// It is no script, or the machines do something else.
fn unusable(file: &Path, why: &dyn Display) -> ToolError {
    ToolError::Unusable(format!("{}:{why}", file.display()))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_file_is_replayed_as_what_its_name_says_it_is() {
        for (file, wrong) in [
            ("fixtures/feeds/time_table.feed", None),
            ("fixtures/sessions/keepalive.session", None),
            ("fixtures/deliveries/direct_push_acked.delivery", None),
            ("fixtures/agents/notification_lost.agent", None),
            ("Cargo.toml", Some("Cargo.toml:1: the first line must be the title of the session")),
            ("fixtures/feeds", Some("cannot read fixtures/feeds: ")),
        ] {
            for output in [Output::Result, Output::Trace, Output::Json] {
                let result = run(&Path::new(env!("CARGO_MANIFEST_DIR")).join(file), output);
                let error = result.err().map(|error| error.to_string());
                match wrong {
                    None => assert_eq!(error, None),
                    Some(wrong) => {
                        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/");
                        let error = error.expect("it is neither").replace(root, "");
                        assert!(error.starts_with(wrong), "{error}");
                    }
                }
            }
        }
    }

    #[test]
    fn several_scripts_are_written_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let head = "# A session.\nat 2026-11-03T10:00:00Z\n";
        let hello = format!("{head}agent> {{\"messageType\":\"hello\",\"use_webpush\":true}}\n");
        fs::write(path("a.session"), &hello).unwrap();
        fs::write(path("b.session"), format!("{head}store> 7 deleted\n")).unwrap();
        fs::write(path("c.feed"), "# A history.\n").unwrap();
        fs::write(path("d.feed"), "# A history.\nwriter> write fred bob\n").unwrap();
        let files = |names: &[&str]| names.iter().map(|name| path(name)).collect::<Vec<_>>();
        for other in ["b.session", "c.feed", "none.session"] {
            assert!(write(&files(&["a.session", other])).is_err(), "{other}");
            assert_eq!(fs::read_to_string(path("a.session")).unwrap(), hello);
        }
        write(&files(&["a.session", "d.feed"])).unwrap();
        let filled = fs::read_to_string(path("a.session")).unwrap();
        assert!(filled.starts_with(&hello) && filled.len() > hello.len(), "{filled}");
        let history = fs::read_to_string(path("d.feed")).unwrap();
        assert!(history.ends_with("table< fred version=1 waits value=bob\n"), "{history}");
        for file in files(&["a.session", "d.feed"]) {
            run(&file, Output::Result).unwrap();
        }
    }

    #[test]
    fn what_is_wrong_with_a_feed_history_is_told_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("wrong.feed");
        for (lines, wrong) in [
            ("wait 5", "2: expected a span such as"),
            ("P1> written", "2: after `P1> written`\n     + P1< publish"),
        ] {
            fs::write(&file, format!("# A history.\n{lines}\n")).unwrap();
            let error = run(&file, Output::Result).unwrap_err().to_string();
            let expected = format!("{}:{wrong}", file.display());
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn the_trace_as_json_has_a_line_for_the_script_each_step_and_the_result() {
        let fixture = "fixtures/sessions/direct_push_unconfirmed.session";
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(fixture);
        let lines = record(&file).unwrap().json_lines();
        let lines: Vec<Value> =
            lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(
            (&lines[0]["language"], &lines[0]["start"]),
            (&"session".into(), &"2026-11-03T10:00:00Z".into())
        );
        assert_eq!(lines.last().unwrap()["replayed"]["steps"], lines.len() - 2);
        let push = lines.iter().find(|line| line["event"] == "push> 7 M1 C1 ttl=60s").unwrap();
        let machine = &push["machines"][0];
        assert_eq!(machine["phase"], "Ready");
        assert_eq!(
            machine["unacked"][0],
            json!({"message": "M1", "channel": "C1", "sent_at_ms": 0})
        );
        assert_eq!(machine["deadlines"][0], json!({"at_ms": 1000, "reason": "ack wait"}));
        assert!(machine["deadlines"].as_array().unwrap().len() >= 4, "{machine}");
        assert_eq!(push["effects"].as_array().unwrap().len(), 1);
        assert_eq!(push.get("expected"), None);
        let late = lines.iter().find(|line| line["event"] == "wait 1ms").unwrap();
        let overdue = &late["machines"][0]["unacked"];
        assert!(
            overdue.as_array().is_none_or(|it| it.iter().all(|it| it["sent_at_ms"].is_null())),
            "{late}"
        );
    }

    #[test]
    fn a_failing_step_has_the_effects_that_were_expected_and_is_the_last() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("wrong.session");
        let text =
            "# Wrong.\nat 2026-11-03T10:00:00Z\nagent> <closes>\nclose< 1001 gone\nwait 1s\n";
        fs::write(&file, text).unwrap();
        let recording = record(&file).unwrap();
        let [step] = &recording.steps[..] else { panic!("{recording:?}") };
        assert_eq!(step.expected.as_deref(), Some(&["close< 1001 gone".to_owned()][..]));
        assert_eq!(step.effects, ["close< socket closed"]);
        let failed = recording.failed.unwrap();
        assert!(failed.line == 3 && failed.report.contains("- close< 1001 gone"), "{failed:?}");
        assert!(run(&file, Output::Json).is_err());
    }
}
