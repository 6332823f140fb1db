//! The storage engines of the rollover tests.

#[path = "../../../storage/tests/wire_server/options.rs"]
mod options;

use postgres_server::shared;
use storage::StoreAdmin;
use storage_dynamodb::{DynamoOptions, TestOverrides};
use storage_sqlite::{Embedded, EmbeddedOptions};

use crate::harness::{Launch, Proxy, Rule, Server, WireServer, dynamo};
use crate::postgresql;

/// Where a server keeps its records and messages.
pub(super) trait Engine {
    /// How a server with this engine is started.
    fn launch(&self) -> Launch;

    /// Opens the store while no server runs.
    fn open(&self, server: &Server) -> Box<dyn StoreAdmin>;
}

/// SQLite files in the data directory.
pub(super) struct Files;

/// Tables of a DynamoDB server.
pub(super) struct Tables(WireServer);

/// Tables behind a proxy that confirms some writes without executing them.
pub(super) struct LossyTables {
    tables: Tables,
    proxy: Proxy,
}

/// Tables of a PostgreSQL server, whose nodes are started like this.
pub(super) struct InSchema(Launch);

/// A short drain wait, after which unacked messages are moved.
const SHORT_DRAIN_WAIT: &str = "--drain-wait-ms=1000";

/// Long timeouts, because a thousand agents at once overload the test's DynamoDB server. An ack is
/// settled only while no request to the store fails; other tests cover timeouts.
const LONG_TIMEOUTS: [&str; 2] =
    ["--dynamodb-attempt-timeout-ms=60000", "--dynamodb-operation-timeout-ms=120000"];

impl Engine for Files {
    fn launch(&self) -> Launch {
        Launch::default().with(&[SHORT_DRAIN_WAIT])
    }

    fn open(&self, server: &Server) -> Box<dyn StoreAdmin> {
        let store = Embedded::open(&server.data_dir(), &EmbeddedOptions::new(4096));
        Box::new(store.expect("the server has let go of its files"))
    }
}

impl Tables {
    pub(super) fn start() -> Self {
        Self(WireServer::start())
    }
}

impl Engine for Tables {
    fn launch(&self) -> Launch {
        launch_at(&self.0.url)
    }

    fn open(&self, _: &Server) -> Box<dyn StoreAdmin> {
        let options = DynamoOptions {
            endpoint_url: Some(self.0.url.clone()),
            region: Some(dynamo::REGION.to_owned()),
            ..options::options()
        };
        let overrides =
            TestOverrides { credentials: Some(dynamo::credentials()), ..TestOverrides::default() };
        let store = storage_dynamodb::open_with(&options, overrides);
        Box::new(store.expect("the tables are there"))
    }
}

impl InSchema {
    pub(super) fn start() -> Self {
        let launch = postgresql::on(shared()).with(&["--postgresql-operation-timeout-ms=120000"]);
        Self(launch.with(&[SHORT_DRAIN_WAIT]))
    }
}

impl Engine for InSchema {
    fn launch(&self) -> Launch {
        self.0.clone()
    }

    fn open(&self, _: &Server) -> Box<dyn StoreAdmin> {
        Box::new(postgresql::opened(&self.0))
    }
}

impl LossyTables {
    pub(super) fn start(rule: Rule) -> Self {
        let tables = Tables::start();
        let proxy = Proxy::to(&tables.0.url);
        proxy.rule(rule);
        Self { tables, proxy }
    }
}

impl Engine for LossyTables {
    fn launch(&self) -> Launch {
        launch_at(&self.proxy.url())
    }

    fn open(&self, server: &Server) -> Box<dyn StoreAdmin> {
        self.tables.open(server)
    }
}

fn launch_at(url: &str) -> Launch {
    dynamo::launch(url).with(&[SHORT_DRAIN_WAIT]).with(&LONG_TIMEOUTS)
}
