//! `kalends replay`: a session transcript, run through the state machine.

use std::path::{Path, PathBuf};

/// Why a transcript was not replayed.
#[derive(Debug, thiserror::Error)]
#[error("cannot replay {}", file.display())]
pub struct ReplayError {
    file: PathBuf,
}

/// Replays a transcript; prints each event, phase and effect where asked to.
pub fn run(file: &Path, _trace: bool) -> Result<(), ReplayError> {
    Err(ReplayError { file: file.to_owned() })
}
