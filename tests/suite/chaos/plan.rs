//! What will happen when: all of it follows from one number.
//!
//! The plan can be had again, by its seed; what the processes make of it cannot. Which message is on its way when a
//! node dies is for the machine's scheduler to say.

use std::time::Duration;

use fastrand::Rng;

use crate::harness::{Fault, Rule};

/// How many take part, and for how long.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) clients: usize,
    pub(super) connects: usize,
    pub(super) endpoints: usize,
    pub(super) senders: usize,
    pub(super) storm: Duration,
    /// Whether nodes and their store have any trouble.
    pub(super) is_stormy: bool,
}

/// The whole plan.
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) size: Size,
    /// For each connection node.
    pub(super) connects: Vec<Vec<Deed>>,
    /// For each endpoint node.
    pub(super) endpoints: Vec<Vec<Deed>>,
    /// What becomes of the store.
    pub(super) spells: Vec<Spell>,
    clients: Rng,
    senders: Rng,
}

/// What is done to a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deed {
    /// Since the storm began.
    pub(super) at: Duration,
    pub(super) kind: DeedKind,
    /// How long it is down.
    pub(super) lasts: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeedKind {
    /// SIGKILL; started again later.
    Kill,
    /// SIGTERM; started again later.
    Terminate,
    /// SIGSTOP, and SIGCONT later.
    Stop,
}

/// Something is wrong with the store for a while.
#[derive(Debug, Clone)]
pub(super) struct Spell {
    /// Since the storm began.
    pub(super) at: Duration,
    pub(super) lasts: Duration,
    pub(super) rule: Rule,
}

/// Where a user agent goes next, and what it does there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stay {
    pub(super) node: usize,
    pub(super) habit: Habit,
    pub(super) lasts: Duration,
    /// Whether it registers one more channel.
    pub(super) registers: bool,
    pub(super) parting: Parting,
    /// How long it is nowhere afterwards.
    pub(super) away: Duration,
}

/// How a user agent treats what it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Habit {
    /// Acks at once.
    Prompt,
    /// Acks all that came, after so long.
    Late(Duration),
    /// Never acks.
    Silent,
    /// Acks on its next connection, wherever that is.
    NextTime,
    /// Reads nothing for so long, and then acks at once.
    Stalled(Duration),
}

/// How a user agent goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parting {
    /// With a close frame.
    Goodbye,
    /// Its connection ends.
    Vanish,
    /// It connects elsewhere while its connection is still open, from which it does not read any more.
    Forget,
}

/// What an application server sends next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Push {
    /// How long it waits before.
    pub(super) pause: Duration,
    /// Through which endpoint node.
    pub(super) endpoint: usize,
    pub(super) client: usize,
    /// Which of the channels the client has by then: this modulo their number.
    pub(super) channel: usize,
    pub(super) topic: Option<&'static str>,
    pub(super) ttl_s: u32,
    /// Bytes of its body, at least those of its number.
    pub(super) size: usize,
}

/// The stays of one user agent, without end.
pub(super) struct Stays {
    rng: Rng,
    nodes: usize,
}

/// The pushes of one sender's lane, without end.
pub(super) struct Pushes {
    rng: Rng,
    size: Size,
}

/// Cards that are dealt until none is left, and shuffled anew: in a short run too, everything happens.
struct Deck<T> {
    cards: Vec<T>,
    dealt: usize,
}

/// So many user agents get half of all messages.
const POPULAR: usize = 20;

/// A message that outlasts every run.
const TTL_LONG_S: u32 = 30 * 24 * 60 * 60;

/// The storm begins and ends with some quiet, in which everybody comes and goes.
const QUIET: Duration = Duration::from_secs(3);

const DEEDS: [DeedKind; 4] = [DeedKind::Kill, DeedKind::Stop, DeedKind::Terminate, DeedKind::Kill];

impl Plan {
    pub(super) fn draw(seed: u64, size: Size) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut plan = Self {
            seed,
            size,
            connects: vec![Vec::new(); size.connects],
            endpoints: vec![Vec::new(); size.endpoints],
            spells: Vec::new(),
            clients: rng.fork(),
            senders: rng.fork(),
        };
        if size.is_stormy {
            let mut deck = Deck::of(&DEEDS);
            plan.connects.fill_with(|| deeds(size.storm, 2..8, &mut deck, &mut rng));
            let mut deck = Deck::of(&DEEDS);
            plan.endpoints.fill_with(|| deeds(size.storm, 4..14, &mut deck, &mut rng));
            plan.spells = spells(size.storm, &mut rng);
        }
        plan
    }

    /// For each user agent.
    pub(super) fn stays(&self) -> Vec<Stays> {
        let mut rng = self.clients.clone();
        let nodes = self.size.connects;
        (0..self.size.clients).map(|_| Stays { rng: rng.fork(), nodes }).collect()
    }

    /// For each lane of each sender.
    pub(super) fn pushes(&self, lanes: usize) -> Vec<Vec<Pushes>> {
        let mut rng = self.senders.clone();
        let mut lane = || Pushes { rng: rng.fork(), size: self.size };
        (0..self.size.senders).map(|_| (0..lanes).map(|_| lane()).collect()).collect()
    }
}

/// What becomes of one node. It is left alone for some seconds after each.
fn deeds(
    storm: Duration,
    pause_s: std::ops::Range<u64>,
    deck: &mut Deck<DeedKind>,
    rng: &mut Rng,
) -> Vec<Deed> {
    let (mut deeds, mut at) = (Vec::new(), QUIET);
    loop {
        at += millis(pause_s.start * 1000..pause_s.end * 1000, rng);
        let lasts = millis(300..3000, rng);
        if at + lasts + QUIET > storm {
            return deeds;
        }
        deeds.push(Deed { at, kind: deck.deal(rng), lasts });
        at += lasts;
    }
}

fn spells(storm: Duration, rng: &mut Rng) -> Vec<Spell> {
    let slow = millis(200..1500, rng);
    let mut deck = Deck::of(&[
        Rule::on("", Fault::Throttled).every(2),
        Rule::on("", Fault::Slow(slow)).every(2),
        Rule::on("", Fault::Error(500, "InternalServerError")).every(3),
        Rule::on("", Fault::CutAfter).every(4),
        Rule::on("", Fault::CutBefore),
        Rule::on("", Fault::Swallowed),
        Rule::on("", Fault::Throttled).table("message_"),
    ]);
    let (mut spells, mut at) = (Vec::new(), QUIET);
    loop {
        at += millis(500..6000, rng);
        let lasts = millis(800..3500, rng);
        if at + lasts + QUIET > storm {
            return spells;
        }
        spells.push(Spell { at, lasts, rule: deck.deal(rng) });
        at += lasts;
    }
}

impl Stays {
    pub(super) fn next(&mut self) -> Stay {
        let rng = &mut self.rng;
        let habit = match rng.usize(..20) {
            0..=2 => Habit::Late(millis(300..4000, rng)),
            3..=4 => Habit::Silent,
            5..=6 => Habit::NextTime,
            7..=8 => Habit::Stalled(millis(500..6000, rng)),
            _ => Habit::Prompt,
        };
        let parting = match rng.usize(..4) {
            0 => Parting::Goodbye,
            1 => Parting::Forget,
            _ => Parting::Vanish,
        };
        let away = if rng.usize(..3) == 0 { millis(200..4000, rng) } else { Duration::ZERO };
        let lasts = millis(3000..25_000, rng);
        let registers = rng.usize(..10) == 0;
        Stay { node: rng.usize(..self.nodes), habit, lasts, registers, parting, away }
    }
}

impl Pushes {
    pub(super) fn next(&mut self) -> Push {
        let rng = &mut self.rng;
        let among = if rng.bool() { POPULAR } else { self.size.clients };
        Push {
            pause: millis(50..450, rng),
            endpoint: rng.usize(..self.size.endpoints),
            client: rng.usize(..among),
            channel: rng.usize(..usize::MAX),
            topic: [Some("news"), Some("mail"), None, None, None, None, None, None][rng.usize(..8)],
            ttl_s: match rng.usize(..20) {
                0 => 0,
                1..=2 => rng.u32(1..8),
                _ => TTL_LONG_S,
            },
            size: if rng.usize(..8) == 0 { rng.usize(1000..4000) } else { rng.usize(..200) },
        }
    }
}

impl<T: Clone> Deck<T> {
    fn of(cards: &[T]) -> Self {
        Self { cards: cards.to_vec(), dealt: cards.len() }
    }

    fn deal(&mut self, rng: &mut Rng) -> T {
        if self.dealt == self.cards.len() {
            rng.shuffle(&mut self.cards);
            self.dealt = 0;
        }
        self.dealt += 1;
        self.cards[self.dealt - 1].clone()
    }
}

fn millis(range: std::ops::Range<u64>, rng: &mut Rng) -> Duration {
    Duration::from_millis(rng.u64(range))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Size = Size {
        clients: 25,
        connects: 3,
        endpoints: 2,
        senders: 2,
        storm: Duration::from_secs(60),
        is_stormy: true,
    };

    /// All of it, as far as one can look ahead.
    fn whole(seed: u64) -> String {
        let plan = Plan::draw(seed, MINUTE);
        let stays: Vec<_> =
            plan.stays().iter_mut().map(|stays| [stays.next(), stays.next()]).collect();
        let mut lanes = plan.pushes(3);
        let pushes: Vec<_> = lanes.iter_mut().flatten().map(Pushes::next).collect();
        format!("{:?}{:?}{:?}{stays:?}{pushes:?}", plan.connects, plan.endpoints, plan.spells)
    }

    #[test]
    fn a_seed_gives_the_same_plan_again_and_another_seed_another() {
        assert_eq!(whole(1), whole(1));
        assert_ne!(whole(1), whole(2));
    }

    #[test]
    fn in_a_minute_everything_happens_and_nothing_after_its_end() {
        let plan = Plan::draw(3, MINUTE);
        for deeds in [&plan.connects, &plan.endpoints] {
            for kind in DEEDS {
                assert!(deeds.iter().flatten().any(|deed| deed.kind == kind), "{kind:?}");
            }
            assert!(deeds.iter().flatten().all(|deed| deed.at + deed.lasts < MINUTE.storm));
        }
        assert!(plan.spells.len() >= 7);
        assert!(plan.spells.iter().all(|spell| spell.at + spell.lasts < MINUTE.storm));
    }
}
