//! The lines that all script languages share: a title, a head, and inputs with their effects.

use super::step::{Expected, Step};
use super::tokens::SyntaxError;

/// The error for a line that cannot be parsed. It displays as `14: why`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{line}: {reason}")]
pub struct ParseError {
    pub line: usize,
    /// What is wrong, and what the parser expected.
    pub reason: String,
}

/// The lines of one language. Each begins with a word, its head.
pub(crate) trait Grammar {
    type Input;

    /// What a script of it is called, for an error.
    const WHAT: &'static str;

    /// Checks a line with `<`, whose head without that is `recipient`.
    fn effect(&self, recipient: &str, rest: &str) -> Result<(), SyntaxError>;

    /// Reads an input; none if the head is not that of one.
    fn input(&mut self, head: &str, rest: &str) -> Result<Option<Self::Input>, SyntaxError>;

    /// Reads any other line. Lines of the head are allowed while `has_no_input` is true.
    fn head(&mut self, head: &str, rest: &str, has_no_input: bool) -> Result<(), SyntaxError>;
}

/// The title of a script, and its steps.
type Parsed<I> = (String, Vec<Step<I>>);

/// Reads a whole script. `grammar` keeps what the head has.
pub(crate) fn parse<G: Grammar>(
    text: &str,
    grammar: &mut G,
) -> Result<Parsed<G::Input>, ParseError> {
    let title = title(text, G::WHAT)?;
    let mut steps = Vec::new();
    for (line, text) in whole_lines(text)? {
        read(grammar, &mut steps, line, text).map_err(|reason| ParseError { line, reason })?;
    }
    if steps.is_empty() {
        return Err(ParseError { line: 1, reason: format!("the {} has no input", G::WHAT) });
    }
    Ok((title, steps))
}

fn read<G: Grammar>(
    grammar: &mut G,
    steps: &mut Vec<Step<G::Input>>,
    line: usize,
    text: String,
) -> Result<(), SyntaxError> {
    let (head, rest) = text.split_once(' ').unwrap_or((&text, ""));
    let rest = rest.trim();
    if let Some(recipient) = head.strip_suffix('<') {
        grammar.effect(recipient, rest)?;
        let step = steps.last_mut().ok_or("an effect before the first input")?;
        step.effects.push(Expected { line, text });
    } else if let Some(input) = grammar.input(head, rest)? {
        steps.push(Step { line, text, input, effects: Vec::new() });
    } else {
        grammar.head(head, rest, steps.is_empty())?;
    }
    Ok(())
}

/// The sentence of the first line.
fn title(text: &str, what: &str) -> Result<String, ParseError> {
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
fn whole_lines(text: &str) -> Result<Vec<(usize, String)>, ParseError> {
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
