//! PostgreSQL that fails: killed, stopped, replaced by its standby, behind a pooler, and what it refuses at the start.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use postgres_server::{PostgresServer, shared};
use state_machine::{Chid, Month, Uaid};
use storage::maintenance::Table;
use storage::{
    PageLimit, Store, StoreAdmin, StoreError, Stored, WaitingBound, WaitingLimits, WhenFull,
};
use storage_postgresql::{
    MIGRATIONS, Migration, Postgres, PostgresOpenError, PostgresOptions, statements,
};
use tokio::time::sleep;

use crate::engines::fresh_schema;
use crate::names::{self, NOW, chid, chids, month};
use crate::store_calls::StoreCalls;

pub(crate) const AGENTS: u8 = 8;
pub(crate) const ALL: PageLimit = PageLimit { rows: 100, bytes: usize::MAX };

pub(crate) fn november() -> Month {
    month("2026_11")
}

pub(crate) fn agent(number: u8) -> Uaid {
    Uaid([number; 16])
}

pub(crate) fn channel() -> Chid {
    chid(1)
}

pub(crate) fn on(url: &str) -> PostgresOptions {
    PostgresOptions {
        url: url.to_owned(),
        connect_timeout: Duration::from_secs(2),
        operation_timeout: Duration::from_secs(3),
        ..fresh_schema()
    }
}

async fn opened(options: &PostgresOptions) -> Postgres {
    let options = options.clone();
    let opened =
        tokio::task::spawn_blocking(move || storage_postgresql::open(&options)).await.unwrap();
    opened.unwrap()
}

/// A store whose agents have a channel each.
pub(crate) async fn with_agents(options: &PostgresOptions) -> Arc<Postgres> {
    let store = opened(options).await;
    store.ensure_month(november()).await.unwrap();
    for number in 0..AGENTS {
        store.add_channels(agent(number), november(), chids([1])).await.unwrap();
    }
    Arc::new(store)
}

/// Agents that store messages at once until [`Load::end`], which returns those that were answered.
struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU32>,
    last_error: Arc<Mutex<Option<StoreError>>>,
    agents: Vec<tokio::task::JoinHandle<BTreeSet<u32>>>,
}

impl Load {
    fn start(store: &Arc<Postgres>, first: u32) -> Self {
        let (stop, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
        let last_error = Arc::<Mutex<_>>::default();
        let agents = (0..AGENTS).map(|number| {
            let (store, stop, answered) = (store.clone(), stop.clone(), answered.clone());
            let last_error = last_error.clone();
            tokio::spawn(async move {
                let mut stored = BTreeSet::new();
                for message in first.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let of = names::message(message, channel(), NOW);
                    match store.store_message(agent(number), november(), of).await {
                        Ok(Stored::Done) => {
                            stored.insert(message);
                            answered.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(other) => panic!("{other:?}"),
                        Err(error) => {
                            *last_error.lock().unwrap() = Some(error);
                            sleep(Duration::from_millis(10)).await;
                        }
                    }
                }
                stored
            })
        });
        let agents = agents.collect();
        Self { stop, answered, last_error, agents }
    }

    /// Until so many more are answered.
    async fn more(&self, count: u32) {
        let (begun, until) = (Instant::now(), self.answered.load(Ordering::Relaxed) + count);
        while self.answered.load(Ordering::Relaxed) < until {
            let (seen, error) = (self.answered.load(Ordering::Relaxed), &self.last_error);
            let is_late = begun.elapsed() > Duration::from_secs(60);
            assert!(!is_late, "{seen} of {until} are answered, the last error is {error:?}");
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn end(self) -> Vec<BTreeSet<u32>> {
        self.stop.store(true, Ordering::Relaxed);
        join_all(self.agents).await.into_iter().map(Result::unwrap).collect()
    }
}

/// Each answered message is there, and the counts of the database are those of its rows.
async fn verify(store: &Postgres, answered: &[BTreeSet<u32>]) {
    let mut rows = 0;
    for (number, answered) in answered.iter().enumerate() {
        let there = names::all_messages(store, agent(number as u8), november(), ALL, NOW).await;
        let ids: BTreeSet<_> = there.iter().map(|message| message.id).collect();
        assert_eq!(ids.len(), there.len(), "no message is there twice");
        let missing: Vec<_> =
            answered.iter().filter(|id| !ids.contains(&names::id(**id, false))).collect();
        assert!(missing.is_empty(), "agent {number} misses {missing:?}");
        rows += there.len() as u64;
    }
    assert_eq!(store.waiting_page(november(), None).await.unwrap().messages, rows);
    let counted = store.count_rows(Table::Messages(november())).await.unwrap();
    assert_eq!(counted, rows + u64::from(AGENTS));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_survives_kills_of_the_database_and_the_store_goes_on_by_itself() {
    let server = PostgresServer::start();
    let store = with_agents(&on(&server.url)).await;
    let load = Load::start(&store, 1);
    for _kill in 0..3 {
        load.more(200).await;
        server.tell("kill");
        server.tell("start");
    }
    load.more(200).await;
    let answered = load.end().await;
    verify(&store, &answered).await;
    store.check().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_hangs_holds_up_a_call_no_longer_than_the_limit() {
    let server = PostgresServer::start();
    let store = with_agents(&on(&server.url)).await;
    let load = Load::start(&store, 1);
    load.more(100).await;
    server.tell("stop");
    // The server cannot answer, so that each call ends by the limit of this side, whatever it is on this machine.
    let failed = store.record(agent(0)).await.unwrap_err();
    assert!(matches!(&failed, StoreError::Failed(why) if why.contains("PostgreSQL")), "{failed}");
    server.tell("go");
    load.more(200).await;
    let answered = load.end().await;
    verify(&store, &answered).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_that_is_promoted_is_used_and_has_what_was_answered() {
    let server = PostgresServer::start();
    let options = on(&server.both_urls);
    let store = with_agents(&options).await;
    server.tell("standby");
    // From now on a commit is answered once the standby has it.
    server.tell("synchronous");
    let load = Load::start(&store, 1);
    load.more(300).await;
    server.tell("fail-over");
    load.more(300).await;
    let answered = load.end().await;
    verify(&store, &answered).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_fails_alone_fails_no_other_of_its_transaction() {
    let store = with_agents(&on(&shared().url)).await;
    let stores = (0..200_u32).map(|number| {
        let of = names::message(number + 1, channel(), NOW);
        let month = if number % 7 == 3 { month("2026_01") } else { november() };
        store.store_message(agent((number % u32::from(AGENTS)) as u8), month, of)
    });
    let answers = join_all(stores.collect::<Vec<_>>()).await;
    for (number, answer) in answers.into_iter().enumerate() {
        match number % 7 {
            3 => assert_eq!(answer, Err(StoreError::NoSuchMonth(month("2026_01")))),
            _ => assert_eq!(answer, Ok(Stored::Done), "{number}"),
        }
    }
}

/// Fails the first insert of a message, as another transaction in the way does.
const FAILS_ONCE: &str = "
    CREATE SEQUENCE {s}.inserts;
    CREATE FUNCTION {s}.fail_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF nextval('{s}.inserts') = 1 THEN RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER fail_once BEFORE INSERT ON {s}.messages_2026_11 FOR EACH ROW EXECUTE FUNCTION {s}.fail_once()";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_gave_way_in_a_repeated_transaction_count_once() {
    let bound = WaitingBound { messages_max: 2, bytes_max: 0 };
    let waiting =
        WaitingLimits { user: bound, when_full: WhenFull::Replace, ..WaitingLimits::NONE };
    let options = PostgresOptions { waiting, ..on(&shared().url) };
    let store = with_agents(&options).await;
    let put = async |number| {
        let of = names::message(number, channel(), NOW);
        assert_eq!(store.store_message(agent(0), november(), of).await, Ok(Stored::Done));
    };
    put(1).await;
    put(2).await;
    shared().sql(&FAILS_ONCE.replace("{s}", &options.schema));
    put(3).await;
    let inserts = format!("SELECT last_value FROM {}.inserts", options.schema);
    assert_eq!(shared().rows(&inserts), [["2"]], "it was repeated");
    assert_eq!(store.state().messages_gave_way, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_that_write_the_same_agents_at_once_wait_for_each_other_and_lose_nothing() {
    let options = on(&shared().url);
    let one = with_agents(&options).await;
    let other = Arc::new(opened(&options).await);
    let loads = [Load::start(&one, 1), Load::start(&other, 1_000_000)];
    for load in &loads {
        load.more(500).await;
    }
    let [mut answered, of_other] = {
        let [one, other] = loads;
        [one.end().await, other.end().await]
    };
    for (all, more) in answered.iter_mut().zip(of_other) {
        all.extend(more);
    }
    verify(&one, &answered).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_works_behind_a_pooler_that_gives_each_transaction_to_any_session() {
    let server = PostgresServer::start();
    let url = server.pooled();
    let options = PostgresOptions { url, is_pooled: true, ..on("") };
    let store = with_agents(&options).await;
    let load = Load::start(&store, 1);
    load.more(500).await;
    let answered = load.end().await;
    verify(&store, &answered).await;
    let deleted = answered[0].iter().map(|id| names::message(*id, channel(), NOW).key());
    store.delete_messages(agent(0), vec![november()], deleted.collect()).await.unwrap();
    assert_eq!(names::all_messages(&*store, agent(0), november(), ALL, NOW).await, []);
}

/// A version after that of today.
const NEXT: &[Migration] = &[
    TODAY,
    Migration {
        tables: "ALTER TABLE {s}.router ADD seen text; CREATE INDEX router_by_seen ON {s}.router (seen);",
        month: "ALTER TABLE {s}.messages_{m} ADD seen text DEFAULT 'no'",
        oldest: 3,
    },
];

const TODAY: Migration = {
    let [Migration { tables, month, oldest }] = MIGRATIONS else { panic!("NEXT has all of them") };
    Migration { tables, month, oldest: *oldest }
};

/// One after it that cannot be made.
const BROKEN: &[Migration] = &[
    TODAY,
    Migration { tables: NEXT[1].tables, month: NEXT[1].month, oldest: 3 },
    Migration { tables: "DROP TABLE {s}.health; DROP TABLE {s}.nothing", month: "", oldest: 4 },
];

async fn migrated(
    options: &PostgresOptions,
    migrations: &'static [Migration],
) -> Result<Postgres, PostgresOpenError> {
    let options = options.clone();
    let opened = move || storage_postgresql::open_with(&options, migrations);
    tokio::task::spawn_blocking(opened).await.unwrap()
}

/// The tables of a schema with the column that the next version adds.
fn next_version_of(options: &PostgresOptions) -> Vec<String> {
    let query = format!(
        "SELECT table_name FROM information_schema.columns
         WHERE table_schema = '{}' AND column_name = 'seen' ORDER BY 1",
        options.schema
    );
    shared().rows(&query).into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_are_migrated_while_nodes_of_the_version_before_go_on() {
    let options = on(&shared().url);
    let old = with_agents(&options).await;
    let load = Load::start(&old, 1);
    load.more(200).await;
    // A version that fails leaves everything as it was.
    let failed = migrated(&options, BROKEN).await.err().unwrap().to_string();
    assert!(failed.contains("nothing"), "{failed}");
    assert_eq!(next_version_of(&options), [""; 0]);
    // Nodes start at once, and one of them migrates.
    let [one, other] = [migrated(&options, NEXT), migrated(&options, NEXT)];
    let (one, other) = tokio::join!(one, other);
    let new = one.unwrap();
    other.unwrap();
    assert_eq!(next_version_of(&options), ["messages_2026_11", "router"]);
    load.more(200).await;
    for number in 0..AGENTS {
        let of = names::message(1_000_000, channel(), NOW);
        new.store_message(agent(number), november(), of).await.unwrap();
    }
    let answered = load.end().await;
    verify(&new, &answered).await;
    verify(&old, &answered).await;

    // The node of the version before makes the tables of a month as it knows them.
    let december = month("2026_12");
    old.ensure_month(december).await.unwrap();
    assert_eq!(next_version_of(&options), ["messages_2026_11", "router"]);
    new.ensure_month(december).await.unwrap();
    assert_eq!(next_version_of(&options), ["messages_2026_11", "messages_2026_12", "router"]);
    assert!(new.drop_month(december).await.unwrap());
    new.ensure_month(december).await.unwrap();
    assert_eq!(next_version_of(&options), ["messages_2026_11", "messages_2026_12", "router"]);
    refused(options, "schema version 3 of a newer kalends").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_tables_that_may_not_be_changed_are_refused() {
    let options = on(&shared().url);
    drop(opened(&options).await);
    let options = PostgresOptions { create_tables: false, ..options };
    drop(opened(&options).await);
    let why = migrated(&options, NEXT).await.err().unwrap().to_string();
    assert!(why.contains("schema version 2 and this program needs 3"), "{why}");
    assert_eq!(next_version_of(&options), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_printed_statements_change_all_months_and_until_then_no_message_is_said_to_have_no_user()
 {
    let options = on(&shared().url);
    let store = with_agents(&options).await;
    // As version 1 made it.
    shared().sql(&format!(
        "DROP FUNCTION {0}.add_messages_2026_11; UPDATE {0}.state SET number = 1 WHERE name = 'messages_2026_11'",
        options.schema
    ));
    let put = async || {
        let of = names::message(1, channel(), NOW);
        store.store_message(agent(0), november(), of).await
    };
    let failed = put().await.unwrap_err();
    assert!(
        matches!(&failed, StoreError::Failed(why) if why.contains("2026_11 are old")),
        "{failed}"
    );
    shared().sql(&statements(&options.schema, &[month("2026_12")]));
    assert_eq!(put().await, Ok(Stored::Done));
    assert!(store.months().await.unwrap().contains(&month("2026_12")));
}

/// A store is not opened, with this reason.
async fn refused(options: PostgresOptions, part: &str) {
    let opened = tokio::task::spawn_blocking(move || storage_postgresql::open(&options).map(drop));
    let why = opened.await.unwrap().unwrap_err().to_string();
    assert!(why.contains(part), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_is_refused_with_the_reason() {
    let url = &shared().url;
    let missing = PostgresOptions { create_tables: false, ..on(url) };
    refused(missing, "there are no tables of Kalends in the schema").await;
    refused(on("postgresql://kalends@%2Fno%2Fsuch/db"), "no PostgreSQL is reached at").await;
    refused(on(&url.replace("/postgres", "/nothing")), "database \"nothing\" does not exist").await;
    refused(on(&url.replace("kalends@", "nobody@")), "role \"nobody\" does not exist").await;

    let newer = on(url);
    drop(opened(&newer).await);
    shared().sql(&format!("UPDATE {}.state SET number = 99 WHERE name = 'schema'", newer.schema));
    // The oldest version whose programs can use the tables.
    for (oldest, is_known) in [(3, false), (2, true), (1, true)] {
        shared().sql(&format!(
            "UPDATE {}.state SET number = {oldest} WHERE name = 'schema_oldest'",
            newer.schema
        ));
        match is_known {
            true => drop(opened(&newer).await),
            false => refused(newer.clone(), "schema version 99").await,
        }
    }
    shared().sql(&format!("DELETE FROM {}.state WHERE name = 'schema_oldest'", newer.schema));
    refused(newer, "schema version 99").await;
    let foreign = on(url);
    shared().sql(&format!("CREATE SCHEMA {0}; CREATE TABLE {0}.state (id int)", foreign.schema));
    refused(foreign, "tables of another program").await;

    let server = PostgresServer::start();
    server.tell("unsafe");
    refused(on(&server.url), "fsync = off").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_made_by_the_printed_statements_are_enough_for_a_role_that_may_make_none() {
    let made = on(&shared().url);
    shared().sql(&statements(&made.schema, &[month("2026_10"), november()]));
    shared().sql(&format!(
        "DO $$ BEGIN CREATE ROLE poor LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
         GRANT USAGE ON SCHEMA {0} TO poor;
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {0} TO poor",
        made.schema
    ));
    let url = made.url.replace("kalends@", "poor@");
    let store = with_agents(&PostgresOptions { url, create_tables: false, ..made }).await;
    let checks = store.preflight([month("2026_10"), november()].into()).await.unwrap();
    assert!(checks.iter().all(|check| check.outcome.is_ok()), "{checks:?}");
    let load = Load::start(&store, 1);
    load.more(50).await;
    verify(&store, &load.end().await).await;
    let more = store.ensure_month(month("2026_12")).await.unwrap_err().to_string();
    assert!(more.contains("kalends tables create"), "{more}");
}
