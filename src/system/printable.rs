//! Texts of other programs in a terminal, and numbers of things.

use state_machine::Span;

/// Such as `1 node`, `7 nodes` or `2 pushes`.
pub(crate) fn count(number: u64, thing: &str) -> String {
    let ending = match number {
        1 => "",
        _ if thing.ends_with("sh") => "es",
        _ => "s",
    };
    format!("{number} {thing}{ending}")
}

/// Such as `3 days`, `47 hours` or `1 minute`: each place and the log round down.
pub(crate) fn time_left(left: Span) -> String {
    let minutes = left.0 / (60 * 1000);
    let (hours, days) = (minutes / 60, minutes / (24 * 60));
    match (days, hours, minutes) {
        (2.., _, _) => count(days, "day"),
        (_, 1.., _) => count(hours, "hour"),
        (_, _, 1..) => count(minutes, "minute"),
        _ => "less than a minute".to_owned(),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_is_left_is_rounded_down() {
        const HOUR: u64 = 60 * 60;
        for (seconds, expected) in [
            (72 * HOUR, "3 days"),
            (72 * HOUR - 1, "2 days"),
            (48 * HOUR - 1, "47 hours"),
            (2 * HOUR - 1, "1 hour"),
            (HOUR - 1, "59 minutes"),
            (119, "1 minute"),
            (59, "less than a minute"),
            (0, "less than a minute"),
        ] {
            assert_eq!(time_left(Span::from_secs(seconds)), expected, "{seconds} s");
        }
    }
}
