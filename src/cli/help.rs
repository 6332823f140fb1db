//! Help of the commands: what each needs, and examples.

pub(super) const EXAMPLES: &str = "\
Examples:
  kalends                                        serve on 127.0.0.1:8080, data in ./kalends-data
  kalends subscribe --subscription sub.json      in a second terminal: act as a user agent
  kalends push --subscription sub.json -m hello  in a third: send it a message
  kalends serve --help                           all settings";

pub(super) const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 failed, refused, or a check failed; 2 a wrong argument or setting. Standard error has
the reason.";

pub(super) const SERVE: &str = "\
Each setting can also be a line of the --config file (listen = \"0.0.0.0:8080\") or an environment
variable (KALENDS_LISTEN=0.0.0.0:8080). A flag overrides the environment, and the environment the file.

One server is enough for most installations. A cluster has connection nodes, which hold the connections
of user agents, and endpoint nodes, which accept pushes and relay them to the connection nodes. All
nodes need the same DynamoDB tables, the same keys.toml in their data directories and the same
--public-url, which is the URL of the endpoint nodes or of the load balancer in front of them.
docs/operations.md explains both.

Examples:
  kalends serve --data-dir /var/lib/kalends --listen 0.0.0.0:8080 \\
      --public-url https://push.example.net
  kalends serve --config /etc/kalends/kalends.toml --public-url https://push.example.net

Examples of a cluster:
  kalends keys cluster --data-dir one            once: create keys.toml for all nodes
  mkdir -m 700 two && cp -p one/keys.toml two/   copy it to each node

  One connection node and one endpoint node on this machine, with a DynamoDB server at port 8000:
  export AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=secret KALENDS_STORE=dynamodb
  export KALENDS_DYNAMODB_REGION=eu-central-1 KALENDS_DYNAMODB_ENDPOINT_URL=http://127.0.0.1:8000
  export KALENDS_PUBLIC_URL=http://127.0.0.1:8090
  kalends serve --role endpoint --data-dir one --listen 127.0.0.1:8090
  kalends serve --role connection --data-dir two --listen 127.0.0.1:8080 --router-listen 127.0.0.1:8081
  kalends subscribe ws://127.0.0.1:8080/         in another terminal: act as a user agent

  In a private network:
  kalends serve --role connection --listen 0.0.0.0:8080 --router-listen 10.0.0.5:8081 \\
      --nodes-allowed 10.0.0.0/8 --public-url https://push.example.net
  kalends serve --role endpoint --listen 0.0.0.0:8090 \\
      --nodes-allowed 10.0.0.0/8 --public-url https://push.example.net";

pub(super) const CLUSTER_KEYS: &str = "\
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

pub(super) const AUTH_KEYS: &str = "\
A single server adds its first key by itself when it starts with bridges. All nodes of a cluster have the
same keys.toml: run this command once, copy the file to every node, and restart the nodes that serve
endpoints.

The first key makes the secrets of new user agents, and every key in the list verifies. Keep the old keys:
an agent whose secret no key verifies is answered 401 and does not register anew. The auth_keys of an
autopush-rs installation can be appended to the list as they are.

Example:
  kalends keys auth --data-dir /var/lib/kalends";

pub(super) const SUBSCRIBE: &str = "\
Examples:
  kalends subscribe                              a new agent on ws://127.0.0.1:8080/
  kalends subscribe wss://push.example.net/ --state agent.json
                                                 the same agent every time
  kalends subscribe --subscription sub.json --count 1
                                                 end after one message
  kalends subscribe --vapid-public-key \"$(kalends keys vapid vapid.pem)\"
                                                 accept only messages signed with that key";

pub(super) const PUSH: &str = "\
Examples:
  kalends push --subscription sub.json --message hello
  kalends push --subscription sub.json --vapid-key vapid.pem --sub mailto:me@example.net < file
  kalends push https://push.example.net/wpush/TOKEN --message ''
                                                 notify the agent without a payload";

pub(super) const REPLAY: &str = "\
Examples:
  kalends dev replay fixtures/sessions/hello_of_a_new_agent.session --trace
  kalends dev replay fixtures/feeds/time_table.feed --trace
  kalends dev replay fixtures/deliveries/unconfirmed_then_stored.delivery --trace
  kalends dev replay fixtures/agents/notification_lost.agent --json | jq .
  kalends dev replay --write new.session         fill the effects in";

pub(super) const VIEW: &str = "\
The page is one file without requests to other servers. It shows where a script fails: the expected effects and the
real ones. The command prints the path of the page, and ends with 0 also if a script fails.

Examples:
  kalends dev view fixtures/sessions/direct_push_acked.session
  xargs kalends dev view --output machine.html < fixtures/shown.txt";

pub(super) const COMPLETIONS: &str = "\
Examples:
  kalends completions bash > /etc/bash_completion.d/kalends
  kalends completions zsh > ~/.zfunc/_kalends
  kalends completions fish > ~/.config/fish/completions/kalends.fish";
