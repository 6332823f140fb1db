//! The turns of a task: each begins at its hour, and one server on the same tables takes it.
//!
//! A reserved feed has the time when each task was last done. Where several servers share the tables, one takes the turn by
//! writing the time of its beginning. Of those that saw the same version of the key, the one whose write is the next version
//! has the turn: versions of a key differ, and each change adds one.

use std::collections::BTreeMap;

use state_machine::Time;
use state_machine::feed::{FeedKey, FeedName, FeedPage, FeedValue, Update, Version, WriteResult};

use crate::command::{Context, Job, JobError};
use crate::feeds::store;
use crate::push::app::AppState;
use crate::settings::{Settings, StoreKind};

/// Keys that are published in one transaction.
const BATCH_MAX: usize = 16;

const HOUR: u64 = 60 * 60 * 1000;
const DAY: u64 = 24 * HOUR;

/// The days from 1970-01-01, a Thursday, to the first Sunday.
const FIRST_SUNDAY: u64 = 3;

/// A server that was off at the hour does what is due an hour long, and what was missed twice at once.
const TAKEN_FOR: u64 = HOUR;

/// A turn that another server began longer ago is free: that server was killed.
const BEGUN_FOR: u64 = DAY;

/// What a server does by itself, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    /// Before the drops, so that what they drop is in an archive.
    Backup,
    Drops,
}

/// Whether a task is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    No,
    Now,
    /// The time is noted as if it was done. The clock may be far ahead, where all users would be inactive.
    NextTime,
}

/// A turn that this server has.
pub(super) struct Turn(Task);

impl Task {
    pub(super) const ALL: [Self; 2] = [Self::Backup, Self::Drops];

    pub(super) fn place(self) -> usize {
        self as usize
    }

    pub(super) fn name(self) -> &'static str {
        crate::push::judge::MAINTENANCE[self.place()]
    }

    /// Whether the settings ask for it.
    pub(super) fn is_wanted(self, settings: &Settings) -> bool {
        match self {
            Self::Backup => settings.backup_dir.is_some(),
            Self::Drops => settings.maintenance,
        }
    }

    /// The time between two turns, and that of the first one since 1970.
    fn times(self, hour: u64) -> (u64, u64) {
        match self {
            Self::Backup => (DAY, hour * HOUR),
            Self::Drops => (7 * DAY, FIRST_SUNDAY * DAY + hour * HOUR),
        }
    }

    fn due(self, hour: u64, now: Time, last: Option<Time>) -> Due {
        let (every, first) = self.times(hour);
        // As if a turn had begun before the first one.
        let since = |time: Time| (time.0 + every).saturating_sub(first);
        let turn = |time: Time| since(time) / every;
        // A time ahead is of a wrong clock.
        let last = last.filter(|last| last.0 <= now.0 + every);
        match last.map(|last| turn(now).saturating_sub(turn(last))) {
            Some(0) => Due::No,
            Some(1) if since(now) % every >= TAKEN_FOR => Due::No,
            Some(1 | 2) => Due::Now,
            _ if self == Self::Backup => Due::Now,
            _ => Due::NextTime,
        }
    }

    fn key(self) -> FeedKey {
        FeedKey::parse(self.name()).expect("the name of a task is a key")
    }

    fn key_of_beginning(self) -> FeedKey {
        FeedKey::parse(&format!("{} begun", self.name())).expect("the name of a task is a key")
    }
}

/// Takes the turn that is due, by the time or because a result `is_missing`. None if none is, or if another server takes it.
pub(super) async fn take(
    task: Task,
    hour: u64,
    is_missing: bool,
    job: &Job,
) -> Result<Option<Turn>, JobError> {
    let (feed, context) = (FeedName::maintenance(), &job.context);
    // What another server has just written, or was killed before it published it.
    store::number_all(&feed, job).await?;
    let collect = |found: &mut BTreeMap<FeedKey, (Version, Time)>, page: FeedPage| {
        for Update { key, version, value, .. } in page.updates {
            let time = value.and_then(|value| value.as_str().parse().ok()).unwrap_or(0);
            found.insert(key, (version, Time(time)));
        }
    };
    let seen = store::read(job, &feed, collect).await?;
    let (now, done) = (context.now(), seen.get(&task.key()).map(|(_, time)| *time));
    if let (Task::Backup, Some(done), Some(node)) = (task, done, context.part::<AppState>()) {
        node.common.judge.backed_up(done);
    }
    match task.due(hour, now, done) {
        _ if is_missing => {}
        Due::Now => {}
        Due::No => return Ok(None),
        Due::NextTime => {
            job.note(format!(
                "{} is not due yet: it is done at a quiet hour from now on",
                task.name()
            ))
            .await?;
            return write(task.key(), now, context).await.map(|_version| None);
        }
    }
    if context.settings.store == StoreKind::Embedded {
        // The data directory has one server.
        return Ok(Some(Turn(task)));
    }
    let key = task.key_of_beginning();
    let (version, begun) = seen.get(&key).copied().unwrap_or((Version(0), Time(0)));
    if now.since(begun).max(begun.since(now)).0 < BEGUN_FOR {
        return Ok(None);
    }
    let written = write(key, now, context).await?;
    Ok((written.0 == version.0 + 1).then_some(Turn(task)))
}

impl Turn {
    /// The task is done.
    pub(super) async fn done(self, context: &Context) -> Result<(), JobError> {
        write(self.0.key(), context.now(), context).await?;
        self.give_back(context).await
    }

    /// Lets another server take the turn, or this one later. Also while the server stops.
    pub(super) async fn give_back(self, context: &Context) -> Result<(), JobError> {
        match context.settings.store {
            StoreKind::Embedded => Ok(()),
            _ => write(self.0.key_of_beginning(), Time(0), context).await.map(|_version| ()),
        }
    }
}

/// Notes a backup into `backup_dir` that was made beside the turns, as if it was one.
pub(super) async fn note_backup(context: &Context) -> Result<(), JobError> {
    write(Task::Backup.key(), context.now(), context).await.map(|_version| ())
}

async fn write(key: FeedKey, time: Time, context: &Context) -> Result<Version, JobError> {
    let (feed, store) = (FeedName::maintenance(), &context.store);
    let value = FeedValue::parse(&time.0.to_string()).expect("a number is a value");
    let written = store.write_key(feed.clone(), key, value, feed.keys_max(0)).await?;
    let mut after = None;
    loop {
        let published = store.publish(feed.clone(), after, BATCH_MAX).await?;
        after = published.and_then(|published| published.next);
        if after.is_none() {
            break;
        }
    }
    match written {
        WriteResult::Done(version) => Ok(version),
        WriteResult::TooManyKeys => unreachable!("the feed has room for each task"),
    }
}
#[cfg(test)]
mod tests {
    use tokio::sync::{mpsc, watch};

    use super::*;
    use crate::command::fixture::Fixture;
    use crate::command::job::OUTPUTS_MAX;

    /// A Thursday in November 2026, in days since 1970.
    const DAY_OF_TEST: u64 = 20_769;

    fn at(day: u64, hour: u64, minute: u64) -> Time {
        Time(day * DAY + hour * HOUR + minute * 60 * 1000)
    }

    #[test]
    fn a_task_is_due_in_its_hour_and_after_two_missed_turns_at_any_hour() {
        let (day, sunday) = (DAY_OF_TEST, DAY_OF_TEST + 3);
        let cases = [
            (Task::Backup, None, at(day, 13, 0), Due::Now),
            (Task::Backup, Some(at(day, 4, 0)), at(day, 4, 59), Due::No),
            (Task::Backup, Some(at(day, 4, 0)), at(day + 1, 3, 59), Due::No),
            (Task::Backup, Some(at(day, 4, 0)), at(day + 1, 4, 0), Due::Now),
            (Task::Backup, Some(at(day, 4, 0)), at(day + 1, 4, 59), Due::Now),
            (Task::Backup, Some(at(day, 4, 0)), at(day + 1, 5, 0), Due::No),
            (Task::Backup, Some(at(day, 4, 0)), at(day + 2, 3, 59), Due::No),
            (Task::Backup, Some(at(day, 3, 59)), at(day + 1, 5, 0), Due::Now),
            (Task::Backup, Some(at(day, 4, 0)), at(day + 90, 12, 0), Due::Now),
            (Task::Drops, Some(at(day, 12, 0)), at(sunday, 3, 59), Due::No),
            (Task::Drops, Some(at(day, 12, 0)), at(sunday, 4, 0), Due::Now),
            (Task::Drops, Some(at(day, 12, 0)), at(sunday, 5, 0), Due::No),
            (Task::Drops, Some(at(sunday, 4, 0)), at(sunday + 7, 4, 30), Due::Now),
            (Task::Drops, Some(at(day, 12, 0)), at(sunday + 7, 4, 0), Due::Now),
            (Task::Drops, Some(at(day, 12, 0)), at(sunday + 13, 12, 0), Due::Now),
            // Never done, or long ago: the clock may be far ahead.
            (Task::Drops, None, at(sunday, 4, 0), Due::NextTime),
            (Task::Drops, Some(at(day, 12, 0)), at(sunday + 14, 4, 0), Due::NextTime),
            (Task::Drops, Some(at(day, 12, 0)), at(day + 463, 12, 0), Due::NextTime),
            // The clock was ahead, or was set back.
            (Task::Drops, Some(at(sunday + 7, 4, 0)), at(sunday, 4, 0), Due::No),
            (Task::Drops, Some(at(sunday + 7, 4, 1)), at(sunday, 4, 0), Due::NextTime),
            (Task::Drops, Some(Time(u64::MAX)), at(sunday, 12, 0), Due::NextTime),
        ];
        for (task, last, now, due) in cases {
            assert_eq!(task.due(4, now, last), due, "{task:?} {last:?} {now:?}");
        }
    }

    fn job(context: &Context) -> (Job, impl Sized) {
        let (outputs, queue) = mpsc::channel(OUTPUTS_MAX);
        let (stop, stopped) = watch::channel(false);
        (Job::new(context.clone(), outputs, stopped), (queue, stop))
    }

    #[tokio::test]
    async fn of_servers_that_meet_one_takes_a_turn_and_another_takes_it_when_it_is_given_back() {
        let mut fixture = Fixture::with_short_pages(&[]).await;
        fixture.context.store.ensure_feeds().await.unwrap();
        fixture.change_settings(|settings| settings.store = StoreKind::DynamoDb);
        let context = &fixture.context;
        let servers: Vec<_> = (0..5).map(|_| job(context)).collect();
        for round in 0..3 {
            let takes = servers.iter().map(|(job, _)| take(Task::Backup, 4, false, job));
            let taken = futures_util::future::join_all(takes).await;
            let mut turns: Vec<_> = taken.into_iter().filter_map(|turn| turn.unwrap()).collect();
            assert_eq!(turns.len(), 1, "round {round}");
            turns.pop().unwrap().give_back(context).await.unwrap();
        }
        let is_taken =
            async |task, is_missing| take(task, 4, is_missing, &servers[1].0).await.unwrap();
        let turn = is_taken(Task::Backup, false).await.expect("it is free");
        assert!(is_taken(Task::Backup, true).await.is_none(), "another server does it");
        turn.done(context).await.unwrap();
        assert!(is_taken(Task::Backup, false).await.is_none(), "it is done");
        assert!(is_taken(Task::Backup, true).await.is_some(), "its result is gone");
    }

    #[tokio::test]
    async fn a_backup_beside_the_turns_is_one_and_kept_in_the_store() {
        let fixture = Fixture::with_short_pages(&[]).await;
        fixture.context.store.ensure_feeds().await.unwrap();
        let (job, _held) = job(&fixture.context);
        note_backup(&fixture.context).await.unwrap();
        assert!(take(Task::Backup, 4, false, &job).await.unwrap().is_none(), "it is done");
        assert!(take(Task::Backup, 4, true, &job).await.unwrap().is_some(), "its archive is gone");
    }

    #[tokio::test]
    async fn a_server_that_stops_gives_its_turn_back_and_the_first_drops_are_noted_only() {
        let fixture = Fixture::with_short_pages(&[]).await;
        fixture.context.store.ensure_feeds().await.unwrap();
        let (job, _held) = job(&fixture.context);
        assert!(take(Task::Drops, 4, false, &job).await.unwrap().is_none());
        for _ in 0..2 {
            let turn = take(Task::Backup, 4, false, &job).await.unwrap().expect("it is due");
            turn.give_back(&fixture.context).await.unwrap();
        }
    }
}
