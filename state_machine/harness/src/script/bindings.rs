//! Bindings of a transcript's names: `U1` a user agent, `C1` a channel, `M1` a message (`M1t` with a topic, `M1r` if its
//! sender wants a receipt, `M1tr` with both), `K1` a key.

use std::collections::BTreeMap;

use serde_json::Value;

use state_machine::ids::{Chid, MessageId, Uaid};
use state_machine::wire::{EndpointUrls, VapidKey};

/// A type whose values have names in a transcript.
pub(crate) trait NameKind: Sized {
    /// The form of such a name, for an error.
    const EXPECTED: &'static str;

    /// Parses a name, or the value's own text.
    fn read(text: &str) -> Option<Self>;

    /// The name, or the value's own text if it has no name.
    fn name(&self) -> String;
}

/// The ids that a transcript's names stand for in one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bindings {
    bound: BTreeMap<String, String>,
    is_open: bool,
}

/// The error for an unknown name in braces.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{{{0}}} names nothing: write {{U1}}, {{C1}}, {{M1}}, {{M1t}}, {{M1r}} or {{K1}}")]
pub struct UnknownName(pub String);

impl Bindings {
    /// Binds every name to one fixed id, the same in every run.
    pub fn fixed() -> Self {
        Self { bound: BTreeMap::new(), is_open: false }
    }

    /// For a server that chooses uaids, versions and endpoints itself: such a name is bound to the
    /// text that the server first sends in its place. The agent chooses channels and keys, which
    /// stay fixed.
    pub fn open() -> Self {
        Self { bound: BTreeMap::new(), is_open: true }
    }

    /// Binds a name to this text.
    pub fn bind(&mut self, name: &str, text: &str) {
        self.bound.insert(name.to_owned(), text.to_owned());
    }

    /// The text that a name is bound to: `U1`, or `endpoint U1 C1` once the server has sent one.
    pub fn text(&self, name: &str) -> Option<String> {
        self.bound.get(name).cloned().or_else(|| fixed_text(name))
    }

    /// Replaces the names in braces by the texts that they are bound to.
    pub fn substitute(&self, template: &str) -> Result<String, UnknownName> {
        let mut filled = String::with_capacity(template.len());
        let mut rest = template;
        while let Some((before, name, after)) = next_name(rest) {
            filled.push_str(before);
            let text = self.text(name).ok_or_else(|| UnknownName(name.to_owned()))?;
            filled.push_str(&text);
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }

    /// Whether a frame equals the expected one, in any order of its fields. An open name is bound
    /// in the comparison.
    pub fn matches(&mut self, template: &str, frame: &str) -> bool {
        match (serde_json::from_str(template), serde_json::from_str(frame)) {
            (Ok(expected), Ok(got)) => self.value_matches(&expected, &got),
            _ => false,
        }
    }

    fn value_matches(&mut self, expected: &Value, got: &Value) -> bool {
        match (expected, got) {
            (Value::String(expected), Value::String(got)) => self.text_matches(expected, got),
            (Value::Array(expected), Value::Array(got)) => {
                expected.len() == got.len()
                    && expected
                        .iter()
                        .zip(got)
                        .all(|(expected, got)| self.value_matches(expected, got))
            }
            (Value::Object(expected), Value::Object(got)) => {
                expected.len() == got.len()
                    && expected.iter().all(|(field, expected)| {
                        got.get(field).is_some_and(|got| self.value_matches(expected, got))
                    })
            }
            _ => expected == got,
        }
    }

    fn text_matches(&mut self, expected: &str, got: &str) -> bool {
        let name = expected.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        match name {
            Some(name) if self.is_to_be_bound(name) => {
                self.bind(name, got);
                true
            }
            Some(name) => self.text(name).map_or(expected == got, |text| text == got),
            None => expected == got,
        }
    }

    fn is_to_be_bound(&self, name: &str) -> bool {
        self.is_open && name.starts_with(['U', 'M', 'e']) && !self.bound.contains_key(name)
    }
}

/// Writes endpoints as names, unsealed: `{endpoint U1 C1}`, and `{endpoint U1 C1 K1}` for a
/// restricted one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NamedEndpoints;

impl EndpointUrls for NamedEndpoints {
    fn endpoint(&self, uaid: Uaid, chid: Chid, key: Option<&VapidKey>) -> String {
        let key = key.map(|key| format!(" {}", key.name())).unwrap_or_default();
        format!("{{endpoint {} {}{key}}}", uaid.name(), chid.name())
    }
}

/// Replaces ids by names in braces, wherever a whole JSON text is an id with a name.
pub(crate) fn abstract_names(json: &str) -> String {
    let named: Vec<String> =
        json.split('"').map(|text| braced(text).unwrap_or(text.to_owned())).collect();
    named.join("\"")
}

fn braced(text: &str) -> Option<String> {
    let name = match text.len() {
        32 => {
            let message = MessageId::parse(text).ok().map(|id| id.name());
            message.filter(|name| name != text).or_else(|| Some(Uaid::parse(text).ok()?.name()))
        }
        36 => Chid::parse(text).ok().map(|id| id.name()),
        87 => VapidKey::parse(text).map(|key| key.name()),
        _ => None,
    };
    name.filter(|name| name != text).map(|name| format!("{{{name}}}"))
}

fn fixed_text(name: &str) -> Option<String> {
    match name.chars().next()? {
        'U' => number(name, 'U').map(|number| nth_uaid(number).to_string()),
        'C' => number(name, 'C').map(|number| nth_chid(number).to_string()),
        'M' => MessageId::read(name).map(|id| id.to_string()),
        'K' => number(name, 'K').and_then(nth_key).map(|key| format!("{key:?}")),
        _ => None,
    }
}

/// The text before the first name in braces, the name, and the text after it.
fn next_name(text: &str) -> Option<(&str, &str, &str)> {
    let is_name = |name: &&str| {
        let mut chars = name.chars();
        chars.next().is_some_and(|first| first.is_ascii_uppercase())
            && chars.next().is_some_and(|second| second.is_ascii_digit())
            && chars.all(|other| other.is_ascii_alphanumeric())
    };
    text.match_indices('{').find_map(|(at, _)| {
        let (name, after) = text[at + 1..].split_once('}')?;
        Some(name).filter(is_name).map(|name| (&text[..at], name, after))
    })
}

fn number(name: &str, letter: char) -> Option<u16> {
    let digits = name.strip_prefix(letter)?;
    let canonical = digits == "0" || !digits.starts_with('0');
    digits.parse().ok().filter(|_| canonical && digits.bytes().all(|b| b.is_ascii_digit()))
}

/// Sixteen bytes that contain the kind and the number.
fn nth(kind: u8, number: u16) -> [u8; 16] {
    let [high, low] = number.to_be_bytes();
    [kind, 0, 0, 0, 0, 0, 0x40, 0, 0x80, 0, 0, 0, 0, 0, high, low]
}

fn number_of(kind: u8, bytes: [u8; 16]) -> Option<u16> {
    let number = u16::from_be_bytes([bytes[14], bytes[15]]);
    (nth(kind, number) == bytes).then_some(number)
}

fn nth_uaid(number: u16) -> Uaid {
    Uaid(nth(0xA0, number))
}

fn nth_chid(number: u16) -> Chid {
    Chid(nth(0xC0, number))
}

/// Message ids sort by their numbers, as real ones sort by their times.
fn nth_message(number: u16, has_topic: bool) -> MessageId {
    const FIRST: u128 = 0x0193_0000_0000_7000_8000_0000_0000_0000;
    MessageId::from_uuid_v7(FIRST | u128::from(number) << 8, has_topic)
}

/// The keys `K1`, `K2` and `K3`: the first multiples of the base point of P-256.
const KEYS: [&str; 3] = [
    "BGsX0fLhLEJH-Lzm5WOkQPJ3A32BLeszoPShOUXYmMKWT-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU",
    "BHzyexiNA09-ilI4AwS1GsPAiWnid_IbNaYLSPxHZpl4B3dVENuO0EApPZrGn3Qw27p9reY86YIpngS3nSJ4c9E",
    "BF7L5NGmMwpEyPfvlR1L8WXmxrch762phftBZhvG5_1shzRkDEmY_343SwbOGmSi7NgqsDY4T7g9mnmxJ6J9UDI",
];

fn nth_key(number: u16) -> Option<VapidKey> {
    let text = KEYS.get(usize::from(number).checked_sub(1)?)?;
    VapidKey::parse(text)
}

impl NameKind for Uaid {
    const EXPECTED: &'static str = "a user agent such as U1";

    fn read(text: &str) -> Option<Self> {
        number(text, 'U').map(nth_uaid).or_else(|| Self::parse(text).ok())
    }

    fn name(&self) -> String {
        number_of(0xA0, self.0).map_or_else(|| self.to_string(), |number| format!("U{number}"))
    }
}

impl NameKind for Chid {
    const EXPECTED: &'static str = "a channel such as C1";

    fn read(text: &str) -> Option<Self> {
        number(text, 'C').map(nth_chid).or_else(|| Self::parse(text).ok())
    }

    fn name(&self) -> String {
        number_of(0xC0, self.0).map_or_else(|| self.to_string(), |number| format!("C{number}"))
    }
}

impl NameKind for MessageId {
    const EXPECTED: &'static str = "a message such as M1, or M1t with a topic, or M1r and M1tr with a receipt, or V5C1 for version 5 of a channel";

    fn read(text: &str) -> Option<Self> {
        let version = text.strip_prefix('V').and_then(|rest| rest.split_once('C'));
        if let Some((version, channel)) = version {
            let chid = nth_chid(number(&format!("C{channel}"), 'C')?);
            return Some(Self::of_version(chid, version.parse().ok()?));
        }
        let (unmarked, wants_receipt) = without(text, 'r');
        let (plain, has_topic) = without(unmarked, 't');
        number(plain, 'M')
            .map(|number| nth_message(number, has_topic).with_receipt(wants_receipt))
            .or_else(|| Self::parse(text).ok())
    }

    fn name(&self) -> String {
        let bytes = self.to_bytes();
        let number = u16::from_be_bytes([bytes[13], bytes[14]]);
        if nth_message(number, self.has_topic()) == self.with_receipt(false) {
            let topic = if self.has_topic() { "t" } else { "" };
            let receipt = if self.may_want_receipt() { "r" } else { "" };
            format!("M{number}{topic}{receipt}")
        } else {
            version_name(*self).unwrap_or_else(|| self.to_string())
        }
    }
}

/// The name without its last letter if that is `mark`, and whether it was.
fn without(name: &str, mark: char) -> (&str, bool) {
    name.strip_suffix(mark).map_or((name, false), |rest| (rest, true))
}

/// The name of a SimplePush version of one of the first channels.
fn version_name(id: MessageId) -> Option<String> {
    (0..=CHANNELS_NAMED_MAX).find_map(|number| {
        let version = id.version_of(nth_chid(number))?;
        Some(format!("V{version}C{number}"))
    })
}

/// The highest channel whose versions have names.
const CHANNELS_NAMED_MAX: u16 = 99;

impl NameKind for VapidKey {
    const EXPECTED: &'static str = "a key such as K1";

    fn read(text: &str) -> Option<Self> {
        number(text, 'K').and_then(nth_key).or_else(|| Self::parse(text))
    }

    fn name(&self) -> String {
        let text = format!("{self:?}");
        KEYS.iter().zip(1..).find(|(key, _)| **key == text).map_or(text, |(_, at)| format!("K{at}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_back_from_its_id() {
        for number in [0, 1, 9, 10, 255, 256, 65535] {
            assert_eq!(nth_uaid(number).name(), format!("U{number}"));
            assert_eq!(Chid::read(&format!("C{number}")), Some(nth_chid(number)));
            for marks in ["", "t", "r", "tr"] {
                let name = format!("M{number}{marks}");
                let id = MessageId::read(&name).unwrap();
                assert_eq!(id.name(), name);
                assert_eq!(
                    (id.has_topic(), id.may_want_receipt()),
                    (marks.contains('t'), marks.contains('r'))
                );
            }
            assert!(nth_message(number, false) < nth_message(number, true));
        }
        for number in 1..=3 {
            assert_eq!(nth_key(number).unwrap().name(), format!("K{number}"));
        }
        assert_eq!((nth_key(0), nth_key(4)), (None, None));
        assert!(nth_message(1, true) < nth_message(2, false));
        assert_eq!(MessageId::read("M1rt"), None, "one order of the marks");
    }

    #[test]
    fn an_id_without_a_name_is_written_as_it_is() {
        let text = "01234567-0123-abcd-0123-0123456789ab";
        assert_eq!(Chid::read(text).unwrap().name(), text);
        assert_eq!(Uaid::read(&text.replace('-', "")).unwrap().name(), text.replace('-', ""));
        assert_eq!(Uaid::read("U01"), None);
        assert_eq!(Uaid::read("U-1"), None);
    }

    #[test]
    fn names_are_put_in_and_taken_out_of_json() {
        let template = r#"{"uaid":"{U1}","updates":[{"channelID":"{C2}","version":"{M3t}"}],"key":"{K1}","a":{},"b":"{x}"}"#;
        let filled = Bindings::fixed().substitute(template).unwrap();
        assert!(!filled.contains("U1") && !filled.contains("M3t"), "{filled}");
        assert_eq!(abstract_names(&filled), template);
        assert_eq!(Bindings::fixed().substitute("{Z1}"), Err(UnknownName("Z1".into())));
        assert_eq!(Bindings::fixed().substitute("{U1x}"), Err(UnknownName("U1x".into())));
    }

    #[test]
    fn a_frame_matches_in_any_order_of_its_fields() {
        let mut names = Bindings::fixed();
        let uaid = nth_uaid(1);
        let frame = format!(r#"{{"b":[1,"{uaid}"],"a":"{{endpoint U1 C1}}"}}"#);
        assert!(names.matches(r#"{"a":"{endpoint U1 C1}", "b":[1,"{U1}"]}"#, &frame));
        assert!(!names.matches(r#"{"a":"{endpoint U1 C2}", "b":[1,"{U1}"]}"#, &frame));
        assert!(!names.matches(r#"{"a":"{endpoint U1 C1}", "b":[1,"{U2}"]}"#, &frame));
        assert!(!names.matches(r#"{"b":[1,"{U1}"]}"#, &frame));
    }

    #[test]
    fn an_open_name_is_what_the_server_first_put_there() {
        let mut names = Bindings::open();
        assert!(names.matches(
            r#"{"uaid":"{U9}","e":"{endpoint U9 C1}"}"#,
            r#"{"uaid":"x","e":"https://y"}"#
        ));
        assert_eq!(names.text("endpoint U9 C1").as_deref(), Some("https://y"));
        assert_eq!(names.substitute(r#"{"uaid":"{U9}"}"#).as_deref(), Ok(r#"{"uaid":"x"}"#));
        assert!(!names.matches(r#"{"uaid":"{U9}"}"#, r#"{"uaid":"other"}"#));
        assert!(!names.matches(r#"{"channelID":"{C1}"}"#, r#"{"channelID":"other"}"#));
    }
}
