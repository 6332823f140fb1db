//! Why a command failed.

use std::io;

use super::agent::AgentError;
use super::encrypt::EncryptionError;
use super::files::FileError;
use super::refusal::Refusal;
use crate::system::https_client::ClientError;

/// Why a command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error(transparent)]
    File(#[from] FileError),
    /// Something given on the command line cannot be used.
    #[error("{0}")]
    Unusable(String),
    #[error("cannot encrypt the message: {0}")]
    Encryption(#[from] EncryptionError),
    /// A server did not answer, or refused.
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A server violates the protocol, or refused the agent.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// Standard input could not be read or standard output not be written.
    #[error("{0}")]
    Io(#[from] io::Error),
}
