//! What stands around a connection while a transcript is played: store, registry, endpoints, clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use actix::Addr;
use actors::broadcasts::BroadcastView;
use actors::handle::DirectPush;
use actors::registry::{ConnectedElsewhere, Lookup, MessageStored, ShutDown};
use actors::{Client, ClientShared, Clock, Directory, NoPeers, RegistryActor};
use harness::transcript::{Bindings, Expected, Input, Mismatch, Step, Transcript};
use state_machine::broadcast::Versions;
use state_machine::connection::{Effect, Event, PushAnswer};
use state_machine::delivery::NodeAnswer;
use state_machine::wire::ClientMessage;
use state_machine::{ConnectionId, Message, MessageKey, PushId, Uaid};
use tokio::sync::oneshot;

use super::nodes::ScriptedNodes;
use super::played_step::PlayedStep;
use super::record::Record;
use super::scripted_broadcasts::ScriptedBroadcasts;
use super::store::{Script, ScriptedStore};
use super::urls::NamedUrls;
use crate::clockwork::pass;
use crate::node::{frame_limits, log};
use crate::wire::{Came, Wire};

/// The connection that is played.
const OURS: ConnectionId = ConnectionId(0);
/// The first of the connections that follow it.
const SUCCESSORS: u64 = 1000;

/// A stage for one session.
pub(crate) struct Stage {
    pub(crate) transcript: Arc<Transcript>,
    pub(crate) shared: Arc<ClientShared>,
    pub(crate) directory: Directory,
    pub(crate) record: Arc<Record>,
    store: Arc<ScriptedStore>,
    /// None on a node without broadcasts.
    broadcasts: Option<ScriptedBroadcasts>,
    names: Bindings,
    pushes: BTreeMap<PushId, (MessageKey, oneshot::Receiver<NodeAnswer>)>,
    /// The uaids that the registry should ever hear of, and their names.
    uaids: BTreeMap<Uaid, String>,
    found_under: BTreeSet<Uaid>,
    /// Whom pushes are for: the name it was last found under.
    uaid: Option<Uaid>,
    successors: Vec<Addr<Client<Wire>>>,
}

/// The user agent's end of the connection.
pub(crate) trait Agent {
    /// Executes a line that begins with `agent>`.
    async fn act(&mut self, input: &Input, names: &Bindings);

    /// A push for a connection that the registry does not know yet.
    async fn unfound_push(&mut self, push: DirectPush);

    /// A shutdown before the registry knows the connection.
    async fn unheard_shutdown(&mut self);
}

impl Stage {
    pub(crate) fn set(transcript: Arc<Transcript>) -> Self {
        let clock = Clock::starting_at(transcript.start);
        let peers = Arc::new(NoPeers(NodeAnswer::NotHere));
        let directory = Directory::start(RegistryActor::new(16, peers, log()), None);
        let record = Arc::new(Record::new(&transcript, clock));
        let store = Arc::new(Script::store(&record));
        let broadcasts = has_broadcasts(&transcript).then(ScriptedBroadcasts::new);
        let view = broadcasts.as_ref().map(ScriptedBroadcasts::view);
        let shared = shared(&record, &store, &directory, view, OURS.0);
        let names = Bindings::fixed();
        Self {
            uaids: uaids(&transcript, &names),
            transcript,
            shared,
            directory,
            record,
            store,
            broadcasts,
            names,
            pushes: BTreeMap::new(),
            found_under: BTreeSet::new(),
            uaid: None,
            successors: Vec::new(),
        }
    }

    /// Plays the input of a step.
    pub(crate) async fn play(&mut self, played: &PlayedStep, agent: &mut impl Agent) {
        if let Some(deaf) = played.deaf {
            self.pushes.remove(&deaf);
        }
        if let (Some(all), Some(broadcasts)) = (&played.broadcasts, &self.broadcasts) {
            broadcasts.publish(all);
        }
        match &played.step.input {
            Input::Wait(span) => pass(*span).await,
            Input::Event(Event::PushArrived { push, message }) => {
                self.push(*push, message, agent).await;
            }
            Input::Event(Event::StoreAnswered { op, answer }) => {
                self.store.answer(*op, answer.clone());
            }
            Input::Event(Event::MessageStored) => {
                let uaid = self.uaid.expect("a notification is for an agent after its hello");
                self.shared.registry.try_send(MessageStored { uaid }).unwrap();
            }
            Input::Event(Event::Replaced) => self.replace(),
            Input::Event(Event::ConnectedElsewhere { connected_at }) => {
                let connected_at = *connected_at;
                // Before hello this node does not know the agent.
                if let Some(uaid) = self.uaid {
                    let moved = ConnectedElsewhere { uaid, connected_at };
                    self.shared.registry.try_send(moved).unwrap();
                }
            }
            Input::Event(Event::BroadcastsChanged(all)) => {
                let broadcasts =
                    self.broadcasts.as_ref().expect("a transcript that has broadcasts");
                broadcasts.publish(all);
                broadcasts.signal();
            }
            Input::Event(Event::ShutdownBegan) => {
                self.shared.registry.try_send(ShutDown { spread: Duration::ZERO }).unwrap();
                if self.uaid.is_none() {
                    agent.unheard_shutdown().await;
                }
            }
            Input::Frame(_) | Input::Event(_) => agent.act(&played.step.input, &self.names).await,
        }
    }

    async fn push(&mut self, push: PushId, message: &Message, agent: &mut impl Agent) {
        let (reply, answer) = oneshot::channel();
        self.pushes.insert(push, (message.key(), answer));
        let uaid = self.uaid.unwrap_or(self.transcript.seed.fresh_uaid);
        let push = DirectPush { uaid, message: message.clone(), reply };
        match self.uaid {
            Some(_) => self.directory.deliver_here(push),
            None => agent.unfound_push(push).await,
        }
    }

    /// The same agent sends hello on another connection, whose store never answers.
    fn replace(&mut self) {
        let record = Arc::new(Record::new(&self.transcript, self.shared.clock.clone()));
        let store = Arc::new(Script::store(&record));
        let number = SUCCESSORS + self.successors.len() as u64;
        let shared = shared(&record, &store, &self.directory, None, number);
        let successor = Wire::start(&shared, self.transcript.seed, drop);
        let hello = ClientMessage::Hello {
            uaid: self.uaid,
            broadcasts: Versions::new(),
            use_webpush: true,
        };
        successor.try_send(Came(Event::MessageReceived(hello))).unwrap();
        self.successors.push(successor);
    }

    /// Compares everything that was seen with what is written.
    pub(crate) async fn compare(&mut self, played: &PlayedStep) -> Result<(), Mismatch> {
        let ordered = self.record.take();
        self.agrees(played, &ordered, |line| {
            matches!(line.recipient(), "agent" | "store" | "node" | "close")
        })?;
        let answers = self.push_lines();
        self.agrees(played, &answers, |line| line.recipient() == "push")?;
        let broadcasts = self.broadcast_lines();
        self.agrees(played, &broadcasts, |line| line.recipient() == "broadcasts")?;
        let registry = self.registry_lines().await;
        self.agrees(played, &registry, |line| line.recipient() == "registry")
    }

    /// Takes in what was seen, without comparing it.
    pub(crate) async fn follow(&mut self) {
        self.record.take();
        self.push_lines();
        self.broadcast_lines();
        self.registry_lines().await;
    }

    /// Compares the lines of some kinds.
    pub(crate) fn agrees(
        &mut self,
        played: &PlayedStep,
        got: &[String],
        is_seen: impl Fn(&Expected) -> bool,
    ) -> Result<(), Mismatch> {
        let expected: Vec<_> = played.step.effects.iter().filter(|line| is_seen(line)).collect();
        played.step.compare_those(&expected, got, &mut self.names)
    }

    fn push_lines(&mut self) -> Vec<String> {
        let (writer, now) = (self.transcript.writer(), self.shared.clock.now());
        let mut lines = Vec::new();
        self.pushes.retain(|push, (message, answer)| {
            let answer = match answer.try_recv() {
                Ok(answer) => answer,
                Err(oneshot::error::TryRecvError::Closed) => NodeAnswer::Unreachable,
                Err(oneshot::error::TryRecvError::Empty) => return true,
            };
            let (answer, word) = written(answer);
            let effect = Effect::AnswerPush { push: *push, answer, message: message.clone() };
            let line = writer.effect(&effect, now);
            lines.push(word.map_or(line.clone(), |word| line.replace(" busy ", word)));
            false
        });
        lines
    }

    /// Whether it follows broadcasts, as far as that changed.
    fn broadcast_lines(&self) -> Vec<String> {
        let (writer, now) = (self.transcript.writer(), self.shared.clock.now());
        let heard =
            self.broadcasts.as_ref().map(ScriptedBroadcasts::take_requests).unwrap_or_default();
        heard.iter().map(|effect| writer.effect(effect, now)).collect()
    }

    /// What changed in the registry.
    async fn registry_lines(&mut self) -> Vec<String> {
        let mut found = BTreeSet::new();
        for uaid in self.uaids.keys() {
            let connection = self.shared.registry.send(Lookup { uaid: *uaid }).await.unwrap();
            found.extend((connection == Some(OURS)).then_some(*uaid));
        }
        let line = |word, uaid| format!("registry< {word} {}", self.uaids[uaid]);
        let left = self.found_under.difference(&found).map(|uaid| line("deregister", uaid));
        let entered = found.difference(&self.found_under).map(|uaid| line("register", uaid));
        let lines = left.chain(entered).collect();
        self.uaid = found.first().copied().or(self.uaid);
        self.found_under = found;
        lines
    }
}

fn shared(
    record: &Arc<Record>,
    store: &Arc<ScriptedStore>,
    directory: &Directory,
    broadcasts: Option<BroadcastView>,
    first_connection: u64,
) -> Arc<ClientShared> {
    Arc::new(ClientShared {
        config: Arc::new(record.transcript.config.clone()),
        store: Arc::clone(store) as _,
        registry: directory.registry().clone(),
        nodes: Arc::new(ScriptedNodes(Arc::clone(record))),
        counters: Arc::clone(directory.clients()),
        broadcasts,
        receipts: None,
        urls: Box::new(NamedUrls),
        register_refused: Box::new(|_, _| {}),
        clock: record.clock.clone(),
        mailbox_max: 16,
        frame_limits: Arc::new(frame_limits(0, &record.clock)),
        log: log(),
        connections: AtomicU64::new(first_connection),
    })
}

fn has_broadcasts(transcript: &Transcript) -> bool {
    let is_told = |step: &Step| matches!(step.input, Input::Event(Event::BroadcastsChanged(_)));
    transcript.steps.iter().any(is_told)
}

/// Every uaid that stands in a line to the registry.
fn uaids(transcript: &Transcript, names: &Bindings) -> BTreeMap<Uaid, String> {
    let effects = transcript.steps.iter().flat_map(|step| &step.effects);
    let lines = effects.filter(|effect| effect.recipient() == "registry");
    let named = lines.filter_map(|line| line.text.split(' ').next_back());
    let uaid = |name: &str| Uaid::parse(names.text(name).as_deref().unwrap_or(name)).unwrap();
    named.map(|name| (uaid(name), name.to_owned())).collect()
}

/// A node's answer as a connection's, and the word for an answer that no connection gives.
fn written(answer: NodeAnswer) -> (PushAnswer, Option<&'static str>) {
    match answer {
        NodeAnswer::Accepted => (PushAnswer::Accepted, None),
        NodeAnswer::Unconfirmed => (PushAnswer::Unconfirmed, None),
        NodeAnswer::Busy => (PushAnswer::Busy, None),
        NodeAnswer::NoSuchChannel => (PushAnswer::NoSuchChannel, None),
        NodeAnswer::NotHere => (PushAnswer::Busy, Some(" not_here ")),
        NodeAnswer::Unreachable => (PushAnswer::Busy, Some(" unreachable ")),
    }
}
