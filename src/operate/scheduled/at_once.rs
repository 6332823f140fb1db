//! A backup when an operator asks for it, beside the one of each day.

use std::io;
use std::thread;

use actix_web::web::Data;
use slog::{info, warn};
use tokio::sync::oneshot;

use super::archives;
use super::turn::Task;
use crate::command::Context;
use crate::push::app::SharedState;

/// How a backup ended, or why it failed.
pub type Ended = Result<(), String>;

/// Begins to write an archive to `backup_dir`, which is set. It goes on if the caller does not wait for its end, and notes
/// that. `held` is dropped then.
pub fn back_up(
    context: &Context,
    common: &Data<SharedState>,
    held: impl Send + 'static,
) -> io::Result<oneshot::Receiver<Ended>> {
    let (settings, clock) = (context.settings.clone(), context.clock.clone());
    let common = Data::clone(common);
    let (ended, end) = oneshot::channel();
    let write = move || {
        let (judge, log) = (&common.judge, &common.log);
        let written = archives::write(&settings, clock.now());
        match &written {
            Ok(()) => {
                judge.maintenance.succeeded(Task::Backup.place(), clock.now());
                judge.backed_up(clock.now());
                info!(log, "the backup that an operator asked for ended");
            }
            Err(why) => {
                if !why.is_another_running() {
                    judge.maintenance.failed(Task::Backup.place());
                }
                warn!(log, "the backup that an operator asked for failed"; "error" => %why);
            }
        }
        drop(held);
        // The operator may have gone.
        let _ = ended.send(written.map_err(|why| why.to_string()));
    };
    thread::Builder::new().name("backup".to_owned()).spawn(write)?;
    Ok(end)
}
