//! A month that turns for a thousand user agents at once, with messages waiting, pushes coming all the
//! time, and a server that is killed in the middle, twice.
//!
//! November: everybody registers, leaves, and is sent messages. December: everybody comes back at once, to move to
//! the new month's table; some ack late, some never, some break off. `ledger` says what is promised of
//! every message, and how much of it can be seen from outside.
//!
//! What is chosen by chance is chosen by a seed, which a failure can be repeated with: ROLLOVER_SEED.

mod calendar;
mod engine;
mod ledger;
mod scene;
mod traveller;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use fastrand::Rng;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::iter;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use state_machine::{Month, Time, Uaid};
use storage::{PageLimit, StoreAdmin};

pub(crate) use calendar::Calendar;
use engine::{Engine, Files, Liars, Tables};
use ledger::Slot;
use scene::Scene;
use traveller::{Habit, Traveller};

use crate::harness::{Agent, Fault, Fuse, Rule, Sender, Server, within};

/// Application servers; each has user agents of its own, so that messages of a topic have an order.
const SENDERS: usize = 64;

/// What chance begins with where nobody says otherwise.
const DEFAULT_SEED: u64 = 11;

/// How many things happen at once where the order is of no matter.
const AT_A_TIME: usize = 32;

/// The longest that an act may take, on a machine that has other things to do too.
const ACT_WAIT: Duration = Duration::from_secs(240);

#[actix_web::test]
async fn a_thousand_agents_move_to_december_on_files_and_nothing_is_lost_or_comes_twice() {
    roll_over(&Files, A_THOUSAND).await;
}

#[actix_web::test]
async fn a_thousand_agents_move_to_december_in_dynamodb_and_nothing_is_lost_or_comes_twice() {
    roll_over(&Tables::start(), A_THOUSAND).await;
}

/// That this test would notice.
#[actix_web::test]
#[should_panic(expected = "is lost")]
async fn a_store_that_forgets_messages_is_found_out() {
    let rule = Rule::on("PutItem", Fault::Forgotten).table("message_").times(20);
    roll_over(&Liars::start(rule), A_FEW).await;
}

/// That this test would notice.
#[actix_web::test]
#[should_panic(expected = "came after its ack was settled")]
async fn a_store_that_forgets_deletes_is_found_out() {
    let rule = Rule::on("DeleteItem", Fault::Forgotten).table("message_");
    roll_over(&Liars::start(rule), A_FEW).await;
}

/// How many take part, and how often the server is killed while they move.
#[derive(Debug, Clone, Copy)]
struct Size {
    travellers: usize,
    kills: usize,
}

const A_THOUSAND: Size = Size { travellers: 1000, kills: 2 };
const A_FEW: Size = Size { travellers: 40, kills: 0 };

/// Everybody, and what they share.
struct Story {
    size: Size,
    server: Server,
    scene: Scene,
    travellers: Vec<Traveller>,
    rng: Rng,
}

async fn roll_over(engine: &impl Engine, size: Size) {
    allow_connections();
    let (began, calendar, seed) = (Instant::now(), Calendar::next_november(), seed());
    println!("ROLLOVER_SEED={seed}");
    let november = engine.launch().with(&calendar.in_november());
    let december = engine.launch().with(&calendar.in_december());

    let mut story = Story::begin(size, Server::launch(november), seed).await;
    act("messages are stored in November", story.store_messages()).await;
    assert!(story.server.terminate().success());
    story.server.restart_as(december);
    let before = story.scene.ledger().accepted();
    act("everybody is in December", story.storm()).await;
    let stormy = story.scene.ledger().accepted() - before;
    let settled = story.scene.ledger().settled();
    let is_a_test = stormy > size.travellers / 10 && settled > size.travellers / 2;
    assert!(is_a_test, "too little happened: {stormy} pushes, {settled} acks that are settled");
    act("everybody takes the rest", story.take_the_rest()).await;
    story.scene.ledger().nothing_is_lost();
    act("nothing comes again", story.take_the_rest()).await;
    story.scene.ledger().versions_are_unique();

    assert!(story.server.terminate().success());
    let failures = story.server.log().matches("the store failed a connection").count();
    assert_eq!(failures, 0, "what proves that acks are durable needs a store that does not fail");
    let store = engine.open(&story.server);
    let strays = story.everybody_is_in(calendar.december, calendar.november, &*store).await;
    store.close().await.expect("the store can be closed");
    let sent_away = story.scene.sent_away_count();
    println!(
        "{} user agents, {sent_away} connections closed by the server; {} (in the storm {stormy} accepted and \
         {settled} settled); {strays} rows in November that were promised to nobody; {:.1} s",
        size.travellers,
        story.scene.ledger(),
        began.elapsed().as_secs_f32()
    );
}

impl Story {
    /// Everybody registers a channel or two and leaves.
    async fn begin(size: Size, server: Server, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let plans: Vec<_> =
            (0..size.travellers).map(|number| (number, habit(&mut rng), rng.usize(1..3))).collect();
        let registered = iter(plans).map(async |(number, habit, channels)| {
            let mut agent = Agent::new(&server).await;
            let mut traveller =
                Traveller { number, habit, uaid: String::new(), channels: Vec::new() };
            for _ in 0..channels {
                traveller.channels.push(agent.register().await);
            }
            traveller.uaid = agent.leave().await;
            traveller
        });
        let registered = registered.buffered(AT_A_TIME).collect();
        let travellers = act("everybody registers", registered).await;
        let scene = Scene::new(server.address());
        Self { size, server, scene, travellers, rng }
    }

    /// Up to four messages for each, some of one topic.
    async fn store_messages(&mut self) {
        let seeds: Vec<_> = (0..SENDERS).map(|_| self.rng.fork()).collect();
        let (scene, travellers) = (&self.scene, &self.travellers);
        join_all(seeds.into_iter().enumerate().map(async |(sender, mut rng)| {
            let client = Sender::new();
            for traveller in travellers.iter().skip(sender).step_by(SENDERS) {
                for _ in 0..rng.usize(0..5) {
                    let accepted = push_something(scene, &client, traveller, &mut rng).await;
                    assert_eq!(accepted, Some(true), "a server that has nothing else to do");
                }
            }
        }))
        .await;
    }
}

impl Story {
    /// Everybody comes back at once while application servers push all the time; the server is killed when
    /// many are on their way, twice, and everybody comes back again.
    async fn storm(&mut self) {
        let Size { travellers: count, kills } = self.size;
        let kills: Vec<_> = (0..kills).map(|_| self.rng.usize(count / 4..count)).collect();
        // No sender is without anybody to send to.
        let senders = SENDERS.min(count);
        let seeds: Vec<_> = (0..senders).map(|_| self.rng.fork()).collect();
        let Self { server, scene, travellers, .. } = self;
        let (scene, travellers) = (&*scene, &*travellers);
        let pushing = seeds.into_iter().enumerate().map(|(sender, rng)| {
            let theirs: Vec<_> = travellers.iter().skip(sender).step_by(senders).collect();
            push_until_the_end(scene, kills.len(), theirs, rng)
        });
        let killing = async {
            for &messages in &kills {
                scene.light(Fuse::of(server, messages));
                server.ended_within(ACT_WAIT).await;
                server.restart();
                scene.server_lives_again();
            }
            scene.all_arrived(count).await;
            scene.ends();
        };
        let travelling = join_all(travellers.iter().map(|traveller| traveller.travel(scene)));
        tokio::join!(travelling, join_all(pushing), killing);
    }

    /// Everybody comes back once more and takes what is left, until a last message comes.
    async fn take_the_rest(&mut self) {
        let sender = Sender::new();
        let taking =
            self.travellers.iter().map(|traveller| traveller.take_the_rest(&self.scene, &sender));
        join_all(taking).await;
    }

    /// Looks at every record, and at every row there may be. Answers how many rows are left in November, which
    /// are of pushes that died with their server between their store and their second look: promised to nobody.
    async fn everybody_is_in(
        &self,
        december: Month,
        november: Month,
        store: &dyn StoreAdmin,
    ) -> usize {
        let months = store.months().await.expect("the store answers");
        assert!(months.contains(&november), "its table is gone: {months:?}");
        assert_eq!(census(store).await, BTreeMap::from([(december, self.size.travellers as u64)]));
        let mut strays = 0;
        for traveller in &self.travellers {
            let uaid = Uaid::parse(&traveller.uaid).expect("the server says what is a uaid");
            let record = store.record(uaid).await.expect("the store answers");
            let record = record.expect("a user record is never lost");
            assert_eq!((record.curmonth, record.oldmonth), (december, None));
            let left = waiting(store, uaid, november).await;
            let promised = |number: &usize| self.scene.ledger().is_promised(*number);
            assert!(!left.iter().any(promised), "promised, and left in November: {left:?}");
            strays += left.len();
            let left = waiting(store, uaid, december).await;
            let unsettled = |number: &usize| !self.scene.ledger().is_settled(*number);
            assert!(left.iter().all(unsettled), "acked for good, and still there: {left:?}");
        }
        strays
    }
}

async fn push_until_the_end(scene: &Scene, kills: usize, theirs: Vec<&Traveller>, mut rng: Rng) {
    let client = Sender::new();
    while !scene.is_over() {
        let life = scene.life();
        let traveller = theirs[rng.usize(..theirs.len())];
        if push_something(scene, &client, traveller, &mut rng).await.is_none() {
            assert!(life < kills, "the last server is not disturbed");
            scene.life_after(life).await;
        }
    }
}

/// A message to one of somebody's channels, one in four of a topic.
async fn push_something(
    scene: &Scene,
    client: &Sender,
    traveller: &Traveller,
    rng: &mut Rng,
) -> Option<bool> {
    let channel = rng.usize(..traveller.channels.len());
    let topic = rng.choice([Some("news"), None, None, None]).expect("there is a choice");
    let number = scene.ledger().post(Slot { traveller: traveller.number, channel, topic });
    scene.push(client, number, &traveller.channels[channel]).await
}

/// How many records are on which month, none of which may be on its way to another.
async fn census(store: &dyn StoreAdmin) -> BTreeMap<Month, u64> {
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

/// The numbers of the messages that wait, from every page.
async fn waiting(store: &dyn StoreAdmin, uaid: Uaid, month: Month) -> BTreeSet<usize> {
    let limit = PageLimit { rows: 100, bytes: 1 << 20 };
    let (mut numbers, mut after) = (BTreeSet::new(), None);
    loop {
        let page = store.fetch_messages(uaid, month, after, limit, Time(0)).await;
        let page = page.expect("the store answers");
        let bodies = page.messages.into_iter().filter_map(|message| message.payload);
        let texts = bodies.map(|body| String::from_utf8(body.data.to_vec()).expect("a text"));
        numbers.extend(texts.map(|text| text.parse::<usize>().expect("a number")));
        after = page.next;
        if after.is_none() {
            return numbers;
        }
    }
}

fn habit(rng: &mut Rng) -> Habit {
    match rng.usize(..20) {
        0..=2 => Habit::Late,
        3..=4 => Habit::Silent,
        5..=7 => Habit::Restless,
        _ => Habit::Prompt,
    }
}

/// A connection is an open file, here and in the server, which inherits this; many systems allow 1024 unless
/// they are asked for more.
fn allow_connections() {
    let allowed = getrlimit(Resource::Nofile);
    let all = Rlimit { current: allowed.maximum, maximum: allowed.maximum };
    setrlimit(Resource::Nofile, all).expect("a process may have what it is allowed");
}

fn seed() -> u64 {
    let given = std::env::var("ROLLOVER_SEED").ok();
    given.map_or(DEFAULT_SEED, |seed| seed.parse().expect("ROLLOVER_SEED is a number"))
}

async fn act<F: Future>(what: &str, act: F) -> F::Output {
    let began = Instant::now();
    let output = within(ACT_WAIT, what, act).await;
    println!("{what}: {:.1} s", began.elapsed().as_secs_f32());
    output
}
