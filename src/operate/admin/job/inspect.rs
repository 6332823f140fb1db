//! `inspect`: collects what the store, this process and other nodes know of one user agent.

use std::time::Duration;

use actors::registry::{Lookup, ObserveClient};
use state_machine::access::AccessGrant;
use state_machine::connection::PhaseName;
use state_machine::{Message, NodeId, RouterRecord, RouterType, Time};
use storage::store::{Cursor, PageLimit};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{JobError, Report, access};
use crate::cluster::outbound::PeerIdentity;
use crate::operate::admin::commands::Inspect;
use crate::operate::admin::inspect::target::Subject;
use crate::operate::admin::inspect::{
    AccessFacts, Connection, Inspection, MessageFacts, MonthFacts, PushFacts, RecordFacts,
    SessionFacts, Waiting, findings,
};
use crate::operate::admin::job_context::Servers;
use crate::operate::admin::output::Output;
use crate::push::push_history::PushRecord;

/// Pages of waiting messages that are read.
const PAGES_MAX: usize = 40;

/// A page of them.
const PAGE: PageLimit = PageLimit { rows: 100, bytes: 1 << 20 };

/// The last pushes that are shown.
const PUSHES_MAX: usize = 20;

/// How long a client may take to answer.
const OBSERVE_WAIT: Duration = Duration::from_secs(1);

pub(super) async fn run(inspect: &Inspect, report: &Report) -> Result<(), JobError> {
    let (subject, context) = (&inspect.subject, &report.context);
    let (uaid, now) = (subject.uaid, context.now());
    let record = report.step(|| context.store.record(uaid)).await?;
    let limits = context.process.limits.as_ref();
    let reached = limits.map(|limits| limits.reached(uaid, subject.chid()));
    let mut facts = Inspection {
        at_ms: now.0,
        uaid,
        endpoint: subject.endpoint.clone(),
        message: None,
        access: access(inspect, report).await?,
        record: record.as_ref().map(record_facts),
        months: Vec::new(),
        waiting: Waiting::default(),
        connection: Connection::None,
        limits_reached: reached.into_iter().flatten().map(str::to_owned).collect(),
        pushes: pushes(subject, report),
        findings: Vec::new(),
    };
    if let (Some(endpoint), Some(ours)) = (&mut facts.endpoint, &context.process.origin) {
        let is_other = endpoint.origin.as_ref().is_some_and(|origin| origin != ours);
        endpoint.other_origin = is_other.then(|| ours.clone());
    }
    let mut is_waiting = false;
    if let Some(record) = &record {
        facts.months = months(subject, record, report).await?;
        (facts.waiting, is_waiting) = waiting(subject, record, now, report).await?;
        facts.connection = connection(record, report).await;
    }
    let message = |(id, channel): (String, String)| MessageFacts { id, channel, is_waiting };
    facts.message = subject.message.clone().map(message);
    facts.findings = findings::of(&facts);
    report.emit(Output::Inspection(Box::new(facts))).await
}

/// The last pushes to the agent, channel or message, if this process takes pushes.
fn pushes(subject: &Subject, report: &Report) -> Option<Vec<PushFacts>> {
    let history = report.context.process.pushes.as_ref()?;
    let (chid, id) = (subject.chid(), subject.message_id());
    let wanted = |push: &PushRecord| {
        push.uaid == subject.uaid
            && chid.is_none_or(|chid| push.chid == chid)
            && id.is_none_or(|id| push.id == Some(id))
    };
    let last = history.last(PUSHES_MAX, wanted);
    Some(last.into_iter().map(PushFacts::from).collect())
}

/// The token whose id the uaid has. None for an id that no token has.
async fn access(inspect: &Inspect, report: &Report) -> Result<Option<AccessFacts>, JobError> {
    let Some(id) = inspect.subject.uaid.access() else { return Ok(None) };
    let (table, now) = (access::read(report).await?, report.context.now());
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
    report: &Report,
) -> Result<Vec<MonthFacts>, JobError> {
    let store = &report.context.store;
    let there = report.step(|| store.months()).await?;
    let mut all = Vec::new();
    for month in [record.curmonth].into_iter().chain(record.oldmonth) {
        let channels = report.step(|| store.channels(subject.uaid, month)).await?;
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

/// Also whether the message that was asked for is among them.
async fn waiting(
    subject: &Subject,
    record: &RouterRecord,
    now: Time,
    report: &Report,
) -> Result<(Waiting, bool), JobError> {
    let (mut waiting, mut is_there, mut pages) = (Waiting::default(), false, 0);
    waiting.of_channel = subject.chid().map(|_| 0);
    for month in [record.curmonth].into_iter().chain(record.oldmonth) {
        let mut after: Option<Cursor> = None;
        loop {
            if pages == PAGES_MAX {
                waiting.is_partial = true;
                return Ok((waiting, is_there));
            }
            pages += 1;
            let (store, uaid) = (&report.context.store, subject.uaid);
            let fetch = || match record.router_type {
                RouterType::SimplePush => store.fetch_versions(uaid, after.clone(), PAGE, now),
                _ => store.fetch_messages(uaid, month, after.clone(), PAGE, now),
            };
            let page = report.step(fetch).await?;
            for message in &page.messages {
                is_there |= subject.message_id() == Some(message.id);
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
    Ok((waiting, is_there))
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

async fn connection(record: &RouterRecord, report: &Report) -> Connection {
    let context = &report.context;
    if let Some(recipient) = record.router_type.recipient() {
        return Connection::Bridge { bridge: recipient.bridge.as_str().to_owned() };
    }
    if context.servers == Servers::Stopped {
        return Connection::Stopped;
    }
    if let Some(here) = connection_here(record, report).await {
        return here;
    }
    let Some(node) = &record.node else { return Connection::None };
    let name = node.to_string();
    let Some(peers) = &context.process.peers else {
        // A single node knows all connections.
        return match context.registry {
            Some(_) => Connection::Ended { node: name },
            None => Connection::Unknown { node: name },
        };
    };
    match peers.ask(node.clone(), record.uaid, context.clock.clone()).await.0 {
        PeerIdentity::ThisNode => Connection::OnNode { node: name },
        PeerIdentity::OtherNode => Connection::Ended { node: name },
        PeerIdentity::Unreachable(why) => Connection::NodeDown { node: name, why },
    }
}

/// The agent's connection to this process.
async fn connection_here(record: &RouterRecord, report: &Report) -> Option<Connection> {
    let (registry, uaid) = (report.context.registry.as_ref()?, record.uaid);
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
        unacked_max: report.context.process.unacked_max,
        pushes_waiting: state.pushes_waiting,
        deadline_ms: state.deadline.map(|(at, _)| at.0),
        deadline_of: state.deadline.map(|(_, wait)| format!("{wait:?}")),
    }))
}
