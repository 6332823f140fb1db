//! Parses a script line by line.

use super::bindings::{Bindings, NameKind};
use super::head::{DEFAULT_NODE, default_limits, read_limit};
use super::read::Reader;
use super::tokens::{SPAN, SyntaxError, date, span};
use super::{Expected, Input, Step, Transcript};
use state_machine::connection::{Config, ConnectionSeed};
use state_machine::ids::{NodeId, Uaid};
use state_machine::time::Time;

/// The error for a line that cannot be parsed. It displays as `14: why`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}: {reason}")]
pub struct ParseError {
    pub line: usize,
    /// What is wrong, and what the parser expected.
    pub reason: String,
}

/// Parses a whole script.
pub(super) fn transcript(text: &str) -> Result<Transcript, ParseError> {
    let title = title(text, "session")?;
    let mut script = Script::default();
    for (line, text) in whole_lines(text)? {
        script.line(line, &text).map_err(|reason| ParseError { line, reason })?;
    }
    script.finish(title)
}

/// The part of a script that was parsed so far.
#[derive(Debug)]
struct Script {
    start: Option<Time>,
    config: Config,
    seed: ConnectionSeed,
    steps: Vec<Step>,
}

impl Default for Script {
    fn default() -> Self {
        let fresh_uaid = Uaid::read("U9").expect("U9 is a name");
        Self {
            start: None,
            config: Config {
                node: NodeId::new(DEFAULT_NODE),
                frozen_month: None,
                simplepush: false,
                limits: default_limits(),
            },
            seed: ConnectionSeed { fresh_uaid, jitter: 0 },
            steps: Vec::new(),
        }
    }
}

impl Script {
    fn line(&mut self, line: usize, text: &str) -> Result<(), SyntaxError> {
        let (head, rest) = text.split_once(' ').unwrap_or((text, ""));
        let rest = rest.trim();
        if let Some(recipient) = head.strip_suffix('<') {
            check_effect(recipient, rest)?;
            let step = self.steps.last_mut().ok_or("an effect before the first input")?;
            step.effects.push(Expected { line, text: text.to_owned() });
        } else if let Some(input) = self.input(head, rest)? {
            self.steps.push(Step { line, text: text.to_owned(), input, effects: Vec::new() });
        } else {
            self.head(head, rest)?;
        }
        Ok(())
    }

    fn input(&self, head: &str, rest: &str) -> Result<Option<Input>, SyntaxError> {
        const HEADS: [&str; 5] = ["agent>", "node>", "push>", "store>", "wait"];
        if !HEADS.contains(&head) {
            return Ok(None);
        }
        let start =
            self.start.ok_or("the head needs an `at` line with the start of the session first")?;
        let reader = Reader { start, node: &self.config.node };
        Ok(Some(match head {
            "agent>" => names_are_known(Reader::agent(rest))?,
            "node>" => Input::Event(reader.node(rest)?),
            "push>" => Input::Event(reader.push(rest)?),
            "store>" => Input::Event(reader.store(rest)?),
            _ => Input::Wait(span(rest).ok_or_else(|| format!("expected {SPAN}, got `{rest}`"))?),
        }))
    }

    fn head(&mut self, head: &str, rest: &str) -> Result<(), SyntaxError> {
        if !self.steps.is_empty() {
            return Err(format!(
                "expected agent>, node>, push>, store>, wait or an effect with <, got `{head}`"
            ));
        }
        let wrong = |expected: &str| format!("expected {expected} after `{head}`, got `{rest}`");
        match head {
            "at" => self.start = Some(date(rest).ok_or_else(|| wrong("2026-11-03T10:00:00Z"))?),
            "fresh" => self.seed.fresh_uaid = Uaid::read(rest).ok_or_else(|| wrong("U9"))?,
            "jitter" => self.seed.jitter = rest.parse().map_err(|_| wrong("0 to 65535"))?,
            "node" => self.config.node = NodeId::new(rest),
            "frozen" => {
                self.config.frozen_month = Some(rest.parse().map_err(|_| wrong("2026_11"))?);
            }
            "simplepush" => self.config.simplepush = true,
            "limits" => {
                rest.split_whitespace()
                    .try_for_each(|word| read_limit(&mut self.config.limits, word))?;
            }
            _ => {
                return Err(format!(
                    "expected at, limits, fresh, jitter, node, frozen, simplepush or a first event, got `{head}`"
                ));
            }
        }
        Ok(())
    }

    fn finish(self, title: String) -> Result<Transcript, ParseError> {
        let Self { start, config, seed, steps } = self;
        match start {
            Some(start) if !steps.is_empty() => {
                Ok(Transcript { title, start, config, seed, steps })
            }
            _ => Err(ParseError {
                line: 1,
                reason: "a transcript has an `at` line and events".to_owned(),
            }),
        }
    }
}

/// The sentence of the first line.
pub(crate) fn title(text: &str, what: &str) -> Result<String, ParseError> {
    let title = text.lines().next().and_then(|line| line.strip_prefix('#')).map(str::trim);
    match title {
        Some(title) if !title.is_empty() => Ok(title.to_owned()),
        _ => Err(ParseError {
            line: 1,
            reason: format!("the first line must be the title of the {what}: `# A sentence.`"),
        }),
    }
}

/// The lines without comments, each joined with the indented lines that continue it.
pub(crate) fn whole_lines(text: &str) -> Result<Vec<(usize, String)>, ParseError> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    for (at, text) in text.lines().enumerate() {
        let words = text.trim();
        if words.is_empty() || words.starts_with('#') {
            continue;
        }
        if text.starts_with([' ', '\t']) {
            let reason = "an indented line continues the line before, and there is none";
            let before = lines.last_mut();
            let (_, before) =
                before.ok_or(ParseError { line: at + 1, reason: reason.to_owned() })?;
            before.push(' ');
            before.push_str(words);
        } else {
            lines.push((at + 1, words.to_owned()));
        }
    }
    Ok(lines)
}

fn check_effect(recipient: &str, text: &str) -> Result<(), SyntaxError> {
    match recipient {
        "agent" if text != "<ping>" => {
            let filled =
                Bindings::fixed().substitute(text).map_err(|unknown| unknown.to_string())?;
            let json = serde_json::from_str::<serde_json::Value>(&filled);
            json.map(drop).map_err(|error| format!("expected JSON or <ping>: {error}"))
        }
        "store" if text.split(' ').next().is_none_or(|op| op.parse::<u32>().is_err()) => {
            Err("expected the number of the operation: `store< 0 fetch U1 2026_11`".to_owned())
        }
        "agent" | "store" | "push" | "registry" | "node" | "broadcasts" | "close" => Ok(()),
        _ => Err(format!(
            "expected agent<, store<, push<, registry<, node<, broadcasts< or close<, got `{recipient}<`"
        )),
    }
}

fn names_are_known(input: Input) -> Result<Input, SyntaxError> {
    input.event(&Bindings::fixed()).map_err(|unknown| unknown.to_string())?;
    Ok(input)
}
