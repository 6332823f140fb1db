//! Why a step over the network fails, and what the operator does about it.

use crate::dev::ToolError;
use crate::dev::agent::AgentError;
use crate::system::https_client::{Answered, Cause, OpenError};

/// A step that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) why: String,
    /// None if only the step that failed is known.
    pub(super) remedy: Option<&'static str>,
}

impl Trouble {
    /// The same trouble at a step that its text does not name.
    pub(super) fn at(self, step: &str) -> Self {
        Self { why: format!("{step}: {}", self.why), ..self }
    }
}

impl From<String> for Trouble {
    fn from(why: String) -> Self {
        Self { why, remedy: None }
    }
}

impl From<OpenError> for Trouble {
    fn from(error: OpenError) -> Self {
        let remedy = match error.cause {
            Cause::Answered(answer) => Some(of_upgrade(answer)),
            Cause::Certificate => error.advice,
            Cause::NotTls => Some(
                "the port does not speak TLS: let the proxy do so, set `domain` or tls_certificate, or begin \
                 public_url with http:",
            ),
            Cause::Other => return error.to_string().into(),
        };
        Self { why: error.why, remedy }
    }
}

impl From<AgentError> for Trouble {
    fn from(error: AgentError) -> Self {
        let remedy = match error {
            AgentError::Refused { status, .. } => Some(of_refused_agent(status)),
            _ => None,
        };
        Self { why: error.to_string(), remedy }
    }
}

impl From<ToolError> for Trouble {
    fn from(error: ToolError) -> Self {
        match error {
            ToolError::Refused(refusal) => {
                let remedy = of_push(refusal.status.as_u16(), refusal.is_of_kalends());
                Self { why: refusal.found(), remedy: Some(remedy) }
            }
            error => error.to_string().into(),
        }
    }
}

/// What to do if an answer came in place of a WebSocket.
fn of_upgrade(Answered { status, is_of_kalends }: Answered) -> &'static str {
    match (status, is_of_kalends) {
        (426, _) => {
            "let the proxy pass the headers Upgrade and Connection (docs/deploy/nginx.conf)"
        }
        (401, true) => {
            "the server is closed: make a token with `kalends access add doctor --expires 10m`, and name it with \
             --access-token"
        }
        (403, true) => "origins_allowed does not list the Origin that the proxy sets",
        (404, _) => "the proxy passes `/` to another place: its location must lead to the server",
        (429, true) => "a limit by address refuses it: name the proxy in trusted_proxies",
        (503, true) => {
            "the server stops, or has as many connections as it may have: look at `kalends status`"
        }
        (502..=504, false) => {
            "the proxy does not reach the server: compare its upstream with `listen`, and look whether the server runs"
        }
        (200..=399, _) => {
            "another site answers at this URL: check the name of the virtual host, and DNS"
        }
        (_, false) => {
            "this is not an answer of Kalends: a firewall or a proxy refuses the connection"
        }
        (_, true) => "look at the log of the server",
    }
}

/// What to do if a hello or a register is refused.
fn of_refused_agent(status: u16) -> &'static str {
    match status {
        403 => {
            "vapid_keys_allowed does not list the key of the doctor: name the file of a listed one with --vapid-key"
        }
        429 => {
            "a limit by address refuses it: name the proxy in trusted_proxies, or try again in a minute"
        }
        500.. => {
            "the server has no space, stops or does not reach its store: look at `kalends status`"
        }
        _ => "look at the log of the server",
    }
}

/// What to do if a push is not accepted.
fn of_push(status: u16, is_of_kalends: bool) -> &'static str {
    match (status, is_of_kalends) {
        (300..=399, _) => "the proxy redirects pushes: let it pass POST for all paths",
        (401, true) => {
            "the origin or the clock is wrong: compare public_url with the URL of the endpoint, and run NTP"
        }
        (404 | 405, false) => {
            "the proxy does not pass this path: all paths but those of health belong to the server"
        }
        (404, true) => {
            "another server answers, or a node with other crypto keys: compare keys.toml"
        }
        (413, false) => {
            "raise the limit of bodies in the proxy (client_max_body_size of nginx, max_size of Caddy)"
        }
        (413, true) => "raise payload_bytes_max to 4096 at least",
        (429, true) => "a limit refuses it: name the proxy in trusted_proxies",
        (503, true) => "the server cannot store: look at `kalends status`",
        (502..=504, false) => "the proxy does not reach the server: look at both logs",
        (_, false) => {
            "this is not an answer of Kalends: a firewall or a proxy refuses pushes; let it pass POST with a body and \
             Content-Encoding"
        }
        (_, true) => "look at the log of the server, and at `kalends refusals`",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At both ends of each range of statuses the remedy is the one with these words, and beside it another.
    fn assert_ranges(remedy: impl Fn(u16) -> &'static str, ranges: &[(u16, u16, &str)]) {
        for (first, last, words) in ranges {
            for status in [*first, *last] {
                assert!(remedy(status).contains(words), "{status}: {}", remedy(status));
            }
            for status in [first - 1, last + 1] {
                assert!(!remedy(status).contains(words), "{status}: {}", remedy(status));
            }
        }
    }

    #[test]
    fn the_remedy_follows_the_status_of_an_answer_of_kalends() {
        let upgrade = |status| of_upgrade(Answered { status, is_of_kalends: true });
        assert_ranges(
            upgrade,
            &[
                (401, 401, "--access-token"),
                (403, 403, "origins_allowed"),
                (426, 426, "the headers Upgrade and Connection"),
                (429, 429, "a limit by address"),
                (503, 503, "as many connections"),
            ],
        );
        assert_ranges(
            of_refused_agent,
            &[(403, 403, "--vapid-key"), (429, 429, "a limit by address")],
        );
        assert_ranges(
            |status| of_push(status, true),
            &[
                (401, 401, "the origin or the clock"),
                (404, 404, "other crypto keys"),
                (413, 413, "payload_bytes_max"),
                (429, 429, "a limit refuses it"),
                (503, 503, "cannot store"),
            ],
        );
    }

    #[test]
    fn a_register_that_a_full_server_refuses_leads_to_its_status() {
        let (what, reason) = ("register", String::new());
        for status in [500, 503] {
            let trouble =
                Trouble::from(AgentError::Refused { what, status, reason: reason.clone() });
            assert_eq!(trouble.why, format!("the server refused register with status {status}"));
            assert!(trouble.remedy.unwrap().contains("`kalends status`"), "{trouble:?}");
        }
        let malformed = AgentError::Malformed { what, field: "pushEndpoint" };
        assert_eq!(Trouble::from(malformed).remedy, None);
    }

    #[test]
    fn an_answer_of_another_is_that_of_a_firewall_or_a_proxy() {
        let upgrade = |status| of_upgrade(Answered { status, is_of_kalends: false });
        assert_ranges(
            upgrade,
            &[
                (200, 399, "another site answers"),
                (404, 404, "another place"),
                (426, 426, "the headers Upgrade and Connection"),
                (502, 504, "the proxy does not reach the server"),
            ],
        );
        assert_ranges(
            |status| of_push(status, false),
            &[
                (300, 399, "redirects pushes"),
                (404, 405, "does not pass this path"),
                (413, 413, "the limit of bodies"),
                (502, 504, "does not reach the server"),
            ],
        );
        for status in [401, 403, 429] {
            for remedy in [upgrade(status), of_push(status, false)] {
                let whose = "this is not an answer of Kalends: a firewall or a proxy refuses";
                assert!(remedy.starts_with(whose), "{status}: {remedy}");
            }
        }
    }
}
