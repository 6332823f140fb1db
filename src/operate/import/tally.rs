//! What an import did, in the words of its report.

use std::collections::BTreeMap;

use crate::command::{Job, JobError};
use crate::system::printable;

/// Applications behind bridges that are listed. Users of further ones are counted together.
const APPS_MAX: usize = 50;

/// What was imported and what was skipped, with the reasons.
#[derive(Debug, Default)]
pub struct Tally {
    pub seen: u64,
    pub users: u64,
    /// Those of the users that a bridge reaches, by application.
    bridged: BTreeMap<String, u64>,
    pub channels: u64,
    pub channels_unreadable: u64,
    pub messages: u64,
    pub users_skipped: BTreeMap<&'static str, u64>,
    messages_skipped: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// Of a user that was read, and nothing else yet.
    pub fn of_user() -> Self {
        Self { seen: 1, ..Self::default() }
    }

    pub fn skipped(why: &'static str) -> Self {
        Self { users_skipped: [(why, 1)].into(), ..Self::of_user() }
    }

    pub fn skip_users(&mut self, why: &'static str, count: u64) {
        add_count(&mut self.users_skipped, why, count);
    }

    pub fn skip_messages(&mut self, why: &'static str, count: u64) {
        add_count(&mut self.messages_skipped, why, count);
    }

    pub fn add_bridged(&mut self, app: &str, count: u64) {
        let is_listed = self.bridged.len() < APPS_MAX || self.bridged.contains_key(app);
        let app = if is_listed { app } else { "others" };
        *self.bridged.entry(app.to_owned()).or_default() += count;
    }

    pub fn bridged(&self) -> u64 {
        self.bridged.values().sum()
    }

    pub fn add(&mut self, other: Self) {
        self.seen += other.seen;
        self.users += other.users;
        other.bridged.into_iter().for_each(|(app, count)| self.add_bridged(&app, count));
        self.channels += other.channels;
        self.channels_unreadable += other.channels_unreadable;
        self.messages += other.messages;
        other.users_skipped.into_iter().for_each(|(why, count)| self.skip_users(why, count));
        other.messages_skipped.into_iter().for_each(|(why, count)| self.skip_messages(why, count));
    }

    pub async fn print(&self, dry_run: bool, job: &Job) -> Result<(), JobError> {
        let Self { users, channels, messages, .. } = self;
        let bridged = self.bridged();
        let done = if dry_run { "would import" } else { "imported" };
        job.note(format!(
            "{done} {} ({bridged} behind a bridge), {} and {}",
            printable::count(*users, "user"),
            printable::count(*channels, "channel"),
            printable::count(*messages, "message")
        ))
        .await?;
        let app = |(app, count): (&String, &u64)| format!("{} {count}", app.escape_default());
        let apps: Vec<_> = self.bridged.iter().map(app).collect();
        if !apps.is_empty() {
            job.note(format!("behind a bridge: {}", apps.join(", "))).await?;
        }
        let mut channels_skipped = BTreeMap::new();
        add_count(&mut channels_skipped, "unreadable", self.channels_unreadable);
        for (what, skipped) in [
            ("user", &self.users_skipped),
            ("channel", &channels_skipped),
            ("message", &self.messages_skipped),
        ] {
            for (why, count) in skipped {
                job.note(format!("skipped {} {why}", printable::count(*count, what))).await?;
            }
        }
        Ok(())
    }
}

fn add_count(counts: &mut BTreeMap<&'static str, u64>, why: &'static str, count: u64) {
    if count > 0 {
        *counts.entry(why).or_default() += count;
    }
}
