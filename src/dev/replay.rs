//! `kalends dev replay`: a session transcript or a feed history, run through the state machines.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use harness::feed::transcript::{self as feed, History};
use harness::transcript::{self as session, Mismatch, ParseError, Transcript};

use super::{ToolError, print};

/// Bytes of a file at most.
const TRANSCRIPT_BYTES_MAX: u64 = 16 << 20;

/// What a feed history's file is called.
const FEED_EXTENSION: &str = "feed";

/// Replays a feed history if the file is named `.feed`, and otherwise a session transcript. With
/// `trace` every step is printed with its effects and the state after it, in the file's own form.
pub fn run(file: &Path, trace: bool) -> Result<(), ToolError> {
    let text = read(file)?;
    let is_feed = file.extension().is_some_and(|extension| extension == FEED_EXTENSION);
    let mut lines = Vec::new();
    let replayed =
        if is_feed { replay_feed(&text, &mut lines) } else { replay_session(&text, &mut lines) };
    // It is neither a transcript nor a history, or the machine does something else.
    let differs = |why: &dyn Display| ToolError::Unusable(format!("{}:{why}", file.display()));
    let result = replayed.map_err(|error| differs(&error))?;
    let steps = lines.len() - 1;
    if !trace {
        lines.clear();
    }
    if result.is_ok() {
        lines.push(format!("# {}: all {steps} steps as written", file.display()));
    }
    print(&lines)?;
    result.map_err(|mismatch| differs(&mismatch))
}

fn read(file: &Path) -> Result<String, ToolError> {
    let failed = |error| ToolError::Unreadable { path: file.to_owned(), error };
    let mut text = String::new();
    let opened = File::open(file).map_err(failed)?;
    opened.take(TRANSCRIPT_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    if fs::metadata(file).map_err(failed)?.len() > TRANSCRIPT_BYTES_MAX {
        return Err(failed(io::Error::other("larger than 16 MiB")));
    }
    Ok(text)
}

/// Adds the head of the file and each step, in the file's own form.
fn replay_session(text: &str, lines: &mut Vec<String>) -> Result<Result<(), Mismatch>, ParseError> {
    let transcript = Transcript::parse(text)?;
    let writer = transcript.writer();
    lines.push(transcript.head());
    Ok(session::replay(&transcript, |ran| lines.push(writer.ran(ran))))
}

fn replay_feed(text: &str, lines: &mut Vec<String>) -> Result<Result<(), Mismatch>, ParseError> {
    let history = History::parse(text)?;
    lines.push(history.head());
    Ok(feed::replay(&history, |ran| lines.push(ran.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replayed_as_what_its_name_says_it_is() {
        for (file, wrong) in [
            ("fixtures/feeds/time_table.feed", None),
            ("fixtures/sessions/keepalive.session", None),
            ("Cargo.toml", Some("Cargo.toml:1: the first line must be the title of the session")),
            ("fixtures/feeds", Some("cannot read fixtures/feeds: ")),
        ] {
            let result = run(&Path::new(env!("CARGO_MANIFEST_DIR")).join(file), true);
            let error = result.err().map(|error| error.to_string());
            match wrong {
                None => assert_eq!(error, None),
                Some(wrong) => {
                    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/");
                    let error = error.expect("it is neither").replace(root, "");
                    assert!(error.starts_with(wrong), "{error}");
                }
            }
        }
    }

    #[test]
    fn what_is_wrong_with_a_feed_history_is_told_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("wrong.feed");
        for (lines, wrong) in [
            ("wait 5", "2: expected a span such as"),
            ("P1> written", "2: after `P1> written`\n     + P1< publish"),
        ] {
            fs::write(&file, format!("# A history.\n{lines}\n")).unwrap();
            let error = run(&file, false).unwrap_err().to_string();
            let expected = format!("{}:{wrong}", file.display());
            assert!(error.starts_with(&expected), "{error}");
        }
    }
}
