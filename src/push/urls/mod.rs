//! The secrets in the URLs of this server. What goes in are ids of user agents, channels and messages. What comes out
//! is a path that only this installation can make and open. The senders of pushes hold such URLs, and need no account.

pub mod endpoint_token;
pub mod fernet;
pub mod message_url;
pub(super) mod sealed;
