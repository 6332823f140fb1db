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
  kalends serve --config /etc/kalends/kalends.toml --public-url https://push.example.net";

/// `kalends connect`
pub(super) const CONNECT: &str = "\
User agents connect to it. Endpoint nodes hand it their messages on its router port. All nodes need the same tables in
DynamoDB, the same keys.toml in their data directories, and the same --public-url. Of the settings, it uses those of
connections.

Examples:
  kalends keys cluster --data-dir one            once: make keys.toml, for all nodes
  mkdir -m 700 two && cp -p one/keys.toml two/   then: copy it to each

  A connection node and an endpoint node on one machine, against a DynamoDB server at port 8000:
  export AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=secret KALENDS_STORE=dynamodb
  export KALENDS_DYNAMODB_REGION=eu-central-1 KALENDS_DYNAMODB_ENDPOINT_URL=http://127.0.0.1:8000
  export KALENDS_PUBLIC_URL=http://127.0.0.1:8090
  kalends endpoint --data-dir one --listen 127.0.0.1:8090
  kalends connect --data-dir two --listen 127.0.0.1:8080 --router-listen 127.0.0.1:8081
  kalends listen ws://127.0.0.1:8080/            in another terminal: be a user agent

  In a private network:
  kalends connect --config /etc/kalends/kalends.toml --listen 0.0.0.0:8080 --router-listen 10.0.0.5:8081 \\
      --nodes-allowed 10.0.0.0/8 --public-url https://push.example.net";

/// `kalends endpoint`
pub(super) const ENDPOINT: &str = "\
Application servers send to it. It hands messages to the connection nodes that their user agents are connected to, and
stores them where there is none. All nodes need the same tables in DynamoDB, the same keys.toml in their data
directories, and the same --public-url: the URL of the endpoint nodes, behind a load balancer where there are several.

Examples (kalends connect --help has a connection node beside it):
  kalends endpoint --data-dir one --listen 127.0.0.1:8090 --store dynamodb --dynamodb-region eu-central-1
  kalends endpoint --config /etc/kalends/kalends.toml --listen 0.0.0.0:8090 \\
      --nodes-allowed 10.0.0.0/8 --public-url https://push.example.net";

/// `kalends keys cluster`
pub(super) const CLUSTER_KEYS: &str = "\
All nodes of a cluster have the same keys.toml, in the data directory of each. Where there is none, this
command makes it, with a key for endpoints. Where a server runs on the same tables already, copy its
keys.toml here first: it has the keys of all endpoints that were handed out.

The first key signs, all of them verify. To change it, run this once, copy the file to every node,
and restart the connection nodes and then the endpoint nodes. Then take out the keys behind the first.

Examples:
  kalends keys cluster --data-dir /var/lib/kalends
  install -m 600 -o kalends keys.toml /var/lib/kalends/
                                                 on another node, with the file copied there";

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
  kalends replay fixtures/feeds/time_table.feed --trace";
