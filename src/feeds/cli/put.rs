//! `kalends feed put`: sets a key, and publishes it.

use std::io::{self, IsTerminal, Read, Write, stderr, stdin, stdout};

use clap::Args;
use serde::{Deserialize, Serialize};
use state_machine::feed::{FeedKey, FeedName, FeedValue, WriteResult};
use url::Url;

use super::key_args::{KeyArgs, server};
use super::remote::Remote;
use crate::command::{Failure, Job, JobError, NoReport, StoreCommand, run_and_print};
use crate::feeds::store::{publish, write};
use crate::settings::Settings;

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Put {
    #[command(flatten)]
    pub of: KeyArgs,
    /// Use the server at URL over HTTP; the token in KALENDS_FEED_TOKEN must allow writing
    #[arg(long, value_name = "URL", value_parser = server)]
    #[serde(skip)]
    pub url: Option<Url>,
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
        let Some(url) = &self.url else {
            self.value = Some(value.as_str().to_owned());
            return Ok(run_and_print(self, settings)?);
        };
        let KeyArgs { feed, key } = &self.of;
        let version = Remote::at(url)?.put(feed, key, &value)?;
        Ok(writeln!(stdout(), "wrote {key} of {feed}, its version is {version}")?)
    }

    async fn run(self, job: &Job) -> Result<(), JobError> {
        let KeyArgs { feed, key } = self.of;
        let value = self.value.and_then(|value| FeedValue::parse(&value).ok());
        set(feed, key, value.expect("its bounds were checked"), job).await
    }
}

/// Sets a key, if the feed may have it, and publishes it.
pub async fn set(
    feed: FeedName,
    key: FeedKey,
    value: FeedValue,
    job: &Job,
) -> Result<(), JobError> {
    let keys_max = feed.keys_max(job.context.settings.feed_keys_max);
    let value_bytes_max = feed.value_bytes_max(job.context.settings.feed_value_bytes_max);
    // The origin of a bound: a setting, or the purpose of the feed.
    let origin = |setting| match feed == FeedName::broadcasts() {
        true => "all servers keep broadcasts in memory",
        false => setting,
    };
    let bytes = value.as_str().len();
    if !feed.may_have(&key) {
        return Err(JobError::Refused(format!(
            "no broadcast can be called {key}: agents receive errors under this name"
        )));
    }
    if bytes > value_bytes_max {
        return Err(JobError::Refused(format!(
            "the value has {bytes} bytes, and {feed} takes {value_bytes_max} ({})",
            origin("feed_value_bytes_max")
        )));
    }
    match write(job, (&feed, &key, &value), keys_max).await? {
        WriteResult::Done(version) => {
            job.note(format!("wrote {key} of {feed}, its version is {version}")).await?;
            publish(&feed, job).await
        }
        WriteResult::TooManyKeys => Err(JobError::Refused(format!(
            "{feed} has {keys_max} keys, with those that were deleted, and takes no other ({})",
            origin("feed_keys_max")
        ))),
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
