//! Router records: connections of two nodes, registrations and moves of agents behind bridges, and drops.
//!
//! The contract is executed beside the rules, by the store of the harness ([`harness::model_store`]), which knows none of them.

mod scenarios;

use harness::model_store;
use harness::sentences;
use state_machine::store::{
    BridgedRegistration, MonthStep, RegisterResult, Registration, StoreAnswer, StoreOp,
};
use state_machine::{
    BridgeName, BridgeRecipient, LastConnect, Month, NodeBinding, NodeId, RouterRecord, RouterType,
    Time, Uaid,
};
use storage::StoreError;
use storage::maintenance::DROPPED;
use storage::record_row::RecordRow;
use storage::registration::NewRecord;
use storage::rules::record_rows::{GuardedChange, RecordChange, RecordGuard, RecordRows};
use storage::rules::records;
use storage_reference::{Answer, Call, Execute, Replay, Request, Rows, Tables};

use super::{Kept, Process, Rules, World};

sentences! {
    /// A promise to agents, and to those who call the store.
    Promise:
    RecordsAsPromised, "records_as_promised",
        "After each request, a record is that of the contract, whose operations are executed in the order of the requests.";
    LatestStays, "latest_stays",
        "A record is never that of an older registration than before.";
    MonthsAreRemembered, "months_are_remembered",
        "The month whose table has the messages of an agent is in its record until they are moved.";
    AnswersAreTrue, "answers_are_true",
        "A step is refused only if the record is not that of its connection any more.";
    ReconnectedStay, "reconnected_stay",
        "A user who has connected since the drop was decided stays.";
}

/// A bug for the model checker to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Mutation {
    /// A change does not compare the node of the record.
    AnyNode,
    /// A change does not compare the time of the registration.
    AnyConnection,
    /// A move of an agent behind a bridge begins from any month.
    AnyMonth,
    /// A move of an agent behind a bridge begins although another is unfinished, and ends whichever it is.
    AnyMove,
    /// A record that is marked is not looked at before it is marked.
    AnyLastConnect,
    /// A registration replaces newer ones.
    OlderRegisters,
    /// A registration takes the month of its node.
    MonthOfNode,
    /// A registration replaces a record that is marked.
    DroppedRegisters,
    /// The end of a move is refused.
    MoveRefused,
    /// A refused end of a move is answered without a look at the record.
    NoSecondLook,
    /// The end of a drop removes whichever record is there.
    AnyRecord,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Records;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Role {
    /// An agent connects to a node whose clock shows this month, which moves it, and disconnects. The first connection makes
    /// the record.
    Connect { node: &'static str, at: u64, month: u8 },
    /// A bridge registers the agent with this token.
    Bridge { at: u64, token: &'static str, month: u8 },
    /// A node moves the agent behind a bridge to this month.
    Move { month: u8 },
    /// The user is dropped, if its last connection is still this one.
    Drop { seen: LastConnect },
    /// A node clears its name from the record before it stops.
    Clear { node: &'static str, at: u64 },
    /// The bridge reports that a token is not in use any more.
    Unregister { token: &'static str },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Outcome {
    Done,
    /// The record was not that of the call.
    Refused,
    Superseded,
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Ledger {
    contract: model_store::Store,
    /// The month whose table has the messages; none before the first registration.
    messages_in: Option<Month>,
}

const UAID: Uaid = Uaid([1; 16]);

fn month(number: u8) -> Month {
    Month::new(2026, number).expect("10 to 12 are months")
}

/// The index key of a registration.
fn last_connect(at: u64) -> LastConnect {
    LastConnect(at * 10)
}

fn recipient(token: &str) -> BridgeRecipient {
    BridgeRecipient { bridge: BridgeName::Fcm, app: "app".into(), token: token.into(), aps: None }
}

impl Role {
    /// The registration; none of another call.
    fn registration(&self) -> Option<NewRecord> {
        match *self {
            Self::Connect { node, at, month: number } => Some(NewRecord::from(&Registration {
                uaid: UAID,
                router_type: RouterType::WebPush,
                node: NodeId::new(node),
                connected_at: Time(at),
                last_connect: last_connect(at),
                create_in: (at == 1).then_some(month(number)),
            })),
            Self::Bridge { at, token, month: number } => {
                Some(NewRecord::from(BridgedRegistration {
                    uaid: UAID,
                    recipient: recipient(token),
                    connected_at: Time(at),
                    last_connect: last_connect(at),
                    create_in: (at == 1).then_some(month(number)),
                }))
            }
            _ => None,
        }
    }
}

impl Call for Role {
    type Outcome = Outcome;

    async fn run(&self, requests: &Replay) -> Outcome {
        self.make(requests)
            .await
            .unwrap_or_else(|error| panic!("a record is changed once: {error}"))
    }
}

impl Role {
    async fn make(&self, requests: &Replay) -> Result<Outcome, StoreError> {
        let rows = Rows(requests);
        match self {
            Self::Connect { month: number, .. } | Self::Bridge { month: number, .. } => {
                let new = self.registration().expect("it registers");
                let answer = requests.execute(Request::Register(new)).await;
                let Answer::Registered(result) = answer else { panic!("{answer:?}") };
                let record = match *result {
                    RegisterResult::Registered(record, _) => record,
                    RegisterResult::Superseded(_) => return Ok(Outcome::Superseded),
                    RegisterResult::UnknownAgent => return Ok(Outcome::Unknown),
                };
                let binding = record.binding();
                if !moves(&rows, record, month(*number)).await? {
                    return Ok(Outcome::Refused);
                }
                if let Some(binding) = binding {
                    let is_cleared = records::clear_node(&rows, UAID, &binding).await?;
                    return Ok(if is_cleared { Outcome::Done } else { Outcome::Refused });
                }
                Ok(Outcome::Done)
            }
            Self::Move { month: number } => {
                let there = rows.record(UAID).await?.and_then(RecordRow::served);
                let Some(record) = there.filter(|there| there.router_type.recipient().is_some())
                else {
                    return Ok(Outcome::Unknown);
                };
                let is_done = moves(&rows, record, month(*number)).await?;
                Ok(if is_done { Outcome::Done } else { Outcome::Refused })
            }
            Self::Drop { seen } => {
                if records::mark_dropped(&rows, UAID, Some(*seen)).await?.is_none() {
                    return Ok(Outcome::Refused);
                }
                rows.is_done(Request::RemoveMarked(UAID)).await;
                Ok(Outcome::Done)
            }
            Self::Clear { node, at } => {
                let binding = NodeBinding { node: NodeId::new(node), connected_at: Time(*at) };
                let is_done = records::clear_node(&rows, UAID, &binding).await?;
                Ok(if is_done { Outcome::Done } else { Outcome::Refused })
            }
            Self::Unregister { token } => {
                let recipient = Some(recipient(token));
                let is_done = rows.is_done(Request::RemoveRecord(UAID, recipient)).await;
                Ok(if is_done { Outcome::Done } else { Outcome::Refused })
            }
        }
    }
}

/// Ends an unfinished move, and moves the agent to a later month. False once the record is another one.
async fn moves(
    rows: &Rows<'_, Replay>,
    record: RouterRecord,
    to: Month,
) -> Result<bool, StoreError> {
    let step = |from, to| MonthStep {
        uaid: UAID,
        node: record.node.clone(),
        connected_at: record.connected_at,
        from,
        to,
        last_connect: LastConnect(99),
    };
    if let Some(oldmonth) = record.oldmonth {
        let unfinished = step(oldmonth, record.curmonth);
        if !records::finish_month_move(rows, &unfinished).await? {
            return Ok(false);
        }
    }
    if record.curmonth >= to {
        return Ok(true);
    }
    let step = step(record.curmonth, to);
    let is_done = records::update_message_month(rows, &step).await?;
    Ok(is_done && records::finish_month_move(rows, &step).await?)
}

impl Rules for Records {
    type Call = Role;
    type Outcome = Outcome;
    type Mutation = Mutation;
    type Promise = Promise;
    type Ledger = Ledger;

    fn may_begin(_world: &World<Self>, _call: &Role, _process: &Process<Self>) -> bool {
        true
    }

    fn begin(call: &Role, _mutation: Option<Mutation>) -> Role {
        call.clone()
    }

    fn execute(tables: &mut Tables, request: &Request, mutation: Option<Mutation>) -> Answer {
        let mut request = request.clone();
        match (mutation, &mut request) {
            (Some(mutation), Request::Change(change)) => {
                change.guards.retain(|guard| !mutation.leaves_out(guard));
                if mutation == Mutation::MoveRefused && change.change == RecordChange::EndMove {
                    return Answer::Changed(None);
                }
            }
            (Some(Mutation::NoSecondLook), Request::Record(_)) => return Answer::Record(None),
            (Some(Mutation::AnyRecord), Request::RemoveMarked(uaid)) => {
                request = Request::RemoveRecord(*uaid, None);
            }
            (Some(mutation), Request::Register(new)) => {
                if let Some(there) = tables.records.get_mut(&new.uaid) {
                    match mutation {
                        Mutation::OlderRegisters => there.connected_at = Time(0),
                        Mutation::MonthOfNode => there.curmonth = new.create_in,
                        Mutation::DroppedRegisters => {
                            there.router_type = new.router_type.as_str().to_owned();
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        tables.execute(&request).expect("no request here waits for others")
    }

    fn executed(
        world: &mut World<Self>,
        before: &Tables,
        request: &Request,
        call: &Role,
    ) -> Kept<Self> {
        let was = before.records.get(&UAID);
        let there = world.tables.records.get(&UAID).cloned();
        let is_older = |was: &RecordRow| {
            there.as_ref().is_some_and(|there| there.connected_at < was.connected_at)
        };
        if let Some(was) = was.filter(|was| is_older(was)) {
            let detail = format!("{there:?} was {was:?}");
            return Err((Promise::LatestStays, detail));
        }
        let is_marked = |row: Option<&RecordRow>| row.is_some_and(|row| row.router_type == DROPPED);
        let is_taken = match (call, was) {
            (Role::Drop { seen }, Some(was)) if !is_marked(Some(was)) => {
                there.is_none() || is_marked(there.as_ref()) && was.last_connect != *seen
            }
            _ => false,
        };
        if is_taken {
            return Err((Promise::ReconnectedStay, format!("{was:?} is dropped")));
        }
        world.ledger.follows(request, was, there.as_ref());
        let found = there.as_ref().map(|there| [there.curmonth, there.oldmonth]);
        if let (Some(found), Some(messages_in)) = (found, world.ledger.messages_in)
            && !found.contains(&Some(messages_in))
        {
            return Err((Promise::MonthsAreRemembered, format!("{messages_in}: {found:?}")));
        }
        let contract = world.ledger.promised(request);
        let served = there.and_then(RecordRow::served);
        if served != contract {
            let detail = format!("{served:?} is promised to be {contract:?}");
            return Err((Promise::RecordsAsPromised, detail));
        }
        Ok(())
    }

    fn ended(world: &mut World<Self>, call: &Role, outcome: &Outcome) -> Kept<Self> {
        let (Role::Connect { at, node, .. }, Outcome::Refused) = (call, outcome) else {
            return Ok(());
        };
        let there = world.tables.records.get(&UAID).filter(|there| there.has_served_type());
        let is_its_own = there.is_some_and(|there| {
            there.connected_at == Time(*at) && there.node == Some(NodeId::new(node))
        });
        if is_its_own {
            return Err((Promise::AnswersAreTrue, format!("{there:?} is that of {call:?}")));
        }
        Ok(())
    }

    fn at_rest(_world: &World<Self>, _mutation: Option<Mutation>) -> Kept<Self> {
        Ok(())
    }
}

impl Mutation {
    fn leaves_out(self, guard: &RecordGuard) -> bool {
        match guard {
            RecordGuard::Node(_) => self == Self::AnyNode,
            RecordGuard::ConnectedAt(_) => self == Self::AnyConnection,
            RecordGuard::Curmonth(_) => self == Self::AnyMonth,
            RecordGuard::Oldmonth(_) => self == Self::AnyMove,
            RecordGuard::LastConnect(_) => self == Self::AnyLastConnect,
            RecordGuard::Bridged => false,
        }
    }
}

impl Ledger {
    /// Those who end a move have moved the messages before.
    fn follows(&mut self, request: &Request, was: Option<&RecordRow>, there: Option<&RecordRow>) {
        match (request, was, there) {
            (_, _, None) => self.messages_in = None,
            (Request::Register(_), None, Some(there)) => self.messages_in = there.curmonth,
            (Request::Change(change), Some(was), Some(there))
                if change.change == RecordChange::EndMove && was != there =>
            {
                let is_moved = |guard: &RecordGuard| matches!(guard, RecordGuard::Oldmonth(from) if *from == self.messages_in);
                if change.guards.iter().any(is_moved) {
                    self.messages_in = was.curmonth;
                }
            }
            _ => {}
        }
    }

    /// The record that the contract promises after a request.
    fn promised(&mut self, request: &Request) -> Option<RouterRecord> {
        let contract = &mut self.contract;
        match request {
            Request::Register(new) => {
                let NewRecord { uaid, connected_at, last_connect, create_in, .. } = *new;
                match (new.router_type.recipient().cloned(), new.node.clone()) {
                    (Some(recipient), _) => {
                        contract.register_bridged(BridgedRegistration {
                            uaid,
                            recipient,
                            connected_at,
                            last_connect,
                            create_in,
                        });
                    }
                    (None, node) => {
                        let router_type = new.router_type.clone();
                        let node = node.expect("an agent without a bridge has a node");
                        contract.execute(&StoreOp::Register(Registration {
                            uaid,
                            router_type,
                            node,
                            connected_at,
                            last_connect,
                            create_in,
                        }));
                    }
                }
            }
            Request::RemoveRecord(uaid, recipient) => {
                contract.drop_user(*uaid, recipient.as_ref());
            }
            // The contract has no record of a user who is marked.
            Request::RemoveMarked(uaid) => drop(contract.dropped.remove(uaid)),
            Request::Change(change) => drop(self.changes(change)),
            _ => {}
        }
        self.contract.records.get(&UAID).cloned()
    }

    fn changes(&mut self, change: &GuardedChange) -> Option<StoreAnswer> {
        let guards = || change.guards.iter();
        let node = guards().find_map(|guard| match guard {
            RecordGuard::Node(node) => Some(node.clone()),
            _ => None,
        });
        let connected_at = guards().find_map(|guard| match guard {
            RecordGuard::ConnectedAt(at) => Some(*at),
            _ => None,
        });
        let from = guards().find_map(|guard| match guard {
            RecordGuard::Oldmonth(from) => *from,
            _ => None,
        });
        let step = |node, from, to, last_connect| {
            let connected_at = connected_at.expect("each step has the time of its connection");
            MonthStep { uaid: UAID, node, connected_at, from, to, last_connect }
        };
        let op = match change.change {
            RecordChange::Months { curmonth, oldmonth, last_connect } => {
                StoreOp::UpdateMonth(step(node, oldmonth?, curmonth, last_connect?))
            }
            RecordChange::EndMove => StoreOp::FinishMove(step(node, from?, from?, LastConnect(0))),
            RecordChange::ClearNode => {
                let binding = NodeBinding { node: node?, connected_at: connected_at? };
                StoreOp::ClearNode { uaid: UAID, binding }
            }
            RecordChange::MarkDropped => {
                let seen = guards().find_map(|guard| match guard {
                    RecordGuard::LastConnect(seen) => Some(*seen),
                    _ => None,
                });
                self.contract.mark_dropped(UAID, seen);
                return None;
            }
            RecordChange::Connected { .. } => return None,
        };
        Some(self.contract.execute(&op))
    }
}
