//! `kalends users`: drops user agents, one by its uaid or those that stay away, and repairs their records.

pub mod drop;
pub mod drop_inactive;
pub mod repair;

use state_machine::{Span, Time};

use crate::command::Group;

pub const GROUP: Group = Group {
    name: "users",
    about: "Drop user agents, one by its uaid or those that stay away, or repair their records",
    help: "\
Examples:
  kalends users drop-inactive --dry-run --data-dir /var/lib/kalends
  kalends users drop-inactive --months 12 --rate 50 --config /etc/kalends/kalends.toml
  kalends users drop 0190a4a3b00070008000000000000001 --data-dir /var/lib/kalends
  kalends users repair --data-dir /var/lib/kalends",
};

/// Months without a connection after which `users drop-inactive` drops a user by default: a browser that is not opened
/// for most of a year keeps its subscriptions.
pub const INACTIVE_MONTHS: u32 = 12;

/// The difference of clocks up to which a record is one of the present.
pub const CLOCK_SKEW: Span = Span::from_secs(60);

/// The latest `connected_at` that is not in the future.
pub fn latest(now: Time) -> Time {
    now + CLOCK_SKEW
}
