//! A command from its beginning to its exit code.

use std::io::{self, IsTerminal, Write, stderr, stdout};
use std::path::PathBuf;

use storage::dynamo::DynamoOpenError;
use storage::{StoreAdmin, StoreError};
use tokio::runtime::Builder;
use tokio::signal::ctrl_c;
use tokio::sync::{mpsc, watch};

use super::backend::{Backend, reach};
use super::bar::Bar;
use super::cursor_file::CursorError;
use super::job_context::JobContext;
use super::output::{Completion, Output};
use super::print::Printer;
use super::request::Request;
use super::{client, job, keys_check};
use crate::settings::Settings;
use crate::store::OpenStoreError;

/// What is said when a command was interrupted. All commands are repeatable.
const STOPPED: &str = "stopped between two steps; run it again to go on";

/// Why a command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// There is no store.
    #[error(
        "there is no store in {}: name its directory with --data-dir, or start a server, which \
         makes one",
        dir.display()
    )]
    NoStore {
        /// Where.
        dir: PathBuf,
    },
    /// There cannot be one.
    #[error("{} is not a directory: name that of the store with --data-dir", path.display())]
    NotADirectory {
        /// What is a file or a device.
        path: PathBuf,
    },
    /// It is another user's.
    #[error(
        "the store in {} belongs to uid {owner}, and this runs as uid {own}: run it as that user \
         (sudo -u '#{owner}' kalends ...)",
        dir.display()
    )]
    NotOurs {
        /// Where.
        dir: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who we are.
        own: u32,
    },
    /// The store cannot be opened.
    #[error(transparent)]
    Open(OpenStoreError),
    /// There is no router table.
    #[error(
        "{0} (`kalends tables create` makes it, and so does a server unless create_tables = false)"
    )]
    NoRouter(DynamoOpenError),
    /// Somebody has the store who takes no commands.
    #[error(
        "the data directory {} is in use by another process that takes no commands: a server \
         that starts, stops or has no admin.sock (its log says why), or another command; try again",
        dir.display()
    )]
    InUse {
        /// Where.
        dir: PathBuf,
    },
    /// The server is another user's.
    #[error(
        "not allowed to use {}: run it as the owner of {}",
        dir.join(super::address::FILE).display(),
        dir.display()
    )]
    Denied {
        /// Its data directory.
        dir: PathBuf,
    },
    /// The server cannot be talked to.
    #[error("cannot talk to the server over {}: {error}", dir.join(super::address::FILE).display())]
    Unreachable {
        /// Its data directory.
        dir: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The server cannot be heard any more.
    #[error("cannot hear the server any more: {0}; what was done is done, run it again to go on")]
    Server(io::Error),
    /// The server went away.
    #[error("the server went away; what was done is done, run it again to go on")]
    ServerGone,
    /// The server says something else.
    #[error(
        "the server's answer is not understood: use the kalends that the server was started with"
    )]
    NoAnswer,
    /// The store failed.
    #[error("the store failed: {0}")]
    Store(#[from] StoreError),
    /// A cursor is not known or not kept.
    #[error(transparent)]
    Cursor(#[from] CursorError),
    /// The process has not got what it needs.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The job failed or was refused.
    #[error("{0}")]
    Job(String),
}

/// Does what is asked for on the store that the settings name.
pub fn run(request: Request, settings: &Settings, is_json: bool) -> Result<(), AdminError> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let mut printer = Printer::new(stdout().lock(), is_json, Bar::new(stderr().is_terminal()));
    match runtime.block_on(ask(request, settings, &mut printer))? {
        Completion::Done => Ok(()),
        Completion::Unwell => Err(AdminError::Job("not everything is as it should be".into())),
        Completion::Stopped => Err(AdminError::Job(STOPPED.into())),
        Completion::Failed(why) => Err(AdminError::Job(why)),
    }
}

impl From<OpenStoreError> for AdminError {
    fn from(error: OpenStoreError) -> Self {
        match error {
            OpenStoreError::NoRouter(error) => Self::NoRouter(error),
            error => Self::Open(error),
        }
    }
}

async fn ask<W: Write>(
    request: Request,
    settings: &Settings,
    printer: &mut Printer<W>,
) -> Result<Completion, AdminError> {
    let reached = reach(&request, settings).await;
    if request != Request::Preflight {
        return ask_store(request, reached?, printer).await;
    }
    let mut is_well = true;
    for keys in keys_check::check(settings, own_store(&reached)).await {
        is_well &= keys.problem.is_none();
        printer.print(Output::Check(keys))?;
    }
    match ask_store(request, reached?, printer).await? {
        Completion::Done if !is_well => Ok(Completion::Unwell),
        end => Ok(end),
    }
}

fn own_store(reached: &Result<Backend, AdminError>) -> Option<&dyn StoreAdmin> {
    match reached {
        Ok(Backend::Own(context)) => Some(&*context.store),
        Ok(Backend::Server(_)) | Err(_) => None,
    }
}

async fn ask_store<W: Write>(
    request: Request,
    way: Backend,
    printer: &mut Printer<W>,
) -> Result<Completion, AdminError> {
    match way {
        Backend::Server(stream) => client::ask(stream, &request, printer, interrupt()).await,
        Backend::Own(context) => {
            let end = work(request, &context, printer, interrupt()).await;
            context.store.close().await?;
            end
        }
    }
}

/// Does it here. When `stop` comes, it stops between two steps.
pub(crate) async fn work<W: Write>(
    request: Request,
    context: &JobContext,
    printer: &mut Printer<W>,
    stop: impl Future,
) -> Result<Completion, AdminError> {
    let (lines, mut told) = mpsc::channel(job::LINES_MAX);
    let (stopping, stopped) = watch::channel(false);
    let print = async {
        while let Some(line) = told.recv().await {
            printer.print(line)?;
        }
        Ok::<_, AdminError>(())
    };
    let work = async { Ok(job::perform(request, context, lines, stopped).await) };
    let both = async { tokio::try_join!(work, print) };
    tokio::pin!(both);
    let ended = tokio::select! {
        ended = &mut both => ended,
        _ = stop => {
            stopping.send_replace(true);
            both.await
        }
    };
    ended.map(|(end, ())| end)
}

/// The first interrupt stops the job between two steps, the second ends the process.
pub(crate) async fn interrupt() {
    if ctrl_c().await.is_err() {
        // It cannot be waited for: then it ends the process, as it does by itself.
        std::future::pending::<()>().await;
    }
    tokio::spawn(async {
        if ctrl_c().await.is_ok() {
            std::process::exit(1);
        }
    });
}
