//! Rules of the storage crate that several processes run on the same rows, in every order of their row methods.
//!
//! A rule may fail at each row method: before the method is executed, or after it was sent, so that it is executed at any
//! later time. Its caller may repeat it.

pub(crate) mod on_store;
mod receipts;
mod records;

use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::sync::Arc;

use storage_reference::{Answer, Call, Request, Suspended, Tables};

use crate::search::{self, Diary, Sight, hunt};

/// The rules of a model, what they promise, and the bugs that a test may seed.
pub(crate) trait Rules: Part + Copy {
    type Call: Call<Outcome = Self::Outcome> + Part;
    type Outcome: Part;
    type Mutation: Part + Copy;
    type Promise: Part + Copy + Display;
    /// What the promises remember of the past.
    type Ledger: Part + Default;

    /// Whether a process may begin a call now.
    fn may_begin(_world: &World<Self>, _call: &Self::Call, _process: &Process<Self>) -> bool {
        true
    }

    fn begin(call: &Self::Call, mutation: Option<Self::Mutation>) -> Self::Call;

    /// Executes a request, with the bug.
    fn execute(tables: &mut Tables, request: &Request, mutation: Option<Self::Mutation>) -> Answer;

    /// Checks what a request of a call has done.
    fn executed(
        world: &mut World<Self>,
        before: &Tables,
        request: &Request,
        call: &Self::Call,
    ) -> Kept<Self>;

    fn ended(world: &mut World<Self>, call: &Self::Call, outcome: &Self::Outcome) -> Kept<Self>;

    /// Checks a world in which no rule runs.
    fn at_rest(world: &World<Self>, mutation: Option<Self::Mutation>) -> Kept<Self>;
}

/// A part of a state.
pub(crate) trait Part: Debug + Clone + Eq + Hash + Send + Sync + 'static {}

impl<T: Debug + Clone + Eq + Hash + Send + Sync + 'static> Part for T {}

/// None, or the promise that is broken and how.
pub(crate) type Kept<R> = Result<(), (<R as Rules>::Promise, String)>;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World<R: Rules> {
    pub(crate) tables: Tables,
    pub(crate) processes: Vec<(R::Call, Process<R>)>,
    /// Requests whose callers have stopped waiting.
    late: Vec<(R::Call, Arc<Request>)>,
    faults_left: u8,
    pub(crate) ledger: R::Ledger,
    broken: Option<(R::Promise, String)>,
    diary: Diary,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Process<R: Rules> {
    Waiting,
    Running(Suspended<R::Call>),
    /// It may begin again.
    Failed,
    Ended(R::Outcome),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Begins(usize),
    GoesOn(usize),
    /// The request is not executed, and its rule fails.
    Fails(usize),
    /// The request is executed at some later time, and its rule fails.
    FailsAfterSending(usize),
    /// The request is executed twice: the answer of the first time was lost.
    IsRepeated(usize),
    Arrives(usize),
}

#[derive(Clone)]
pub(crate) struct Scenario<R: Rules> {
    name: &'static str,
    start: World<R>,
    mutation: Option<R::Mutation>,
    quarry: Option<R::Promise>,
    sights: Vec<Sight<Self>>,
}

impl<R: Rules> Scenario<R> {
    /// Each of these calls may be made once; again if it has failed.
    pub(crate) fn new(name: &'static str, faults: u8, calls: Vec<R::Call>) -> Self {
        let start = World {
            tables: Tables::default(),
            processes: calls.into_iter().map(|call| (call, Process::Waiting)).collect(),
            late: Vec::new(),
            faults_left: faults,
            ledger: R::Ledger::default(),
            broken: None,
            diary: Diary::default(),
        };
        Self { name, start, mutation: None, quarry: None, sights: Vec::new() }
    }

    /// The first calls have ended before the search begins.
    pub(crate) fn after_the_first(mut self, count: usize) -> Self {
        for at in 0..count {
            self.start.happens(&self.clone(), Action::Begins(at));
            while let (_, Process::Running(_)) = &self.start.processes[at] {
                self.start.happens(&self.clone(), Action::GoesOn(at));
            }
        }
        self
    }

    pub(crate) fn seen(
        mut self,
        name: &'static str,
        sight: fn(&search::Search<Self>, &World<R>) -> bool,
    ) -> Self {
        self.sights.push((name, sight));
        self
    }

    /// Searches for the shortest violation of a promise with a seeded bug.
    pub(crate) fn notices(mut self, mutation: R::Mutation, promise: R::Promise) {
        (self.mutation, self.quarry) = (Some(mutation), Some(promise));
        hunt(&self);
    }
}

impl<R: Rules> World<R> {
    /// The outcomes of calls that have ended.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = (&R::Call, &R::Outcome)> {
        self.processes.iter().filter_map(|(call, process)| match process {
            Process::Ended(outcome) => Some((call, outcome)),
            Process::Waiting | Process::Running(_) | Process::Failed => None,
        })
    }

    fn is_at_rest(&self) -> bool {
        let is_running =
            |(_, process): &(R::Call, Process<R>)| matches!(process, Process::Running(_));
        self.late.is_empty() && !self.processes.iter().any(is_running)
    }

    /// The tables after one more call, during which nothing else happens.
    pub(crate) fn alone(
        &self,
        call: &R::Call,
        mutation: Option<R::Mutation>,
    ) -> (Tables, R::Outcome) {
        let mut tables = self.tables.clone();
        let mut rule = Suspended::begin(call.clone());
        loop {
            let answer = R::execute(&mut tables, &rule.next, mutation);
            if let Some(outcome) = rule.goes_on(answer) {
                return (tables, outcome);
            }
        }
    }

    fn happens(&mut self, scenario: &Scenario<R>, action: Action) {
        self.diary.note(|| format!("{action:?}"));
        match action {
            Action::Begins(at) => {
                let (call, process) = &mut self.processes[at];
                *process = Process::Running(Suspended::begin(R::begin(call, scenario.mutation)));
            }
            Action::GoesOn(at) => self.goes_on(scenario, at),
            Action::Fails(at) | Action::FailsAfterSending(at) | Action::IsRepeated(at) => {
                self.faults_left -= 1;
                let (call, Process::Running(rule)) = &self.processes[at] else { return };
                let (call, request) = (call.clone(), Arc::clone(&rule.next));
                match action {
                    Action::FailsAfterSending(_) => self.late.push((call, request)),
                    Action::IsRepeated(_) => {
                        self.execute(scenario, &request, &call);
                        return self.goes_on(scenario, at);
                    }
                    _ => {}
                }
                self.processes[at].1 = Process::Failed;
            }
            Action::Arrives(which) => {
                let (call, request) = self.late.remove(which);
                self.execute(scenario, &request, &call);
            }
        }
    }

    fn goes_on(&mut self, scenario: &Scenario<R>, at: usize) {
        let (call, Process::Running(rule)) = &self.processes[at] else { return };
        let (call, request) = (call.clone(), Arc::clone(&rule.next));
        let answer = self.execute(scenario, &request, &call);
        let process = &mut self.processes[at].1;
        let Process::Running(rule) = process else { return };
        if let Some(outcome) = rule.goes_on(answer) {
            self.diary.note(|| format!("    {call:?} ends with {outcome:?}"));
            *process = Process::Ended(outcome.clone());
            let kept = R::ended(self, &call, &outcome);
            self.breaks(scenario, kept);
        }
    }

    fn execute(&mut self, scenario: &Scenario<R>, request: &Request, call: &R::Call) -> Answer {
        let before = self.tables.clone();
        let answer = R::execute(&mut self.tables, request, scenario.mutation);
        self.diary.note(|| format!("    {request:?}\n    < {answer:?}"));
        let kept = R::executed(self, &before, request, call);
        self.breaks(scenario, kept);
        answer
    }

    /// Records the first broken promise; in a search for one, only that one.
    fn breaks(&mut self, scenario: &Scenario<R>, kept: Kept<R>) {
        let Err((promise, detail)) = kept else { return };
        if self.broken.is_none() && scenario.quarry.is_none_or(|quarry| quarry == promise) {
            self.broken = Some((promise, detail));
        }
    }
}

impl<R: Rules> search::Scenario for Scenario<R> {
    type World = World<R>;
    type Action = Action;

    fn name(&self) -> &'static str {
        self.name
    }

    fn start(&self) -> &World<R> {
        &self.start
    }

    fn sights(&self) -> &[Sight<Self>] {
        &self.sights
    }

    fn quarry(&self) -> Option<String> {
        Some(format!("{:?} breaks {}", self.mutation, self.quarry?))
    }

    fn actions(&self, world: &World<R>, actions: &mut Vec<Action>) {
        if world.broken.is_some() {
            return;
        }
        for (at, (call, process)) in world.processes.iter().enumerate() {
            match process {
                Process::Waiting | Process::Failed if R::may_begin(world, call, process) => {
                    actions.push(Action::Begins(at));
                }
                Process::Waiting | Process::Failed | Process::Ended(_) => {}
                Process::Running(rule) => {
                    actions.push(Action::GoesOn(at));
                    if world.faults_left > 0 {
                        actions.push(Action::Fails(at));
                        if is_write(&rule.next) {
                            actions.push(Action::FailsAfterSending(at));
                        }
                        if may_be_repeated(&rule.next) {
                            actions.push(Action::IsRepeated(at));
                        }
                    }
                }
            }
        }
        actions.extend((0..world.late.len()).map(Action::Arrives));
    }

    fn after(&self, world: &World<R>, action: &Action) -> World<R> {
        let mut after = world.clone();
        after.happens(self, *action);
        if after.is_at_rest() {
            let kept = R::at_rest(&after, self.mutation);
            after.breaks(self, kept);
        }
        after
    }

    fn is_broken(&self, world: &World<R>) -> bool {
        world.broken.is_some()
    }

    fn report(&self, path: Vec<Action>) -> String {
        let mut world = World { diary: Diary::open(), ..self.start.clone() };
        for action in path {
            world.happens(self, action);
        }
        if world.is_at_rest() {
            let kept = R::at_rest(&world, self.mutation);
            world.breaks(self, kept);
        }
        let broken = world.broken.map(|(promise, detail)| format!("{promise}: {detail}"));
        world.diary.text(broken)
    }
}

/// Whether its execution after its caller's end makes a difference.
fn is_write(request: &Request) -> bool {
    matches!(
        request,
        Request::Change(_)
            | Request::Register(_)
            | Request::RemoveRecord(..)
            | Request::RemoveMarked(_)
            | Request::Commit(_)
            | Request::RemoveKeys(_)
            | Request::RemoveSequence(..)
            | Request::PutMessage(..)
            | Request::DeleteMessage(_)
    )
}

/// Whether a client sends it again if an answer is lost, and gives the second answer. A transaction has a token, and is not
/// executed twice; DynamoDB's engine knows its own registration again.
fn may_be_repeated(request: &Request) -> bool {
    is_write(request) && !matches!(request, Request::Commit(_) | Request::Register(_))
}
