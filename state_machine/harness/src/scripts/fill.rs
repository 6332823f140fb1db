//! Writes the expected effects of a script: those of the machine replace lines that differ.

use std::collections::{BTreeMap, BTreeSet};

use super::{Language, Script};
use crate::script::{Expected, Mismatch, ParseError};

/// Why a script cannot be filled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FillError {
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// An input is impossible, such as an answer to an operation that the machine did not order.
    #[error(transparent)]
    Input(#[from] Mismatch),
}

impl Language {
    /// The script with the effects of the machines behind each input. Steps whose effects are right keep their lines,
    /// and so do comments.
    pub fn fill(self, text: &str) -> Result<String, FillError> {
        let script = Script::parse(self, text)?;
        let (mut removed, mut added) = (BTreeSet::new(), BTreeMap::new());
        script.run(|ran| {
            if ran.compared.is_err() {
                removed.extend(ran.expected.iter().map(|Expected { line, .. }| *line));
                added.insert(ran.trace.line, ran.trace.effects.join("\n"));
            }
            Ok(())
        })?;
        Ok(rewritten(text, &removed, &mut added))
    }
}

/// Leaves out the `removed` lines with those that continue them, and puts the `added` ones behind theirs.
fn rewritten(text: &str, removed: &BTreeSet<usize>, added: &mut BTreeMap<usize, String>) -> String {
    let (mut lines, mut waiting, mut is_left_out) = (Vec::new(), None, false);
    for (number, line) in (1..).zip(text.lines()) {
        if !line.starts_with([' ', '\t']) {
            lines.extend(waiting.take().filter(|effects: &String| !effects.is_empty()));
            is_left_out = removed.contains(&number);
        }
        if !is_left_out {
            lines.push(line.to_owned());
        }
        waiting = waiting.or_else(|| added.remove(&number));
    }
    lines.extend(waiting.filter(|effects| !effects.is_empty()));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn fixtures(language: Language) -> impl Iterator<Item = (String, String)> {
        let folder = match language {
            Language::Delivery => "deliveries".to_owned(),
            other => format!("{}s", other.extension()),
        };
        let folder = format!("{}/../../fixtures/{folder}", env!("CARGO_MANIFEST_DIR"));
        fs::read_dir(folder).unwrap().map(|entry| {
            let path = entry.unwrap().path();
            (path.display().to_string(), fs::read_to_string(path).unwrap())
        })
    }

    fn count_effects(language: Language, text: &str) -> usize {
        let mut count = 0;
        let script = Script::parse(language, text).unwrap();
        script.replay(|step| count += step.effects.len()).unwrap();
        count
    }

    #[test]
    fn a_script_without_its_effects_gets_them_back_and_a_right_one_stays() {
        for (language, least) in Language::ALL.into_iter().zip([1000, 200, 50, 50]) {
            let mut seen = 0;
            for (path, text) in fixtures(language) {
                assert_eq!(language.fill(&text).unwrap(), text, "{path}");
                let mut is_effect = false;
                let inputs: Vec<&str> = text
                    .lines()
                    .filter(|line| {
                        if !line.starts_with([' ', '\t']) {
                            let head = line.split(' ').next().unwrap_or_default();
                            is_effect = head.ends_with('<') && !head.starts_with('#');
                        }
                        !is_effect
                    })
                    .collect();
                let filled = language.fill(&inputs.join("\n")).unwrap();
                let effects = count_effects(language, &filled);
                assert_eq!(effects, count_effects(language, &text), "{path}\n{filled}");
                seen += effects;
            }
            assert!(seen > least, "{language:?}: {seen}");
        }
    }

    #[test]
    fn wrong_and_missing_effects_are_replaced_and_comments_stay() {
        let script = "# A ping is answered.\nat 2026-11-03T10:00:00Z\n\nagent> {\"messageType\":\"hello\",\n  \
                      \"use_webpush\":true}\n# The agent is new.\nagent< {\"messageType\":\n  \"wrong\"}\n\nagent> {}\n";
        let filled = Language::Session.fill(script).unwrap();
        assert!(
            !filled.contains("wrong") && filled.contains("\n# The agent is new.\n"),
            "{filled}"
        );
        let behind_the_input = "\"use_webpush\":true}\nregistry< register U9\n";
        assert!(filled.contains(behind_the_input), "{filled}");
        assert_eq!(count_effects(Language::Session, &filled), 3);
        let impossible =
            Language::Session.fill("# An answer.\nat 2026-11-03T10:00:00Z\nstore> 7 deleted\n");
        assert!(matches!(impossible, Err(FillError::Input(_))), "{impossible:?}");
    }
}
