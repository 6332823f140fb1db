//! Names and lifetimes of access tokens, and a new token.

use serde::{Deserialize, Serialize};
use state_machine::access::{AccessGrant, NAME_CHARS_MAX, is_name};
use std::fmt;

use crate::command::Report;
use crate::command::text::of_unit;
use crate::system::clock::date;

/// The longest time until a token expires, in seconds: a hundred years.
const EXPIRES_S_MAX: u64 = 100 * 365 * 86_400;

/// A new access token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewAccess {
    pub name: String,
    pub token: String,
    /// In seconds since 1970.
    pub expires_s: Option<u64>,
    /// 0 is no limit.
    pub agents_max: u32,
    /// Where user agents connect with it, for an app that asks for a server. None if `public_url` is unknown.
    pub address: Option<String>,
}

impl NewAccess {
    pub fn new(token: String, grant: &AccessGrant, origin: Option<&str>) -> Self {
        let AccessGrant { name, expires_s, agents_max, .. } = grant;
        let address = origin.map(|origin| format!("{origin}/u/{token}"));
        let (name, expires_s, agents_max) = (name.clone(), *expires_s, *agents_max);
        Self { name, token, expires_s, agents_max, address }
    }
}

impl fmt::Debug for NewAccess {
    /// The token opens the server.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewAccess").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Report for NewAccess {
    fn text(&self, _is_first: bool) -> String {
        let NewAccess { name, token, expires_s, agents_max, address } = self;
        // The path is the same on every server.
        let address = address.clone().unwrap_or_else(|| format!("https://HOST/u/{token}"));
        let socket = address.replacen("http", "ws", 1);
        let expires = expires_s.map(|end_s| format!("It expires on {}.\n", date(end_s)));
        let most = (*agents_max > 0)
            .then(|| format!("At most {agents_max} user agents connect with it.\n"));
        format!(
            "{token}\n\nThe access token of {name}, shown once. Apps on a phone take this server address:\n  \
             {address}\nFirefox takes this dom.push.serverURL:\n  {socket}\n{}{}",
            expires.unwrap_or_default(),
            most.unwrap_or_default()
        )
    }
}

pub fn is_lifetime(expires: Option<u64>) -> bool {
    expires.is_none_or(|after_s| (1..=EXPIRES_S_MAX).contains(&after_s))
}

pub fn name(text: &str) -> Result<String, String> {
    match is_name(text) {
        true => Ok(text.to_owned()),
        false => Err(format!("expected 1 to {NAME_CHARS_MAX} of a-z A-Z 0-9 - _ . @")),
    }
}

/// Reads a time such as `90d`.
pub fn seconds(text: &str) -> Result<u64, String> {
    let seconds = of_unit(text).filter(|seconds| (1..=EXPIRES_S_MAX).contains(seconds));
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

    #[test]
    fn a_new_token_is_printed_with_its_path() {
        let (name, token) = ("bob".to_owned(), "kal_x".to_owned());
        let sha256 = String::new();
        let (expires_s, revoked_s) = (Some(u64::MAX), None);
        let grant = AccessGrant { name, sha256, created_s: 0, expires_s, agents_max: 5, revoked_s };
        for (origin, host) in [(None, "HOST"), (Some("https://a.example"), "a.example")] {
            let printed = NewAccess::new(token.clone(), &grant, origin).text(true);
            let has = |text: &str| printed.contains(text);
            assert!(printed.starts_with("kal_x\n"), "{printed}");
            assert!(has(&format!("  https://{host}/u/kal_x\n")), "{printed}");
            assert!(has(&format!("  wss://{host}/u/kal_x\n")), "{printed}");
            assert!(has("31 Dec 9999") && has("At most 5 "), "{printed}");
        }
    }
}
