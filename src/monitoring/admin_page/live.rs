//! The events of open pages: the metrics at an interval, once for all pages, and the history when a page opens.
//!
//! - `history` comes first: all points that are kept.
//! - `now`: the metrics and what is wrong with the server, every `admin_page_interval_ms`.
//! - `points`: those that were added since the event before.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use actix_web::web::{Bytes, Data};
use futures_util::{Stream, StreamExt, stream};
use serde_json::{Map, Value as Json, json};
use state_machine::Span;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep_until};

use super::page::AdminPage;
use super::series::Reading;
use super::session::Session;
use super::{agents, beside, resources};
use crate::monitoring::collect::{Sample, Value, collect};
use crate::settings::StoreKind;
use crate::system::build::Build;

/// Time between two checks of the store, each of which writes a row, while a page is open.
const CHECK_EVERY: Span = Span::from_secs(10);

/// Refusals that a page shows.
const REFUSALS_SHOWN_MAX: usize = 20;

/// Time after which a browser reconnects, in milliseconds.
const RETRY_MS: u64 = 2000;

/// What an open page has seen. Its permit is one of `STREAMS_MAX`.
struct Reader {
    page: Data<AdminPage>,
    session: Session,
    frames: watch::Receiver<String>,
    /// Points that the page has.
    seen: [u64; 4],
    _permit: OwnedSemaphorePermit,
}

/// Computes the events on this thread until the process ends, unless a task does so already.
pub(super) fn start(page: Data<AdminPage>) {
    let Ok(permit) = Arc::clone(&page.live.runs).try_acquire_owned() else { return };
    actix_web::rt::spawn(async move {
        let _permit = permit;
        loop {
            step(&page).await;
            let next = Instant::now() + page.interval;
            tokio::select! {
                () = sleep_until(next) => {}
                () = page.live.opened.notified() => {}
            }
        }
    });
}

/// Reads the metrics if a page is open or a point of the history is due.
async fn step(page: &Data<AdminPage>) {
    let (live, now) = (&page.live, page.now());
    let is_open = live.frames.receiver_count() > 0;
    let is_due = live.history().is_due(now);
    if !is_open && !is_due {
        return;
    }
    let samples = collect(&page.node).await;
    if is_open {
        beside::count_months(page, now);
        beside::ask_nodes(page, now);
        live.frames.send_replace(event("now", &values(page, &samples).await.to_string()));
    }
    if is_due {
        let mut history = live.history();
        history.add(now, &Reading::of(&samples));
        if live.file.is_due(now) {
            // It is written again later, whatever becomes of this.
            drop(live.file.write(&history.whole(), now));
        }
    }
}

/// What a page shows beside the history.
async fn values(page: &AdminPage, samples: &[Sample]) -> Json {
    let (live, node, now) = (&page.live, &page.node, page.now());
    let common = &node.common;
    let judgement = match live.checks.begin(now, CHECK_EVERY) {
        Some(_round) => node.judge().await,
        None => node.judge_in_memory().await,
    };
    let months = common.records.lock().as_ref().map(|(at, records)| {
        json!({ "at": at.0, "agents": records.curmonth, "leaving": records.oldmonth })
    });
    let last_push = node.endpoints.as_ref().and_then(|role| role.history.last(1, |_| true).pop());
    json!({
        "at": now.0,
        "build": Build::TEXT,
        "role": node.role().name(),
        "origin": page.jobs.origin,
        "started_ms": common.judge.started.0,
        "certificate_expires_ms": common.certificates.current().map(|it| it.valid.expires.0),
        "keeps_backups": page.jobs.settings.store == StoreKind::Embedded,
        "backup_ms": common.judge.last_backup().map(|at| at.0),
        "agents": judgement.connections,
        "last_push_ms": last_push.map(|push| push.at.0),
        "samples": nested(samples),
        "months": months,
        "nodes": live.nodes.last().rows,
        "nodes_lacking": live.nodes.last().lacks(),
        "listed": agents::list(node).await,
        "resources": resources::read(node, &page.jobs.settings, &judgement),
        "findings": judgement.findings,
        "refusals": common.refusals.last(REFUSALS_SHOWN_MAX, |_| true),
    })
}

/// The metrics as objects: by name, and below it by the values of the labels.
fn nested(samples: &[Sample]) -> Json {
    let mut all = Map::new();
    for sample in samples {
        let value = match &sample.value {
            Value::Number(number) => json!(number),
            Value::Histogram(times) => {
                let bounds: Vec<_> = times.bounds.iter().map(Duration::as_micros).collect();
                json!({ "bounds_us": bounds, "counts": times.counts })
            }
        };
        let mut place = all.entry(sample.metric.name).or_insert(Json::Null);
        for label in &sample.labels {
            if place.is_null() {
                *place = json!({});
            }
            let below = place.as_object_mut().expect("all samples of a metric have its labels");
            place = below.entry(&**label).or_insert(Json::Null);
        }
        *place = value;
    }
    Json::Object(all)
}

fn event(name: &str, data: &str) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// The events of a page, until its session ends. None if there are too many.
pub(super) fn events(
    page: Data<AdminPage>,
    session: Session,
) -> Option<impl Stream<Item = Result<Bytes, Infallible>>> {
    let permit = Arc::clone(&page.live.streams).try_acquire_owned().ok()?;
    let frames = page.live.frames.subscribe();
    let (seen, points) = {
        let history = page.live.history();
        (history.added(), json!(history.whole()))
    };
    let first = format!("retry: {RETRY_MS}\n{}", event("history", &points.to_string()));
    page.live.opened.notify_one();
    let reader = Reader { page, session, frames, seen, _permit: permit };
    let following = stream::unfold(reader, async |mut reader| {
        let text = reader.next().await?;
        Some((Ok(Bytes::from(text)), reader))
    });
    Some(stream::iter([Ok(Bytes::from(first))]).chain(following))
}

impl Reader {
    async fn next(&mut self) -> Option<String> {
        self.frames.changed().await.ok()?;
        let page = &self.page;
        if !page.sessions.is_open(&self.session, page.now()) {
            return None;
        }
        let mut text = self.frames.borrow_and_update().clone();
        let history = page.live.history();
        // The ring of the shortest period has a point of each reading.
        if history.added() != self.seen {
            text += &event("points", &json!(history.since(self.seen)).to_string());
            self.seen = history.added();
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitoring::table;

    #[test]
    fn metrics_are_nested_by_their_labels() {
        let number = Value::Number;
        let node = |state: &'static str, is_in| {
            Sample::new(&table::NODE_BREAKER, ["a\"<b".into(), state.into()], number(is_in))
        };
        let samples =
            [Sample::new(&table::DRAINING, [], number(0)), node("open", 1), node("closed", 0)];
        let expected = json!({
            "kalends_draining": 0,
            "kalends_node_breaker": { "a\"<b": { "open": 1, "closed": 0 } },
        });
        assert_eq!(nested(&samples), expected);
    }
}
