//! The text behind the options in the help of each command.

pub const FEED: &str = "\
A feed is a table of keys. Each change gets the feed's next number. A consumer that keeps the number
of the last update it saw gets the last state of each key changed since, at least once. A feed exists
from its first write on. docs/feeds.md has the requests over HTTP.

Examples:
  kalends feed put prices eur 1.08 --data-dir /var/lib/kalends
  kalends feed tail prices --cursor-file prices.cursor --data-dir /var/lib/kalends
  kalends feed token prices --read --days 30 --data-dir /var/lib/kalends";

pub const BROADCAST: &str = "\
A broadcast is an id with a version, the last of which is sent to all user agents that subscribed to
it. They are the keys and values of the feed `broadcasts`; `kalends feed delete broadcasts ID` removes
one.

Examples:
  kalends broadcast put remote-settings/monitor_changes '\"1796000000\"' --data-dir /var/lib/kalends
  kalends broadcast list --config /etc/kalends/kalends.toml";

pub const PUT: &str = "\
Standard input is read unchanged, with the newline that echo adds. A live server publishes the
change; if none runs here, this command does. The version counts the changes of the key, including
its publications.

Examples:
  kalends feed put prices eur 1.08 --data-dir /var/lib/kalends
  printf %s \"$(cat prices.json)\" | kalends feed put prices all --config /etc/kalends/kalends.toml
  KALENDS_FEED_TOKEN=kf1... kalends feed put prices eur 1.08 --url https://push.example.net";

pub const DELETE: &str = "\
The deletion gets a number too, so that consumers see it.

Examples:
  kalends feed delete prices eur --data-dir /var/lib/kalends
  KALENDS_FEED_TOKEN=kf1... kalends feed delete prices eur --url https://push.example.net";

pub const REPUBLISH: &str = "\
The key gets a new number and keeps its value, so that every consumer gets it again.

Examples:
  kalends feed republish prices eur --data-dir /var/lib/kalends
  KALENDS_FEED_TOKEN=kf1... kalends feed republish prices eur --url https://push.example.net";

pub const LIST: &str = "\
Deleted keys are counted too: their deletions stay in the feed.

Examples:
  kalends feed list --data-dir /var/lib/kalends
  kalends feed list --json --config /etc/kalends/kalends.toml";

pub const TAIL: &str = "\
Prints `NUMBER KEY = VALUE` or `NUMBER KEY deleted` until Ctrl-C, or until its output is closed. If
the server ends, it waits for the next one. If none runs on an embedded store, it prints what is there
and waits for one.

Examples:
  kalends feed tail prices --data-dir /var/lib/kalends
  kalends feed tail prices --cursor-file prices.cursor --json --config /etc/kalends/kalends.toml
  kalends feed tail prices --once --after 42 --data-dir /var/lib/kalends
  KALENDS_FEED_TOKEN=kf1... kalends feed tail prices --url https://push.example.net";

pub const TOKEN: &str = "\
Prints the token, which is made from the keys in the data directory and stored nowhere. Its holder can
use that one feed. Raising the setting feed_tokens_epoch revokes all tokens; give this command the
value of the servers, by their --config or by --feed-tokens-epoch.

Examples:
  kalends feed token prices --read --data-dir /var/lib/kalends
  kalends feed token prices --read --write --days 30 --config /etc/kalends/kalends.toml
  curl -H \"Authorization: Bearer $(kalends feed token prices --read --config /etc/kalends/kalends.toml)\" \\
      https://push.example.net/v1/feeds/prices";

pub const BROADCAST_PUT: &str = "\
Firefox subscribes to remote-settings/monitor_changes, whose versions are numbers in quotes. Agents
get a version within broadcast_fanout_ms.

Examples:
  kalends broadcast put remote-settings/monitor_changes '\"1796000000\"' --data-dir /var/lib/kalends
  kalends broadcast put news/front-page 17 --config /etc/kalends/kalends.toml";

pub const BROADCAST_LIST: &str = "\
Examples:
  kalends broadcast list --data-dir /var/lib/kalends
  kalends broadcast list --json --config /etc/kalends/kalends.toml";
