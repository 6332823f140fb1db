//! The keys of an installation, in `keys.toml` in the data directory.
//!
//! Every endpoint URL is sealed with one of these keys: an installation that loses the file loses
//! all subscriptions. So a file that is unreadable, empty or malformed is an error, and new keys
//! are generated only if there is no file.
//!
//! `crypto_keys` are Fernet keys as in autopush-rs: the first seals, all open. The keys for all
//! other purposes are derived from them, see [`SealKeys`] and [`MacKeys`]. The nodes of a cluster
//! sign their requests to each other with `cluster_keys`, and all have the same file: by
//! [`fingerprint`] a node detects that its keys are not those of the others.
//!
//! The file enters; keys leave, never their texts. The keys are in `list`; `file` reads and writes them, and [`add`] puts
//! a new one in front. What seals, signs and opens is made from them in `derived` and `pass`, for each
//! [`Purpose`] with another key.
//!
//! `auth_keys` make the secrets of bridged user agents as in autopush-rs. A server without bridges needs none.

pub mod add;
mod derived;
mod file;
mod fingerprint;
mod list;
mod pass;
mod purpose;
#[cfg(test)]
mod tests;

pub use derived::{MAC_BYTES, MacKeys, SealKeys, TAG_BYTES, decode_mac, ticket_roots};
pub use file::{KEYS_FILE, KeysError};
pub use list::{KEYS_MAX, Key, KeyList, KeyListError, Keys, generate};
pub use pass::{Pass, Passes};
pub use purpose::Purpose;
