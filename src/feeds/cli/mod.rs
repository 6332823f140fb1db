//! `kalends feed` and `kalends broadcast`: on a store, or through the server that holds it; with `--url` over HTTP.
//!
//! - [`put`], [`delete`], [`republish`], [`list`], [`tail`], [`token`], [`broadcast_put`], [`broadcast_list`]: a command
//!   each.
//! - [`key_args`]: a key on the command line. [`change`]: how it is changed. [`remote`]: the HTTP requests; [`tail_url`]: updates over HTTP.
//! - [`tail_cursor`]: the position of a tail. [`update_printer`]: its output. [`stdout_closed`]: its reader is gone.

pub mod broadcast_list;
pub mod broadcast_put;
pub mod change;
pub mod delete;
#[cfg(test)]
mod feed_tests;
pub mod key_args;
pub mod list;
pub mod put;
pub mod remote;
pub mod republish;
pub mod stdout_closed;
pub mod tail;
pub mod tail_cursor;
pub mod tail_url;
pub mod token;
pub mod update_printer;

use crate::command::Group;

pub const FEED: Group = Group {
    name: "feed",
    about: "Write, list and follow feeds",
    help: "\
A feed is a table of keys. Each change gets the feed's next number. A consumer that keeps the number
of the last update it saw gets the last state of each key changed since, at least once. A feed exists
from its first write on. docs/feeds.md has the requests over HTTP.

Examples:
  kalends feed put prices eur 1.08 --data-dir /var/lib/kalends
  kalends feed tail prices --cursor-file prices.cursor --data-dir /var/lib/kalends
  kalends feed token prices --read --days 30 --data-dir /var/lib/kalends",
};

pub const BROADCAST: Group = Group {
    name: "broadcast",
    about: "Publish broadcasts to user agents",
    help: "\
A broadcast is an id with a version, the last of which is sent to all user agents that subscribed to
it. They are the keys and values of the feed `broadcasts`; `kalends feed delete broadcasts ID` removes
one.

Examples:
  kalends broadcast put remote-settings/monitor_changes '\"1796000000\"' --data-dir /var/lib/kalends
  kalends broadcast list --config /etc/kalends/kalends.toml",
};
