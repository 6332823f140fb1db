//! What the command line does beside serving: `kalends subscribe` is a user agent, `kalends push` an application server.
//! Arguments and what servers send enter; requests, files and printed lines leave. Both are written from the protocol's
//! description, so that each checks the server: they share with it the HTTPS client and the base types of
//! [`state_machine`].
//!
//! - [`agent`]: the messages of a user agent, without IO.
//! - [`identity`]: what a user agent remembers between runs.
//! - [`subscribe`], [`output`]: the user agent on a socket, and what it prints.
//! - [`push`]: sending a message. [`refusal`]: whose answer refused it, and what to do.
//! - [`subscription`]: what an application server knows of a user agent.
//! - [`replay`], [`view`], [`states`]: the state machines, run by scripts and drawn; [`man`]: manual pages.
//! - [`keypair`], [`encrypt`], [`vapid_sign`], [`vapid_key`]: keys, encryption (RFC 8291),
//!   signatures (RFC 8292).

pub mod agent;
mod base64url;
pub mod encrypt;
mod error;
mod files;
#[cfg(test)]
mod fixture;
pub mod identity;
pub mod keypair;
pub mod man;
pub mod output;
pub mod push;
pub mod refusal;
pub mod replay;
pub mod states;
pub mod subscribe;
pub mod subscription;
pub mod vapid_key;
pub mod vapid_sign;
pub mod view;

pub use base64url::{from_base64url, to_base64url};
pub use error::ToolError;
pub use files::FileError;

use crate::command::Group;

pub const GROUP: Group = Group {
    name: "dev",
    about: "Inspect the state machines (for developers of Kalends)",
    help: "",
};
