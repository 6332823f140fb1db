//! `kalends inspect`: collects what the store, this process and other nodes know of one user agent.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use actors::observe::ClientCounters;
use actors::registry::{Lookup, ObserveClient};
use actors::{BoundedAddr, RegistryActor};
use clap::Args;
use serde::{Deserialize, Serialize};
use state_machine::access::AccessGrant;
use state_machine::connection::PhaseName;
use state_machine::{Message, MessageId, NodeId, RouterRecord, RouterType, Time, Uaid};
use storage::store::{Cursor, PageLimit, StoreOp};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::facts::{
    AccessFacts, Connection, Inspection, MessageFacts, MonthFacts, PushFacts, RecordFacts,
    SessionFacts, Waiting,
};
use super::target::{Subject, Target};
use super::{findings, text};
use crate::cluster::outbound::PeerIdentity;
use crate::command::backend;
use crate::command::{
    Backend, CommandError, Failure, Job as AnyJob, JobError, Report, Servers, StoreCommand,
    run_and_print,
};
use crate::limits::Limits;
use crate::operate::access;
use crate::operate::nodes::table::node_access;
use crate::push::push_history::{PushHistory, PushRecord};
use crate::push::refusals::{Refusal, Refusals};
use crate::settings::Settings;
use crate::settings::keys::Keys;

#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inspect {
    /// The endpoint, the URL of a message from the Location of its push, or the uaid
    #[arg(value_name = "ENDPOINT|UAID|MESSAGE-URL", required = true)]
    #[serde(skip)]
    pub target: Option<Target>,
    /// What the target names, decoded in the process of the command: a server learns no endpoint that is not its own.
    #[arg(skip)]
    pub subject: Option<Subject>,
    /// Print JSON: one object
    #[arg(long)]
    pub json: bool,
}

impl Report for Inspection {
    fn text(&self, _is_first: bool) -> String {
        text::of(self)
    }
}

impl StoreCommand for Inspect {
    const NAME: &'static str = "inspect";
    const ABOUT: &'static str =
        "Show what is known of one user agent, and why a push to it may not arrive";
    const HELP: &'static str = "\
Begins with the reasons why a push to the user agent may not arrive, the most important one first. The
facts follow: its record, its months and channels, the messages that wait, and its connection. Without
a running server, and with DynamoDB from another machine, the connection is not known. keys.toml in
the data directory opens endpoints and message URLs; a uaid needs no key. Nothing is changed.

The exit code is 1 if no key opens the endpoint or message URL, and 2 if the argument is neither of
them nor a uaid.

Examples:
  kalends inspect https://push.example.net/wpush/AbCd... --data-dir /var/lib/kalends
  kalends inspect 0190a4a3b00070008000000000000001 --json --config /etc/kalends/kalends.toml";
    const ONLY_READS: bool = true;
    type Report = Inspection;

    fn is_json(&self) -> bool {
        self.json
    }

    fn is_within_bounds(&self) -> bool {
        self.subject.is_some()
    }

    fn main(mut self, settings: &Settings) -> Result<(), Failure> {
        let target = self.target.take().expect("clap requires it");
        self.subject = Some(target.decode(|| Keys::load(&settings.data_dir))?);
        Ok(run_and_print(self, settings)?)
    }

    async fn reach(&self, settings: &Settings) -> Result<Backend, CommandError> {
        backend::reach_connections(settings).await
    }

    async fn run(self, job: &Job) -> Result<(), JobError> {
        let subject = self.subject.expect("the command or the server has checked it");
        job.report(inspect(&subject, job).await?).await
    }
}

type Job = AnyJob<Inspection>;

/// Pages of waiting messages that are read.
const PAGES_MAX: usize = 40;

/// A page of them.
const PAGE: PageLimit = PageLimit { rows: 100, bytes: 1 << 20 };

/// The last pushes that are shown.
const PUSHES_MAX: usize = 20;

/// The last refusals that are shown.
const REFUSALS_SHOWN_MAX: usize = 10;

/// How long a client may take to answer.
const OBSERVE_WAIT: Duration = Duration::from_secs(1);

async fn inspect(subject: &Subject, job: &Job) -> Result<Inspection, JobError> {
    let context = &job.context;
    let (uaid, now) = (subject.uaid, context.now());
    let record = job.step(|| context.store.record(uaid)).await?;
    let limits = context.part::<Arc<Limits>>();
    let reached = limits.map(|limits| limits.reached(uaid, subject.chid()));
    // Before the messages are read: a later one would not be among them.
    let last_pushes = last_pushes(subject, job);
    let mut facts = Inspection {
        at_ms: now.0,
        uaid,
        endpoint: subject.endpoint.clone(),
        message: None,
        access: access_facts(subject, job).await?,
        record: record.as_ref().map(record_facts),
        months: Vec::new(),
        waiting: Waiting::default(),
        connection: Connection::None,
        has_rivals: has_rivals(uaid, job),
        limits_reached: reached.into_iter().flatten().map(str::to_owned).collect(),
        pushes: None,
        refusals: refusals(subject, job),
        findings: Vec::new(),
    };
    if let (Some(endpoint), Some(ours)) = (&mut facts.endpoint, &context.origin) {
        let former = &context.settings.former_urls;
        let is_former = |origin: &str| former.urls().iter().any(|url| url.is_meant_by(origin));
        let is_other = |origin: &String| origin != ours && !is_former(origin);
        let is_other = endpoint.origin.as_ref().is_some_and(is_other);
        endpoint.other_origin = is_other.then(|| ours.clone());
    }
    let mut there = HashSet::new();
    if let Some(record) = &record {
        facts.months = months(subject, record, job).await?;
        (facts.waiting, there) = waiting(subject, record, now, job).await?;
        facts.connection = connection(record, job).await;
    }
    let is_waiting = subject.message_id().is_some_and(|id| there.contains(&id));
    let message = |(id, channel): (String, String)| MessageFacts { id, channel, is_waiting };
    facts.message = subject.message.clone().map(message);
    let is_partial = facts.waiting.is_partial;
    let waits = |id| (there.contains(&id) || !is_partial).then(|| there.contains(&id));
    facts.pushes =
        last_pushes.map(|last| last.iter().map(|push| PushFacts::new(push, waits)).collect());
    facts.findings = findings::of(&facts);
    Ok(facts)
}

/// The last pushes to the agent, channel or message, if this process takes pushes.
fn last_pushes(subject: &Subject, job: &Job) -> Option<Vec<PushRecord>> {
    let history = job.context.part::<Arc<PushHistory>>()?;
    let (chid, id) = (subject.chid(), subject.message_id());
    let wanted = |push: &PushRecord| {
        push.uaid == subject.uaid
            && chid.is_none_or(|chid| push.chid == chid)
            && id.is_none_or(|id| push.id == Some(id))
    };
    Some(history.last(PUSHES_MAX, wanted))
}

fn has_rivals(uaid: Uaid, job: &Job) -> bool {
    let counters = job.context.part::<Arc<ClientCounters>>();
    counters.is_some_and(|counters| counters.rivals.agents().contains(&uaid))
}

/// The last refusals of requests to the agent or channel.
fn refusals(subject: &Subject, job: &Job) -> Vec<Refusal> {
    let Some(refusals) = job.context.part::<Arc<Refusals>>() else { return Vec::new() };
    let chid = subject.chid().map(|chid| chid.to_string());
    refusals.last(REFUSALS_SHOWN_MAX, |refusal| {
        refusal.uaid == Some(subject.uaid) && (chid.is_none() || refusal.chid == chid)
    })
}

/// The token whose id the uaid has. None for an id that no token has.
async fn access_facts(subject: &Subject, job: &Job) -> Result<Option<AccessFacts>, JobError> {
    let Some(id) = subject.uaid.access() else { return Ok(None) };
    let (table, now) = (access::table::read(job).await?, job.context.now());
    let facts = |grant: &AccessGrant| AccessFacts {
        name: grant.name.clone(),
        has_ended: grant.has_ended(now),
    };
    Ok(table.get(id).map(facts))
}

fn record_facts(record: &RouterRecord) -> RecordFacts {
    RecordFacts {
        router_type: record.router_type.as_str().to_owned(),
        bridge_app: record.router_type.recipient().map(|recipient| recipient.app.to_string()),
        curmonth: record.curmonth,
        oldmonth: record.oldmonth,
        connected_at_ms: record.connected_at.0,
        last_connect: record.last_connect.0,
        node: record.node.as_ref().map(NodeId::to_string),
    }
}

async fn months(
    subject: &Subject,
    record: &RouterRecord,
    job: &Job,
) -> Result<Vec<MonthFacts>, JobError> {
    let store = &job.context.store;
    let there = job.step(|| store.months()).await?;
    let mut all = Vec::new();
    for month in [record.curmonth].into_iter().chain(record.oldmonth) {
        let channels = job.step(|| store.channels(subject.uaid, month)).await?;
        let has = |chid| channels.as_ref().is_some_and(|channels| channels.contains(&chid));
        all.push(MonthFacts {
            month,
            has_table: there.contains(&month),
            has_channel: subject.chid().map(has),
            channels: channels.as_ref().map(|channels| channels.len()),
        });
    }
    Ok(all)
}

/// Also the ids of those that were read.
async fn waiting(
    subject: &Subject,
    record: &RouterRecord,
    now: Time,
    job: &Job,
) -> Result<(Waiting, HashSet<MessageId>), JobError> {
    let (mut waiting, mut there, mut pages) = (Waiting::default(), HashSet::new(), 0);
    waiting.of_channel = subject.chid().map(|_| 0);
    for month in [record.curmonth].into_iter().chain(record.oldmonth) {
        let mut after: Option<Cursor> = None;
        loop {
            if pages == PAGES_MAX {
                waiting.is_partial = true;
                return Ok((waiting, there));
            }
            pages += 1;
            let (store, uaid) = (&job.context.store, subject.uaid);
            let fetch = match record.router_type {
                RouterType::SimplePush => StoreOp::FetchVersions { uaid, after, limit: PAGE, now },
                _ => StoreOp::Fetch { uaid, month, after, limit: PAGE, now },
            };
            let fetched = job.step(|| store.execute(fetch.clone())).await?;
            let page = fetched.page().expect("a fetch is answered with a page");
            for message in &page.messages {
                there.insert(message.id);
                add(&mut waiting, message, subject);
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        // Versions are in a table without months.
        if record.router_type == RouterType::SimplePush {
            break;
        }
    }
    Ok((waiting, there))
}

fn add(waiting: &mut Waiting, message: &Message, subject: &Subject) {
    let bytes = message.payload.as_ref().map_or(0, |payload| payload.data.len() as u64);
    waiting.messages += 1;
    waiting.bytes += bytes;
    waiting.topics += u64::from(message.topic.is_some());
    *waiting.by_urgency.entry(message.urgency.as_str().to_owned()).or_default() += 1;
    let accepted = message.accepted_at.0;
    waiting.oldest_ms = Some(waiting.oldest_ms.map_or(accepted, |oldest| oldest.min(accepted)));
    if let Some(count) = &mut waiting.of_channel
        && subject.chid() == Some(message.chid)
    {
        *count += 1;
    }
}

async fn connection(record: &RouterRecord, job: &Job) -> Connection {
    let context = &job.context;
    if let Some(recipient) = record.router_type.recipient() {
        return Connection::Bridge { bridge: recipient.bridge.as_str().to_owned() };
    }
    if context.servers == Servers::Stopped {
        return Connection::Stopped;
    }
    if let Some(here) = connection_here(record, job).await {
        return here;
    }
    let Some(node) = &record.node else { return Connection::None };
    let name = node.to_string();
    let Some(peers) = node_access(context) else {
        // A single node knows all connections.
        return match context.part::<BoundedAddr<RegistryActor>>() {
            Some(_) => Connection::Ended { node: name },
            None => Connection::Unknown { node: name },
        };
    };
    match peers.ask(node.clone(), record.uaid, context.clock.clone()).await.identity {
        PeerIdentity::ThisNode => Connection::OnNode { node: name },
        PeerIdentity::OtherNode => Connection::Ended { node: name },
        PeerIdentity::Unreachable(why) => Connection::NodeDown { node: name, why },
    }
}

/// The agent's connection to this process.
async fn connection_here(record: &RouterRecord, job: &Job) -> Option<Connection> {
    let (registry, uaid) = (job.context.part::<BoundedAddr<RegistryActor>>()?, record.uaid);
    registry.send(Lookup { uaid }).await.ok()??;
    let (reply, state) = oneshot::channel();
    let _ = registry.send(ObserveClient { uaid, reply }).await;
    let Ok(Ok(state)) = timeout(OBSERVE_WAIT, state).await else {
        return Some(Connection::HereAndBusy);
    };
    Some(Connection::Here(SessionFacts {
        phase: format!("{:?}", state.phase),
        is_ready: state.phase == PhaseName::Ready,
        unacked: state.unacked,
        overdue: state.overdue,
        unacked_since_ms: state.oldest_unacked.map(|sent| sent.0),
        unacked_max: job.context.settings.unacked_max,
        pushes_waiting: state.pushes_waiting,
        deadline_ms: state.deadline.map(|(at, _)| at.0),
        deadline_of: state.deadline.map(|(_, wait)| format!("{wait:?}")),
    }))
}

#[cfg(test)]
mod tests {
    use state_machine::{Chid, Span};

    use super::*;
    use crate::command::fixture::{Fixture, NOW, month, uaid};
    use crate::command::{Completion, Output};

    /// The first page of the store is empty, and each one behind it has one message.
    #[tokio::test]
    async fn what_waits_is_counted_up_to_a_number_of_pages() {
        let fixture = Fixture::with(&["2026_11"]).await;
        fixture.users_of(1..2, NOW).await;
        fixture.channel_of(1, "2026_11").await;
        let all = PAGES_MAX as u64 - 1;
        for (number, expected) in [(all, format!("{all} ")), (all + 1, format!("at least {all} "))]
        {
            for number in 0..number {
                let id = MessageId::from_uuid_v7(u128::from(number) << 8, false);
                let message = Message::new(id, Chid([1; 16]), NOW, Span(u64::MAX));
                fixture
                    .context
                    .store
                    .store_message(uaid(1), month("2026_11"), message)
                    .await
                    .unwrap();
            }
            let subject = Some(Subject { uaid: uaid(1), endpoint: None, message: None });
            let (outputs, end) = fixture.ask(Inspect { subject, ..Inspect::default() }).await;
            assert_eq!(end, Completion::Done, "{outputs:?}");
            let [Output::Report(inspection)] = &outputs[..] else { panic!("{outputs:?}") };
            let text = inspection.text(true);
            assert!(text.contains(&format!(" {expected}messages, ")), "{text}");
        }
    }
}
