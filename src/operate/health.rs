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
use crate::settings::{Flags, Settings};
use crate::system::https_client::{ClientError, http_client, why_unanswered};

/// Maximum time for the answer.
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub struct Health {
    /// The server to ask, if not the one of the settings
    #[arg(long, value_name = "URL", value_parser = origin)]
    pub url: Option<Url>,
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
Asks the server on this machine, at the address of `listen`, for /health. The exit code is 0 if it is
healthy, 1 if it is not or does not answer in 5 seconds. The certificate is not verified if the server is
asked at a loopback address.

Examples:
  kalends health                                 HEALTHCHECK of a container
  kalends health --config /etc/kalends/kalends.toml
  kalends health --url https://push.example.net";
    const SETTINGS: Shown = Shown::Only(&["config", "listen"]);

    fn run(self, _commands: Commands) -> Result<(), Failure> {
        let settings = load(&self.flags)?;
        let mut url = self.url.unwrap_or_else(|| local(&settings));
        url.set_path("/health");
        let health = ask(&url)?;
        let connections = health["connections"].as_u64();
        let connections =
            connections.map_or_else(String::new, |agents| format!(", user agents: {agents}"));
        Ok(writeln!(stdout(), "healthy{connections}").map_err(HealthError::Output)?)
    }
}

fn ask(url: &Url) -> Result<Value, HealthError> {
    let agent = http_client(url)?;
    let request = agent.get(url.as_str()).config().timeout_global(Some(TIMEOUT));
    let request = match is_loopback(url) {
        true => request.tls_config(unverified()),
        false => request,
    };
    let unanswered = |error| HealthError::NoAnswer { url: url.clone(), why: why_unanswered(error) };
    let mut answer = request.build().call().map_err(unanswered)?;
    let body = answer.body_mut().read_to_string().map_err(unanswered)?;
    if answer.status() != 200 {
        let status = answer.status().as_u16();
        return Err(HealthError::Unhealthy { url: url.clone(), status, body: why(&body) });
    }
    let health = serde_json::from_str::<Value>(&body).ok();
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
    let checks = health["checks"].as_object().into_iter().flatten();
    let failed: Vec<_> = checks.filter(|(_, is_good)| **is_good == false).collect();
    let failed: Vec<_> = failed.iter().map(|(name, _)| name.as_str()).collect();
    if failed.is_empty() { "no details".to_owned() } else { failed.join(", ") }
}

/// The address of this machine at which `listen` can be reached.
fn local(settings: &Settings) -> Url {
    settings.own_origin(settings.listen).as_str().parse().expect("an origin is a URL")
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
        let body = r#"{"checks":{"feeds":false,"space":true,"store":false}}"#;
        assert_eq!(why(body), "feeds, store");
        assert_eq!(why("<html>"), "no details");
    }
}
