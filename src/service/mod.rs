//! The server as a service of its host.
//!
//! - [`health`]: `kalends health`, for containers and scripts.
//! - [`init`]: `kalends init`, the first settings.
//! - [`systemd`]: what the server tells the service manager, and the watchdog.
//! - [`sockets`]: sockets that the service manager has opened.
//! - [`shell`]: completions of shells, and manual pages.

pub mod health;
pub mod init;
pub mod shell;
pub mod sockets;
pub mod systemd;
