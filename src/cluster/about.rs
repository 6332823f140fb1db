//! What nodes say of themselves: a connection node to an operator who asks it, and each node to those that it calls.

use serde::{Deserialize, Serialize};

/// Maximum size of the text of an [`AboutNode`], in bytes. A longer one is not read. It has room for the longest callers.
const BYTES_MAX: usize = 12 * 1024;

/// Maximum sizes of the texts of an [`Introduction`], in bytes. One with a longer text is ignored.
const NAME_BYTES_MAX: usize = 120;
const ROLE_BYTES_MAX: usize = 16;
const VERSION_BYTES_MAX: usize = 64;

/// A node at the moment of its answer. A newer one may say more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AboutNode {
    pub version: String,
    /// It closes its sessions, and ends then.
    pub drains: bool,
    /// User agents that are connected to it.
    pub agents: u64,
    /// The nodes that call it. A node of before 30 November 2026 has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub callers: Vec<CallingNode>,
    /// How many more call it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub callers_left_out: usize,
}

fn is_none(count: &usize) -> bool {
    *count == 0
}

/// A node that calls the one that says so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallingNode {
    pub name: String,
    pub role: String,
    pub version: String,
    /// Seconds since it last introduced itself.
    pub called_s_ago: u64,
    /// How far its clock is ahead of that of the node that it calls, in seconds.
    pub clock_ahead_s: i64,
}

/// What a node says of itself to each node that it calls. A newer one may say more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Introduction {
    /// For people: its name in router records; of an endpoint node, its host with the port of its public API.
    pub(super) name: String,
    /// The value of `--role`.
    pub(super) role: String,
    pub(super) version: String,
    /// Its clock, in milliseconds since 1970. The time of the signature may be that of the node that is called.
    pub(super) time_ms: u64,
}

impl AboutNode {
    /// The value of a header.
    pub(super) fn to_text(&self) -> String {
        to_json(self)
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().filter(|_| text.len() <= BYTES_MAX)
    }
}

impl Introduction {
    /// The body of a request.
    pub(super) fn to_text(&self) -> String {
        to_json(self)
    }

    /// None if it is something else, or has a text that is too long or not plain.
    pub(super) fn parse(body: &[u8]) -> Option<Self> {
        let read: Self = serde_json::from_slice(body).ok()?;
        let is_plain = is_plain(&read.name, NAME_BYTES_MAX)
            && is_plain(&read.role, ROLE_BYTES_MAX)
            && is_plain(&read.version, VERSION_BYTES_MAX);
        is_plain.then_some(read)
    }
}

fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("texts and numbers are JSON")
}

/// Whether the text is the same in JSON, and may be in a header and in a terminal.
fn is_plain(text: &str, bytes_max: usize) -> bool {
    let is_plain = |byte| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    (1..=bytes_max).contains(&text.len()) && text.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::callers::NAMED_MAX;

    fn about() -> AboutNode {
        AboutNode { version: "1.2.3".to_owned(), drains: true, agents: 7, ..AboutNode::default() }
    }

    fn introduction() -> Introduction {
        Introduction {
            name: "a.example:8080".to_owned(),
            role: "endpoint".to_owned(),
            version: "1.2.3 (0123abcd, 2026-11-30)".to_owned(),
            time_ms: 1_796_000_000_000,
        }
    }

    #[test]
    fn a_newer_node_may_say_more_but_not_much_more() {
        let text = about().to_text();
        assert_eq!(text, r#"{"version":"1.2.3","drains":true,"agents":7}"#, "as without callers");
        let with = |more: &str| text.replace('}', &format!(",\"more\":\"{more}\"}}"));
        assert_eq!(AboutNode::parse(&with("x")), Some(about()));
        for wrong in ["", "{}", "null", &text[1..], &with(&"x".repeat(BYTES_MAX))] {
            assert_eq!(AboutNode::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_node_with_the_most_callers_and_the_longest_texts_is_read() {
        let caller = CallingNode {
            name: "n".repeat(NAME_BYTES_MAX),
            role: "r".repeat(ROLE_BYTES_MAX),
            version: "v".repeat(VERSION_BYTES_MAX),
            called_s_ago: 300,
            clock_ahead_s: i64::MIN / 1000,
        };
        let about = AboutNode {
            version: "v".repeat(VERSION_BYTES_MAX),
            callers: vec![caller; NAMED_MAX],
            callers_left_out: usize::MAX,
            ..about()
        };
        assert_eq!(AboutNode::parse(&about.to_text()), Some(about));
    }

    #[test]
    fn an_introduction_may_say_more_and_has_plain_texts_only() {
        let text = introduction().to_text();
        let more = text.replace('}', ",\"more\":1}");
        assert_eq!(Introduction::parse(more.as_bytes()), Some(introduction()));
        for wrong in ["", "{}", "null", &text[1..], &text.replace("name", "title")] {
            assert_eq!(Introduction::parse(wrong.as_bytes()), None, "{wrong}");
        }
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for name in ["", "a\nb", "a\u{1b}[2J", "a\"b", "a\\b", "\u{e4}", "\u{7f}", &long] {
            let text = Introduction { name: name.to_owned(), ..introduction() }.to_text();
            assert_eq!(Introduction::parse(text.as_bytes()), None, "{name}");
            let text = Introduction { version: name.to_owned(), ..introduction() }.to_text();
            assert_eq!(Introduction::parse(text.as_bytes()), None, "{name}");
        }
    }
}
