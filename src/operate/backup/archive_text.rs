//! Text from an archive, whose writer must not control the terminal.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::command::text::on_one_line;

/// A text as the archive has it. It is shown with its control characters escaped.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ArchiveText(String);

impl ArchiveText {
    /// What may quote an archive, such as an error of a parser.
    pub(super) fn of(quoting: &impl fmt::Display) -> Self {
        Self(quoting.to_string())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ArchiveText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&on_one_line(&self.0))
    }
}
