//! `kalends health`: asks a server for its health.

use std::io::{Write, stdout};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rustls::crypto::aws_lc_rs::default_provider;
use serde_json::Value;
use ureq::tls::TlsConfig;
use url::Url;

use crate::command::{Command, Commands, Failure, Shown, load};
use crate::operate::status::of_running_server;
use crate::settings::{Flags, Settings};
use crate::system::https_client::{ClientError, http_client, why_unanswered};

/// Maximum time for the answer.
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub struct Health {
    /// The server to ask, if not the one of the settings
    #[arg(long, value_name = "URL", value_parser = origin)]
    pub url: Option<Url>,
    /// Print the answer of the server, which is JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub flags: Flags,
}

/// Why a server is not healthy.
#[derive(Debug, thiserror::Error)]
pub enum HealthError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("{url} does not answer: {why}")]
    NoAnswer { url: Url, why: String },
    #[error("{url} answers {status}: {body}")]
    Unhealthy { url: Url, status: u16, body: String },
    #[error("{url} is not a Kalends server")]
    Foreign { url: Url },
    #[error("cannot write to standard output: {0}")]
    Output(#[from] std::io::Error),
}

impl Command for Health {
    const NAME: &'static str = "health";
    const ABOUT: &'static str = "Ask the server of this machine whether it is healthy";
    const HELP: &'static str = "\
Asks the server on this machine for /health, at the address of `listen`. Without that setting, the server on the
data directory is asked for its address. The exit code is 0 if it is healthy, 1 if it is not or does not answer
in 5 seconds. The certificate is not verified if the server is asked at a loopback address.

Examples:
  kalends health                                 HEALTHCHECK of a container
  kalends health --config /etc/kalends/kalends.toml
  kalends health --url https://push.example.net
  kalends status                                 what is wrong, and what to do";
    const SETTINGS: Shown = Shown::Only(&["config", "listen", "data_dir"]);

    fn run(self, _commands: Commands) -> Result<(), Failure> {
        let settings = load(&self.flags)?;
        let mut url = self.url.unwrap_or_else(|| local(&settings));
        url.set_path("/health");
        let (status, body) = ask(&url)?;
        if self.json {
            writeln!(stdout(), "{body}").map_err(HealthError::Output)?;
        }
        let health = judge(&url, status, &body)?;
        if self.json {
            return Ok(());
        }
        let connections = health["connections"].as_u64();
        let connections =
            connections.map_or_else(String::new, |agents| format!(", user agents: {agents}"));
        let warnings = names(&health["findings"], |_| true);
        let warnings = match warnings.is_empty() {
            true => warnings,
            false => format!(", warnings: {warnings} (see `kalends status`)"),
        };
        Ok(writeln!(stdout(), "healthy{connections}{warnings}").map_err(HealthError::Output)?)
    }
}

fn ask(url: &Url) -> Result<(u16, String), HealthError> {
    let agent = http_client(url)?;
    let request = agent.get(url.as_str()).config().timeout_global(Some(TIMEOUT));
    let request = match is_loopback(url) {
        true => request.tls_config(unverified()),
        false => request,
    };
    let unanswered = |error| HealthError::NoAnswer { url: url.clone(), why: why_unanswered(error) };
    let mut answer = request.build().call().map_err(unanswered)?;
    let body = answer.body_mut().read_to_string().map_err(unanswered)?;
    Ok((answer.status().as_u16(), body))
}

/// The body of a healthy server.
fn judge(url: &Url, status: u16, body: &str) -> Result<Value, HealthError> {
    if status != 200 {
        return Err(HealthError::Unhealthy { url: url.clone(), status, body: why(body) });
    }
    let health = serde_json::from_str::<Value>(body).ok();
    let health = health.filter(|health| health["status"] == "OK" && health["port"].is_object());
    health.ok_or_else(|| HealthError::Foreign { url: url.clone() })
}

/// TLS to this machine, whose certificate names its public domain.
fn unverified() -> TlsConfig {
    TlsConfig::builder()
        .disable_verification(true)
        .unversioned_rustls_crypto_provider(Arc::new(default_provider()))
        .build()
}

/// The checks that failed.
fn why(body: &str) -> String {
    let health = serde_json::from_str::<Value>(body).unwrap_or_default();
    let failed = names(&health["findings"], |severity| severity == "outage");
    if failed.is_empty() { "no details".to_owned() } else { failed }
}

/// The names of what was found.
fn names(findings: &Value, of: impl Fn(&Value) -> bool) -> String {
    let findings = findings.as_array().into_iter().flatten();
    let names = findings.filter(|finding| of(&finding["severity"]));
    names.filter_map(|finding| finding["check"].as_str()).collect::<Vec<_>>().join(", ")
}

/// The address of this machine at which `listen` can be reached. Where it is not set, a running server knows better.
fn local(settings: &Settings) -> Url {
    let is_set = settings.listen != Settings::default().listen;
    let server = if is_set { None } else { of_running_server(settings) };
    let own = server.and_then(|screen| screen.own_origin);
    let own = own.unwrap_or_else(|| settings.own_origin(settings.listen).as_str().to_owned());
    own.parse().expect("an origin is a URL")
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        _ => false,
    }
}

fn origin(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    url.ok_or_else(|| "expected a URL such as https://push.example.net".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_all_addresses_is_asked_on_loopback() {
        for (listen, asked) in [
            ("0.0.0.0:8080", "http://127.0.0.1:8080/"),
            ("[::]:8080", "http://[::1]:8080/"),
            ("10.0.0.5:80", "http://10.0.0.5/"),
        ] {
            let settings = Settings { listen: listen.parse().unwrap(), ..Settings::default() };
            let url = local(&settings);
            assert_eq!(url.as_str(), asked);
            assert_eq!(is_loopback(&url), listen != "10.0.0.5:80");
        }
        // A name may lead elsewhere, so that its certificate is checked.
        assert!(!is_loopback(&"https://localhost".parse().unwrap()));
    }

    #[test]
    fn the_failed_checks_are_named() {
        let body = r#"{"findings":[{"check":"store","severity":"outage"},
            {"check":"feeds","severity":"outage"},{"check":"disk","severity":"warning"}]}"#;
        assert_eq!(why(body), "store, feeds");
        assert_eq!(why("<html>"), "no details");
    }
}
