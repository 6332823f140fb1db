//! Parses a history line by line.

use super::History;
use super::input::{ConsumerName, Input, PublisherName};
use super::world::Setup;
use crate::script::tokens::{SPAN, SyntaxError, Tokens, span};
use crate::script::{self, Grammar, ParseError};

impl History {
    /// Reads a history. Its errors begin with the line: put the file's name and a colon before them.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut setup = Setup::default();
        let (title, steps) = script::parse(text, &mut setup)?;
        Ok(Self { title, setup, steps })
    }
}

impl Grammar for Setup {
    type Input = Input;

    const WHAT: &'static str = "history";

    fn effect(&self, whose: &str, _: &str) -> Result<(), SyntaxError> {
        let is_known = whose == "table"
            || PublisherName::read(whose).is_some()
            || ConsumerName::read(whose).is_some();
        if is_known { Ok(()) } else { Err(format!("expected table<, P1< or C1<, got `{whose}<`")) }
    }

    fn input(&mut self, head: &str, rest: &str) -> Result<Option<Input>, SyntaxError> {
        Input::read(head, rest)
    }

    fn head(&mut self, head: &str, rest: &str, has_no_input: bool) -> Result<(), SyntaxError> {
        match head {
            "limits" if has_no_input => self.read_limits(rest),
            "naive" if has_no_input => self.read_naive(rest),
            "limits" | "naive" => Err(format!("`{head}` must precede the first input")),
            _ => Err(format!(
                "expected writer>, P1>, C1>, wait, a result (table<, P1<, C1<), \
                or at the beginning limits or naive, got `{head}`"
            )),
        }
    }
}

impl Setup {
    fn read_limits(&mut self, text: &str) -> Result<(), SyntaxError> {
        let mut words = Tokens::of(text);
        let mut fields = words.fields()?;
        let some = |text: &str| text.parse().ok().filter(|number| *number > 0);
        let number = "a number from 1";
        let Self { publisher, consumer, keys_max, .. } = self;
        publisher.batch_max = fields.read("batch", number, some)?.unwrap_or(publisher.batch_max);
        consumer.page.rows = fields.read("page", number, some)?.unwrap_or(consumer.page.rows);
        *keys_max = fields.read("keys", "a number", |text| text.parse().ok())?.unwrap_or(*keys_max);
        publisher.retry = fields.read("retry", SPAN, span)?.unwrap_or(publisher.retry);
        consumer.retry = publisher.retry;
        publisher.poll = fields.read("poll", SPAN, span)?.unwrap_or(publisher.poll);
        fields.end()?;
        words.end()
    }

    fn read_naive(&mut self, text: &str) -> Result<(), SyntaxError> {
        let names = text.split_whitespace().map(|name| {
            PublisherName::read(name).ok_or_else(|| format!("expected P1, got `{name}`"))
        });
        self.naive = names.collect::<Result<_, _>>()?;
        if self.naive.is_empty() { Err("expected P1 after `naive`".to_owned()) } else { Ok(()) }
    }
}
