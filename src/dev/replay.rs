//! `kalends dev replay`: a session transcript or a feed history, run through the state machines.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use harness::feed::transcript::{self as feed, History};
use harness::transcript::{self as session, Mismatch, ParseError, Transcript};

use super::{ToolError, print};

/// Bytes of a file at most.
const TRANSCRIPT_BYTES_MAX: u64 = 16 << 20;

/// What a feed history's file is called.
const FEED_EXTENSION: &str = "feed";

/// Replays each file, until one differs.
pub fn run_all(files: &[PathBuf], trace: bool) -> Result<(), ToolError> {
    files.iter().try_for_each(|file| run(file, trace))
}

/// Writes the machine's effects into sessions. Files that are right stay as they are, and no file is written if one of
/// them cannot be filled.
pub fn write(files: &[PathBuf]) -> Result<(), ToolError> {
    let mut filled = Vec::new();
    for file in files {
        let text = read(file)?;
        let unusable = |why: &dyn Display| ToolError::Unusable(format!("{}:{why}", file.display()));
        if is_feed(file) {
            return Err(unusable(&" only sessions are written, not feed histories"));
        }
        filled.push((file, session::fill(&text).map_err(|error| unusable(&error))?, text));
    }
    for (file, filled, before) in filled {
        let is_changed = filled != before;
        if is_changed {
            let failed = |error| ToolError::Unwritable { path: file.clone(), error };
            fs::write(file, filled).map_err(failed)?;
        }
        let done = if is_changed { "written" } else { "unchanged" };
        print(&[format!("# {}: {done}", file.display())])?;
    }
    Ok(())
}

/// Replays a feed history if the file is named `.feed`, and otherwise a session transcript. With
/// `trace` every step is printed with its effects and the state after it, in the file's own form.
pub fn run(file: &Path, trace: bool) -> Result<(), ToolError> {
    let text = read(file)?;
    let mut lines = Vec::new();
    let replayed = match is_feed(file) {
        true => replay_feed(&text, &mut lines),
        false => replay_session(&text, &mut lines),
    };
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

fn is_feed(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == FEED_EXTENSION)
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
    fn several_sessions_are_written_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let head = "# A session.\nat 2026-11-03T10:00:00Z\n";
        let hello = format!("{head}agent> {{\"messageType\":\"hello\",\"use_webpush\":true}}\n");
        fs::write(path("a.session"), &hello).unwrap();
        fs::write(path("b.session"), format!("{head}store> 7 deleted\n")).unwrap();
        fs::write(path("c.feed"), "# A history.\n").unwrap();
        let files = |names: &[&str]| names.iter().map(|name| path(name)).collect::<Vec<_>>();
        for other in ["b.session", "c.feed", "none.session"] {
            assert!(write(&files(&["a.session", other])).is_err(), "{other}");
            assert_eq!(fs::read_to_string(path("a.session")).unwrap(), hello);
        }
        write(&files(&["a.session"])).unwrap();
        let filled = fs::read_to_string(path("a.session")).unwrap();
        assert!(filled.starts_with(&hello) && filled.len() > hello.len(), "{filled}");
        run_all(&files(&["a.session", "a.session"]), false).unwrap();
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
