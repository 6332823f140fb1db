//! The fixture of the tests of commands: a real store in a directory of its own, in the middle of 2026_11. Its pages are
//! short: a command that reads one page only fails its test.

use std::fmt::Debug;
use std::sync::Arc;

use actors::Clock;
use state_machine::{Chid, LastConnect, Month, NodeId, RouterType, Time, Uaid};
use storage::{Registration, Store, StoreAdmin, StoreOp};
use storage_sqlite::{Embedded, EmbeddedOptions};
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use unkind_store::UnkindStore;

use super::context::{Context, Servers};
use super::job::OUTPUTS_MAX;
use super::output::{Completion, Output};
use super::store_command::{StoreCommand, perform};
use crate::settings::Settings;

/// The fifteenth of 2026_11.
pub const NOW: Time = Time(20_772 * DAY_MS);

pub const DAY_MS: u64 = 24 * 60 * 60 * 1000;

pub struct Fixture {
    pub context: Context,
    pub dir: TempDir,
}

/// The outputs of a command without progress, and its completion.
pub type Asked<C> = (Vec<Output<<C as StoreCommand>::Report>>, Completion);

impl Fixture {
    /// With tables of these months. The store has empty pages and pages of one row, and executes each write twice.
    pub async fn with(months: &[&str]) -> Self {
        Self::on(UnkindStore::repeating, months).await
    }

    /// For results that depend on how often a write is executed.
    pub async fn with_short_pages(months: &[&str]) -> Self {
        Self::on(UnkindStore::with_short_pages, months).await
    }

    async fn on(unkind: fn(Arc<dyn StoreAdmin>) -> UnkindStore, months: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(dir.path(), &EmbeddedOptions::new(4096)).unwrap();
        let store = Arc::new(unkind(Arc::new(store)));
        for text in months {
            store.ensure_month(month(text)).await.unwrap();
        }
        let settings =
            Settings { feed_keys_max: 3, feed_value_bytes_max: 100, ..Settings::default() };
        let context = Context::own(store, &settings, Servers::Stopped);
        Self { context: Context { clock: Clock::starting_at(NOW), ..context }, dir }
    }

    pub fn change_settings(&mut self, change: impl FnOnce(&mut Settings)) {
        change(Arc::make_mut(&mut self.context.settings));
    }

    /// Registers users who connected then and never again. Each uaid holds its number.
    pub async fn users_of(&self, numbers: impl Iterator<Item = u16>, connected: Time) {
        for number in numbers {
            let registration = registration(number, connected);
            self.context.store.execute(StoreOp::Register(registration)).await.unwrap();
        }
    }

    /// Registers a channel of a user in a month.
    pub async fn channel_of(&self, number: u16, text: &str) {
        let (uaid, month, channels) = (uaid(number), month(text), [Chid([1; 16])].into());
        let op = StoreOp::AddChannels { uaid, month, channels };
        self.context.store.execute(op).await.unwrap();
    }

    pub async fn users(&self) -> u64 {
        let (mut users, mut after) = (0, None);
        loop {
            let census = self.context.store.records_by_month(after).await.unwrap();
            users += census.curmonth.values().sum::<u64>();
            after = census.next;
            if after.is_none() {
                return users;
            }
        }
    }

    /// The months that have a table.
    pub async fn months(&self) -> Vec<String> {
        let months = self.context.store.months().await.unwrap();
        months.iter().map(Month::to_string).collect()
    }

    pub async fn ask<C: StoreCommand>(&self, command: C) -> Asked<C> {
        let (_stop, stopped) = watch::channel(false);
        self.ask_until(command, stopped).await
    }

    pub async fn ask_until<C: StoreCommand>(
        &self,
        command: C,
        stop: watch::Receiver<bool>,
    ) -> Asked<C> {
        let (outputs, mut queue) = mpsc::channel(OUTPUTS_MAX);
        let mut read = Vec::new();
        let reading = async {
            while let Some(line) = queue.recv().await {
                read.push(line);
            }
        };
        let (end, ()) = tokio::join!(perform(command, &self.context, outputs, stop), reading);
        assert_eq!(read.pop(), Some(Output::End(end.clone())));
        read.retain(|line| !matches!(line, Output::Progress(_)));
        (read, end)
    }

    /// The notes of a command that must succeed.
    pub async fn notes<C: StoreCommand>(&self, command: C) -> Vec<String> {
        let (lines, end) = self.ask(command).await;
        assert_eq!(end, Completion::Done, "{lines:?}");
        lines.into_iter().map(note).collect()
    }

    /// The reason of a refusal, which begins with this.
    pub async fn refused<C: StoreCommand>(&self, command: C, beginning: &str) -> String {
        match self.ask(command).await {
            (lines, Completion::Failed(why)) if lines.is_empty() && why.starts_with(beginning) => {
                why
            }
            other => panic!("not refused with {beginning:?}: {other:?}"),
        }
    }
}

pub fn note<R: Debug>(line: Output<R>) -> String {
    match line {
        Output::Note(text) => text,
        other => panic!("not a sentence: {other:?}"),
    }
}
pub fn month(text: &str) -> Month {
    text.parse().unwrap()
}

/// The middle of a month.
pub fn in_month(text: &str) -> Time {
    let mut time = NOW;
    while Month::of(time) > month(text) {
        time = Time(time.0 - 30 * DAY_MS);
    }
    assert_eq!(Month::of(time), month(text));
    time
}

pub fn uaid(number: u16) -> Uaid {
    let mut bytes = [7; 16];
    bytes[..2].copy_from_slice(&number.to_be_bytes());
    Uaid(bytes)
}

pub fn registration(number: u16, connected_at: Time) -> Registration {
    Registration {
        uaid: uaid(number),
        router_type: RouterType::WebPush,
        node: NodeId::new("local"),
        connected_at,
        last_connect: LastConnect::of(connected_at, uaid(number), LastConnect::SHARDS),
        create_in: Some(Month::of(connected_at)),
    }
}
