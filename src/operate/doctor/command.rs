//! `kalends doctor`: its arguments, and the order of the checks. A server makes those of its public URL for the operator's
//! page.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use actix_web::rt::System;
use clap::Args;
use tokio::time::timeout;
use url::Url;

use super::findings::{Finding, Findings, Format};
use super::local;
use super::public::{self, Visit};
use crate::command::{Command, Commands, Context, Failure, Shown, load};
use crate::dev::keypair::KeyPair;
use crate::dev::vapid_key;
use crate::operate::status::{of_running_server, own_origin};
use crate::push::endpoint_token::EndpointTokens;
use crate::settings::keys::Keys;
use crate::settings::{AccessMode, Flags, RoleProblem, Settings};

/// Maximum time of the checks that a server makes.
const VISIT_WAIT: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub struct Doctor {
    /// How long a connection is silent before the last check; proxies often close it after a minute
    #[arg(long, value_name = "SECONDS", default_value_t = 70)]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub idle_s: u64,
    /// An access token of a closed server (`kalends access add doctor --expires 10m`)
    #[arg(long, value_name = "TOKEN")]
    pub access_token: Option<String>,
    /// VAPID key to sign with, PEM or base64url: one of vapid_keys_allowed, if that setting is used.
    /// Without this flag it is a fresh one
    #[arg(long, value_name = "FILE")]
    pub vapid_key: Option<PathBuf>,
    /// Print JSON: one object a line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub flags: Flags,
}

/// Why the doctor ends with 1.
#[derive(Debug, thiserror::Error)]
enum DoctorError {
    #[error("checks that failed: {0}")]
    Failed(usize),
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

impl Command for Doctor {
    const NAME: &'static str = "doctor";
    const ABOUT: &'static str = "Check an installation from end to end: files, proxy, pushes";
    const HELP: &'static str = "\
Checks the files of the server, then uses its public URL as a user agent and as an application server do:
connect, subscribe, push, ack, store, connect again. Each finding says what to do. The server must run. It is
asked for its addresses unless public_url is set here. It keeps the record of one new user agent, which
`kalends users drop-inactive` drops.

The exit code is 0 if nothing failed, 1 if something did.

Examples:
  kalends doctor --config /etc/kalends/kalends.toml
  kalends doctor --public-url https://push.example.net --data-dir /var/lib/kalends
  kalends doctor --access-token kal_...          of a closed server
  kalends doctor --vapid-key vapid.pem           of a server with vapid_keys_allowed
  kalends doctor --idle-s 600                    does the proxy keep a silent connection for ten minutes?";
    const SETTINGS: Shown = Shown::OfStore(&["public_url", "listen"]);

    fn run(self, _commands: Commands) -> Result<(), Failure> {
        let settings = load(&self.flags)?;
        let pair = match &self.vapid_key {
            Some(path) => vapid_key::load(path)?,
            None => KeyPair::generate(),
        };
        let printed = Some(if self.json { Format::Json } else { Format::Text });
        let mut findings = Findings { printed, all: Vec::new() };
        let server = of_running_server(&settings);
        let known = server.as_ref().map(|screen| [&screen.origin, &screen.own_origin]);
        let known = known.unwrap_or([&None, &None]);
        let (url, own) = origins(&settings, known).map_err(Failure::usage)?;
        let tokens = server.as_ref().and_then(|_| tokens_of(&settings));
        local::check(&settings, server, &mut findings).map_err(DoctorError::Output)?;
        let idle = Some(Duration::from_secs(self.idle_s));
        let has_proxy = has_proxy(&url, &own);
        let access_token = self.access_token.as_deref();
        let visit = Visit { url: &url, access_token, pair, has_proxy, tokens, idle };
        let checked = public::check(visit, &mut findings);
        System::new().block_on(checked).map_err(DoctorError::Output)?;
        match findings.failed() {
            0 => Ok(()),
            failed => Err(DoctorError::Failed(failed).into()),
        }
    }
}

/// Whether a server can use its own public URL: without a token and a key that it does not have.
pub fn can_visit(settings: &Settings) -> bool {
    settings.access == AccessMode::Open && settings.vapid_keys_allowed.is_all()
}

/// Uses the public URL of the server that this runs in.
pub async fn visit(context: &Context) -> Vec<Finding> {
    let settings = &context.settings;
    let known = [&context.origin, &own_origin(settings, context.origin.as_deref())];
    let (url, own) = origins(settings, known).expect("a server that runs has an origin");
    let (pair, has_proxy) = (KeyPair::generate(), has_proxy(&url, &own));
    let tokens = tokens_of(settings);
    let visit = Visit { url: &url, access_token: None, pair, has_proxy, tokens, idle: None };
    let mut findings = Findings { printed: None, all: Vec::new() };
    // Nothing is printed, so writing never fails.
    let visited = timeout(VISIT_WAIT, Box::pin(public::check(visit, &mut findings))).await;
    if visited.is_err() {
        let found = format!("they take longer than {} s, and were stopped", VISIT_WAIT.as_secs());
        let _ = findings.fail("all checks", found, "run `kalends doctor` on the server");
    }
    findings.all
}

/// None if the keys cannot be read.
fn tokens_of(settings: &Settings) -> Option<EndpointTokens> {
    Keys::load(&settings.data_dir).ok().map(|keys| EndpointTokens::new(&keys))
}

/// The public origin, and where the server on this machine is reached: an origin, or `unix:` and a path. A running server
/// knows both, also without its flags here.
fn origins(
    settings: &Settings,
    [public, own]: [&Option<String>; 2],
) -> Result<(Url, Url), RoleProblem> {
    let parsed = |origin: &str| origin.parse::<Url>().expect("an origin is a URL");
    let of_settings = || settings.public_origin(&settings.listen).map(|it| parsed(it.as_str()));
    let public = match (&settings.public_url, public) {
        (None, Some(public)) => Some(parsed(public)),
        (None, None) | (Some(_), _) => of_settings(),
    };
    let own = own.as_deref().map(parsed);
    let own = own.unwrap_or_else(|| parsed(&settings.own_address(&settings.listen)));
    Ok((public.ok_or(RoleProblem::NoOriginOfSocket)?, own))
}

/// Whether a proxy must be between the URL and the server. One that speaks TLS to a server with TLS is not recognised.
fn has_proxy(url: &Url, own: &Url) -> bool {
    let is_other_port = url.port_or_known_default() != own.port_or_known_default();
    match own.scheme() {
        "unix" => true,
        "http" => url.scheme() == "https" || is_other_port,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::PublicUrl;
    use crate::settings::value::Value;

    #[test]
    fn a_proxy_is_between_a_server_of_http_and_a_url_of_https_or_of_another_port() {
        let (port, socket) = ("127.0.0.1:8080", "unix:/run/a b.sock");
        for (url, listen, has_tls, expected) in [
            ("http://push.example.net:8080", port, false, false),
            ("http://push.example.net", port, false, true),
            ("https://push.example.net:8080", port, false, true),
            ("https://push.example.net", port, false, true),
            ("https://push.example.net", port, true, false),
            ("http://push.example.net", socket, false, true),
        ] {
            let listen = listen.parse().unwrap();
            let [tls_certificate, tls_key] = ["c", "k"].map(|file| has_tls.then(|| file.into()));
            let public_url = Some(PublicUrl::parse(url).unwrap());
            let files = Settings { listen, tls_certificate, tls_key, ..Settings::default() };
            let (url, own) = origins(&Settings { public_url, ..files }, [&None, &None]).unwrap();
            assert_eq!(has_proxy(&url, &own), expected, "{url} {own}");
        }
    }
}
