//! What the help of the commands teaches.

/// `kalends preflight`
pub const PREFLIGHT: &str = "\
Tries out everything that a server does with the store that the settings name, leaves nothing
behind, and ends with exit code 1 if anything is missing.

Examples:
  kalends preflight --config /etc/kalends.toml
  kalends preflight --data-dir /var/lib/kalends    beside a running server too";

/// `kalends tables`
pub const TABLES: &str = "\
All of them can be run beside a live server, but for copy; all can be run again.
docs/maintenance.md has a line for cron.

Examples:
  kalends tables status --data-dir /var/lib/kalends
  kalends tables create --config /etc/kalends.toml";

/// `kalends users`
pub const USERS: &str = "\
Examples:
  kalends users drop-inactive --dry-run --data-dir /var/lib/kalends
  kalends users drop-inactive --months 2 --rate 50 --config /etc/kalends.toml";

/// `kalends tables list`
pub const LIST: &str = "\
DynamoDB counts rows and bytes about every six hours.

Examples:
  kalends tables list --data-dir /var/lib/kalends
  kalends tables list --json --config /etc/kalends.toml";

/// `kalends tables status`
pub const STATUS: &str = "\
Reads every router record once, to count which month clients are on.

Examples:
  kalends tables status --data-dir /var/lib/kalends
  kalends tables status --json --config /etc/kalends.toml";

/// `kalends tables create`
pub const CREATE: &str = "\
Where tables have a throughput, next month's gets that of this month's; --lower-prior lowers last
month's and never raises it.

Examples:
  kalends tables create --data-dir /var/lib/kalends
  kalends tables create --lower-prior 5:5 --config /etc/kalends.toml";

/// `kalends tables drop-old`
pub const DROP_OLD: &str = "\
A table that clients are still on is kept, and the command says so: run `kalends users drop-inactive`
first. With rotation = false nothing is dropped.

Examples:
  kalends tables drop-old --dry-run --data-dir /var/lib/kalends
  kalends tables drop-old --keep 2 --config /etc/kalends.toml";

/// `kalends tables copy`
pub const COPY: &str = "\
For an installation with rotation = false whose table is to have another month's name: stop the
server, copy, drop the old table, start the server. If it breaks off, run it again before a server
starts: what was delivered meanwhile would come back.

Example:
  kalends tables copy 2026_03 2026_11 --data-dir /var/lib/kalends
  kalends tables drop 2026_03 --yes --rotation=false --data-dir /var/lib/kalends";

/// `kalends tables drop`
pub const DROP: &str = "\
Refused for a table in use, and for one that clients are still on unless --force is given.

Example:
  kalends tables drop 2026_03 --yes --data-dir /var/lib/kalends";

/// `kalends users drop-inactive`
pub const DROP_INACTIVE: &str = "\
Counts them first, then drops them no faster than --rate; who comes back meanwhile is kept. Ctrl-C
stops it between two batches, and it can be run again.

Examples:
  kalends users drop-inactive --dry-run --data-dir /var/lib/kalends
  kalends users drop-inactive --months 2 --rate 50 --config /etc/kalends.toml
  kalends users drop-inactive --since 2025_01 --data-dir /var/lib/kalends";
