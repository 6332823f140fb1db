//! The engines that the month turns in.

use storage::dynamo::{Dynamo, DynamoOptions, TestOverrides};
use storage::{Embedded, EmbeddedOptions, StoreAdmin};

use crate::harness::{Launch, Proxy, Rule, Server, WireServer, dynamo};

/// Where a server keeps what must not be lost.
pub(super) trait Engine {
    /// How its server is started.
    fn launch(&self) -> Launch;

    /// Its store, for a look while no server runs.
    fn open(&self, server: &Server) -> Box<dyn StoreAdmin>;
}

/// SQLite files in the data directory.
pub(super) struct Files;

/// Tables in DynamoDB.
pub(super) struct Tables(WireServer);

/// The same, which do not do everything they say they did.
pub(super) struct Liars {
    tables: Tables,
    proxy: Proxy,
}

/// Messages that nobody acks are carried over soon.
const SHORT_DRAIN_WAIT: &str = "--drain-wait-ms=1000";

/// A thousand user agents at once ask more of the test's DynamoDB server than it does in the usual time. What
/// happens when one waits in vain is for other tests; here, an ack is settled only as long as the store does not fail.
const PATIENT: [&str; 2] =
    ["--dynamodb-attempt-timeout-ms=60000", "--dynamodb-operation-timeout-ms=120000"];

impl Engine for Files {
    fn launch(&self) -> Launch {
        Launch::default().with(&[SHORT_DRAIN_WAIT])
    }

    fn open(&self, server: &Server) -> Box<dyn StoreAdmin> {
        let store = Embedded::open(&server.data_dir(), &EmbeddedOptions::default());
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
            ..DynamoOptions::default()
        };
        let overrides =
            TestOverrides { credentials: Some(dynamo::credentials()), ..TestOverrides::default() };
        let store = Dynamo::open_with(&options, overrides);
        Box::new(store.expect("the tables are there"))
    }
}

impl Liars {
    pub(super) fn start(rule: Rule) -> Self {
        let tables = Tables::start();
        let proxy = Proxy::to(&tables.0.url);
        proxy.rule(rule);
        Self { tables, proxy }
    }
}

impl Engine for Liars {
    fn launch(&self) -> Launch {
        launch_at(&self.proxy.url())
    }

    fn open(&self, server: &Server) -> Box<dyn StoreAdmin> {
        self.tables.open(server)
    }
}

fn launch_at(url: &str) -> Launch {
    dynamo::launch(url).with(&[SHORT_DRAIN_WAIT]).with(&PATIENT)
}
