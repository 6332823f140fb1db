//! What is known of a setting, and the macro that makes the table of them.

use std::ops::RangeInclusive;

use super::value::TomlKind;

/// Bounds of a limit of a queue or a set in memory.
pub(super) const COUNT: RangeInclusive<u64> = 1..=10_000_000;
/// Bounds of a limit by sender; 0 is no limit.
pub(super) const PER_MINUTE: RangeInclusive<u64> = 0..=1_000_000_000;
/// Bounds of a timeout or a wait: up to ten minutes.
pub(super) const WAIT_MS: RangeInclusive<u64> = 1..=600_000;
/// Bounds of a time in seconds: up to a day.
pub(super) const UP_TO_A_DAY_S: RangeInclusive<u64> = 1..=86_400;

/// What is known of a setting without its type.
#[derive(Debug)]
pub struct Setting {
    pub name: &'static str,
    pub doc: &'static str,
    pub unit: Option<&'static str>,
    pub range: Option<RangeInclusive<u64>>,
    pub toml_kind: TomlKind,
    /// The value in the flag's help, such as `PATH`.
    pub placeholder: &'static str,
    /// Whether the value may have a secret, such as a URL with a password: no error quotes it.
    pub is_secret: bool,
    /// The default as text; empty if the setting is not set by default.
    pub default: fn() -> String,
}

/// Settings below one heading of the documentation.
#[derive(Debug)]
pub struct Group {
    pub title: &'static str,
    pub settings: &'static [Setting],
}

impl Setting {
    /// The default; none if the setting is not set by default.
    pub(super) fn default(&self) -> Option<String> {
        Some((self.default)()).filter(|text| !text.is_empty())
    }
}

macro_rules! settings {
    ($( group $title:literal { $(
        $(#[doc = $doc:literal])+
        $name:ident: $type:ty = $default:expr $(, in $range:expr)? $(, $unit:literal)? $(, secret $secret:literal)?;
    )+ } )+) => {
        /// The settings of a process, each within its range.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Settings { $($(
            $(#[doc = $doc])+
            pub $name: $type,
        )+)+ }

        impl Default for Settings {
            fn default() -> Self {
                Self { $($( $name: $default, )+)+ }
            }
        }

        impl Settings {
            /// Reads every setting, or returns all problems found.
            pub(super) fn read(mut given: RawSettings) -> Result<Self, SettingsError> {
                let settings = Self { $($( $name: given.read(stringify!($name), optional!($(&$range)?), $default), )+)+ };
                SettingsError::check(given.problems, settings)
            }
        }

        /// All groups, in the order of the documentation.
        pub static GROUPS: &[Group] = &[ $( Group {
            title: $title,
            settings: &[ $( Setting {
                name: stringify!($name),
                doc: concat!($($doc),+),
                unit: optional!($($unit)?),
                range: optional!($($range)?),
                toml_kind: <$type as Value>::TOML_KIND,
                placeholder: <$type as Value>::PLACEHOLDER,
                is_secret: Option::<&str>::is_some(&optional!($($secret)?)),
                default: || <$type as Value>::show(&$default),
            }, )+ ],
        }, )+ ];
    };
}

macro_rules! optional {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
}

pub(super) use {optional, settings};
