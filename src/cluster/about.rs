//! What a connection node says of itself to an operator who asks it.

use serde::{Deserialize, Serialize};

/// Maximum size of its text, in bytes. A longer one is not read.
const BYTES_MAX: usize = 400;

/// A node at the moment of its answer. A newer one may say more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AboutNode {
    pub version: String,
    /// It closes its sessions, and ends then.
    pub drains: bool,
    /// User agents that are connected to it.
    pub agents: u64,
}

impl AboutNode {
    /// The value of a header.
    pub(super) fn to_text(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers are JSON")
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().filter(|_| text.len() <= BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_node_may_say_more_but_not_much_more() {
        let about = AboutNode { version: "1.2.3".to_owned(), drains: true, agents: 7 };
        let text = about.to_text();
        assert_eq!(text, r#"{"version":"1.2.3","drains":true,"agents":7}"#);
        let with = |more: &str| text.replace('}', &format!(",\"more\":\"{more}\"}}"));
        assert_eq!(AboutNode::parse(&with("x")), Some(about));
        for wrong in ["", "{}", "null", &text[1..], &with(&"x".repeat(BYTES_MAX))] {
            assert_eq!(AboutNode::parse(wrong), None, "{wrong}");
        }
    }
}
