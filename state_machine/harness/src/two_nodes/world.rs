//! Runs an agent script against the machines.

use super::input::{Execution, Input, NodeInput, NodeName, TwoNodesScript};
use super::node::{Node, Notification};
use crate::model_store::Store;
use crate::script::{MachineState, NameKind, World};
use crate::transcript::{Input as SessionInput, StepReport, TranscriptWriter};
use state_machine::connection::{Config, Event};
use state_machine::store::{FullScope, StoreAnswer, StoreFailed, StoreOp, Stored};
use state_machine::time::Span;
use state_machine::{Message, NodeId, OpId, RouterRecord, Time, Uaid};

/// Two nodes, and the store that both use.
pub(crate) struct TwoNodes {
    start: Time,
    elapsed: Span,
    nodes: [Node; 2],
    store: Store,
    /// Writes records: a node that is `None` has another name than all.
    config: Config,
}

impl TwoNodes {
    /// The nodes at the start of a script, without a connection.
    pub(crate) fn new(script: &TwoNodesScript) -> Self {
        let TwoNodesScript { start, config, seed, clocks, record, channels, .. } = script;
        let mut store = Store::default();
        store.records.extend(record.iter().map(|record| (record.uaid, record.clone())));
        for (uaid, month, channels) in channels {
            let (uaid, month, channels) = (*uaid, *month, channels.clone());
            store.execute(&StoreOp::AddChannels { uaid, month, channels });
        }
        let node = |name| Node::new(name, config, *seed, *start, clocks[name as usize]);
        let config = Config { node: NodeId::new(""), ..config.clone() };
        Self { start: *start, elapsed: Span::ZERO, nodes: NodeName::ALL.map(node), store, config }
    }

    fn at(&mut self, name: NodeName, input: &NodeInput) -> Result<Vec<String>, String> {
        let node = &mut self.nodes[name as usize];
        match input {
            NodeInput::Connects => node.connects().map(|()| Vec::new()),
            NodeInput::Crashes => {
                node.crashes();
                Ok(Vec::new())
            }
            NodeInput::Notified(arrives) => match node.next_notification()?.filter(|_| *arrives) {
                Some(event) => self.session(name, &SessionInput::Event(event)),
                None => Ok(Vec::new()),
            },
            NodeInput::Session(input) => self.session(name, input),
            NodeInput::Store(op, execution) => self.execute(name, *op, *execution),
        }
    }

    fn session(&mut self, name: NodeName, input: &SessionInput) -> Result<Vec<String>, String> {
        let ran = self.nodes[name as usize].connection()?.step(input)?;
        Ok(self.executed(name, &ran))
    }

    fn executed(&mut self, name: NodeName, ran: &StepReport) -> Vec<String> {
        let (lines, notifications) = self.nodes[name as usize].execute(&ran.effects);
        notifications.into_iter().for_each(|notification| self.post(notification));
        lines
    }

    /// A notification for a node that is not one of the two is lost.
    fn post(&mut self, Notification { to, uaid, event }: Notification) {
        if let Some(name) = NodeName::read(to.as_str()) {
            self.nodes[name as usize].notifications.push_back((uaid, event));
        }
    }

    fn execute(
        &mut self,
        name: NodeName,
        op: OpId,
        execution: Execution,
    ) -> Result<Vec<String>, String> {
        let session = self.nodes[name as usize].connection()?;
        let operation = session.open(op).cloned();
        let operation = operation
            .ok_or_else(|| format!("no operation {} of {name} waits for an answer", op.0))?;
        let mut lines = Vec::new();
        let mut answer = Err(StoreFailed);
        if execution != Execution::Failed {
            let before = self.store.records.clone();
            let executed = self.store.execute(&operation);
            lines.push(format!("table< {}", self.writer().answer(&Ok(executed.clone()))));
            let is_registration = matches!(executed, StoreAnswer::Registered(_));
            if !is_registration && self.store.records != before {
                lines.extend(self.records().map(|record| format!("table< {record}")));
            }
            if execution == Execution::Executed {
                answer = Ok(executed);
            }
        }
        lines
            .extend(self.session(name, &SessionInput::Event(Event::StoreAnswered { op, answer }))?);
        Ok(lines)
    }

    /// An endpoint stores a message in the month of the record, and notifies its node.
    fn stores(&mut self, uaid: Uaid, message: &Message) -> Vec<String> {
        let Some(RouterRecord { node, curmonth, .. }) = self.store.records.get(&uaid).cloned()
        else {
            return vec!["table< no_such_user".to_owned()];
        };
        let stored = match self.store.store(uaid, curmonth, message.clone()) {
            Stored::Done => "stored",
            Stored::Outranked(_) => "outranked",
            Stored::NoSuchChannel => "no_such_channel",
            Stored::Full(FullScope::User | FullScope::Channel) => "full",
        };
        let mut lines = vec![format!("table< {stored}")];
        if let Some(to) = node.filter(|_| stored == "stored") {
            lines.push(format!("node< message_stored {to} {}", uaid.name()));
            self.post(Notification { to, uaid, event: Event::MessageStored });
        }
        lines
    }

    fn waits(&mut self, span: Span) -> Result<Vec<String>, String> {
        self.nodes.iter().try_for_each(|node| node.check_wait(span))?;
        self.elapsed = Span(self.elapsed.0.saturating_add(span.0));
        let mut lines = Vec::new();
        for name in NodeName::ALL {
            let node = &mut self.nodes[name as usize];
            node.now = node.now + span;
            if node.session.is_some() {
                lines.extend(self.session(name, &SessionInput::Wait(span))?);
            }
        }
        Ok(lines)
    }

    fn writer(&self) -> TranscriptWriter<'_> {
        TranscriptWriter { config: &self.config, start: self.start }
    }

    fn records(&self) -> impl Iterator<Item = String> {
        self.store.records.values().map(|record| {
            let text = self.writer().record(record, None);
            text.replacen("registered", "record", 1)
        })
    }
}

impl World for TwoNodes {
    type Input = Input;

    fn happens(&mut self, input: &Input) -> Result<Vec<String>, String> {
        match input {
            Input::At(name, input) => self.at(*name, input),
            Input::Stores(uaid, message) => Ok(self.stores(*uaid, message)),
            Input::Wait(span) => self.waits(*span),
        }
    }

    fn elapsed_ms(&self) -> u64 {
        self.elapsed.0
    }

    fn machines(&self) -> Vec<MachineState> {
        self.nodes.iter().filter_map(Node::state).collect()
    }

    fn facts(&self) -> Vec<String> {
        let waiting = self.store.records.keys().flat_map(|uaid| self.store.rows(*uaid));
        let waiting = waiting.map(|(month, id)| format!("waits: {} {month}", id.name()));
        self.records().chain(waiting).chain(self.nodes.iter().flat_map(Node::post)).collect()
    }
}
