//! `kalends doctor`: checks an installation, its files and its public URL.
//!
//! - [`local`]: settings, data directory and limits of this machine.
//! - [`reach`]: DNS, the clock and the certificate of the public URL.
//! - [`public`]: a user agent and an application server that use the public URL.

mod local;
mod public;
mod reach;

use std::io::{self, IsTerminal, Write, stderr, stdout};
use std::time::Duration;

use actix_web::rt::System;
use clap::Args;
use serde::Serialize;
use url::Url;

use crate::settings::{Flags, PublicUrl, Settings};

pub const HELP: &str = "\
Checks the files of the server, then uses its public URL as a user agent and as an application server do:
connect, subscribe, push, ack, store, connect again. Each finding says what to do. The server must run. It
keeps the record of one new user agent, which `kalends users drop-inactive` drops.

The exit code is 0 if nothing failed, 1 if something did.

Examples:
  kalends doctor --config /etc/kalends/kalends.toml
  kalends doctor --public-url https://push.example.net --data-dir /var/lib/kalends
  kalends doctor --access-token kal_...          of a closed server
  kalends doctor --idle-s 600                    does the proxy keep a silent connection for ten minutes?";

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// How long a connection is silent before the last check; proxies often close it after a minute
    #[arg(long, value_name = "SECONDS", default_value_t = 70)]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub idle_s: u64,
    /// An access token of a closed server (`kalends access add doctor --expires 10m`)
    #[arg(long, value_name = "TOKEN")]
    pub access_token: Option<String>,
    /// Print JSON: one object a line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub flags: Flags,
}

/// The result of a check, and what the operator should do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    level: Level,
    check: &'static str,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Ok,
    Warn,
    Fail,
}

/// Why the doctor ends with 1.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    #[error("checks that failed: {0}")]
    Failed(usize),
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

/// Prints each finding when it is there.
struct Findings {
    is_json: bool,
    failed: usize,
}

impl Findings {
    fn ok(&mut self, check: &'static str, found: impl Into<String>) -> io::Result<()> {
        self.add(Level::Ok, check, found.into(), None)
    }

    fn warn(
        &mut self,
        check: &'static str,
        found: impl Into<String>,
        remedy: &str,
    ) -> io::Result<()> {
        self.add(Level::Warn, check, found.into(), Some(remedy.to_owned()))
    }

    fn fail(
        &mut self,
        check: &'static str,
        found: impl Into<String>,
        remedy: &str,
    ) -> io::Result<()> {
        self.failed += 1;
        self.add(Level::Fail, check, found.into(), Some(remedy.to_owned()))
    }

    fn add(
        &mut self,
        level: Level,
        check: &'static str,
        found: String,
        remedy: Option<String>,
    ) -> io::Result<()> {
        let finding = Finding { level, check, found, remedy };
        let text = match self.is_json {
            true => serde_json::to_string(&finding).map_err(io::Error::other)?,
            false => finding.text(),
        };
        writeln!(stdout(), "{text}")
    }

    /// Tells a person that the next check takes long.
    fn wait(&self, what: &str) {
        if stderr().is_terminal() {
            // It may be closed.
            let _ = writeln!(stderr(), "      {what}");
        }
    }
}

impl Finding {
    fn text(&self) -> String {
        let level = match self.level {
            Level::Ok => "ok  ",
            Level::Warn => "warn",
            Level::Fail => "FAIL",
        };
        let remedy = self.remedy.as_ref().map(|remedy| format!("\n      {remedy}"));
        format!("{level}  {}: {}{}", self.check, self.found, remedy.unwrap_or_default())
    }
}

pub fn run(args: &DoctorArgs, settings: &Settings) -> Result<(), DoctorError> {
    let mut findings = Findings { is_json: args.json, failed: 0 };
    local::check(settings, &mut findings)?;
    let url = settings.public_url.as_ref().map(PublicUrl::as_str).map(str::to_owned);
    let url = url.unwrap_or_else(|| settings.public_origin(settings.listen));
    let url: Url = url.parse().expect("an origin is a URL");
    let idle = Duration::from_secs(args.idle_s);
    let has_proxy = has_proxy(&url, settings);
    let token = args.access_token.as_deref();
    System::new().block_on(public::check(&url, token, has_proxy, idle, &mut findings))?;
    match findings.failed {
        0 => Ok(()),
        failed => Err(DoctorError::Failed(failed)),
    }
}

/// Whether a proxy must be between the URL and the server. One that speaks TLS to a server with TLS is not recognised.
fn has_proxy(url: &Url, settings: &Settings) -> bool {
    let is_other_port = url.port_or_known_default() != Some(settings.listen.port());
    settings.scheme() == "http" && (url.scheme() == "https" || is_other_port)
}
