//! Calls on one user agent behind a bridge, and pushes to it, in every order of their steps. The clocks of their nodes
//! disagree. A call may crash between any two steps, and its last write may be executed after the crash.

use std::collections::BTreeSet;

use state_machine::bridged_call::{
    BridgedCall, BridgedError, CallEffect, CallEvent, CallOutcome, CallParams, Task,
};
use state_machine::delivery::{
    Delivery, DeliveryEffect, DeliveryEvent, Outcome, PushParams, Route,
};
use state_machine::store::{MonthStep, StoreOp};
use state_machine::{
    BridgeName, BridgeOutcome, BridgeRecipient, Chid, LastConnect, Month, RouterRecord, RouterType,
    Time, Uaid,
};
use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::rule_models::on_store;
use crate::search::is_large;
use crate::world::store::Store;

const UAID: Uaid = Uaid([1; 16]);
/// A channel that is registered from the beginning to the end.
const KEPT: Chid = Chid([1; 16]);
/// A channel that is registered at the beginning, and that a [`Role::Remove`] unregisters.
const GIVEN_UP: Chid = Chid([2; 16]);
/// A channel that a [`Role::Add`] registers.
const NEW: Chid = Chid([3; 16]);

fn month(number: u8) -> Month {
    Month::new(2026, number).expect("10 to 12 are months")
}

/// What one process does, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Move,
    Add,
    Remove,
    Push(Chid),
}

/// A bug in the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mutation {
    /// A copy adds the channels to a row that exists.
    CopyAdds,
    /// A written channel is answered without a second read of the record.
    NoSecondRead,
    /// The record moves from any month.
    MoveFromAnyMonth,
}

#[derive(Debug, Clone)]
struct Search {
    roles: Vec<Role>,
    crashes: u8,
    mutation: Option<Mutation>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    store: Store,
    processes: Vec<Process>,
    crashes_left: u8,
    /// Writes whose callers have crashed. They may be executed at any time.
    late: Vec<StoreOp>,
    /// The channels that a call reads now, on a node whose clock is behind.
    settled: BTreeSet<Chid>,
    /// A push that was answered against a promise.
    wrong_answer: Option<(Chid, Outcome)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Process {
    Waiting,
    Calling(Call),
    Pushing(Box<Push>),
    Crashed,
    Ended(Result<CallOutcome, BridgedError>),
    Pushed(Outcome),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Call {
    machine: BridgedCall,
    next: CallEffect,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Push {
    chid: Chid,
    this_month: Month,
    machine: Delivery,
    next: DeliveryEffect,
    /// The move that it runs.
    moving: Option<Call>,
    /// Whether the channel was registered when the push began; none if a call on the channel was under way.
    is_registered: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Action {
    /// On a node whose clock shows this month.
    Begin(usize, Month),
    Step(usize),
    Crash(usize),
    /// The process crashes after it has sent its write, which is executed later.
    CrashAfterSending(usize),
    ExecuteLate(usize),
}

impl Search {
    /// The months that the clock of a process may show. Those of two moves differ; any other call moves the agent too, or
    /// has a clock that is behind.
    fn clocks(&self, at: usize) -> Vec<u8> {
        match (self.roles[at], at) {
            (Role::Move, 0) => vec![12],
            (Role::Move, _) => vec![11],
            (Role::Add | Role::Remove | Role::Push(_), _) if is_large() => vec![10, 11],
            (Role::Add | Role::Remove | Role::Push(_), _) => vec![11],
        }
    }
}

impl Call {
    fn begin(task: Task, this_month: Month) -> Self {
        let params = CallParams { uaid: UAID, this_month, last_connect: LastConnect(1), task };
        let (machine, next) = BridgedCall::begin(params);
        Self { machine, next }
    }

    /// Executes the next effect. Returns the result at the end.
    fn step(
        &mut self,
        store: &mut Store,
        mutation: Option<Mutation>,
    ) -> Option<Result<CallOutcome, BridgedError>> {
        let is_write = matches!(
            self.next,
            CallEffect::Store(StoreOp::AddChannels { .. } | StoreOp::RemoveChannel { .. })
        );
        let event = match &self.next {
            CallEffect::ReadRecord => CallEvent::RecordRead(store.records.get(&UAID).cloned()),
            CallEffect::Store(op) => CallEvent::StoreAnswered(execute(store, op, mutation)),
            CallEffect::End(result) => return Some(result.clone()),
        };
        self.next = self.machine.step(event);
        if is_write && mutation == Some(Mutation::NoSecondRead) {
            return Some(Ok(CallOutcome::Written));
        }
        match &self.next {
            CallEffect::End(result) => Some(result.clone()),
            CallEffect::ReadRecord | CallEffect::Store(_) => None,
        }
    }
}

fn execute(
    store: &mut Store,
    op: &StoreOp,
    mutation: Option<Mutation>,
) -> state_machine::store::StoreAnswer {
    match (mutation, op.clone()) {
        (Some(Mutation::CopyAdds), StoreOp::CreateChannels { uaid, month, channels }) => {
            store.execute(&StoreOp::AddChannels { uaid, month, channels })
        }
        (Some(Mutation::MoveFromAnyMonth), StoreOp::UpdateMonth(step)) => {
            let record = store.records.get_mut(&UAID).expect("no process drops it");
            let MonthStep { from, to, .. } = step;
            (record.curmonth, record.oldmonth) = (to, Some(from));
            state_machine::store::StoreAnswer::MonthUpdated(true)
        }
        (_, op) => on_store::execute(store, &op),
    }
}

impl World {
    fn of(&self, search: &Search, role: Role) -> Option<&Process> {
        let at = search.roles.iter().position(|other| *other == role)?;
        Some(&self.processes[at])
    }

    /// Whether a channel is registered; none while a call on it is under way or may have been executed.
    fn is_registered(&self, search: &Search, chid: Chid) -> Option<bool> {
        let (role, before) = match chid {
            NEW => (Role::Add, false),
            GIVEN_UP => (Role::Remove, true),
            _ => return Some(true),
        };
        match self.of(search, role) {
            None | Some(Process::Waiting) => Some(before),
            Some(Process::Ended(Ok(_))) => Some(!before),
            Some(_) => None,
        }
    }

    fn begin(&mut self, search: &Search, at: usize, this_month: Month) {
        let call = |task| Process::Calling(Call::begin(task, this_month));
        self.processes[at] = match search.roles[at] {
            Role::Move => call(Task::Move),
            Role::Add => call(Task::AddChannel { chid: NEW, channels_max: 9 }),
            Role::Remove => call(Task::RemoveChannel { chid: GIVEN_UP }),
            Role::Push(chid) => {
                let params = PushParams {
                    ttl_is_zero: false,
                    stores_first: false,
                    this_month,
                    message_month: this_month,
                };
                let (machine, next) = Delivery::begin(params);
                let is_registered = self.is_registered(search, chid);
                let moving = None;
                let push = Push { chid, this_month, machine, next, moving, is_registered };
                Process::Pushing(Box::new(push))
            }
        };
    }

    fn step(&mut self, search: &Search, at: usize) {
        match &mut self.processes[at] {
            Process::Calling(call) => {
                if let Some(result) = call.step(&mut self.store, search.mutation) {
                    self.processes[at] = Process::Ended(result);
                }
            }
            Process::Pushing(push) => {
                let Some(outcome) = push.step(&mut self.store, search.mutation) else { return };
                let (chid, before) = (push.chid, push.is_registered);
                // A call on the channel that begins meanwhile leaves the answer open.
                let is_wrong = match before.filter(|_| before == self.is_registered(search, chid)) {
                    Some(true) => matches!(outcome, Outcome::NoSuchChannel | Outcome::NoSuchUser),
                    Some(false) => outcome == Outcome::Delivered,
                    None => outcome == Outcome::NoSuchUser,
                };
                if is_wrong {
                    self.wrong_answer = Some((chid, outcome));
                }
                self.processes[at] = Process::Pushed(outcome);
            }
            Process::Waiting | Process::Crashed | Process::Ended(_) | Process::Pushed(_) => {}
        }
    }

    fn settle(&self) -> BTreeSet<Chid> {
        let mut store = self.store.clone();
        let mut call = Call::begin(Task::ReadChannels, month(10));
        loop {
            match call.step(&mut store, None) {
                Some(Ok(CallOutcome::Channels(channels))) => return channels,
                Some(other) => panic!("{other:?}"),
                None => {}
            }
        }
    }

    fn pending_write(&self, at: usize) -> Option<StoreOp> {
        let call = match &self.processes[at] {
            Process::Calling(call) => Some(call),
            Process::Pushing(push) => push.moving.as_ref(),
            _ => None,
        };
        match call.map(|call| &call.next) {
            // A registration call that crashed was not answered: what it does to its own channel is open.
            Some(CallEffect::Store(
                op @ (StoreOp::UpdateMonth(_)
                | StoreOp::CreateChannels { .. }
                | StoreOp::FinishMove(_)),
            )) => Some(op.clone()),
            _ => None,
        }
    }
}

impl Push {
    fn step(&mut self, store: &mut Store, mutation: Option<Mutation>) -> Option<Outcome> {
        let route = |store: &Store| store.records.get(&UAID).cloned().map(Route::from);
        let event = match &self.next {
            DeliveryEffect::ReadRecord => DeliveryEvent::RecordRead(Ok(route(store))),
            DeliveryEffect::ConfirmChannel { month } => {
                let has = store.has_channel(UAID, *month, self.chid);
                DeliveryEvent::ChannelConfirmed(Ok(has))
            }
            DeliveryEffect::MoveAgent => {
                let month = self.this_month;
                let call = self.moving.get_or_insert_with(|| Call::begin(Task::Move, month));
                let ended = call.step(store, mutation)?;
                self.moving = None;
                DeliveryEvent::AgentMoved(match ended {
                    Ok(CallOutcome::Moved(record)) => Ok(Some(Route::from(*record))),
                    Err(BridgedError::UnknownAgent) => Ok(None),
                    _ => Err(state_machine::store::StoreFailed),
                })
            }
            DeliveryEffect::SendToBridge { .. } => {
                DeliveryEvent::BridgeAnswered(BridgeOutcome::Accepted)
            }
            other => panic!("{other:?} of a push to a bridge that accepts it"),
        };
        let effects = self.machine.step(event);
        self.next = effects.into_iter().next().expect("each event leads to an effect");
        match self.next {
            DeliveryEffect::Answer(outcome) => Some(outcome),
            _ => None,
        }
    }
}

impl Model for Search {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let mut store = Store::default();
        let recipient = BridgeRecipient {
            bridge: BridgeName::Fcm,
            app: "app".into(),
            token: "token".into(),
            aps: None,
        };
        let record = RouterRecord {
            uaid: UAID,
            router_type: RouterType::Bridge(Box::new(recipient)),
            node: None,
            connected_at: Time(1),
            last_connect: LastConnect(1),
            curmonth: month(10),
            oldmonth: None,
        };
        store.records.insert(UAID, record);
        let channels = BTreeSet::from([KEPT, GIVEN_UP]);
        store.execute(&StoreOp::AddChannels { uaid: UAID, month: month(10), channels });
        vec![World {
            store,
            settled: BTreeSet::from([KEPT, GIVEN_UP]),
            processes: vec![Process::Waiting; self.roles.len()],
            crashes_left: self.crashes,
            late: Vec::new(),
            wrong_answer: None,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for (at, process) in world.processes.iter().enumerate() {
            match process {
                Process::Waiting => {
                    let clocks = self.clocks(at).into_iter();
                    actions.extend(clocks.map(|number| Action::Begin(at, month(number))));
                }
                Process::Calling(_) | Process::Pushing(_) => {
                    actions.push(Action::Step(at));
                    if world.crashes_left > 0 {
                        actions.push(Action::Crash(at));
                        let write = world.pending_write(at);
                        actions.extend(write.map(|_write| Action::CrashAfterSending(at)));
                    }
                }
                Process::Crashed | Process::Ended(_) | Process::Pushed(_) => {}
            }
        }
        actions.extend((0..world.late.len()).map(Action::ExecuteLate));
    }

    fn next_state(&self, before: &World, action: Action) -> Option<World> {
        let mut world = before.clone();
        match action {
            Action::Begin(at, this_month) => world.begin(self, at, this_month),
            Action::Step(at) => world.step(self, at),
            Action::Crash(at) | Action::CrashAfterSending(at) => {
                if matches!(action, Action::CrashAfterSending(_)) {
                    world.late.extend(world.pending_write(at));
                }
                world.processes[at] = Process::Crashed;
                world.crashes_left -= 1;
            }
            Action::ExecuteLate(which) => {
                let op = world.late.remove(which);
                execute(&mut world.store, &op, self.mutation);
            }
        }
        if world.store != before.store {
            world.settled = world.settle();
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(LOST, |search: &Search, world: &World| {
                [KEPT, GIVEN_UP, NEW].iter().all(|chid| {
                    world.is_registered(search, *chid) != Some(true) || world.settled.contains(chid)
                })
            }),
            Property::always(BACK, |search: &Search, world: &World| {
                world.is_registered(search, GIVEN_UP) != Some(false)
                    || !world.settled.contains(&GIVEN_UP)
            }),
            Property::always(ANSWERED, |_: &Search, world: &World| world.wrong_answer.is_none()),
            Property::sometimes(MOVED, |_: &Search, world: &World| {
                let record = &world.store.records[&UAID];
                record.curmonth == month(12) && record.oldmonth.is_none()
            }),
            Property::sometimes(ALL_ENDED, |_: &Search, world: &World| {
                let is_over = |process: &Process| {
                    matches!(process, Process::Ended(Ok(_)) | Process::Pushed(Outcome::Delivered))
                };
                world.processes.iter().all(is_over)
            }),
        ]
    }
}

const LOST: &str = "a registered channel is never lost";
const BACK: &str = "an unregistered channel never returns";
const ANSWERED: &str = "a push is answered as the channel was when it began";
const MOVED: &str = "the agent is on the last month";
const ALL_ENDED: &str = "every call is answered without a failure";

fn search(roles: &[Role], crashes: u8) -> Search {
    let crashes = crashes + u8::from(is_large());
    Search { roles: roles.to_vec(), crashes, mutation: None }
}

fn holds(search: Search) {
    let roles = search.roles.clone();
    let checker = search.checker().spawn_bfs().join();
    println!("{roles:?}: {} states", checker.unique_state_count());
    checker.assert_properties();
}

/// The shortest path to a violation of the promise, with the bug.
fn breaks(roles: &[Role], crashes: u8, mutation: Mutation, promise: &'static str) {
    let search = Search { mutation: Some(mutation), ..search(roles, crashes) };
    let until = HasDiscoveries::AnyOf(BTreeSet::from([promise]));
    let checker = search.checker().finish_when(until).spawn_bfs().join();
    let path = checker.discovery(promise);
    let path = path.unwrap_or_else(|| panic!("{mutation:?} was not noticed: {promise} holds"));
    println!("{mutation:?} breaks `{promise}`: {:?}", path.into_actions());
}

#[test]
fn no_channel_is_lost_or_returns_while_three_calls_move_the_agent() {
    holds(search(&[Role::Move, Role::Add, Role::Remove], 0));
}

#[test]
fn no_channel_is_lost_or_returns_whichever_call_crashes() {
    holds(search(&[Role::Move, Role::Move, Role::Remove], 1));
    holds(search(&[Role::Move, Role::Move, Role::Add], 1));
}

#[test]
fn a_push_during_a_move_is_answered_as_its_channel_was_when_it_began() {
    for (role, chid) in [(Role::Move, KEPT), (Role::Add, NEW), (Role::Remove, GIVEN_UP)] {
        holds(search(&[Role::Move, role, Role::Push(chid)], 0));
    }
}

#[test]
fn a_copy_into_a_row_that_exists_is_noticed() {
    let roles = [Role::Move, Role::Move, Role::Remove];
    breaks(&roles, 0, Mutation::CopyAdds, BACK);
}

#[test]
fn an_answer_without_a_second_read_of_the_record_is_noticed() {
    breaks(&[Role::Move, Role::Add], 0, Mutation::NoSecondRead, LOST);
    breaks(&[Role::Move, Role::Remove], 0, Mutation::NoSecondRead, BACK);
}

#[test]
fn a_record_that_moves_from_any_month_is_noticed() {
    let roles = [Role::Move, Role::Move, Role::Add];
    breaks(&roles, 0, Mutation::MoveFromAnyMonth, LOST);
}
