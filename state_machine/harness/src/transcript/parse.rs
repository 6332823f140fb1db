//! Parses a script line by line.

use super::head::{default_config, default_limits, read_limit};
use super::input::{Input, Transcript};
use super::read::Reader;
use crate::script::tokens::{SyntaxError, date, wait};
use crate::script::{self, Bindings, Grammar, NameKind, ParseError};
use state_machine::connection::{Config, ConnectionSeed};
use state_machine::ids::{NodeId, Uaid};
use state_machine::time::Time;

impl Transcript {
    /// Reads a script. Its errors begin with the line: put the file's name and a colon before them.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut head = Head::default();
        let (title, steps) = script::parse(text, &mut head)?;
        let Head { start, config, seed } = head;
        let start = start.expect("no input is read without it");
        Ok(Self { title, start, config, seed, steps })
    }
}

/// The lines of the head that were read so far.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) start: Option<Time>,
    pub(crate) config: Config,
    pub(crate) seed: ConnectionSeed,
}

impl Default for Head {
    fn default() -> Self {
        let fresh_uaid = Uaid::read("U9").expect("U9 is a name");
        Self {
            start: None,
            config: default_config(default_limits()),
            seed: ConnectionSeed { fresh_uaid, jitter: 0 },
        }
    }
}

impl Head {
    /// The reader of inputs, which needs the start.
    pub(crate) fn reader(&self) -> Result<Reader<'_>, SyntaxError> {
        let missing = "the head needs an `at` line with the start first";
        Ok(Reader { start: self.start.ok_or(missing)?, node: &self.config.node })
    }
}

impl Grammar for Head {
    type Input = Input;

    const WHAT: &'static str = "session";

    fn effect(&self, recipient: &str, rest: &str) -> Result<(), SyntaxError> {
        check_effect(recipient, rest)
    }

    fn input(&mut self, head: &str, rest: &str) -> Result<Option<Input>, SyntaxError> {
        const HEADS: [&str; 5] = ["agent>", "node>", "push>", "store>", "wait"];
        if !HEADS.contains(&head) {
            return Ok(None);
        }
        let reader = self.reader()?;
        Ok(Some(match head {
            "agent>" => Reader::agent(rest)?,
            "node>" => Input::Event(reader.node(rest)?),
            "push>" => Input::Event(reader.push(rest)?),
            "store>" => Input::Event(reader.store(rest)?),
            _ => Input::Wait(wait(rest)?),
        }))
    }

    fn head(&mut self, head: &str, rest: &str, has_no_input: bool) -> Result<(), SyntaxError> {
        if !has_no_input {
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
}

/// Checks an effect of a connection.
pub(crate) fn check_effect(recipient: &str, text: &str) -> Result<(), SyntaxError> {
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
