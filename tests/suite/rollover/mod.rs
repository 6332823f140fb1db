//! A month change for a thousand user agents at once, with stored messages, continuous pushes, and
//! a server that is killed twice during the move.
//!
//! In November all agents register and disconnect, and messages are stored for them. In December
//! all reconnect at once and move to the new table. Some ack late, some never, and some disconnect.
//! `ledger` defines what is promised about each message, and what of it is observable.
//!
//! A seed determines all random choices: ROLLOVER_SEED.

mod agent;
mod calendar;
mod engine;
mod ledger;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use fastrand::Rng;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::iter;
use state_machine::{Month, Time, Uaid};
use storage::{PageLimit, StoreAdmin, StoreOp};
use tokio::sync::Mutex;

use agent::{AckPolicy, MovingAgent};
pub(crate) use calendar::Calendar;
use engine::{Engine, Files, InSchema, LossyTables, Tables};
use ledger::Slot;
use state::RunState;

use crate::harness::{
    Agent, Fault, KillCountdown, Rule, Sender, Server, number_from_env, raise_open_file_limit,
    timed, within,
};

/// Application servers. Each has its own user agents, so that messages of a topic are ordered.
const SENDERS: usize = 64;

/// The seed if ROLLOVER_SEED is not set.
const DEFAULT_SEED: u64 = 11;

/// Concurrency of steps whose order does not matter.
const CONCURRENCY: usize = 32;

/// All agents connect from one address, each of them several times a minute.
const FROM_ONE_ADDRESS: &str = "--address-connects-per-minute-max=0";

/// Maximum duration of one act, on a busy machine.
const ACT_WAIT: Duration = Duration::from_secs(240);

/// Held by a test with a thousand agents: two at a time would exceed the timeouts of their pushes.
static TURN: Mutex<()> = Mutex::const_new(());

#[actix_web::test]
async fn a_thousand_agents_move_to_december_on_sqlite_without_loss_or_duplicate() {
    let _turn = TURN.lock().await;
    roll_over(&Files, A_THOUSAND).await;
}

#[actix_web::test]
async fn a_thousand_agents_move_to_december_in_dynamodb_without_loss_or_duplicate() {
    let _turn = TURN.lock().await;
    roll_over(&Tables::start(), A_THOUSAND).await;
}

#[actix_web::test]
async fn a_thousand_agents_move_to_december_on_postgresql_without_loss_or_duplicate() {
    let _turn = TURN.lock().await;
    roll_over(&InSchema::start(), A_THOUSAND).await;
}

/// Shows that the ledger reports lost messages.
#[actix_web::test]
#[should_panic(expected = "is lost")]
async fn a_store_that_loses_messages_is_reported() {
    let rule = Rule::on("PutItem", Fault::NotExecuted).table("message_").times(80);
    roll_over(&LossyTables::start(rule), A_FEW).await;
}

/// Shows that the ledger reports lost deletes.
#[actix_web::test]
#[should_panic(expected = "came after its ack was settled")]
async fn a_store_that_loses_deletes_is_reported() {
    let rule = Rule::on("DeleteItem", Fault::NotExecuted).table("message_");
    roll_over(&LossyTables::start(rule), A_FEW).await;
}

/// The number of agents, and how often the server is killed during the move.
#[derive(Debug, Clone, Copy)]
struct Size {
    agents: usize,
    kills: usize,
}

const A_THOUSAND: Size = Size { agents: 1000, kills: 2 };
const A_FEW: Size = Size { agents: 40, kills: 0 };

/// The user agents and the state that they share.
struct Rollover {
    size: Size,
    server: Server,
    state: RunState,
    agents: Vec<MovingAgent>,
    rng: Rng,
}

async fn roll_over(engine: &impl Engine, size: Size) {
    raise_open_file_limit();
    let (began, calendar, seed) = (
        Instant::now(),
        Calendar::next_november(),
        number_from_env("ROLLOVER_SEED").unwrap_or(DEFAULT_SEED),
    );
    println!("ROLLOVER_SEED={seed}");
    let launch = engine.launch().with(&[FROM_ONE_ADDRESS]);
    let november = launch.clone().with(&calendar.in_november());
    let december = launch.with(&calendar.in_december());

    let mut story = Rollover::begin(size, Server::launch(november), seed).await;
    act("messages are stored in November", story.store_messages()).await;
    assert!(story.server.terminate().success());
    story.server.restart_as(december);
    let before = story.state.ledger().accepted();
    act("everybody is in December", story.storm()).await;
    let stormy = story.state.ledger().accepted() - before;
    let settled = story.state.ledger().settled();
    let is_a_test = stormy > size.agents / 10 && settled > size.agents / 2;
    assert!(is_a_test, "too little happened: {stormy} pushes, {settled} acks that are settled");
    act("all agents receive the rest", story.take_the_rest()).await;
    story.state.ledger().nothing_is_lost();
    act("no message is redelivered", story.take_the_rest()).await;
    story.state.ledger().versions_are_unique();

    assert!(story.server.terminate().success());
    let failures = story.server.log().matches("the store failed a connection").count();
    assert_eq!(failures, 0, "what proves that acks are durable needs a store that does not fail");
    let store = engine.open(&story.server);
    let strays = story.assert_all_moved(calendar.december, calendar.november, &*store).await;
    store.close().await.expect("the store can be closed");
    let connections_closed = story.state.sent_away_count();
    println!(
        "{} user agents, {connections_closed} connections closed by the server; {} (in the storm {stormy} accepted and \
         {settled} settled); {strays} rows in November without a promise; {:.1} s",
        size.agents,
        story.state.ledger(),
        began.elapsed().as_secs_f32()
    );
}

impl Rollover {
    /// Every agent registers one or two channels and disconnects.
    async fn begin(size: Size, server: Server, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let plans: Vec<_> = (0..size.agents)
            .map(|number| (number, ack_policy(&mut rng), rng.usize(1..3)))
            .collect();
        let registered = iter(plans).map(async |(number, ack_policy, channels)| {
            let mut connected = Agent::new(&server).await;
            let mut agent =
                MovingAgent { number, ack_policy, uaid: String::new(), channels: Vec::new() };
            for _ in 0..channels {
                agent.channels.push(connected.register().await);
            }
            agent.uaid = connected.leave().await;
            agent
        });
        let registered = registered.buffered(CONCURRENCY).collect();
        let agents = act("all agents register", registered).await;
        let state = RunState::new(server.address());
        Self { size, server, state, agents, rng }
    }

    /// Stores up to four messages for each agent, some with a topic.
    async fn store_messages(&mut self) {
        let seeds: Vec<_> = (0..SENDERS).map(|_| self.rng.fork()).collect();
        let (state, agents) = (&self.state, &self.agents);
        join_all(seeds.into_iter().enumerate().map(async |(sender, mut rng)| {
            let client = Sender::new();
            for agent in agents.iter().skip(sender).step_by(SENDERS) {
                for _ in 0..rng.usize(0..5) {
                    let accepted = push_something(state, &client, agent, &mut rng).await;
                    assert_eq!(accepted, Some(true), "a server that has nothing else to do");
                }
            }
        }))
        .await;
    }
}

impl Rollover {
    /// All agents reconnect while application servers keep pushing. The server is killed twice,
    /// each time after a number of deliveries, and all agents reconnect.
    async fn storm(&mut self) {
        let Size { agents: count, kills } = self.size;
        let kills: Vec<_> = (0..kills).map(|_| self.rng.usize(count / 4..count)).collect();
        // Every sender has an agent to push to.
        let senders = SENDERS.min(count);
        let seeds: Vec<_> = (0..senders).map(|_| self.rng.fork()).collect();
        let Self { server, state, agents, .. } = self;
        let (state, agents) = (&*state, &*agents);
        let pushing = seeds.into_iter().enumerate().map(|(sender, rng)| {
            let theirs: Vec<_> = agents.iter().skip(sender).step_by(senders).collect();
            push_until_the_end(state, kills.len(), theirs, rng)
        });
        let killing = async {
            for &messages in &kills {
                state.light(KillCountdown::of(server, messages));
                server.ended_within(ACT_WAIT).await;
                server.restart();
                state.server_restarted();
            }
            state.all_arrived(count).await;
            state.end_storm();
        };
        let travelling = join_all(agents.iter().map(|agent| agent.run(state)));
        tokio::join!(travelling, join_all(pushing), killing);
    }

    /// Every agent connects once more and receives what is left, up to a last message.
    async fn take_the_rest(&mut self) {
        let sender = Sender::new();
        let taking = iter(&self.agents);
        // On a busy machine a thousand at once would say hello too late.
        taking
            .for_each_concurrent(CONCURRENCY, |agent| agent.take_the_rest(&self.state, &sender))
            .await;
    }

    /// Checks every record and reads all rows. Returns the number of rows left in November: they
    /// are of pushes that were never answered, because the server was killed between the store and
    /// the second read of the record.
    async fn assert_all_moved(
        &self,
        december: Month,
        november: Month,
        store: &dyn StoreAdmin,
    ) -> usize {
        let months = store.months().await.expect("the store answers");
        assert!(months.contains(&november), "its table is gone: {months:?}");
        assert_eq!(
            records_by_month(store).await,
            BTreeMap::from([(december, self.size.agents as u64)])
        );
        let mut strays = 0;
        for agent in &self.agents {
            let uaid = Uaid::parse(&agent.uaid).expect("the server sends a valid uaid");
            let record = store.record(uaid).await.expect("the store answers");
            let record = record.expect("a user record is never lost");
            assert_eq!((record.curmonth, record.oldmonth), (december, None));
            let left = waiting(store, uaid, november).await;
            let promised = |number: &usize| self.state.ledger().is_promised(*number);
            assert!(!left.iter().any(promised), "promised, and left in November: {left:?}");
            strays += left.len();
            let left = waiting(store, uaid, december).await;
            let unsettled = |number: &usize| !self.state.ledger().is_settled(*number);
            assert!(left.iter().all(unsettled), "acked for good, and still there: {left:?}");
        }
        strays
    }
}

async fn push_until_the_end(
    state: &RunState,
    kills: usize,
    theirs: Vec<&MovingAgent>,
    mut rng: Rng,
) {
    let (mut client, mut before) = (patient_sender(), 0);
    while !state.is_over() {
        let restarts = state.restarts();
        if restarts > before {
            // The pool may still hold connections to the server that was killed.
            (client, before) = (patient_sender(), restarts);
        }
        let agent = theirs[rng.usize(..theirs.len())];
        if push_something(state, &client, agent, &mut rng).await.is_none() {
            assert!(restarts < kills, "the last server is not disturbed");
            state.restart_after(restarts).await;
        }
    }
}

/// A sender that waits as long as the store may take while all agents move: see the store's timeouts in `engine`.
fn patient_sender() -> Sender {
    Sender::with_timeout(ACT_WAIT)
}

/// Pushes a message to a channel of the agent; one in four has a topic.
async fn push_something(
    state: &RunState,
    client: &Sender,
    agent: &MovingAgent,
    rng: &mut Rng,
) -> Option<bool> {
    let channel = rng.usize(..agent.channels.len());
    let topic = rng.choice([Some("news"), None, None, None]).expect("there is a choice");
    let number = state.ledger().post(Slot { agent: agent.number, channel, topic });
    state.push(client, number, &agent.channels[channel]).await
}

/// The number of records per month, none of which may be moving.
async fn records_by_month(store: &dyn StoreAdmin) -> BTreeMap<Month, u64> {
    let (mut counts, mut after) = (BTreeMap::new(), None);
    loop {
        let census = store.records_by_month(after).await.expect("the store answers");
        assert!(census.oldmonth.is_empty(), "an unfinished move: {census:?}");
        for (month, count) in census.curmonth {
            *counts.entry(month).or_default() += count;
        }
        after = census.next;
        if after.is_none() {
            return counts;
        }
    }
}

/// The numbers of the stored messages, from all pages.
async fn waiting(store: &dyn StoreAdmin, uaid: Uaid, month: Month) -> BTreeSet<usize> {
    let limit = PageLimit { rows: 100, bytes: 1 << 20 };
    let (mut numbers, mut after) = (BTreeSet::new(), None);
    loop {
        let op = StoreOp::Fetch { uaid, month, after, limit, now: Time(0) };
        let page = store.execute(op).await.expect("the store answers").page().expect("a page");
        let bodies = page.messages.into_iter().filter_map(|message| message.payload);
        let texts = bodies.map(|body| String::from_utf8(body.data.to_vec()).expect("a text"));
        numbers.extend(texts.map(|text| text.parse::<usize>().expect("a number")));
        after = page.next;
        if after.is_none() {
            return numbers;
        }
    }
}

fn ack_policy(rng: &mut Rng) -> AckPolicy {
    match rng.usize(..20) {
        0..=2 => AckPolicy::Late,
        3..=4 => AckPolicy::Silent,
        5..=7 => AckPolicy::Restless,
        _ => AckPolicy::Prompt,
    }
}

async fn act<F: Future>(what: &str, act: F) -> F::Output {
    timed(what, within(ACT_WAIT, what, act)).await
}
