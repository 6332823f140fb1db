//! A command from its request to its exit code.

use std::io::{self, IsTerminal, Write, stderr, stdout};
use std::path::PathBuf;

use serde::Deserialize;
use storage::StoreError;
use storage::maintenance::TableStatus;
use tokio::runtime::Builder;
use tokio::signal::ctrl_c;
use tokio::sync::{mpsc, watch};

use super::backend::{Backend, reach};
use super::bar::Bar;
use super::commands::{ReadOnlyArgs, Request};
use super::job_context::JobContext;
use super::output::{Completion, Output};
use super::print::Printer;
use super::socket::FILE;
use super::tail_cursor::CursorError;
use super::{client, job, keys_check};
use crate::settings::Settings;
use crate::settings::store::OpenStoreError;
use crate::settings::store::copy_marker::CopyMarkerError;

/// Why a command did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    #[error(
        "there is no store in {}: name its directory with --data-dir, or start a server, which \
         makes one",
        dir.display()
    )]
    NoStore { dir: PathBuf },
    #[error(
        "there is no keys.toml in {}: put the crypto keys of the other server there first (docs/migrate.md), or name \
         the directory that has it with --data-dir",
        dir.display()
    )]
    NoKeys { dir: PathBuf },
    #[error(
        "a server is running on this store: stop it first, because it gives new ids to agents that are not imported \
         yet"
    )]
    ServerRuns,
    #[error(
        "there is no keys.toml in {}: it opens all endpoints of the store, so copy it from the data directory of a node, \
         or name the directory that has it with --data-dir",
        dir.display()
    )]
    NoKeysOfStore { dir: PathBuf },
    #[error("a server is running on {}: stop it first, or what it writes is not copied", dir.display())]
    ServerUses { dir: PathBuf },
    #[error(
        "this is safe only while no server uses the tables: stop all of them, then add --server-stopped"
    )]
    ServersUnknown,
    #[error("{} is not a directory: name that of the store with --data-dir", path.display())]
    NotADirectory { path: PathBuf },
    /// Files that this process would make in it would be closed to its server.
    #[error(
        "the store in {} belongs to uid {owner}, and this runs as uid {own}: run it as that user \
         (sudo -u '#{owner}' kalends ...)",
        dir.display()
    )]
    NotOurs { dir: PathBuf, owner: u32, own: u32 },
    #[error(transparent)]
    Open(#[from] OpenStoreError),
    #[error(
        "the data directory {} is in use by another process that accepts no commands: a server \
         that starts, stops or has no admin.sock (its log has the reason), or another command; try again",
        dir.display()
    )]
    InUse { dir: PathBuf },
    #[error(
        "not allowed to use {}: run it as the owner of {}",
        dir.join(FILE).display(),
        dir.display()
    )]
    Denied { dir: PathBuf },
    #[error("cannot connect to the server over {}: {error}", dir.join(FILE).display())]
    Unreachable { dir: PathBuf, error: io::Error },
    #[error(
        "the connection to the server broke: {0}; completed steps remain, run it again to continue"
    )]
    Server(io::Error),
    #[error("the server ended; completed steps remain, run it again to continue")]
    ServerGone,
    #[error(
        "the server that holds the store does not answer: try again later, and restart it if it hangs"
    )]
    ServerHangs,
    #[error("the server's answer cannot be read: use the kalends that the server was started with")]
    NoAnswer,
    #[error("the store failed: {0}")]
    Store(#[from] StoreError),
    #[error(transparent)]
    Copy(#[from] CopyMarkerError),
    #[error(transparent)]
    Cursor(#[from] CursorError),
    /// Standard output, a runtime or a socket failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The job failed or was refused.
    #[error("{0}")]
    Job(String),
}

/// Runs a request on the store that the settings name, and prints its output.
pub fn run(request: Request, settings: &Settings) -> Result<(), AdminError> {
    let bar = Bar::new(stderr().is_terminal());
    let mut printer = Printer::new(stdout().lock(), request.is_json(), bar);
    run_with(request, settings, &mut printer)
}

/// The tables of the store.
pub fn tables(settings: &Settings) -> Result<Vec<TableStatus>, AdminError> {
    let mut text = Vec::new();
    let request = Request::List(ReadOnlyArgs { json: true });
    run_with(request, settings, &mut Printer::new(&mut text, true, Bar::new(false)))?;
    let list: TableList = serde_json::from_slice(&text).map_err(|_| AdminError::NoAnswer)?;
    Ok(list.tables)
}

/// The object that `tables list --json` prints.
#[derive(Deserialize)]
struct TableList {
    tables: Vec<TableStatus>,
}

fn run_with<W: Write>(
    request: Request,
    settings: &Settings,
    printer: &mut Printer<W>,
) -> Result<(), AdminError> {
    let request = request.with_settings(settings);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    match runtime.block_on(run_and_print(request, settings, printer))? {
        Completion::Done => Ok(()),
        Completion::Unwell => Err(AdminError::Job("not everything is as it should be".into())),
        Completion::Stopped => {
            Err(AdminError::Job("stopped between two steps; run it again to continue".into()))
        }
        Completion::Failed(why) => Err(AdminError::Job(why)),
    }
}

async fn run_and_print<W: Write>(
    request: Request,
    settings: &Settings,
    printer: &mut Printer<W>,
) -> Result<Completion, AdminError> {
    let backend = reach(&request, settings).await;
    if request != Request::Preflight {
        return run_on(backend?, request, printer).await;
    }
    let tables = match &backend {
        Ok(Backend::Own(context)) => Some(&*context.store),
        Ok(Backend::Server(_)) | Err(_) => None,
    };
    let mut is_well = true;
    let keys = keys_check::check(settings, tables).await;
    for check in keys.into_iter().chain(keys_check::check_bridges(settings)) {
        is_well &= check.outcome.is_ok();
        printer.print(Output::Check(check))?;
    }
    match run_on(backend?, request, printer).await? {
        Completion::Done if !is_well => Ok(Completion::Unwell),
        end => Ok(end),
    }
}

async fn run_on<W: Write>(
    backend: Backend,
    request: Request,
    printer: &mut Printer<W>,
) -> Result<Completion, AdminError> {
    match backend {
        Backend::Server(_) if matches!(request, Request::ImportRedis(_)) => {
            Err(AdminError::ServerRuns)
        }
        Backend::Server(stream) => client::call(stream, &request, printer, interrupt()).await,
        Backend::Own(context) => {
            let end = run_here(request, &context, printer, interrupt()).await;
            context.store.close().await?;
            if let Some(source) = &context.copy_source {
                source.close().await?;
            }
            end
        }
    }
}

/// Runs the job in this process. On `stop` it stops between two steps.
pub(crate) async fn run_here<W: Write>(
    request: Request,
    context: &JobContext,
    printer: &mut Printer<W>,
    stop: impl Future,
) -> Result<Completion, AdminError> {
    let (outputs, mut queue) = mpsc::channel(job::OUTPUTS_MAX);
    let (stopping, stopped) = watch::channel(false);
    let print = async {
        while let Some(output) = queue.recv().await {
            printer.print(output)?;
        }
        Ok::<_, AdminError>(())
    };
    let work = async { Ok(job::perform(request, context, outputs, stopped).await) };
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

/// Waits for the first interrupt. A second one ends the process.
pub(crate) async fn interrupt() {
    if ctrl_c().await.is_err() {
        // Without a handler the first interrupt ends the process.
        std::future::pending::<()>().await;
    }
    tokio::spawn(async {
        if ctrl_c().await.is_ok() {
            std::process::exit(1);
        }
    });
}
