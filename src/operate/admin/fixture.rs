//! The fixture of the tests of this folder: a real store in a directory of its own, in the middle of 2026_11.

use std::sync::Arc;

use actors::Clock;
use state_machine::{Chid, LastConnect, Month, NodeId, RouterType, Time, Uaid};
use storage::{Embedded, EmbeddedOptions, Registration, StoreAdmin};
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};

use super::commands::Request;
use super::job;
use super::job_context::{JobContext, Servers};
use super::output::{Completion, Output};

/// The fifteenth of 2026_11.
pub(super) const NOW: Time = Time(20_772 * DAY_MS);

pub(super) const DAY_MS: u64 = 24 * 60 * 60 * 1000;

pub(super) struct Fixture {
    pub(super) context: JobContext,
    pub(super) dir: TempDir,
}

impl Fixture {
    /// With tables of these months.
    pub(super) async fn with(months: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(dir.path(), &EmbeddedOptions::new(4096)).unwrap();
        let store: Arc<dyn StoreAdmin> = Arc::new(store);
        for text in months {
            store.ensure_month(month(text)).await.unwrap();
        }
        let clock = Clock::starting_at(NOW);
        Self {
            context: JobContext {
                store,
                copy_source: None,
                clock,
                rotation: true,
                frozen_month: None,
                registry: None,
                makes_tables: true,
                servers: Servers::Stopped,
                feeds: None,
                access: None,
                feed_keys_max: 3,
                feed_value_bytes_max: 100,
                process: Arc::default(),
            },
            dir,
        }
    }

    /// Registers users who connected then and never again. Each uaid holds its number.
    pub(super) async fn users_of(&self, numbers: impl Iterator<Item = u16>, connected: Time) {
        for number in numbers {
            let registration = registration(number, connected);
            self.context.store.register_user(registration).await.unwrap();
        }
    }

    /// Registers a channel of a user in a month.
    pub(super) async fn channel_of(&self, number: u16, text: &str) {
        let channels = [Chid([1; 16])].into();
        self.context.store.add_channels(uaid(number), month(text), channels).await.unwrap();
    }

    pub(super) async fn users(&self) -> u64 {
        let census = self.context.store.records_by_month(None).await.unwrap();
        census.curmonth.values().sum()
    }

    /// The months that have a table.
    pub(super) async fn months(&self) -> Vec<String> {
        let months = self.context.store.months().await.unwrap();
        months.iter().map(Month::to_string).collect()
    }

    /// The outputs of a request without progress, and its completion.
    pub(super) async fn ask(&self, request: Request) -> (Vec<Output>, Completion) {
        let (_stop, stopped) = watch::channel(false);
        self.ask_until(request, stopped).await
    }

    pub(super) async fn ask_until(
        &self,
        request: Request,
        stop: watch::Receiver<bool>,
    ) -> (Vec<Output>, Completion) {
        let (outputs, mut queue) = mpsc::channel(job::OUTPUTS_MAX);
        let mut read = Vec::new();
        let reading = async {
            while let Some(line) = queue.recv().await {
                read.push(line);
            }
        };
        let (end, ()) = tokio::join!(job::perform(request, &self.context, outputs, stop), reading);
        assert_eq!(read.pop(), Some(Output::End(end.clone())));
        read.retain(|line| !matches!(line, Output::Progress(_)));
        (read, end)
    }

    /// The notes of a request that must succeed.
    pub(super) async fn notes(&self, request: Request) -> Vec<String> {
        let (lines, end) = self.ask(request).await;
        assert_eq!(end, Completion::Done, "{lines:?}");
        lines.into_iter().map(note).collect()
    }

    /// The reason of a refusal.
    pub(super) async fn refused(&self, request: Request) -> String {
        match self.ask(request).await {
            (lines, Completion::Failed(why)) if lines.is_empty() => why,
            other => panic!("not refused: {other:?}"),
        }
    }
}

pub(super) fn note(line: Output) -> String {
    match line {
        Output::Note(text) => text,
        other => panic!("not a sentence: {other:?}"),
    }
}

pub(super) fn month(text: &str) -> Month {
    text.parse().unwrap()
}

/// The middle of a month.
pub(super) fn in_month(text: &str) -> Time {
    let mut time = NOW;
    while Month::of(time) > month(text) {
        time = Time(time.0 - 30 * DAY_MS);
    }
    assert_eq!(Month::of(time), month(text));
    time
}

pub(super) fn uaid(number: u16) -> Uaid {
    let mut bytes = [7; 16];
    bytes[..2].copy_from_slice(&number.to_be_bytes());
    Uaid(bytes)
}

fn registration(number: u16, connected_at: Time) -> Registration {
    Registration {
        uaid: uaid(number),
        router_type: RouterType::WebPush,
        node: NodeId::new("local"),
        connected_at,
        last_connect: LastConnect::of(connected_at, uaid(number), LastConnect::SHARDS),
        create_in: Some(Month::of(connected_at)),
    }
}
