//! What a server does for its operator by itself: a backup each day, and each Sunday what `kalends users drop-inactive` and
//! `kalends tables drop-old` do.
//!
//! - [`turn`]: when a task is due, and which of the servers on the same tables takes it.
//! - [`archives`]: the archives of `backup_dir`, of which the newest are kept. [`at_once`]: one when an operator asks.
//!
//! Architecture Invariant: a task is a command, run as at `admin.sock`. It is stopped between two steps, and repeated.

mod archives;
pub mod at_once;
mod turn;

use std::time::Duration;

use actix::spawn;
use actix_web::web::Data;
use slog::{Logger, info, warn};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::tables::drop_old::DropOld;
use super::users::drop_inactive::DropInactive;
use crate::command::job::OUTPUTS_MAX;
use crate::command::store_command::perform;
use crate::command::{Completion, Context, Job, JobError, NoReport, Output, StoreCommand};
use crate::push::app::SharedState;
use turn::Task;

/// The first look: everybody connects again when a server has just started.
const FIRST_LOOK: Duration = Duration::from_secs(30);

/// Time between two looks at what is due.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// A task that failed is repeated after this time, here or on another server.
const REPEAT_AFTER: Duration = Duration::from_secs(60 * 60);

/// How long the end of a server waits for a step of a task, whose store may hang.
const STOP_WAIT: Duration = Duration::from_secs(5);

/// Inactive users that are dropped in a second: a quarter of what the command drops.
const USERS_PER_SECOND: u32 = 25;

/// The work of a server, which [`stop`](Self::stop) ends.
pub struct Scheduled {
    stop: watch::Sender<bool>,
    work: JoinHandle<()>,
}

/// What each task needs.
struct Schedule {
    context: Context,
    common: Data<SharedState>,
    stop: watch::Receiver<bool>,
}

/// Begins to look at what is due, on the current arbiter.
pub fn start(context: Context, common: Data<SharedState>) -> Scheduled {
    let (stop, stopped) = watch::channel(false);
    let schedule = Schedule { context, common, stop: stopped };
    Scheduled { stop, work: spawn(schedule.run()) }
}

impl Scheduled {
    /// Stops a task between two steps, and waits for that at most [`STOP_WAIT`].
    pub async fn stop(self) {
        self.stop.send_replace(true);
        // A task that panics has ended too, and one that takes longer ends with the store.
        let _ = timeout(STOP_WAIT, self.work).await;
    }
}

impl Schedule {
    async fn run(mut self) {
        let mut not_before = [None; Task::ALL.len()];
        let mut is_first = true;
        loop {
            let wait = if is_first { FIRST_LOOK } else { LOOK_EVERY };
            tokio::select! {
                () = sleep(wait) => {}
                _ = self.stop.wait_for(|stops| *stops) => return,
            }
            for (place, task) in Task::ALL.into_iter().enumerate() {
                if !task.is_wanted(&self.context.settings) {
                    continue;
                }
                // What is dropped is in an archive before.
                if not_before[place].is_some_and(|at| Instant::now() < at) {
                    break;
                }
                if let Err(why) = self.take(task, is_first).await {
                    not_before[place] = Some(Instant::now() + REPEAT_AFTER);
                    self.common.judge.maintenance.failed(place, &why);
                    warn!(self.common.log, "maintenance failed, it is repeated in an hour"; "task" => task.name(), "error" => why);
                    break;
                }
            }
            is_first = false;
        }
    }

    /// Does the task if it is due and no other server does it. Returns why it failed. At the first look, a directory without
    /// an archive makes a backup due too. Later it does not: somebody may move the archives elsewhere.
    async fn take(&self, task: Task, is_first: bool) -> Result<(), String> {
        let log = &self.common.log;
        let (outputs, notes) = mpsc::channel(OUTPUTS_MAX);
        let job = Job::<NoReport>::new(self.context.clone(), outputs, self.stop.clone());
        let logged = spawn(log_notes(notes, log.clone()));
        let work = async {
            let settings = &self.context.settings;
            let is_missing = is_first && task == Task::Backup && archives::are_missing(settings);
            let turn = turn::take(task, settings.maintenance_hour, is_missing, &job).await?;
            let Some(turn) = turn else { return Ok(false) };
            info!(log, "maintenance began"; "task" => task.name());
            match self.perform(task).await {
                Ok(()) => turn.done(&self.context).await.map(|()| true),
                Err(why) => {
                    // A turn that stays begun is free after a day.
                    let _ = turn.give_back(&self.context).await;
                    Err(why)
                }
            }
        };
        let done = work.await;
        drop(job);
        let _ = logged.await;
        match done {
            Ok(true) => {
                self.common.judge.maintenance.succeeded(task.place(), self.context.now());
                info!(log, "maintenance ended"; "task" => task.name());
                Ok(())
            }
            // The server stops: the task is still due when it is back in that hour.
            Ok(false) | Err(JobError::Stopped) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn perform(&self, task: Task) -> Result<(), JobError> {
        let settings = &self.context.settings;
        match task {
            Task::Backup => {
                let written = archives::begin(settings, self.context.now());
                let written = written.map_err(|error| JobError::refused(error.to_string()))?;
                let mut stop = self.stop.clone();
                tokio::select! {
                    written = written => match written {
                        Ok(written) => written.map_err(|why| JobError::refused(why.to_string())),
                        Err(_) => Err(JobError::refused("the backup panicked")),
                    },
                    _ = stop.wait_for(|stops| *stops) => Err(JobError::Stopped),
                }
            }
            Task::Drops => {
                let (months, rate) = (settings.inactive_months, USERS_PER_SECOND);
                let inactive = DropInactive { months, rate, dry_run: false, since: None };
                self.command(inactive).await?;
                if self.context.settings.makes_tables() {
                    self.command(DropOld { keep: 1, dry_run: false, force: false }).await?;
                }
                Ok(())
            }
        }
    }

    /// Runs a command, and logs its sentences.
    async fn command<C: StoreCommand<Report = NoReport>>(
        &self,
        command: C,
    ) -> Result<(), JobError> {
        let (outputs, notes) = mpsc::channel(OUTPUTS_MAX);
        let work = perform(command, &self.context, outputs, self.stop.clone());
        let (end, ()) = tokio::join!(work, log_notes(notes, self.common.log.clone()));
        match end {
            Completion::Done => Ok(()),
            Completion::Stopped => Err(JobError::Stopped),
            Completion::Unwell => Err(JobError::Unwell),
            Completion::Failed(why) => Err(JobError::Refused(why)),
        }
    }
}

async fn log_notes(mut notes: mpsc::Receiver<Output<NoReport>>, log: Logger) {
    while let Some(output) = notes.recv().await {
        match output {
            Output::Note(text) => info!(log, "maintenance"; "result" => text),
            Output::Problem(text) => warn!(log, "maintenance meets a problem"; "error" => text),
            Output::Progress(_) | Output::Report(_) | Output::End(_) => {}
        }
    }
}
