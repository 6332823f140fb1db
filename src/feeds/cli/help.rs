//! What the help of the commands teaches.

/// `kalends feed`
pub const FEED: &str = "\
A feed is a table of keys whose every change gets the feed's next number. Whoever remembers the
number of the last update it saw is given the last state of each key that changed since, at least
once. A feed is there from its first write on. docs/feeds.md has the requests over HTTP.

Examples:
  kalends feed put prices eur 1.08 --data-dir /var/lib/kalends
  kalends feed tail prices --cursor-file prices.cursor --data-dir /var/lib/kalends
  kalends feed token prices --read --days 30 --data-dir /var/lib/kalends";

/// `kalends broadcast`
pub const BROADCAST: &str = "\
A broadcast is an id with a version that many user agents want to know the last of. They are the
keys and values of the feed `broadcasts`; `kalends feed delete broadcasts ID` removes one.

Examples:
  kalends broadcast put remote-settings/monitor_changes '\"1796000000\"' --data-dir /var/lib/kalends
  kalends broadcast list --config /etc/kalends.toml";

/// `kalends feed put`
pub const PUT: &str = "\
Standard input is taken as it is, with the line's end that echo puts behind it. Beside a live
server, the server publishes what was written; where none runs here, this command does. The version
counts the changes of the key, its publications too.

Examples:
  kalends feed put prices eur 1.08 --data-dir /var/lib/kalends
  printf %s \"$(cat prices.json)\" | kalends feed put prices all --config /etc/kalends.toml
  KALENDS_FEED_TOKEN=kf1... kalends feed put prices eur 1.08 --url https://push.example.net";

/// `kalends feed delete`
pub const DELETE: &str = "\
What is left of the key gets a number too, so that consumers see that it was deleted.

Examples:
  kalends feed delete prices eur --data-dir /var/lib/kalends
  KALENDS_FEED_TOKEN=kf1... kalends feed delete prices eur --url https://push.example.net";

/// `kalends feed republish`
pub const REPUBLISH: &str = "\
The key gets a new number and keeps its value, so that every consumer is given it once more.

Examples:
  kalends feed republish prices eur --data-dir /var/lib/kalends
  KALENDS_FEED_TOKEN=kf1... kalends feed republish prices eur --url https://push.example.net";

/// `kalends feed list`
pub const LIST: &str = "\
Keys that were deleted are counted too: what is left of them stays.

Examples:
  kalends feed list --data-dir /var/lib/kalends
  kalends feed list --json --config /etc/kalends.toml";

/// `kalends feed tail`
pub const TAIL: &str = "\
Prints `NUMBER KEY = VALUE` or `NUMBER KEY deleted`, and goes on until Ctrl-C. Where the server goes
away it waits for it. Where none runs on an embedded store it prints what is there, and waits for one.
Where nobody reads its output any more, it ends.

Examples:
  kalends feed tail prices --data-dir /var/lib/kalends
  kalends feed tail prices --cursor-file prices.cursor --json --config /etc/kalends.toml
  kalends feed tail prices --once --after 42 --data-dir /var/lib/kalends
  KALENDS_FEED_TOKEN=kf1... kalends feed tail prices --url https://push.example.net";

/// `kalends feed token`
pub const TOKEN: &str = "\
Prints the token, which is made from the keys in the data directory and kept nowhere: whoever has it
can use that one feed. Raising the setting feed_tokens_epoch revokes all of them; where the servers
have one, give this command the same, by their --config or by --feed-tokens-epoch.

Examples:
  kalends feed token prices --read --data-dir /var/lib/kalends
  kalends feed token prices --read --write --days 30 --config /etc/kalends.toml
  curl -H \"Authorization: Bearer $(kalends feed token prices --read --config /etc/kalends.toml)\" \\
      https://push.example.net/v1/feeds/prices";

/// `kalends broadcast put`
pub const BROADCAST_PUT: &str = "\
Firefox subscribes to remote-settings/monitor_changes, whose versions are numbers in quotes. Agents
are told within broadcast_fanout_ms.

Examples:
  kalends broadcast put remote-settings/monitor_changes '\"1796000000\"' --data-dir /var/lib/kalends
  kalends broadcast put news/front-page 17 --config /etc/kalends.toml";

/// `kalends broadcast list`
pub const BROADCAST_LIST: &str = "\
Examples:
  kalends broadcast list --data-dir /var/lib/kalends
  kalends broadcast list --json --config /etc/kalends.toml";
