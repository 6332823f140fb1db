//! The facts for people.

use std::fmt::Write;

use indicatif::HumanBytes;

use super::facts::{Connection, Inspection, PushFacts};
use super::findings::{ago, push_text, refusal_text};
use crate::system::printable::count;

/// The findings, and then a line for each fact.
pub fn of(facts: &Inspection) -> String {
    let mut text = String::new();
    for finding in &facts.findings {
        text += &format!("- {finding}\n");
    }
    text.push('\n');
    for (name, value) in lines(facts) {
        writeln!(text, "{name:12}{value}").expect("writing to a string does not fail");
    }
    text
}

/// Each fact, with its name.
pub fn lines(facts: &Inspection) -> Vec<(&'static str, String)> {
    let mut lines = vec![("uaid", facts.uaid.to_string())];
    if let Some(endpoint) = &facts.endpoint {
        let key = format!("key {} of crypto_keys opened it", endpoint.crypto_key);
        lines.push(("endpoint", format!("{}, {key}", endpoint.kind)));
        lines.push(("key", endpoint.crypto_key_fingerprint.clone()));
        lines.push(("channel", endpoint.channel.clone()));
        let vapid = |hash: &String| format!("restricted to the key with SHA-256 {hash}...");
        let vapid = endpoint.restricted_to.as_ref().map_or("any key".to_owned(), vapid);
        lines.push(("vapid", vapid));
    }
    if let Some(message) = &facts.message {
        let waits = if message.is_waiting { "waits" } else { "does not wait" };
        lines.push(("message", format!("{} of channel {} {waits}", message.id, message.channel)));
    }
    if let Some(access) = &facts.access {
        let state = if access.has_ended { "ended" } else { "valid" };
        lines.push(("access", format!("token {}, {state}", access.name)));
    }
    if let Some(record) = &facts.record {
        let app = record.bridge_app.as_ref().map_or(String::new(), |app| format!(", app {app}"));
        lines.push(("type", format!("{}{app}", record.router_type)));
        let since = ago(facts, record.connected_at_ms);
        lines.push(("connected", format!("{since}, last_connect {}", record.last_connect)));
        lines.push(("node", record.node.clone().unwrap_or("none".to_owned())));
    }
    for month in &facts.months {
        let table = if month.has_table { "" } else { ", without a table" };
        let channels = match month.channels {
            None => "no channels".to_owned(),
            Some(channels) => count(channels as u64, "channel"),
        };
        lines.push(("month", format!("{}: {channels}{table}", month.month)));
    }
    lines.push(("waiting", waiting(facts)));
    lines.push(("connection", connection(facts)));
    lines.extend(pushes(facts).map(|text| ("push", text)));
    for refusal in &facts.refusals {
        let times = if refusal.count == 1 {
            String::new()
        } else {
            format!("{} times, last ", refusal.count)
        };
        lines.push(("refused", times + &refusal_text(facts, refusal)));
    }
    lines
}

/// A line for consecutive pushes that ended alike.
fn pushes(facts: &Inspection) -> impl Iterator<Item = String> {
    let all = facts.pushes.as_deref().unwrap_or_default();
    let kind = |push: &PushFacts| {
        let PushFacts { channel, ttl_s, urgency, .. } = push.clone();
        (channel, ttl_s, urgency, push_text(push))
    };
    all.chunk_by(move |one, next| kind(one) == kind(next)).map(move |alike| {
        let PushFacts { channel, ttl_s, urgency, at_ms, .. } = &alike[0];
        let outcome = push_text(&alike[0]);
        let newest = ago(facts, *at_ms);
        let at = match alike {
            [_] => newest,
            [.., oldest] => {
                format!("{} pushes, {} to {newest}", alike.len(), ago(facts, oldest.at_ms))
            }
            [] => String::new(),
        };
        // Who asks about an endpoint knows its channel.
        let of = facts.endpoint.is_none().then(|| format!("channel {channel}, "));
        format!("{at}, {}TTL {ttl_s} s, {urgency}: {outcome}", of.unwrap_or_default())
    })
}

fn waiting(facts: &Inspection) -> String {
    let waiting = &facts.waiting;
    let least = if waiting.is_partial { "at least " } else { "" };
    let mut text =
        format!("{least}{}, {}", count(waiting.messages, "message"), HumanBytes(waiting.bytes));
    if let Some(oldest) = waiting.oldest_ms {
        text += &format!(", the oldest of {}, {} with a topic", ago(facts, oldest), waiting.topics);
    }
    for (urgency, count) in &waiting.by_urgency {
        text += &format!(", {count} {urgency}");
    }
    if let Some(count) = waiting.of_channel {
        text += &format!("; {count} of the channel");
    }
    text
}

fn connection(facts: &Inspection) -> String {
    match &facts.connection {
        Connection::Here(session) => {
            let senders = count(session.pushes_waiting as u64, "sender");
            let mut text = format!(
                "here, {}, {} of {} unacked, waiting: {}",
                session.phase, session.unacked, session.unacked_max, senders
            );
            if let Some((at, of)) = session.deadline_ms.zip(session.deadline_of.as_ref()) {
                let seconds = at.saturating_sub(facts.at_ms) / 1000;
                text += &format!(", next deadline in {seconds} s: {of}");
            }
            text
        }
        Connection::HereAndBusy => "here, busy".to_owned(),
        Connection::OnNode { node } => format!("on {node}, which answers"),
        Connection::Ended { node } => format!("none; {node} has none"),
        Connection::NodeDown { node, why } => format!("unknown; {node} does not answer: {why}"),
        Connection::None => "none".to_owned(),
        Connection::Unknown { node } => format!("unknown; {node} was not asked"),
        Connection::Stopped => "none; the server is stopped".to_owned(),
        Connection::Bridge { bridge } => format!("over {bridge}"),
    }
}
