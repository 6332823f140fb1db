//! Results as text and as JSON.

use std::array;

use serde::Serialize;

/// A line of JSON.
pub fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("all keys are text") + "\n"
}

pub fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads a time with its unit, such as `90d`, `12h`, `30m` or `45s`, in seconds.
pub fn of_unit(text: &str) -> Option<u64> {
    let units = [('d', 86_400), ('h', 3600), ('m', 60), ('s', 1)];
    let parts = |(letter, unit)| Some((text.strip_suffix(letter)?, unit));
    let (count, unit): (&str, u64) = units.into_iter().find_map(parts)?;
    count.parse::<u64>().ok()?.checked_mul(unit)
}

/// Escapes control characters: the writer of a feed or of an archive must not control the terminal.
pub fn on_one_line(text: &str) -> String {
    let escape = |character: char| match character.is_control() {
        true => character.escape_default().to_string(),
        false => character.to_string(),
    };
    text.chars().map(escape).collect()
}

/// Aligns the cells of each column below the head, without blanks at the ends of lines.
pub fn columns<const N: usize>(
    head: Option<[&str; N]>,
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let head = head.map(|head| head.map(str::to_owned));
    let rows: Vec<_> = head.into_iter().chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; N] = array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}
