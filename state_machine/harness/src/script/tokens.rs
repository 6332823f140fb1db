//! Splits a line into words, and reads and writes spans, times and texts.

use std::collections::BTreeMap;
use std::str::FromStr;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::bindings::NameKind;
use state_machine::time::{Span, Time};

/// A sentence about a line, for its author.
pub(crate) type SyntaxError = String;

/// The words of a line, from left to right.
#[derive(Debug)]
pub(crate) struct Tokens<'a> {
    words: Vec<&'a str>,
    taken: usize,
}

/// The `key=value` words at the end of an item.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    values: BTreeMap<&'a str, &'a str>,
    known: Vec<&'static str>,
}

impl<'a> Tokens<'a> {
    /// Splits at spaces. Brackets and commas are words of their own; a quoted text is one word.
    pub(crate) fn of(line: &'a str) -> Self {
        let mut words = Vec::new();
        let mut rest = line.trim_start();
        while !rest.is_empty() {
            let (word, after) = rest.split_at(word_len(rest));
            words.push(word);
            rest = after.trim_start();
        }
        Self { words, taken: 0 }
    }

    /// The next word; `expected` describes it in the error for a missing one.
    pub(crate) fn word(&mut self, expected: &str) -> Result<&'a str, SyntaxError> {
        let word = self.peek().ok_or_else(|| format!("expected {expected} after the last word"))?;
        self.taken += 1;
        Ok(word)
    }

    /// The next word, which must be this one.
    pub(crate) fn exactly(&mut self, word: &str) -> Result<(), SyntaxError> {
        let got = self.word(&format!("`{word}`"))?;
        if got == word { Ok(()) } else { Err(format!("expected `{word}`, got `{got}`")) }
    }

    /// The next word as a name or an id.
    pub(crate) fn name<T: NameKind>(&mut self) -> Result<T, SyntaxError> {
        let word = self.word(T::EXPECTED)?;
        T::read(word).ok_or_else(|| format!("expected {}, got `{word}`", T::EXPECTED))
    }

    /// The next word as a number or a month.
    pub(crate) fn parse<T: FromStr>(&mut self, expected: &str) -> Result<T, SyntaxError> {
        let word = self.word(expected)?;
        word.parse().map_err(|_| format!("expected {expected}, got `{word}`"))
    }

    /// A list in brackets, its items separated by commas.
    pub(crate) fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, SyntaxError>,
    ) -> Result<Vec<T>, SyntaxError> {
        self.exactly("[")?;
        let mut items = Vec::new();
        while self.peek() != Some("]") {
            if !items.is_empty() {
                self.exactly(",")?;
            }
            items.push(item(self)?);
        }
        self.exactly("]")?;
        Ok(items)
    }

    /// The `key=value` words from here on.
    pub(crate) fn fields(&mut self) -> Result<Fields<'a>, SyntaxError> {
        let mut values = BTreeMap::new();
        while let Some((key, value)) = self.peek().and_then(|word| word.split_once('=')) {
            self.taken += 1;
            if values.insert(key, value).is_some() {
                return Err(format!("`{key}=` is present twice"));
            }
        }
        Ok(Fields { values, known: Vec::new() })
    }

    /// Rejects further words on the line.
    pub(crate) fn end(&self) -> Result<(), SyntaxError> {
        self.peek().map_or(Ok(()), |word| Err(format!("nothing may follow here, got `{word}`")))
    }

    pub(crate) fn peek(&self) -> Option<&'a str> {
        self.words.get(self.taken).copied()
    }
}

impl<'a> Fields<'a> {
    /// The value of a field, if the field is present.
    pub(crate) fn text(&mut self, key: &'static str) -> Option<&'a str> {
        self.known.push(key);
        self.values.remove(key)
    }

    /// The value parsed by `read`, if the field is present.
    pub(crate) fn read<T>(
        &mut self,
        key: &'static str,
        expected: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, SyntaxError> {
        let Some(text) = self.text(key) else { return Ok(None) };
        let value = read(text);
        value.map(Some).ok_or_else(|| format!("expected {key}= and {expected}, got `{text}`"))
    }

    /// The value parsed by `read`, of a required field.
    pub(crate) fn need<T>(
        &mut self,
        key: &'static str,
        expected: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, SyntaxError> {
        self.read(key, expected, read)?.ok_or_else(|| format!("{key}= is missing: {expected}"))
    }

    /// Rejects fields that were not read.
    pub(crate) fn end(self) -> Result<(), SyntaxError> {
        match self.values.keys().next() {
            None => Ok(()),
            Some(key) => {
                Err(format!("unknown field {key}=; known here: {}", self.known.join(", ")))
            }
        }
    }
}

fn word_len(text: &str) -> usize {
    let is_alone = |c: char| matches!(c, '[' | ']' | ',');
    if text.starts_with(is_alone) {
        return 1;
    }
    let mut is_quoted = false;
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            c if !is_quoted && (c.is_whitespace() || is_alone(c)) => return at,
            _ => {}
        }
    }
    text.len()
}

/// Parses a text that may be quoted as in JSON.
pub(crate) fn unquoted(text: &str) -> Option<String> {
    if text.starts_with('"') { serde_json::from_str(text).ok() } else { Some(text.to_owned()) }
}

/// Writes a text as one word, quoted if necessary.
pub(crate) fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':');
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        serde_json::to_string(text).expect("a text always serialises")
    }
}

/// The value of a word, or of several, in a table of all.
pub(crate) fn one_of<T: Copy>(known: &[(&str, T)], word: &str) -> Result<T, SyntaxError> {
    let found = known.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let all: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        format!("expected one of {}, got `{word}`", all.join(", "))
    })
}

/// The reverse of [`one_of`], for a value that the table has.
pub(crate) fn word_of<T: PartialEq>(known: &[(&'static str, T)], value: &T) -> &'static str {
    let found = known.iter().find(|(_, other)| other == value);
    found.expect("every value has its word").0
}

/// Milliseconds in each unit of a span, the largest first.
const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// The form of a span, for an error.
pub(crate) const SPAN: &str = "a span such as 1500ms, 8s, 30m, 1h or 14d";

/// Parses a span: a whole number and its unit.
pub(crate) fn span(text: &str) -> Option<Span> {
    let at = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(at);
    let (_, ms) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(ms).map(Span)
}

/// Parses the text after `wait`.
pub(crate) fn wait(text: &str) -> Result<Span, SyntaxError> {
    span(text).ok_or_else(|| format!("expected {SPAN}, got `{text}`"))
}

/// Writes a span in its largest unit without a fraction.
pub(crate) fn span_text(span: Span) -> String {
    let fits = |(_, ms): &(&str, u64)| span.0 != 0 && span.0.is_multiple_of(*ms);
    let (unit, ms) = UNITS.into_iter().find(fits).unwrap_or(("ms", 1));
    format!("{}{unit}", span.0 / ms)
}

/// The form of a point in time, for an error.
pub(crate) const OFFSET: &str = "a time from the start such as +1500ms or -5s";

/// Parses a point in time, relative to `start`.
pub(crate) fn offset(text: &str, start: Time) -> Option<Time> {
    let (sign, rest) = text.split_at_checked(1)?;
    match (sign, span(rest)?) {
        ("+", span) => start.0.checked_add(span.0).map(Time),
        ("-", span) => start.0.checked_sub(span.0).map(Time),
        _ => None,
    }
}

/// Writes a point in time, relative to `start`.
pub(crate) fn offset_text(time: Time, start: Time) -> String {
    if time >= start {
        format!("+{}", span_text(time.since(start)))
    } else {
        format!("-{}", span_text(start.since(time)))
    }
}

/// Parses a time of RFC 3339, such as `2026-11-03T10:00:00Z`.
pub(crate) fn date(text: &str) -> Option<Time> {
    let date = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    u64::try_from(date.unix_timestamp_nanos() / NANOS_A_MS).ok().map(Time)
}

/// Writes the form that [`date`] parses.
pub(crate) fn date_text(time: Time) -> String {
    let date = OffsetDateTime::from_unix_timestamp_nanos(i128::from(time.0) * NANOS_A_MS);
    date.ok()
        .and_then(|date| date.format(&Rfc3339).ok())
        .expect("a session is before the year 10000")
}

const NANOS_A_MS: i128 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_written_in_their_largest_unit() {
        for (text, ms) in
            [("0ms", 0), ("1500ms", 1500), ("8s", 8000), ("90s", 90_000), ("14d", 1_209_600_000)]
        {
            assert_eq!(span(text), Some(Span(ms)));
            assert_eq!(span_text(Span(ms)), text);
        }
        assert_eq!(span("120s").map(span_text).as_deref(), Some("2m"));
        for wrong in
            ["", "5", "s", "1.5s", "-1s", "5 s", "99999999999999999999d", "9999999999999999d"]
        {
            assert_eq!(span(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_date_is_read_as_it_is_written() {
        for text in [
            "1970-01-01T00:00:00Z",
            "2024-02-29T23:59:59.001Z",
            "2026-11-03T10:00:00Z",
            "2026-12-31T00:00:00Z",
            "9999-12-31T23:00:00Z",
        ] {
            assert_eq!(date_text(date(text).unwrap()), text);
        }
        for wrong in [
            "2026-02-30T00:00:00Z",
            "2026-11-00T00:00:00Z",
            "1969-01-01T00:00:00Z",
            "2026-11-03",
            "2026-11-03T24:00:00Z",
        ] {
            assert_eq!(date(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn times_are_relative_to_the_start() {
        let start = Time(10_000);
        for text in ["+0ms", "+5s", "-2s"] {
            assert_eq!(offset_text(offset(text, start).unwrap(), start), text);
        }
        for wrong in ["5s", "", "+", "-11s", "é5s"] {
            assert_eq!(offset(wrong, start), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_quoted_is_one_word() {
        let mut words = Tokens::of(r#"a [b, c] k="x \" ] y",z"#);
        let mut all = Vec::new();
        while words.peek().is_some() {
            all.push(words.word("").unwrap());
        }
        assert_eq!(all, ["a", "[", "b", ",", "c", "]", r#"k="x \" ] y""#, ",", "z"]);
        for text in ["plain", "two words", "", "a,b", "quo\"te"] {
            assert_eq!(unquoted(&quoted(text)).as_deref(), Some(text));
        }
    }
}
