//! The command line of `kalends access`.

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use state_machine::access::{AGENTS_MAX, NAME_CHARS_MAX, is_name};

use super::commands::{OnStore, ReadOnlyArgs, Request};
use super::help;
use crate::settings::Flags;

/// The longest time until a token expires, in seconds: a hundred years.
const EXPIRES_S_MAX: u64 = 100 * 365 * 86_400;

#[derive(Debug, Subcommand)]
pub enum AccessAction {
    #[command(flatten)]
    Token(TokenAction),
    /// Print a link that opens the operator's page once
    #[command(after_help = help::ACCESS_OPERATOR)]
    Operator {
        #[command(flatten)]
        flags: Flags,
    },
}

#[derive(Debug, Subcommand)]
pub enum TokenAction {
    /// Make a token for a person, and print it once
    #[command(after_help = help::ACCESS_ADD)]
    Add(OnStore<AccessAdd>),
    /// List the tokens and what their user agents use
    #[command(after_help = help::ACCESS_LIST)]
    List(OnStore<ReadOnlyArgs>),
    /// Replace a token by a new one, and print it once: subscriptions stay
    #[command(after_help = help::ACCESS_ROTATE)]
    Rotate(OnStore<AccessRotate>),
    /// End a token: its user agents are closed, and their endpoints answer 410
    #[command(after_help = help::ACCESS_REVOKE)]
    Revoke(OnStore<AccessRevoke>),
}

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessAdd {
    /// Name of the person or device: 1 to 64 of a-z A-Z 0-9 - _ . @
    #[arg(value_parser = name)]
    pub name: String,
    /// Time until the token ends by itself, such as 90d, 12h, 30m or 45s
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub expires: Option<u64>,
    /// User agents that may be connected to one node with it at once; 0 is no limit
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=i64::from(AGENTS_MAX)))]
    pub agents_max: u32,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessRotate {
    /// Name of the token
    #[arg(value_parser = name)]
    pub name: String,
    /// Time until the new token ends by itself, such as 90d; without it, the end of the former one
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub expires: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessRevoke {
    /// Name of the token
    #[arg(value_parser = name)]
    pub name: String,
}

impl TokenAction {
    /// The request, and the settings that name the store.
    pub fn into_request(self) -> (Request, Flags) {
        match self {
            Self::Add(OnStore { args, flags }) => (Request::AccessAdd(args), flags),
            Self::List(OnStore { args, flags }) => (Request::AccessList(args), flags),
            Self::Rotate(OnStore { args, flags }) => (Request::AccessRotate(args), flags),
            Self::Revoke(OnStore { args, flags }) => (Request::AccessRevoke(args), flags),
        }
    }
}

impl AccessAdd {
    pub fn is_within_bounds(&self) -> bool {
        is_name(&self.name) && self.agents_max <= AGENTS_MAX && is_lifetime(self.expires)
    }
}

impl AccessRotate {
    pub fn is_within_bounds(&self) -> bool {
        is_name(&self.name) && is_lifetime(self.expires)
    }
}

fn is_lifetime(expires: Option<u64>) -> bool {
    expires.is_none_or(|after_s| (1..=EXPIRES_S_MAX).contains(&after_s))
}

pub fn name(text: &str) -> Result<String, String> {
    match is_name(text) {
        true => Ok(text.to_owned()),
        false => Err(format!("expected 1 to {NAME_CHARS_MAX} of a-z A-Z 0-9 - _ . @")),
    }
}

/// Reads a time such as `90d`.
fn seconds(text: &str) -> Result<u64, String> {
    let units = [('d', 86_400), ('h', 3600), ('m', 60), ('s', 1)];
    let (count, unit) = units
        .into_iter()
        .find_map(|(letter, unit)| Some((text.strip_suffix(letter)?, unit)))
        .unwrap_or_default();
    let count: Option<u64> = count.parse().ok();
    let seconds = count.and_then(|count| count.checked_mul(unit));
    let seconds = seconds.filter(|seconds| (1..=EXPIRES_S_MAX).contains(seconds));
    seconds.ok_or_else(|| "expected a time such as 90d, 12h, 30m or 45s, at most 100 years".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit_and_is_not_over_a_hundred_years() {
        for (text, expected) in [("90d", 7_776_000), ("12h", 43_200), ("30m", 1800), ("45s", 45)] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        assert_eq!(seconds("36500d"), Ok(EXPIRES_S_MAX));
        for wrong in ["", "d", "90", "0d", "-1d", "1.5d", "36501d", "99999999999999999999d", "1w"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
