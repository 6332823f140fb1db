//! `kalends health`: asks a server for its health.

use std::io::{self, Write, stdout};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rustls::crypto::aws_lc_rs::default_provider;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::runtime::Builder;
use tokio::time::timeout;
use ureq::tls::TlsConfig;
use url::Url;

use crate::command::{Command, Commands, Failure, Shown, load};
use crate::operate::status::of_running_server;
use crate::settings::{Flags, ListenAddress, Settings};
use crate::system::https_client::{ClientError, http_client, why_unanswered};

/// Maximum time for the answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes of an answer over a Unix socket that are read.
const ANSWER_BYTES_MAX: u64 = 1024 * 1024;

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
    #[error("{server} does not answer: {why}")]
    NoAnswer { server: String, why: String },
    #[error("{server} answers {status}: {body}")]
    Unhealthy { server: String, status: u16, body: String },
    #[error("{server} is not a Kalends server")]
    Foreign { server: String },
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

impl Command for Health {
    const NAME: &'static str = "health";
    const ABOUT: &'static str = "Ask the server of this machine whether it is healthy";
    const HELP: &'static str = "\
Asks the server on this machine for /health, at the address or the Unix socket of `listen`. Without that
setting, the server on the data directory is asked for it. The exit code is 0 if it is healthy, 1 if it is not or
does not answer in 5 seconds. The certificate is not verified if the server is asked at a loopback address.

Examples:
  kalends health                                 HEALTHCHECK of a container
  kalends health --config /etc/kalends/kalends.toml
  kalends health --url https://push.example.net
  kalends status                                 what is wrong, and what to do";
    const SETTINGS: Shown = Shown::Only(&["config", "listen", "data_dir"]);

    fn run(self, _commands: Commands) -> Result<(), Failure> {
        let settings = load(&self.flags)?;
        let server = self.url.map_or_else(|| local(&settings), String::from);
        let (status, body) = ask(&server)?;
        if self.json {
            writeln!(stdout(), "{body}").map_err(HealthError::Output)?;
        }
        let health = judge(&server, status, &body)?;
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

/// Asks an origin, or `unix:` and a path.
fn ask(server: &str) -> Result<(u16, String), HealthError> {
    let unanswered = |why| HealthError::NoAnswer { server: server.to_owned(), why };
    if let Ok(ListenAddress::Unix(path)) = server.parse() {
        return ask_socket(&path).map_err(|error| unanswered(error.to_string()));
    }
    let mut url: Url = server.parse().expect("an origin is a URL");
    url.set_path("/health");
    let agent = http_client(&url)?;
    let request = agent.get(url.as_str()).config().timeout_global(Some(TIMEOUT));
    let request = match is_loopback(&url) {
        true => request.tls_config(unverified()),
        false => request,
    };
    let unanswered = |error| unanswered(why_unanswered(error));
    let mut answer = request.build().call().map_err(unanswered)?;
    let body = answer.body_mut().read_to_string().map_err(unanswered)?;
    Ok((answer.status().as_u16(), body))
}

/// Over HTTP/1.0 the answer ends with the connection.
fn ask_socket(path: &Path) -> io::Result<(u16, String)> {
    let exchange = async {
        let mut stream = UnixStream::connect(path).await?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer).await?;
        Ok::<_, io::Error>(answer)
    };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    // A time begins in the runtime.
    let answer = runtime.block_on(async { timeout(TIMEOUT, exchange).await })??;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::other("the answer is not HTTP"))?;
    Ok((status, body.to_owned()))
}

/// The body of a healthy server.
fn judge(server: &str, status: u16, body: &str) -> Result<Value, HealthError> {
    let server = server.to_owned();
    if status != 200 {
        return Err(HealthError::Unhealthy { server, status, body: why(body) });
    }
    let health = serde_json::from_str::<Value>(body).ok();
    let health = health.filter(|health| health["status"] == "OK" && health["port"].is_object());
    health.ok_or(HealthError::Foreign { server })
}

/// TLS to this machine, whose certificate names its public domain.
fn unverified() -> TlsConfig {
    TlsConfig::builder()
        .disable_verification(true)
        .unversioned_rustls_crypto_provider(Arc::new(default_provider()))
        .build()
}

/// The checks that failed, or why the server did not look.
fn why(body: &str) -> String {
    let health = serde_json::from_str::<Value>(body).unwrap_or_default();
    let failed = names(&health["findings"], |severity| severity == "outage");
    match (failed.as_str(), &health["message"]) {
        ("", Value::String(message)) => message.clone(),
        ("", _) => "no details".to_owned(),
        _ => failed,
    }
}

/// The names of what was found.
fn names(findings: &Value, of: impl Fn(&Value) -> bool) -> String {
    let findings = findings.as_array().into_iter().flatten();
    let names = findings.filter(|finding| of(&finding["severity"]));
    names.filter_map(|finding| finding["check"].as_str()).collect::<Vec<_>>().join(", ")
}

/// Where `listen` is reached on this machine. If it is not set, a running server knows better.
fn local(settings: &Settings) -> String {
    let is_set = settings.listen != Settings::default().listen;
    let server = if is_set { None } else { of_running_server(settings) };
    let own = server.and_then(|screen| screen.own_origin);
    own.unwrap_or_else(|| settings.own_address(&settings.listen))
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
            ("0.0.0.0:8080", "http://127.0.0.1:8080"),
            ("[::]:8080", "http://[::1]:8080"),
            ("10.0.0.5:80", "http://10.0.0.5"),
        ] {
            let settings = Settings { listen: listen.parse().unwrap(), ..Settings::default() };
            assert_eq!(local(&settings), asked);
            assert_eq!(is_loopback(&asked.parse().unwrap()), listen != "10.0.0.5:80");
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
        assert_eq!(why(r#"{"code":503,"message":"too many"}"#), "too many");
    }
}
