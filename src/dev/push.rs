//! `kalends push`: an application server that sends one message.

mod receipt;

use std::io::{IsTerminal, Read, Write, stderr, stdin, stdout};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use clap::ArgGroup;
use clap::builder::PossibleValuesParser;
use serde::Serialize;
use state_machine::{Encoding, Payload, Urgency};
use ureq::http::StatusCode;
use url::Url;

use super::base64url::to_base64url;
use super::encrypt::{Coding, encrypt};
use super::error::ToolError;
use super::files::FileError;
use super::keypair::KeyPair;
use super::refusal::Refusal;
use super::subscription::{KeyTexts, Keys, Subscription};
use super::vapid_key::VapidKey;
use super::vapid_sign::{Claims, authorization};
use crate::command::text::{of_unit, to_json};
use crate::command::{Command, Commands, Failure};
use crate::system::https_client::{ClientError, http_client, why_unanswered};
use receipt::Receipt;

/// Arguments of `kalends push`: a subscription, a message and its headers.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
#[command(group = ArgGroup::new("target").required(true).args(["endpoint", "subscription"]))]
pub struct PushArgs {
    /// Where to send; not needed with --subscription
    #[arg(value_parser = endpoint)]
    pub endpoint: Option<Url>,

    /// Subscription as JSON, as `kalends subscribe --subscription FILE` or a browser writes it
    #[arg(long, value_name = "FILE")]
    pub subscription: Option<PathBuf>,

    /// Public key of the subscription, in base64url
    #[arg(long, value_name = "KEY", requires = "auth", conflicts_with = "subscription")]
    #[arg(allow_hyphen_values = true)]
    pub p256dh: Option<String>,

    /// Authentication secret of the subscription, in base64url
    #[arg(long, value_name = "SECRET", requires = "p256dh", allow_hyphen_values = true)]
    pub auth: Option<String>,

    /// The message; an empty one only wakes the agent. Without it, standard input is sent
    #[arg(long, short, value_name = "TEXT", conflicts_with = "file", allow_hyphen_values = true)]
    pub message: Option<String>,

    /// Send what is in FILE
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// How long the message is worth keeping, in seconds, or such as 1h; 0 delivers it now or never
    #[arg(long, value_name = "TIME", default_value = "86400", value_parser = time)]
    pub ttl: u32,

    /// Replaces a waiting message of the same topic
    #[arg(long, value_name = "TOPIC")]
    pub topic: Option<String>,

    /// How soon the agent wants it; without it normal
    #[arg(long, value_parser = urgencies())]
    pub urgency: Option<String>,

    /// How to encrypt the message
    #[arg(long, value_enum, default_value_t = Coding::Aes128gcm)]
    pub encoding: Coding,

    /// VAPID key to sign with: PEM or base64url. Made (mode 0600) if there is no such file;
    /// without this flag each push is signed with a fresh key
    #[arg(long, value_name = "FILE")]
    pub vapid_key: Option<PathBuf>,

    /// Contact in the VAPID token (sub): a mailto: or https: URL
    #[arg(long, value_name = "URL", value_parser = contact)]
    pub sub: Option<String>,

    /// Do not sign the push with VAPID
    #[arg(long, conflicts_with_all = ["vapid_key", "sub"])]
    pub no_vapid: bool,

    /// Wait as long for the receipt: the ack of the user agent, or the end of the TTL. In seconds, or
    /// such as 10s
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub wait: Option<u32>,

    /// Print the answer as JSON: status, location, ttl and, with --wait, receipt
    #[arg(long)]
    pub json: bool,
}

/// Reads seconds, or a time with a unit.
fn time(text: &str) -> Result<u32, String> {
    let seconds = text.parse().ok().or_else(|| of_unit(text)?.try_into().ok());
    seconds.ok_or_else(|| "expected seconds, or a time such as 30m, 12h or 7d".into())
}

fn urgencies() -> PossibleValuesParser {
    PossibleValuesParser::new(Urgency::ALL.map(Urgency::as_str))
}

/// Reads where to send. What is no URL is most likely the message.
fn endpoint(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    url.ok_or_else(|| "it is no http or https URL; a message follows -m, as in -m hello".into())
}

/// Reads who is responsible for a message (RFC 8292 §2.1). The token contains it unchanged.
fn contact(text: &str) -> Result<String, String> {
    let is_contact = Url::parse(text).is_ok_and(|url| match url.scheme() {
        "mailto" => url.path().contains('@'),
        scheme => scheme == "https",
    });
    if is_contact {
        return Ok(text.to_owned());
    }
    Err("expected a mailto: or https: URL, such as mailto:me@example.net".into())
}

impl Command for PushArgs {
    const NAME: &'static str = "push";
    const ABOUT: &'static str = "Act as an application server: send one message";
    const HELP: &'static str = "\
Examples:
  kalends push --subscription sub.json --message hello
  kalends push --subscription sub.json --vapid-key vapid.pem --sub mailto:me@example.net < file
  kalends push https://push.example.net/wpush/TOKEN --message ''
                                                 notify the agent without a payload
  kalends push --subscription sub.json -m hello --wait 10s
                                                 delivered, expired, or still stored after 10 s
  kalends push --subscription sub.json -m hello --ttl 1h --json

The exit code is 0 if the server accepted the push, also if its receipt is another than `delivered`.";

    fn run(self, _commands: Commands) -> Result<(), Failure> {
        Ok(run(&self)?)
    }
}

/// Sends one message and prints the answer.
pub fn run(args: &PushArgs) -> Result<(), ToolError> {
    let mut answer = Push::prepare(args)?.send()?;
    if !args.json {
        writeln!(stdout(), "{}", answer.text())?;
    }
    if let Some(seconds) = args.wait {
        answer.receipt = Some(answer.waited(Duration::from_secs(seconds.into()))?);
    }
    match args.json {
        true => write!(stdout(), "{}", to_json(&answer))?,
        false => writeln!(stdout(), "{}", answer.state())?,
    }
    Ok(())
}

/// The TTL of [`Push::signed`], in seconds.
const SIGNED_TTL_S: u32 = 60;

/// The answer of a server that took a push, with the headers that matter.
#[derive(Debug, Serialize)]
pub(crate) struct Accepted {
    status: u16,
    pub(crate) location: Option<String>,
    pub(crate) ttl: Option<u32>,
    /// Where the receipts are.
    #[serde(skip)]
    receipts: Option<Url>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<Receipt>,
}

impl Accepted {
    /// The status, then a line for each header.
    fn text(&self) -> String {
        let status = StatusCode::from_u16(self.status).expect("it was one");
        let location = self.location.as_ref().map(|url| format!("\nLocation: {url}"));
        let ttl = self.ttl.map(|ttl| format!("\nTTL: {ttl}"));
        status.to_string() + &location.unwrap_or_default() + &ttl.unwrap_or_default()
    }

    /// What is known of the message.
    fn state(&self) -> String {
        match (&self.receipt, self.ttl) {
            (Some(receipt), _) => format!("Receipt: {}", receipt.text()),
            (None, Some(0)) => "The message is delivered already, or dropped".to_owned(),
            (None, _) => {
                "The user agent has acked it, or it is stored: --wait 10s finds out".to_owned()
            }
        }
    }

    fn waited(&self, time: Duration) -> Result<Receipt, ClientError> {
        match (&self.receipts, &self.location) {
            (Some(receipts), Some(location)) => receipt::wait(receipts, location, time),
            _ => Ok(Receipt::none()),
        }
    }
}

/// A push, ready to be sent.
pub(crate) struct Push {
    endpoint: Url,
    headers: Vec<(&'static str, String)>,
    body: Option<Bytes>,
}

impl Push {
    fn prepare(args: &PushArgs) -> Result<Self, ToolError> {
        let (endpoint, keys) = target(args)?;
        let message = message(args)?;
        let mut headers = vec![("TTL", args.ttl.to_string())];
        headers.extend(args.topic.clone().map(|topic| ("Topic", topic)));
        headers.extend(args.urgency.clone().map(|urgency| ("Urgency", urgency)));
        headers.extend(args.wait.map(|_| ("Prefer", "respond-async".to_owned())));
        let body = match (message.is_empty(), &keys) {
            (true, _) => None,
            (false, Some(keys)) => {
                let Payload { data, encoding } = encrypt(keys, &message, args.encoding)?;
                headers.extend(encoding_headers(encoding));
                Some(data)
            }
            (false, None) => {
                let advice = "a message is encrypted for its subscription: give --subscription \
                              FILE, or --p256dh and --auth";
                return Err(ToolError::Unusable(advice.into()));
            }
        };
        if !args.no_vapid {
            headers.push(("Authorization", vapid(args, &endpoint)?));
        }
        Ok(Self { endpoint, headers, body })
    }

    /// A message for a subscription, signed with this key.
    pub(crate) fn signed(
        subscription: &Subscription,
        message: &[u8],
        pair: &KeyPair,
    ) -> Result<Self, ToolError> {
        let endpoint = subscription.endpoint.clone();
        let Payload { data, encoding } = encrypt(&subscription.keys, message, Coding::Aes128gcm)?;
        let claims = Claims::for_endpoint(&endpoint, now_s(), None);
        let mut headers = vec![("TTL", SIGNED_TTL_S.to_string())];
        headers.push(("Authorization", authorization(pair, &claims)));
        headers.extend(encoding_headers(encoding));
        Ok(Self { endpoint, headers, body: Some(data) })
    }

    /// Returns the answer if the server took the push.
    pub(crate) fn send(self) -> Result<Accepted, ToolError> {
        let mut request = http_client(&self.endpoint)?.post(self.endpoint.as_str());
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let answered = match &self.body {
            Some(body) => request.send(&body[..]),
            None => request.send_empty(),
        };
        let mut response = answered.map_err(|error| ClientError::Unreachable {
            url: self.endpoint.origin().ascii_serialization(),
            why: why_unanswered(error),
        })?;
        let status = response.status();
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        if status.is_success() {
            let (status, location) = (status.as_u16(), header("Location").map(str::to_owned));
            let ttl = header("TTL").and_then(|ttl| ttl.parse().ok());
            let receipts = receipt::link(response.headers());
            return Ok(Accepted { status, location, ttl, receipts, receipt: None });
        }
        let retry_after = header("Retry-After").map(str::to_owned);
        let body = response.body_mut().with_config().limit(REASON_BYTES_MAX).read_to_vec();
        Err(Refusal::new(status, retry_after.as_deref(), &body.unwrap_or_default()).into())
    }
}

/// How much of an error's body is read, in bytes.
const REASON_BYTES_MAX: u64 = 65_536;

fn target(args: &PushArgs) -> Result<(Url, Option<Keys>), ToolError> {
    if let Some(path) = &args.subscription {
        let Subscription { endpoint, keys } = Subscription::load(path)?;
        return Ok((endpoint, Some(keys)));
    }
    let keys = args.p256dh.clone().zip(args.auth.clone());
    let keys = keys.map(|(p256dh, auth)| KeyTexts { p256dh, auth }.try_into()).transpose();
    let endpoint = args.endpoint.clone();
    let missing = || ToolError::Unusable("give an endpoint, or --subscription FILE".into());
    Ok((endpoint.ok_or_else(missing)?, keys.map_err(ToolError::Unusable)?))
}

fn message(args: &PushArgs) -> Result<Vec<u8>, ToolError> {
    match (&args.message, &args.file) {
        (Some(text), _) => Ok(text.clone().into_bytes()),
        (None, Some(path)) => {
            let read = std::fs::read(path);
            Ok(read.map_err(|error| FileError::Unreadable { path: path.clone(), error })?)
        }
        (None, None) => {
            if stdin().is_terminal() {
                writeln!(stderr(), "type the message, then Ctrl-D on a line of its own")?;
            }
            let mut message = Vec::new();
            stdin().read_to_end(&mut message)?;
            Ok(message)
        }
    }
}

fn vapid(args: &PushArgs, endpoint: &Url) -> Result<String, ToolError> {
    let pair = match &args.vapid_key {
        None => KeyPair::generate(),
        Some(path) => {
            let VapidKey { pair, is_new } = VapidKey::load_or_make(path)?;
            if is_new {
                let public = to_base64url(pair.public());
                writeln!(stderr(), "made {}, public key {public}", path.display())?;
            }
            pair
        }
    };
    Ok(authorization(&pair, &Claims::for_endpoint(endpoint, now_s(), args.sub.clone())))
}

fn now_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("the clock is past 1970").as_secs()
}

fn encoding_headers(encoding: Encoding) -> Vec<(&'static str, String)> {
    match encoding {
        Encoding::Aes128Gcm => vec![("Content-Encoding", "aes128gcm".into())],
        Encoding::AesGcm { encryption, crypto_key } => vec![
            ("Content-Encoding", "aesgcm".into()),
            ("Encryption", encryption.into()),
            ("Crypto-Key", crypto_key.into()),
        ],
        Encoding::Plain => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
