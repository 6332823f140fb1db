//! `kalends serve`: its arguments, and the list of commands that the server can run.

use clap::Args;

use super::ephemeral::Home;
use super::{Use, run};
use crate::command::{Command, Commands, Failure, load, load_flags};
use crate::settings::{Flags, Role};

#[derive(Debug, Default, Args)]
pub struct Serve {
    /// What this process serves
    #[arg(long, value_enum, default_value_t)]
    pub role: Role,
    /// Run a server for a test, in a directory of its own that goes with it
    ///
    /// It listens on free ports of 127.0.0.1, prints one line of JSON when it serves, and ends with the program that
    /// started it. It refuses bodies that no user agent could decrypt, logs from `warn` on, and has `/dev/clock`, by which
    /// a test moves its clock. It reads no file of settings and no KALENDS_ variable: flags alone change it.
    #[arg(long, conflicts_with_all = ["config", "role", "data_dir", "backup_dir", "store", "domain"])]
    pub ephemeral: bool,
    #[command(flatten)]
    pub flags: Flags,
    #[command(flatten)]
    pub dev: DevArgs,
}

/// Hidden flags for developers. They are no settings: neither a file nor the environment can set them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
pub struct DevArgs {
    /// Allow the flags for developers, and `/dev/clock`
    #[arg(long, hide = true)]
    pub dev: bool,
    /// Run with a clock that is SECONDS ahead of the system's; a negative number is behind it
    #[arg(long, hide = true, requires = "dev", default_value_t = 0, value_name = "SECONDS")]
    #[arg(allow_negative_numbers = true)]
    pub clock_offset_s: i64,
}

impl Command for Serve {
    const NAME: &'static str = "serve";
    const ABOUT: &'static str = "Run the server; `kalends` alone does the same";
    const HELP: &'static str = "\
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

A server for a test, of which nothing is left:
  kalends serve --ephemeral

--ephemeral prints a line such as this one when it serves, and nothing else on standard output:
  {\"http\":\"http://127.0.0.1:41763\",\"ws\":\"ws://127.0.0.1:41763/\",\"clock\":\"http://127.0.0.1:41763/dev/clock\", ...}
Settings files and all variables KALENDS_... are ignored, among them KALENDS_DATA_DIR, KALENDS_BACKUP_DIR,
KALENDS_STORE, KALENDS_LISTEN and KALENDS_METRICS_LISTEN. docs/for-tests.md has examples for pytest and Node.

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

    fn run(self, commands: Commands) -> Result<(), Failure> {
        let home = self.ephemeral.then(Home::make).transpose()?;
        let settings = match &home {
            Some(home) => load_flags(&self.flags, &home.defaults())?,
            None => load(&self.flags)?,
        };
        if home.is_some() && settings.listen.is_unix() {
            return Err(Failure::usage(
                "a server for a test listens on an address: set listen to 127.0.0.1:0",
            ));
        }
        settings.check(self.role).map_err(Failure::usage)?;
        let has_clock = self.dev.dev || self.ephemeral;
        // The directory of a test is removed when nothing uses it any more.
        let use_of = Use { clock_offset_s: self.dev.clock_offset_s, has_clock, home };
        run(self.role, &settings, &use_of, commands).map_err(|error| {
            match error.is_of_configuration() {
                true => Failure::usage(error),
                false => error.into(),
            }
        })
    }
}
