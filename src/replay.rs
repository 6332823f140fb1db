//! `kalends replay`: a session transcript, run through the state machine.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use state_machine::transcript::{self, Mismatch, ParseError, Transcript};

/// Bytes of a transcript at most.
const TRANSCRIPT_BYTES_MAX: u64 = 16 << 20;

/// Why a transcript was not replayed, or did not come out as it says.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", .file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no transcript.
    #[error("{}:{error}", .file.display())]
    Parse {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        error: ParseError,
    },
    /// The machine does something else.
    #[error("{}:{mismatch}", .file.display())]
    Mismatch {
        /// The file.
        file: PathBuf,
        /// Where.
        mismatch: Mismatch,
    },
    /// The result cannot be printed.
    #[error("cannot print: {0}")]
    Print(#[from] io::Error),
}

/// Replays a transcript. With `trace` every event is printed, with the phase and the deadline after it
/// and its effects, in the transcript's own form.
pub fn run(file: &Path, trace: bool) -> Result<(), ReplayError> {
    let transcript = read(file)?;
    let mut traced = Vec::new();
    let mut steps = 0;
    let scribe = transcript.scribe();
    let replayed = transcript::replay(&transcript, |ran| {
        steps += 1;
        if trace {
            traced.push(scribe.ran(ran));
        }
    });
    print(&transcript, trace.then_some(&traced))?;
    let fail = |mismatch| ReplayError::Mismatch { file: file.to_owned(), mismatch };
    replayed.map_err(fail)?;
    writeln!(io::stdout(), "# {}: all {steps} steps as written", file.display())?;
    Ok(())
}

fn read(file: &Path) -> Result<Transcript, ReplayError> {
    let failed = |source| ReplayError::Read { file: file.to_owned(), source };
    let mut text = String::new();
    let opened = File::open(file).map_err(failed)?;
    opened.take(TRANSCRIPT_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    if fs::metadata(file).map_err(failed)?.len() > TRANSCRIPT_BYTES_MAX {
        return Err(failed(io::Error::other("larger than 16 MiB")));
    }
    Transcript::parse(&text).map_err(|error| ReplayError::Parse { file: file.to_owned(), error })
}

fn print(transcript: &Transcript, traced: Option<&Vec<String>>) -> io::Result<()> {
    let Some(traced) = traced else { return Ok(()) };
    let mut out = io::stdout().lock();
    writeln!(out, "{}", transcript.head())?;
    traced.iter().try_for_each(|step| writeln!(out, "{step}"))
}
