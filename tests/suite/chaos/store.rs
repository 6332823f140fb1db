//! Where the nodes of a run keep their tables, and what happens to it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use postgres_server::PostgresServer;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use super::plan::Outage;
use crate::harness::{Launch, Proxy};
use crate::postgresql;

/// A store of a cluster.
pub(super) enum Store {
    /// Faults are those of its proxy.
    DynamoDb,
    PostgreSql(Arc<Database>),
}

/// A PostgreSQL server of one run.
pub(super) struct Database {
    server: PostgresServer,
    pub(super) schema: String,
    launch: Launch,
    /// Held while the database is read by the test, and while it is away.
    pub(super) turn: Mutex<()>,
    /// Outages until now: by turns it is stopped, and killed with -9.
    outages: AtomicUsize,
}

/// Timeouts are short, except for requests to the store. If a node gave up such a request and DynamoDB executed it later,
/// after the ack was settled, the message would be delivered again. No DynamoDB client can prevent that (docs/storage.md).
const DYNAMODB: [&str; 4] = [
    "--dynamodb-backoff-ms=10",
    "--dynamodb-attempts-max=4",
    "--dynamodb-attempt-timeout-ms=20000",
    "--dynamodb-operation-timeout-ms=30000",
];

const POSTGRESQL: [&str; 2] =
    ["--postgresql-connect-timeout-ms=5000", "--postgresql-operation-timeout-ms=30000"];

/// How an outage of a database begins, and how it ends.
const OUTAGES: [[&str; 2]; 2] = [["stop", "go"], ["kill", "start"]];

impl Store {
    pub(super) fn postgresql() -> Self {
        let server = PostgresServer::start();
        let launch = postgresql::on(&server);
        let schema = postgresql::schema_of(&launch);
        let (turn, outages) = (Mutex::default(), AtomicUsize::new(0));
        Self::PostgreSql(Arc::new(Database { server, schema, launch, turn, outages }))
    }

    /// How its nodes are started; none of DynamoDB, which the cluster starts itself.
    pub(super) fn launch(&self) -> Option<Launch> {
        match self {
            Self::DynamoDb => None,
            Self::PostgreSql(database) => Some(database.launch.clone()),
        }
    }

    pub(super) fn arguments(&self) -> &'static [&'static str] {
        match self {
            Self::DynamoDb => &DYNAMODB,
            Self::PostgreSql(_) => &POSTGRESQL,
        }
    }

    /// Has a fault for as long as `lasts` takes.
    pub(super) async fn fail(&self, outage: &Outage, proxy: &Proxy, lasts: impl Future) {
        match self {
            Self::DynamoDb => {
                proxy.rule(outage.rule.clone());
                lasts.await;
                proxy.clear_rules();
            }
            Self::PostgreSql(database) => {
                let _turn = database.turn.lock().await;
                let number = database.outages.fetch_add(1, Ordering::Relaxed);
                let [begin, end] = OUTAGES[number % OUTAGES.len()];
                database.tell(begin).await;
                lasts.await;
                database.tell(end).await;
            }
        }
    }

    /// The number of faults, by name.
    pub(super) fn faults(&self, proxy: &Proxy) -> BTreeMap<&'static str, usize> {
        match self {
            Self::DynamoDb => proxy.faults(),
            Self::PostgreSql(database) => {
                let outages = database.outages.load(Ordering::Relaxed);
                [("stopped", outages.div_ceil(2)), ("killed", outages / 2)].into()
            }
        }
    }
}

impl Database {
    async fn tell(self: &Arc<Self>, command: &'static str) {
        let database = self.clone();
        let done = spawn_blocking(move || database.server.tell(command)).await;
        done.expect("the database does it");
    }

    /// The rows of a query, as texts.
    pub(super) async fn rows(self: &Arc<Self>, query: String) -> Vec<Vec<String>> {
        let database = self.clone();
        spawn_blocking(move || database.server.rows(&query)).await.expect("the database answers")
    }
}
