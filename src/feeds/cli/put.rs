//! `kalends feed put`: sets a key, and publishes it.

use std::io::{self, IsTerminal, Read, Write, stderr, stdin};

use clap::Args;
use serde::{Deserialize, Serialize};
use state_machine::feed::FeedValue;

use super::key_args::{Change, KeyArgs};
use crate::command::{Failure, Job, JobError, NoReport, StoreCommand};
use crate::settings::Settings;

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Put {
    #[command(flatten)]
    pub of: KeyArgs,
    /// The text to set it to; without it, or with -, standard input is read
    #[arg(allow_negative_numbers = true)]
    pub value: Option<String>,
}

/// Why a value cannot be set.
#[derive(Debug, thiserror::Error)]
enum ValueError {
    #[error("cannot read the value: {0}")]
    Unreadable(io::Error),
    #[error("a value is text in UTF-8: encode it, in base64 for instance")]
    NoText,
    #[error("a value has at most {} bytes", FeedValue::BYTES_MAX)]
    TooLarge,
    #[error(transparent)]
    Output(#[from] io::Error),
}

impl StoreCommand for Put {
    const NAME: &'static str = "feed put";
    const ABOUT: &'static str = "Set a key, and publish it";
    const HELP: &'static str = "\
Standard input is read unchanged, with the newline that echo adds. A live server publishes the
change; if none runs here, this command does. The version counts the changes of the key, including
its publications.

Examples:
  kalends feed put prices eur 1.08 --data-dir /var/lib/kalends
  printf %s \"$(cat prices.json)\" | kalends feed put prices all --config /etc/kalends/kalends.toml
  KALENDS_FEED_TOKEN=kf1... kalends feed put prices eur 1.08 --url https://push.example.net";
    const SETTINGS: &'static [&'static str] = &["feed_keys_max", "feed_value_bytes_max"];
    type Report = NoReport;

    fn is_within_bounds(&self) -> bool {
        self.value.as_deref().is_some_and(|value| FeedValue::parse(value).is_ok())
    }

    fn main(mut self, settings: &Settings) -> Result<(), Failure> {
        let value = read(self.value.as_deref())?;
        self.value = Some(value.as_str().to_owned());
        Change::Put(value).make(&self.of.clone(), self, settings)
    }

    async fn run(self, job: &Job) -> Result<(), JobError> {
        let value = self.value.and_then(|value| FeedValue::parse(&value).ok());
        Change::Put(value.expect("its bounds were checked")).on_store(&self.of, job).await
    }
}

/// The value on the command line, or on standard input.
fn read(argument: Option<&str>) -> Result<FeedValue, ValueError> {
    match argument {
        Some(text) if text != "-" => parse(text),
        _ => {
            if stdin().is_terminal() {
                writeln!(stderr(), "type the value, then Ctrl-D on a line of its own")?;
            }
            read_from(stdin())
        }
    }
}

/// Reads at most one byte more than a value may have.
fn read_from(from: impl Read) -> Result<FeedValue, ValueError> {
    let (mut bytes, max) = (Vec::new(), FeedValue::BYTES_MAX as u64);
    from.take(max + 1).read_to_end(&mut bytes).map_err(ValueError::Unreadable)?;
    if bytes.len() > FeedValue::BYTES_MAX {
        return Err(ValueError::TooLarge);
    }
    let text = String::from_utf8(bytes).map_err(|_| ValueError::NoText)?;
    parse(&text)
}

fn parse(text: &str) -> Result<FeedValue, ValueError> {
    FeedValue::parse(text).map_err(|_| ValueError::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_unchanged() {
        assert_eq!(read_from(&b"a\nb\n"[..]).unwrap().as_str(), "a\nb\n");
        assert_eq!(read_from(&b""[..]).unwrap().as_str(), "");
        assert_eq!(read(Some("")).unwrap().as_str(), "");
        let most = vec![b'x'; FeedValue::BYTES_MAX];
        assert_eq!(read_from(&most[..]).unwrap().as_str().len(), FeedValue::BYTES_MAX);
    }

    #[test]
    fn a_value_that_is_too_large_or_no_text_is_refused() {
        let why = |bytes: &[u8]| read_from(bytes).unwrap_err().to_string();
        assert_eq!(why(&vec![b'x'; FeedValue::BYTES_MAX + 1]), "a value has at most 262144 bytes");
        assert!(why(b"\xff").starts_with("a value is text in UTF-8"));
        assert!(read_from(io::repeat(b'x')).is_err());
        assert!(read(Some(&"x".repeat(FeedValue::BYTES_MAX + 1))).is_err());
    }
}
