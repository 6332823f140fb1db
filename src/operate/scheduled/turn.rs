//! The turns of a task: each begins at its hour, and one server on the same tables takes it.
//!
//! A server takes a turn by writing the time into a reserved feed. Of the servers that saw the same version of the key, the
//! one whose write is the next version has the turn: versions of a key differ, and each change adds one.

use state_machine::Time;
use state_machine::feed::{FeedKey, FeedName, FeedPage, FeedValue, Version, WriteResult};

use crate::command::{Job, JobError};
use crate::feeds::store;
use crate::settings::Settings;

const HOUR: u64 = 60 * 60 * 1000;
const DAY: u64 = 24 * HOUR;

/// The days from 1970-01-01, a Thursday, to the first Sunday.
const FIRST_SUNDAY: u64 = 3;

/// A server that was off at the hour does what is due an hour long, and what was missed twice at once.
const TAKEN_FOR: u64 = HOUR;

/// What a server does by itself, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    /// Before the drops, so that what they drop is in an archive.
    Backup,
    Drops,
}

/// A turn that this server has.
pub(super) struct Turn {
    task: Task,
    /// When the turn before was taken.
    before: Option<Time>,
}

impl Task {
    pub(super) const ALL: [Self; 2] = [Self::Backup, Self::Drops];

    pub(super) fn place(self) -> usize {
        self as usize
    }

    pub(super) fn name(self) -> &'static str {
        crate::push::app::MAINTENANCE[self.place()]
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

    /// Whether a turn is due that nobody has taken. One that was never taken is due at once.
    fn is_due(self, hour: u64, now: Time, last: Option<Time>) -> bool {
        let (every, first) = self.times(hour);
        // As if a turn had begun before the first one.
        let since = |time: Time| (time.0 + every).saturating_sub(first);
        let turn = |time: Time| since(time) / every;
        // The clock of the server that took it was wrong.
        let is_possible = |last: &Time| last.0 <= now.0 + every;
        let Some(last) = last.filter(is_possible) else { return true };
        let missed = turn(now).saturating_sub(turn(last));
        missed > 1 || missed == 1 && since(now) % every < TAKEN_FOR
    }

    fn key(self) -> FeedKey {
        FeedKey::parse(self.name()).expect("the name of a task is a key")
    }
}

/// Takes the turn that is due. None if none is, or if another server takes it.
pub(super) async fn take(task: Task, hour: u64, job: &Job) -> Result<Option<Turn>, JobError> {
    let (feed, key) = (FeedName::maintenance(), task.key());
    // What another server has just written, or was killed before it published it, is a turn that it took.
    store::number_all(&feed, job).await?;
    let find = |found: &mut Option<(Version, Time)>, page: FeedPage| {
        for update in page.updates {
            if update.key == key {
                *found = update.value.map(|value| (update.version, time_of(&value)));
            }
        }
    };
    let seen = store::read(job, &feed, find).await?;
    let now = job.context.now();
    let before = seen.map(|(_, time)| time);
    if !task.is_due(hour, now, before) {
        return Ok(None);
    }
    let next = seen.map_or(1, |(version, _)| version.0 + 1);
    let written = write(task, now, job).await?;
    Ok((written.0 == next).then_some(Turn { task, before }))
}

impl Turn {
    /// Lets another server take the turn, or this one later.
    pub(super) async fn give_back(self, job: &Job) -> Result<(), JobError> {
        write(self.task, self.before.unwrap_or(Time(0)), job).await.map(|_version| ())
    }
}

async fn write(task: Task, time: Time, job: &Job) -> Result<Version, JobError> {
    let (feed, key) = (FeedName::maintenance(), task.key());
    let value = FeedValue::parse(&time.0.to_string()).expect("a number is a value");
    let keys_max = feed.keys_max(0);
    let write = || job.context.store.write_key(feed.clone(), key.clone(), value.clone(), keys_max);
    let written = job.step(write).await?;
    store::number_all(&feed, job).await?;
    match written {
        WriteResult::Done(version) => Ok(version),
        WriteResult::TooManyKeys => unreachable!("the feed has room for each task"),
    }
}

/// The time in a value. One that is not a time is long ago.
fn time_of(value: &FeedValue) -> Time {
    Time(value.as_str().parse().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use tokio::sync::{mpsc, watch};

    use super::*;
    use crate::command::Context;
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
            (Task::Backup, None, at(day, 13, 0), true),
            (Task::Backup, Some(at(day, 4, 0)), at(day, 4, 59), false),
            (Task::Backup, Some(at(day, 4, 0)), at(day + 1, 3, 59), false),
            (Task::Backup, Some(at(day, 4, 0)), at(day + 1, 4, 0), true),
            (Task::Backup, Some(at(day, 4, 0)), at(day + 1, 4, 59), true),
            (Task::Backup, Some(at(day, 4, 0)), at(day + 1, 5, 0), false),
            (Task::Backup, Some(at(day, 4, 0)), at(day + 2, 3, 59), false),
            (Task::Backup, Some(at(day, 3, 59)), at(day + 1, 5, 0), true),
            (Task::Drops, Some(at(day, 12, 0)), at(sunday, 3, 59), false),
            (Task::Drops, Some(at(day, 12, 0)), at(sunday, 4, 0), true),
            (Task::Drops, Some(at(day, 12, 0)), at(sunday, 5, 0), false),
            (Task::Drops, Some(at(sunday, 4, 0)), at(sunday + 7, 4, 30), true),
            (Task::Drops, Some(at(day, 12, 0)), at(sunday + 7, 4, 0), true),
            // The clock of another server was ahead, or this one was set back.
            (Task::Drops, Some(at(sunday + 7, 4, 0)), at(sunday, 4, 0), false),
            (Task::Drops, Some(at(sunday + 7, 4, 1)), at(sunday, 4, 0), true),
            (Task::Drops, Some(Time(u64::MAX)), at(sunday, 12, 0), true),
        ];
        for (task, last, now, is_due) in cases {
            assert_eq!(task.is_due(4, now, last), is_due, "{task:?} {last:?} {now:?}");
        }
    }

    fn job(context: &Context) -> (Job, impl Sized) {
        let (outputs, queue) = mpsc::channel(OUTPUTS_MAX);
        let (stop, stopped) = watch::channel(false);
        (Job::new(context.clone(), outputs, stopped), (queue, stop))
    }

    #[tokio::test]
    async fn of_servers_that_meet_one_takes_a_turn_and_another_takes_it_when_it_is_given_back() {
        let fixture = Fixture::with_short_pages(&[]).await;
        fixture.context.store.ensure_feeds().await.unwrap();
        let servers: Vec<_> = (0..5).map(|_| job(&fixture.context)).collect();
        for round in 0..3 {
            let takes = servers.iter().map(|(job, _)| take(Task::Backup, 4, job));
            let taken = futures_util::future::join_all(takes).await;
            let mut turns: Vec<_> = taken.into_iter().filter_map(|turn| turn.unwrap()).collect();
            assert_eq!(turns.len(), 1, "round {round}");
            turns.pop().unwrap().give_back(&servers[0].0).await.unwrap();
        }
        let turn = take(Task::Backup, 4, &servers[0].0).await.unwrap();
        assert!(turn.is_some());
        for (job, _) in &servers {
            assert!(take(Task::Backup, 4, job).await.unwrap().is_none(), "it is taken");
        }
        assert!(take(Task::Drops, 4, &servers[1].0).await.unwrap().is_some());
    }
}
