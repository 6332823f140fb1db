//! Settings as the lines of a TOML file, with their documentation as comments.
//!
//! Tests write `docs/settings.md` and the sample `docs/kalends.toml` from the table in the same form, and compare both
//! with what is in the repository; `UPDATE_DOCS=1 cargo test -p kalends settings` writes them anew.

use super::flags::bounds;
use super::setting::Setting;

/// The text of a file with these settings and their values.
pub fn chosen(values: &[(String, String)]) -> String {
    let find = |name: &str| values.iter().find(|(known, _)| known == name);
    let entries = Setting::all().filter_map(|setting| Some((setting, find(setting.name)?)));
    entries.fold(CHOSEN_HEAD.to_owned(), |text, (setting, (_, value))| {
        text + &format!("{}{} = {}\n", head(setting), setting.name, setting.toml_kind.quote(value))
    })
}

const CHOSEN_HEAD: &str = "\
# Settings of Kalends, written by `kalends init`: `kalends serve --config FILE`.
# A setting that is not here has its default. `kalends serve --help` lists all settings.
";

/// The documentation of a setting as comments.
fn head(setting: &Setting) -> String {
    let lines = wrap(setting.doc.trim(), 96);
    format!("\n# {}\n# {}\n", lines.join("\n# "), bounds(setting))
}

/// Breaks a text between words into lines of at most `width` characters.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.len() + 1 + word.len() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests;
