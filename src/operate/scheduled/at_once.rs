//! A backup when an operator asks for it, beside the one of each day.

use std::io;

use actix::spawn;
use actix_web::web::Data;
use slog::{info, warn};
use tokio::sync::oneshot;

use super::archives;
use super::turn::{self, Task};
use crate::command::Context;
use crate::push::app::SharedState;

/// How a backup ended, or why it failed.
pub type Ended = Result<(), String>;

/// Begins to write an archive to `backup_dir`, which is set. It is finished also if the caller does not wait, and its time
/// is kept in the store. `held` is dropped then.
pub fn back_up(
    context: &Context,
    common: &Data<SharedState>,
    held: impl Sized + 'static,
) -> io::Result<oneshot::Receiver<Ended>> {
    let written = archives::begin(&context.settings, context.now())?;
    let (context, common) = (context.clone(), Data::clone(common));
    let (ended, end) = oneshot::channel();
    spawn(async move {
        let (judge, log) = (&common.judge, &common.log);
        let end = match written.await {
            Err(_) => {
                let why = "the backup panicked";
                judge.maintenance.failed(Task::Backup.place(), why);
                Err(why.to_owned())
            }
            Ok(Ok(())) => {
                judge.maintenance.succeeded(Task::Backup.place(), context.now());
                judge.backed_up(context.now());
                let noted = turn::note_backup(&context).await;
                noted.map_err(|why| {
                    format!("the archive is written, and its time is not kept: {why}")
                })
            }
            Ok(Err(why)) => {
                let text = why.to_string();
                if !why.is_another_running() {
                    judge.maintenance.failed(Task::Backup.place(), &text);
                }
                Err(text)
            }
        };
        match &end {
            Ok(()) => info!(log, "the backup that an operator asked for ended"),
            Err(why) => {
                warn!(log, "the backup that an operator asked for failed"; "error" => why);
            }
        }
        drop(held);
        // The operator may have gone.
        let _ = ended.send(end);
    });
    Ok(end)
}
