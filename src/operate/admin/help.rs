//! The text behind the options in the help of each command.

pub const PREFLIGHT: &str = "\
Tries each operation of a server on the store that the settings name, and leaves nothing behind.
The exit code is 1 if a check fails.

Examples:
  kalends preflight --config /etc/kalends/kalends.toml
  kalends preflight --data-dir /var/lib/kalends    also while a server runs";

pub const TABLES: &str = "\
All except copy can run beside a live server; all can be repeated. docs/maintenance.md has a line
for cron.

Examples:
  kalends tables status --data-dir /var/lib/kalends
  kalends tables create --config /etc/kalends/kalends.toml";

pub const USERS: &str = "\
Examples:
  kalends users drop-inactive --dry-run --data-dir /var/lib/kalends
  kalends users drop-inactive --months 12 --rate 50 --config /etc/kalends/kalends.toml
  kalends users drop 0190a4a3b00070008000000000000001 --data-dir /var/lib/kalends
  kalends users repair --data-dir /var/lib/kalends";

pub const LIST: &str = "\
DynamoDB counts rows and bytes about every six hours.

Examples:
  kalends tables list --data-dir /var/lib/kalends
  kalends tables list --json --config /etc/kalends/kalends.toml";

pub const STATUS: &str = "\
Reads every router record once, to count which month agents are on.

Examples:
  kalends tables status --data-dir /var/lib/kalends
  kalends tables status --json --config /etc/kalends/kalends.toml";

pub const CREATE: &str = "\
If tables have a throughput, next month's gets that of this month's; --lower-prior lowers last
month's and never raises it.

Examples:
  kalends tables create --data-dir /var/lib/kalends
  kalends tables create --lower-prior 5:5 --config /etc/kalends/kalends.toml";

pub const DROP_OLD: &str = "\
A table that agents are still on is kept, with a note: run `kalends users drop-inactive` first. With
rotation = false nothing is dropped.

Examples:
  kalends tables drop-old --dry-run --data-dir /var/lib/kalends
  kalends tables drop-old --keep 2 --config /etc/kalends/kalends.toml";

pub const COPY: &str = "\
Gives the table of an installation with rotation = false another month's name: stop the server,
copy, drop the old table, start the server. If it fails, repeat it before a server starts: messages
delivered meanwhile would be delivered again.

Example:
  kalends tables copy 2026_03 2026_11 --data-dir /var/lib/kalends
  kalends tables drop 2026_03 --yes --rotation=false --data-dir /var/lib/kalends";

pub const DROP: &str = "\
Refused for a table in use, and for one that agents are still on unless --force is given.

Example:
  kalends tables drop 2026_03 --yes --data-dir /var/lib/kalends";

pub const DROP_INACTIVE: &str = "\
Counts the users first, then drops them with their channels and messages, no faster than --rate;
users that connect meanwhile are kept. Ctrl-C stops it between two batches, and it can be repeated.

Examples:
  kalends users drop-inactive --dry-run --data-dir /var/lib/kalends
  kalends users drop-inactive --months 6 --rate 50 --config /etc/kalends/kalends.toml
  kalends users drop-inactive --since 2025_01 --data-dir /var/lib/kalends";

pub const DROP_USER: &str = "\
Deletes the record, and the channels and messages in every table. Senders get 410 from then on. A
server on this machine closes the agent's connection; the agent gets a new uaid when it connects
again, and subscribes anew. With DynamoDB its connection stays until it ends by itself.

The exit code is 1 if there is no such user. After an interruption, repeat the command.

Examples:
  kalends users drop 0190a4a3b00070008000000000000001 --data-dir /var/lib/kalends
  kalends users drop 0190a4a3-b000-7000-8000-000000000001 --config /etc/kalends/kalends.toml";

pub const REPAIR_USERS: &str = "\
For records that a server with a clock ahead has written. Nothing is lost with them, but each connect of such an
agent costs a second write, and one that stays away is not found by `users drop-inactive`. Correct the clock
first, and stop all servers; agents reconnect. The exit code is 1 if a server is running.

Examples:
  kalends users repair --data-dir /var/lib/kalends
  kalends users repair --server-stopped --config /etc/kalends/kalends.toml";

pub const INSPECT: &str = "\
Begins with the reasons why a push to the user agent may not arrive, the most important one first. The
facts follow: its record, its months and channels, the messages that wait, and its connection. Without
a running server, and with DynamoDB from another machine, the connection is not known. keys.toml in
the data directory opens endpoints and message URLs; a uaid needs no key. Nothing is changed.

The exit code is 1 if no key opens the endpoint or message URL, and 2 if the argument is neither of
them nor a uaid.

Examples:
  kalends inspect https://push.example.net/wpush/AbCd... --data-dir /var/lib/kalends
  kalends inspect 0190a4a3b00070008000000000000001 --json --config /etc/kalends/kalends.toml";

pub const IMPORT: &str = "\
docs/migrate.md describes the whole move from autopush, step by step.

Examples:
  kalends import autopush-redis redis://127.0.0.1:6379 --dry-run --data-dir /var/lib/kalends
  kalends import autopush-redis redis://127.0.0.1:6379 --data-dir /var/lib/kalends";

pub const IMPORT_REDIS: &str = "\
Stop autopush-rs and this server first, and put the crypto keys of autopush-rs into keys.toml of the data
directory. Redis keeps running and is not changed. With SQLite, a store is created if there is none.

A user is imported with its channels and its messages that are neither acked nor expired. A user that is
in the store already is skipped: after an interruption, run the command again. The exit code is 1 if
no crypto key opens the ids of the waiting messages, if users are behind a bridge and keys.toml has no
auth_keys, or if the database has no users. Without waiting messages the crypto key is not checked.
A special character of the password in the URL is written as %XX.

Examples:
  kalends import autopush-redis redis://127.0.0.1:6379 --dry-run --data-dir /var/lib/kalends
  REDISCLI_AUTH=secret kalends import autopush-redis rediss://redis.example.net/2 --data-dir /var/lib/kalends
  kalends import autopush-redis redis://127.0.0.1 --store dynamodb --server-stopped --data-dir /var/lib/kalends";

pub const STORE: &str = "\
docs/operations.md describes the whole move, to a cluster and back.

Examples:
  kalends store copy --to dynamodb --server-stopped --data-dir /var/lib/kalends
  kalends store copy --to embedded --server-stopped --data-dir /var/lib/kalends";

pub const STORE_COPY: &str = "\
Stop every server of both stores first. The data directory holds the SQLite store, or will, and keys.toml,
which opens the endpoints of all subscriptions: copy it to every node. The settings dynamodb_... name the
tables. The target must be empty, or a copy from the same source that was interrupted: run the command
again, and it writes all rows again. No server starts on an unfinished copy.

In the end all rows are read from both stores and compared, except messages that expire within an hour.
The source is not changed, unless it has lost receipt subscriptions: these are restored first, as by
`kalends store repair`. The exit code is 1 if a table differs, and standard error names it.

Examples:
  kalends store copy --to dynamodb --server-stopped --dynamodb-region eu-central-1 --data-dir /var/lib/kalends
  kalends store copy --to embedded --server-stopped --config /etc/kalends/kalends.toml
  kalends store copy --to dynamodb --server-stopped --verify-only --json --config /etc/kalends/kalends.toml";

pub const STORE_REPAIR: &str = "\
For a store that an earlier build has copied from SQLite, where URLs of receipts are answered 404. Each
sequence is made anew from the rows of its receipts, and its numbers continue above them. Receipts that later
ones have overwritten cannot be restored; the command prints their number. Stop all servers first. The exit
code is 1 if a server is running.

Examples:
  kalends store repair --data-dir /var/lib/kalends
  kalends store repair --server-stopped --config /etc/kalends/kalends.toml";

pub const ACCESS: &str = "\
With access = \"token\" a user agent connects at wss://HOST/u/TOKEN. The commands run beside a live
server and without one. On DynamoDB every node follows them within feed_poll_ms.

Examples:
  kalends access add alice --data-dir /var/lib/kalends
  kalends access list --data-dir /var/lib/kalends";

pub const ACCESS_ADD: &str = "\
Only a hash of the token is stored: it cannot be shown again. The exit code is 1 if the name is taken.

Examples:
  kalends access add alice --data-dir /var/lib/kalends
  kalends access add bob --expires 90d --agents-max 5 --config /etc/kalends/kalends.toml";

pub const ACCESS_LIST: &str = "\
Connections, pushes and bytes are those of the running server since it started.

Examples:
  kalends access list --data-dir /var/lib/kalends
  kalends access list --json --data-dir /var/lib/kalends";

pub const ACCESS_ROTATE: &str = "\
For a token that others may have seen, and to extend one that expires. The former token ends: its user
agents are closed, and cannot connect with it. With the new one they keep their subscriptions, and get what was
stored meanwhile. The exit code is 1 if there is no valid token with the name.

Examples:
  kalends access rotate alice --data-dir /var/lib/kalends
  kalends access rotate alice --expires 90d --config /etc/kalends/kalends.toml";

pub const ACCESS_REVOKE: &str = "\
A revoked token is never valid again: add a new one. Its user agents then subscribe anew. The exit
code is 1 if there is no such token, or if it is revoked already.

Example:
  kalends access revoke alice --data-dir /var/lib/kalends";

pub const ACCESS_OPERATOR: &str = "\
The page is at /admin on the port of metrics_listen. The link is valid once, for five minutes, and needs
the keys of the server: run the command as the server's user.

Examples:
  kalends access operator --data-dir /var/lib/kalends
  sudo -u kalends kalends access operator --config /etc/kalends/kalends.toml";

pub const NODES: &str = "\
Reads every router record once, counts the agents on each node, and asks each node at its router port. With
a server on the data directory, it shows what that server sees: its breakers, and notifications that wait.
Without one, the command asks by itself, with the cluster_keys of keys.toml.

Examples:
  kalends nodes --store dynamodb --data-dir /var/lib/kalends
  kalends nodes --json --config /etc/kalends/kalends.toml";
