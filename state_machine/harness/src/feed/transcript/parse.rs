//! Parses a history line by line.

use super::input::{ConsumerName, Input, PublisherName};
use super::world::Setup;
use super::{History, Step};
use crate::transcript::tokens::{SPAN, SyntaxError, Tokens, span};
use crate::transcript::{ParseError, title, whole_lines};

/// Parses a whole history.
pub(super) fn history(text: &str) -> Result<History, ParseError> {
    let title = title(text, "history")?;
    let mut history = History { title, setup: Setup::default(), steps: Vec::new() };
    for (line, text) in whole_lines(text)? {
        history.line(line, &text).map_err(|reason| ParseError { line, reason })?;
    }
    if history.steps.is_empty() {
        return Err(ParseError { line: 1, reason: "the history has no input".to_owned() });
    }
    Ok(history)
}

impl History {
    fn line(&mut self, line: usize, text: &str) -> Result<(), SyntaxError> {
        let (head, rest) = text.split_once(' ').unwrap_or((text, ""));
        let rest = rest.trim();
        if let Some(whose) = head.strip_suffix('<') {
            is_known(whose, head)?;
            let step = self.steps.last_mut().ok_or("a result before the first input")?;
            step.expected.push((line, text.to_owned()));
        } else if let Some(input) = Input::read(head, rest)? {
            self.steps.push(Step { line, input, expected: Vec::new() });
        } else {
            self.head_line(head, rest)?;
        }
        Ok(())
    }

    fn head_line(&mut self, head: &str, rest: &str) -> Result<(), SyntaxError> {
        match head {
            "limits" if self.steps.is_empty() => self.setup.read_limits(rest),
            "naive" if self.steps.is_empty() => self.setup.read_naive(rest),
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

fn is_known(whose: &str, head: &str) -> Result<(), SyntaxError> {
    let is_known = whose == "table"
        || PublisherName::read(whose).is_some()
        || ConsumerName::read(whose).is_some();
    if is_known { Ok(()) } else { Err(format!("expected table<, P1< or C1<, got `{head}`")) }
}
