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
use state_machine::{Span, Time};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep_until};

use super::history::{POINT_EVERY, POINTS_MAX};
use super::page::{AdminPage, MonthCount};
use super::session::Session;

use crate::monitoring::collect::{Sample, Value, collect};
use crate::operate::tables::status::{GetStatus, Status};

/// Time between two counts of the agents by month, while a page is open.
const COUNT_EVERY: Span = Span::from_secs(600);

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
    seen: u64,
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
        count_months(page, now);
        let months = live.months().last.clone();
        let is_due = live.checked().is_due(now, CHECK_EVERY);
        let judgement = match is_due {
            true => page.node.judge().await,
            false => page.node.judge_in_memory().await,
        };
        let data = json!({
            "at": now.0,
            "samples": nested(&samples),
            "months": months,
            "findings": judgement.findings,
            "refusals": page.node.common.refusals.last(REFUSALS_SHOWN_MAX, |_| true),
        });
        live.frames.send_replace(event("now", &data.to_string()));
    }
    if is_due {
        live.history().add(now, samples);
    }
}

/// Counts the agents by month beside the events, if that is due and the store is on this machine.
fn count_months(page: &Data<AdminPage>, now: Time) {
    if !page.counts_months || !page.live.months().is_due(now, COUNT_EVERY) {
        return;
    }
    let page = Data::clone(page);
    actix_web::rt::spawn(async move {
        let (reports, _) = page.perform(GetStatus::default()).await.unwrap_or_default();
        for Status { agents, unfinished_moves: leaving, .. } in reports {
            page.live.months().last = Some(MonthCount { at: now.0, agents, leaving });
        }
    });
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
        (history.added(), history.since(0))
    };
    let every = POINT_EVERY.0;
    let data = format!("{{\"every_ms\":{every},\"points_max\":{POINTS_MAX},\"points\":{points}}}");
    let first = format!("retry: {RETRY_MS}\n{}", event("history", &data));
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
        if history.added() > self.seen {
            text += &event("points", &history.since(self.seen));
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
