//! What the help of the commands teaches.

/// `kalends`
pub(super) const EXAMPLES: &str = "\
Examples:
  kalends                                        serve on 127.0.0.1:8080, data in ./kalends-data
  kalends listen --subscription sub.json         in a second terminal: be a user agent
  kalends push --subscription sub.json -m hello  in a third: send to it
  kalends serve --help                           all settings";

/// `kalends serve`
pub(super) const SERVE: &str = "\
Each setting can also be given as a line of the --config file (listen = \"0.0.0.0:8080\") or in the
environment (KALENDS_LISTEN=0.0.0.0:8080). A flag wins over the environment, that over the file.

Examples:
  kalends serve --data-dir /var/lib/kalends --listen 0.0.0.0:8080 \\
      --public-url https://push.example.net
  kalends serve --config /etc/kalends.toml --public-url https://push.example.net";

/// `kalends listen`
pub(super) const LISTEN: &str = "\
Examples:
  kalends listen                                 a new agent on ws://127.0.0.1:8080/
  kalends listen wss://push.example.net/ --state agent.json
                                                 the same agent every time
  kalends listen --subscription sub.json --count 1
                                                 end after one message
  kalends listen --vapid-public-key \"$(kalends keys vapid vapid.pem)\"
                                                 take messages signed with that key only";

/// `kalends push`
pub(super) const PUSH: &str = "\
Examples:
  kalends push --subscription sub.json --message hello
  kalends push --subscription sub.json --vapid-key vapid.pem --sub mailto:me@example.net < file
  kalends push https://push.example.net/wpush/TOKEN --message ''
                                                 wake the agent, without a message";

/// `kalends replay`
pub(super) const REPLAY: &str = "\
Examples:
  kalends replay fixtures/sessions/hello_of_a_new_agent.session --trace
  kalends replay fixtures/feeds/time_table_of_the_seed.feed --trace";
