//! Types of the values of settings. Each has one text form for file, environment, command line and
//! documentation.

mod acme;
mod listen;
mod origins;
mod postgresql;
mod recipient;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use listen::ADDRESS;
use slog::Level;
use state_machine::wire::VapidKey;
use storage::WhenFull;

pub use acme::{DirectoryUrl, DomainName, Email};
pub use listen::ListenAddress;
pub use origins::{AllowedOrigins, FormerUrls, PublicUrl};
pub use postgresql::{PostgresUrl, SchemaName};
pub use recipient::AgeRecipient;

use crate::system::networks::Networks;
use crate::system::node_address::AllowedNodes;
use crate::system::telemetry::LogFormat;

/// TOML type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TomlKind {
    Text,
    Number,
    Switch,
}

/// A type that a setting can have.
pub trait Value: Sized {
    const TOML_KIND: TomlKind;

    /// The value in the flag's help, such as `PATH`.
    const PLACEHOLDER: &'static str;

    /// Reads the text; the error has what was expected.
    fn parse(text: &str) -> Result<Self, String>;

    /// Writes the text that [`parse`](Self::parse) reads.
    fn show(&self) -> String;
}

/// Store of records and messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StoreKind {
    #[default]
    Embedded,
    DynamoDb,
    PostgreSql,
}

impl StoreKind {
    /// Whether several servers may use the store, which is elsewhere than in the data directory.
    pub fn is_shared(self) -> bool {
        self != Self::Embedded
    }

    /// Its name in the setting.
    pub fn name(self) -> String {
        name_of(&STORES, &self)
    }
}

/// Billing mode of DynamoDB tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BillingMode {
    OnDemand,
    Provisioned,
}

/// Who may connect as a user agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessMode {
    Open,
    /// Those whose URL has an access token.
    Token,
}

/// Part of a name at AWS: letters, digits, `_`, `-` and `.`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NamePart(String);

/// An address and port, or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressOrOff(pub Option<SocketAddr>);

/// The public keys of the application servers that may push. Empty means all, signed or not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AllowedVapidKeys(Vec<VapidKey>);

/// Keys in [`AllowedVapidKeys`] at most: each push compares its key with all of them.
const ALLOWED_KEYS_MAX: usize = 1000;

impl AllowedVapidKeys {
    pub fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    pub fn keys(&self) -> &[VapidKey] {
        &self.0
    }

    pub fn has(&self, key: &VapidKey) -> bool {
        self.0.contains(key)
    }

    fn read(text: &str) -> Result<Self, String> {
        let key = |word: &str| VapidKey::parse(word.trim()).filter(VapidKey::is_on_curve);
        let words = text.split(',').filter(|_| !text.is_empty());
        let keys = words.map(key).collect::<Option<Vec<_>>>();
        let keys = keys.ok_or("expected VAPID public keys in base64url, separated by commas")?;
        match keys.len() <= ALLOWED_KEYS_MAX {
            true => Ok(Self(keys)),
            false => Err(format!("expected at most {ALLOWED_KEYS_MAX} keys")),
        }
    }

    fn text(&self) -> String {
        self.0.iter().map(|key| format!("{key:?}")).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
impl FromIterator<VapidKey> for AllowedVapidKeys {
    fn from_iter<T: IntoIterator<Item = VapidKey>>(keys: T) -> Self {
        Self(keys.into_iter().collect())
    }
}

impl TomlKind {
    /// The advice if a value has another type.
    pub fn expected(self) -> &'static str {
        match self {
            Self::Text => "expected a text in quotes",
            Self::Number => "expected a whole number without quotes, unit or fraction",
            Self::Switch => "expected true or false, without quotes",
        }
    }

    /// A value's text as TOML.
    pub fn quote(self, text: &str) -> String {
        match self {
            Self::Text => format!("{text:?}"),
            Self::Number | Self::Switch => text.to_owned(),
        }
    }
}

impl AddressOrOff {
    fn read(text: &str) -> Result<Self, String> {
        if text == "off" { Ok(Self(None)) } else { read(text, ADDRESS).map(|at| Self(Some(at))) }
    }

    fn text(&self) -> String {
        self.0.map_or_else(|| "off".to_owned(), |address| address.to_string())
    }
}

impl NamePart {
    /// A part that is known to be one.
    pub(super) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn read(text: &str) -> Result<Self, String> {
        let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        match text.len() <= 64 && text.chars().all(is_fine) {
            true => Ok(Self(text.to_owned())),
            false => Err("expected at most 64 of A-Z a-z 0-9 _ - .".into()),
        }
    }
}

/// Not set is written as an empty text.
impl<T: Value> Value for Option<T> {
    const TOML_KIND: TomlKind = T::TOML_KIND;
    const PLACEHOLDER: &'static str = T::PLACEHOLDER;

    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() { Ok(None) } else { T::parse(text).map(Some) }
    }

    fn show(&self) -> String {
        self.as_ref().map(T::show).unwrap_or_default()
    }
}

/// One row for each type: how a text is read, and how the value is written.
macro_rules! values {
    ($( $type:ty: $kind:ident, $placeholder:literal, $read:expr, $show:expr; )+) => { $(
        impl Value for $type {
            const TOML_KIND: TomlKind = TomlKind::$kind;
            const PLACEHOLDER: &'static str = $placeholder;

            fn parse(text: &str) -> Result<Self, String> {
                ($read)(text)
            }

            fn show(&self) -> String {
                ($show)(self)
            }
        }
    )+ };
}

values! {
    bool: Switch, "true|false", |text| read(text, "true or false"), bool::to_string;
    u32: Number, "NUMBER", |text| read(text, NUMBER), u32::to_string;
    u64: Number, "NUMBER", |text| read(text, NUMBER), u64::to_string;
    usize: Number, "NUMBER", |text| read(text, NUMBER), usize::to_string;
    SocketAddr: Text, "ADDRESS:PORT", |text| read(text, ADDRESS), SocketAddr::to_string;
    ListenAddress: Text, "ADDRESS:PORT|unix:PATH", str::parse, ListenAddress::to_string;
    AddressOrOff: Text, "ADDRESS:PORT|off", AddressOrOff::read, AddressOrOff::text;
    PathBuf: Text, "PATH", path, |path: &PathBuf| path.display().to_string();
    AllowedNodes: Text, "LIST", AllowedNodes::parse, AllowedNodes::to_string;
    DomainName: Text, "NAME", DomainName::read, |name: &DomainName| name.as_str().to_owned();
    DirectoryUrl: Text, "URL", DirectoryUrl::read, |url: &DirectoryUrl| url.url().to_string();
    AgeRecipient: Text, "RECIPIENT", AgeRecipient::read, |to: &AgeRecipient| to.as_str().to_owned();
    Email: Text, "ADDRESS", Email::read, |email: &Email| email.as_str().to_owned();
    AllowedOrigins: Text, "LIST", AllowedOrigins::read, AllowedOrigins::text;
    AccessMode: Text, "ACCESS", |text| named(&ACCESS, text), |mode| name_of(&ACCESS, mode);
    FormerUrls: Text, "LIST", FormerUrls::read, FormerUrls::text;
    AllowedVapidKeys: Text, "LIST", AllowedVapidKeys::read, AllowedVapidKeys::text;
    Networks: Text, "LIST", Networks::parse, Networks::to_string;
    NamePart: Text, "NAME", NamePart::read, |part: &NamePart| part.0.clone();
    PublicUrl: Text, "URL", PublicUrl::read, |url: &PublicUrl| url.as_str().to_owned();
    PostgresUrl: Text, "URL", PostgresUrl::read, PostgresUrl::without_password;
    SchemaName: Text, "NAME", SchemaName::read, |name: &SchemaName| name.as_str().to_owned();
    Level: Text, "LEVEL", |text| named(&LEVELS, text), |level| name_of(&LEVELS, level);
    LogFormat: Text, "FORMAT", |text| named(&FORMATS, text), |format| name_of(&FORMATS, format);
    StoreKind: Text, "STORE", |text| named(&STORES, text), |store| name_of(&STORES, store);
    BillingMode: Text, "BILLING", |text| named(&BILLINGS, text), |mode| name_of(&BILLINGS, mode);
    WhenFull: Text, "WHEN_FULL", |text| named(&WHEN_FULL, text), |full| name_of(&WHEN_FULL, full);
}

const NUMBER: &str = "a whole number that is not negative";

/// Of two names for one level, the first is written in the documentation.
const LEVELS: [(&str, Level); 7] = [
    ("critical", Level::Critical),
    ("error", Level::Error),
    ("warn", Level::Warning),
    ("warning", Level::Warning),
    ("info", Level::Info),
    ("debug", Level::Debug),
    ("trace", Level::Trace),
];

const FORMATS: [(&str, LogFormat); 3] =
    [("auto", LogFormat::Auto), ("human", LogFormat::Human), ("json", LogFormat::Json)];

const STORES: [(&str, StoreKind); 3] = [
    ("embedded", StoreKind::Embedded),
    ("dynamodb", StoreKind::DynamoDb),
    ("postgresql", StoreKind::PostgreSql),
];

const BILLINGS: [(&str, BillingMode); 2] =
    [("on-demand", BillingMode::OnDemand), ("provisioned", BillingMode::Provisioned)];

const ACCESS: [(&str, AccessMode); 2] = [("open", AccessMode::Open), ("token", AccessMode::Token)];

const WHEN_FULL: [(&str, WhenFull); 2] =
    [("refuse", WhenFull::Refuse), ("replace", WhenFull::Replace)];

fn read<T: FromStr>(text: &str, expected: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("expected {expected}"))
}

fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("expected a path".into()) } else { Ok(text.into()) }
}

fn named<T: Copy>(names: &[(&str, T)], text: &str) -> Result<T, String> {
    let found = names.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let all: Vec<_> = names.iter().map(|(name, _)| *name).collect();
        format!("expected one of {}", all.join(", "))
    })
}

fn name_of<T: PartialEq>(names: &[(&str, T)], value: &T) -> String {
    let (name, _) = names.iter().find(|(_, known)| known == value).expect("every value has a name");
    (*name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_normalised_and_anything_more_is_refused() {
        for (text, origin) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("https://Push.Example.NET:443/", "https://push.example.net"),
            ("http://[::1]:8080", "http://[::1]:8080"),
        ] {
            assert_eq!(PublicUrl::parse(text).unwrap().as_str(), origin);
        }
        for text in [
            "push.example.net",
            "ftp://push.example.net",
            "https://push.example.net/a",
            "https://push.example.net/?a",
            "https://push.example.net/#a",
            "https://user@push.example.net",
            "https://",
            "",
        ] {
            assert!(PublicUrl::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_part_of_a_name_has_at_most_64_plain_characters() {
        let longest = "a".repeat(64);
        for (text, is_one) in [
            ("", true),
            ("kalends.test_1-", true),
            (&*longest, true),
            (&*format!("{longest}a"), false),
            ("a b", false),
        ] {
            assert_eq!(NamePart::parse(text).is_ok(), is_one, "{text}");
        }
    }

    #[test]
    fn a_list_of_vapid_keys_is_read_as_it_is_shown() {
        let key = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
        for (text, shown) in
            [(String::new(), String::new()), (format!("{key}=,{key}"), format!("{key}, {key}"))]
        {
            let keys = AllowedVapidKeys::parse(&text).unwrap();
            assert_eq!(keys.show(), shown);
            assert_eq!(AllowedVapidKeys::parse(&shown), Ok(keys));
        }
        assert!(AllowedVapidKeys::parse(&vec![key; 1000].join(",")).is_ok());
        let off_the_curve = format!("{}A", &key[..key.len() - 1].replace("xsr7", "xsr8"));
        for wrong in [",", "x", &format!("{key},"), &off_the_curve, &vec![key; 1001].join(",")] {
            assert!(AllowedVapidKeys::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_optional_value_is_unset_by_an_empty_text() {
        assert_eq!(Option::<PublicUrl>::parse(""), Ok(None));
        assert_eq!(Option::<PublicUrl>::None.show(), "");
    }

    #[test]
    fn numbers_refuse_signs_fractions_and_overflow() {
        for text in ["-1", "1.5", "", "ten", "18446744073709551616"] {
            assert!(<u64 as Value>::parse(text).is_err(), "{text}");
            assert!(<usize as Value>::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_level_or_a_format_is_named_or_all_names_are_listed() {
        for (name, level) in LEVELS {
            assert_eq!(<Level as Value>::parse(name), Ok(level));
            assert_eq!(<Level as Value>::parse(&level.show()), Ok(level));
        }
        assert_eq!(Level::Warning.show(), "warn");
        assert_eq!(LogFormat::parse("xml"), Err("expected one of auto, human, json".to_owned()));
    }
}
