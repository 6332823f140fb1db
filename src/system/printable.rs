//! Texts of other programs in a terminal, and numbers of things.

/// Such as `1 node`, `7 nodes` or `2 pushes`.
pub(crate) fn count(number: u64, thing: &str) -> String {
    let ending = match number {
        1 => "",
        _ if thing.ends_with("sh") => "es",
        _ => "s",
    };
    format!("{number} {thing}{ending}")
}

/// Characters of a reason that is a part of a sentence.
const REASON_MAX_CHARS: usize = 300;

/// The first line of a reason, cut and safe to print.
pub(crate) fn brief(reason: &str) -> String {
    let line = printable(reason.trim().lines().next().unwrap_or_default());
    match line.char_indices().nth(REASON_MAX_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// A text of a server or sender, safe to print: its control characters could change a terminal.
pub(crate) fn printable(text: &str) -> String {
    let escape = |character: char| match character {
        '\n' | '\t' => character.to_string(),
        character if character.is_control() => character.escape_default().to_string(),
        character => character.to_string(),
    };
    text.chars().map(escape).collect()
}
