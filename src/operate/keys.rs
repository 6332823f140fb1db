//! `kalends keys`: keys of the server, of a cluster and of an application server.

use std::io::{Write, stdout};
use std::path::PathBuf;

use clap::Args;

use crate::command::{Command, Commands, Failure, Group, Shown, load};
use crate::dev::vapid_key::VapidKey;
use crate::dev::{ToolError, to_base64url};
use crate::settings::Flags;
use crate::settings::keys::KeyList;
use crate::settings::keys::{add, generate};

pub const GROUP: Group = Group {
    name: "keys",
    about: "Generate keys of the server, of a cluster or of an application server",
    help: "",
};

#[derive(Debug, Args)]
pub struct Generate {}

impl Command for Generate {
    const NAME: &'static str = "keys generate";
    const ABOUT: &'static str = "\
Print a fresh key for `crypto_keys` in keys.toml

The server generates its first key by itself. To change keys, put the new one in front of the list and keep the old \
ones, because the endpoint URLs issued so far are encrypted with them. In a cluster, append the new key first, and put \
it in front when every node has it. Otherwise an endpoint node without the key answers 404, and the subscription is \
lost (docs/operations.md).";

    fn run(self, _commands: Commands) -> Result<(), Failure> {
        Ok(writeln!(stdout(), "{}", *generate())?)
    }
}

#[derive(Debug, Args)]
pub struct Cluster {
    /// The setting `data_dir`, in which keys.toml is.
    #[command(flatten)]
    flags: Flags,
}

impl Command for Cluster {
    const NAME: &'static str = "keys cluster";
    const ABOUT: &'static str = "\
Put a fresh key in front of `cluster_keys` in keys.toml

The nodes of a cluster sign their requests to each other with these keys.";
    const HELP: &'static str = "\
All nodes of a cluster have the same keys.toml in their data directories. This command creates the file
if it is missing, with a crypto key for endpoint URLs. If a server already runs on the same tables, copy
its keys.toml into the data directory first: it has the keys of all endpoint URLs issued so far.

The first key signs, and every key in the list verifies. To change the key, run this command once, copy
the file to every node, and restart the connection nodes before the endpoint nodes. Then remove the keys
after the first.

Examples:
  kalends keys cluster --data-dir /var/lib/kalends
  install -m 600 -o kalends keys.toml /var/lib/kalends/
                                                 on another node, with the file copied there";
    const SETTINGS: Shown = Shown::Only(&["config", "data_dir"]);

    fn run(self, _commands: Commands) -> Result<(), Failure> {
        Ok(add::run(&load(&self.flags)?, KeyList::Cluster)?)
    }
}

#[derive(Debug, Args)]
pub struct Auth {
    /// The setting `data_dir`, in which keys.toml is.
    #[command(flatten)]
    flags: Flags,
}

impl Command for Auth {
    const NAME: &'static str = "keys auth";
    const ABOUT: &'static str = "\
Put a fresh key in front of `auth_keys` in keys.toml

The secrets of user agents behind bridges are made with these keys.";
    const HELP: &'static str = "\
A single server adds its first key by itself when it starts with bridges. All nodes of a cluster have the
same keys.toml: run this command once, copy the file to every node, and restart the nodes that serve
endpoints.

The first key makes the secrets of new user agents, and every key in the list verifies. Keep the old keys:
an agent whose secret no key verifies is answered 401 and does not register anew. The auth_keys of an
autopush-rs installation can be appended to the list as they are.

Example:
  kalends keys auth --data-dir /var/lib/kalends";
    const SETTINGS: Shown = Shown::OfStore(&[]);

    fn run(self, _commands: Commands) -> Result<(), Failure> {
        Ok(add::run(&load(&self.flags)?, KeyList::Auth)?)
    }
}

#[derive(Debug, Args)]
pub struct Vapid {
    /// A PEM file, created with mode 0600
    file: PathBuf,
    /// Print the private key too, on a second line, in the format of `web-push` for Node.js
    #[arg(long)]
    private: bool,
}

impl Command for Vapid {
    const NAME: &'static str = "keys vapid";
    const ABOUT: &'static str = "\
Print the public key of the VAPID key in FILE; generate it if FILE is missing

An application server signs its pushes with the key (`kalends push --vapid-key FILE`). A subscription can be \
restricted to the public key.";

    fn run(self, _commands: Commands) -> Result<(), Failure> {
        Ok(writeln!(stdout(), "{}", self.text()?)?)
    }
}

impl Vapid {
    /// The public key in base64url, and on a second line the private key if requested.
    fn text(&self) -> Result<String, ToolError> {
        let VapidKey { pair, .. } = VapidKey::load_or_make(&self.file)?;
        let public = to_base64url(pair.public());
        Ok(match self.private {
            true => format!("{public}\n{}", to_base64url(&pair.private_bytes())),
            false => public,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_vapid_key_is_printed_only_where_it_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let text =
            |file: &str, private| Vapid { file: dir.path().join(file), private }.text().unwrap();
        let public = text("vapid.pem", false);
        let both = text("vapid.pem", true);
        let private = both.strip_prefix(&format!("{public}\n")).unwrap();
        std::fs::write(dir.path().join("bare"), private).unwrap();
        assert_eq!(text("bare", false), public);
    }
}
