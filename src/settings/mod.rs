//! The settings, the keys and the store of a process. Flags, environment and files enter; values within their ranges,
//! keys and an open store leave. Nothing here serves a request.
//!
//! One table defines the struct, its defaults, the flags of `serve`, the environment
//! variables, `docs/settings.md` and the sample `docs/kalends.toml`.
//!
//! A setting has one name, such as `listen`: the flag is `--listen`, the variable `KALENDS_LISTEN`,
//! the line of a TOML file `listen = "..."`. A flag overrides the environment, the environment the
//! file, and the file the default. An unknown name is an error in all three places.
//!
//! - [`table`]: the settings; [`setting`]: what is known of one; `derived`: what follows from them.
//! - [`value`]: the types of their values.
//! - [`sources`]: reads flags, environment and file; [`flags`]: the flags for clap; `raw`: values as text; `toml_file`:
//!   those of a file.
//! - [`role`]: the settings that each role needs.
//! - [`mod@reference`]: the documentation.
//! - [`keys`]: the keys of the installation; [`store`]: opens the store.

mod derived;
pub mod flags;
pub mod keys;
mod raw;
pub mod reference;
pub mod renamed;
pub mod role;
pub mod setting;
pub mod sources;
pub mod store;
pub mod table;
mod toml_file;
pub mod value;

pub use derived::{AESGCM_BYTES_MIN, is_missed, reachable};
pub use flags::Flags;
pub use raw::{Problem, SettingsError};
pub use role::{Role, RoleProblem};
pub use table::Settings;
pub use value::{
    AccessMode, AddressOrOff, AgeRecipient, AllowedOrigins, AllowedVapidKeys, BillingMode,
    DirectoryUrl, DomainName, Email, FormerUrls, ListenAddress, NamePart, PostgresUrl, PublicUrl,
    SchemaName, StoreKind,
};
