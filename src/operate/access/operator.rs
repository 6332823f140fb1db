//! `kalends access operator`: makes a link that opens the operator's page once.

use std::io::{Write, stderr, stdout};

use state_machine::Span;

use clap::Args;

use crate::command::store_command::collect;
use crate::command::{Command, Commands, Failure, Shown, load};
use crate::operate::status::Status;
use crate::settings::keys::{Keys, Passes, Purpose};
use crate::settings::{Flags, reachable};
use crate::system::clock::unix_now;

/// Time from the making of a link to its end.
pub const LINK_LIFETIME: Span = Span::from_secs(5 * 60);

/// The path that exchanges a link for a session, and the parameter that has it.
pub const LOGIN_PATH: &str = "/admin/login";
pub const LINK_PARAMETER: &str = "link";

#[derive(Debug, thiserror::Error)]
#[error(
    "the server has no operator's page: set admin_page to true and metrics_listen to an address that is free"
)]
struct Off;

#[derive(Debug, Args)]
pub struct Operator {
    #[command(flatten)]
    flags: Flags,
}

/// Makes links, and opens those that this installation made.
pub fn operator_links(keys: &Keys) -> Passes {
    Passes::derive(keys, Purpose::OperatorLink, LINK_LIFETIME)
}

impl Command for Operator {
    const NAME: &'static str = "access operator";
    const ABOUT: &'static str = "Print a link that opens the operator's page once";
    const HELP: &'static str = "\
The page is at /admin on the port of metrics_listen; a running server is asked for its address. The link is
valid once, for five minutes, and needs the keys of the server: run the command as the server's user.

Examples:
  kalends access operator --data-dir /var/lib/kalends
  runuser -u kalends -- kalends access operator --config /etc/kalends/kalends.toml";
    const SETTINGS: Shown = Shown::OfStore(&[]);

    /// Prints a link, and its use on standard error.
    fn run(self, _commands: Commands) -> Result<(), Failure> {
        let settings = load(&self.flags)?;
        let screens = collect(Status::default(), &settings)?;
        let address = screens.into_iter().find_map(|screen| screen.operator_page).ok_or(Off)?;
        let link = operator_links(&Keys::load(&settings.data_dir)?).mint(unix_now());
        let url = format!("http://{}{LOGIN_PATH}?{LINK_PARAMETER}={link}", reachable(address));
        writeln!(stdout(), "{url}")?;
        let minutes = LINK_LIFETIME.0 / 60_000;
        // Standard error may be closed.
        let _ = writeln!(
            stderr(),
            "The link signs one operator in, once, within {minutes} minutes. From another computer, forward the port first:\n\
             ssh -L {port}:{} SERVER",
            reachable(address),
            port = address.port()
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_of_all_addresses_is_reached_at_loopback() {
        for (address, expected) in
            [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:2", "[::1]:2"), ("10.0.0.1:3", "10.0.0.1:3")]
        {
            assert_eq!(reachable(address.parse().unwrap()).to_string(), expected);
        }
    }
}
