//! A command on a store, from its arguments to its exit code.

use std::fmt::Debug;
use std::io::stdout;

use clap::Args;
use serde::Serialize;
use serde::de::DeserializeOwned;
use slog::{Logger, debug, info};
use tokio::runtime::Builder;
use tokio::signal::ctrl_c;
use tokio::sync::{mpsc, watch};

use super::backend::{self, Backend};
use super::client::{self, Sink};
use super::context::Context;
use super::error::CommandError;
use super::failure::Failure;
use super::job::{Job, JobError, OUTPUTS_MAX};
use super::output::{Completion, Output, Report};
use super::printer::Printer;
use crate::settings::Settings;

/// A command on the store that the settings name. clap reads it from the command line, and serde carries it to the
/// server that holds the store.
pub trait StoreCommand:
    Args + Clone + Debug + PartialEq + Serialize + DeserializeOwned + 'static
{
    /// Its words on the command line, and its name in the log. Its arguments are not logged: a value may be large or
    /// secret.
    const NAME: &'static str;
    /// A line for the list of commands.
    const ABOUT: &'static str;
    /// The text behind the options in its help.
    const HELP: &'static str;
    /// The settings that its help shows beside those of the store.
    const SETTINGS: &'static [&'static str] = &[];
    /// Whether it runs until its user ends it. Such commands in a server have permits of their own.
    const FOLLOWS: bool = false;
    /// Whether it changes nothing that a server keeps.
    const ONLY_READS: bool = false;
    /// What it writes beside sentences; [`NoReport`](super::output::NoReport) if nothing.
    type Report: Report;

    /// Whether the results are printed as JSON.
    fn is_json(&self) -> bool {
        false
    }

    /// Whether its values are within the bounds that the command line enforces. Any process of the owner can write to
    /// the socket.
    fn is_within_bounds(&self) -> bool {
        true
    }

    /// Does the work of the command's process.
    fn main(self, settings: &Settings) -> Result<(), Failure> {
        Ok(run_and_print(self, settings)?)
    }

    /// Finds the store, or the server that holds it. A command that creates one overrides this.
    fn reach(&self, settings: &Settings) -> impl Future<Output = Result<Backend, CommandError>> {
        backend::reach(settings)
    }

    /// Does the work on the store.
    fn run(self, job: &Job<Self::Report>) -> impl Future<Output = Result<(), JobError>>;
}

/// Runs a command on the store that the settings name, and prints its output.
pub fn run_and_print<C: StoreCommand>(command: C, settings: &Settings) -> Result<(), CommandError> {
    let mut printer = Printer::new(stdout().lock(), command.is_json());
    run(command, settings, &mut |output| printer.print(output))
}

/// The results of a command, which prints nothing.
pub fn collect<C: StoreCommand>(
    command: C,
    settings: &Settings,
) -> Result<Vec<C::Report>, CommandError> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let backend = command.reach(settings).await?;
        collect_from(backend, command).await
    })
}

/// The same, of a store or a server that is found already.
pub async fn collect_from<C: StoreCommand>(
    backend: Backend,
    command: C,
) -> Result<Vec<C::Report>, CommandError> {
    let mut reports = Vec::new();
    let mut keep = |output| {
        match output {
            Output::Report(report) => reports.push(report),
            Output::End(end) => return Ok(Some(end)),
            Output::Progress(_) | Output::Note(_) | Output::Problem(_) => {}
        }
        Ok(None)
    };
    let end = run_on(backend, command, &mut keep).await?;
    succeed(end)?;
    Ok(reports)
}

fn run<C: StoreCommand>(
    command: C,
    settings: &Settings,
    sink: Sink<'_, C::Report>,
) -> Result<(), CommandError> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let end = runtime.block_on(async {
        let backend = command.reach(settings).await?;
        run_on(backend, command, sink).await
    });
    succeed(end?)
}

/// The error of a command that did not do its work.
pub fn succeed(end: Completion) -> Result<(), CommandError> {
    let why = match end {
        Completion::Done => return Ok(()),
        Completion::Unwell => "not everything is as it should be".to_owned(),
        Completion::Stopped => "stopped between two steps; run it again to continue".to_owned(),
        Completion::Failed(why) => why,
    };
    Err(CommandError::Job(why))
}

pub async fn run_on<C: StoreCommand>(
    backend: Backend,
    command: C,
    sink: Sink<'_, C::Report>,
) -> Result<Completion, CommandError> {
    match backend {
        Backend::Server(stream) => {
            client::call(stream, (C::NAME, command), sink, interrupt()).await
        }
        Backend::Own(context) => {
            let end = run_here(command, &context, sink, interrupt()).await;
            context.store.close().await?;
            end
        }
    }
}

/// Runs the job in this process. On `stop` it stops between two steps.
pub async fn run_here<C: StoreCommand>(
    command: C,
    context: &Context,
    sink: Sink<'_, C::Report>,
    stop: impl Future,
) -> Result<Completion, CommandError> {
    let (outputs, mut queue) = mpsc::channel(OUTPUTS_MAX);
    let (stopping, stopped) = watch::channel(false);
    let print = async {
        while let Some(output) = queue.recv().await {
            sink(output)?;
        }
        Ok::<_, CommandError>(())
    };
    let work = async { Ok(perform(command, context, outputs, stopped).await) };
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

/// Runs a job. The last output is its completion. The job stops between two steps when `stop` turns true or nothing
/// reads its output.
pub async fn perform<C: StoreCommand>(
    command: C,
    context: &Context,
    outputs: mpsc::Sender<Output<C::Report>>,
    stop: watch::Receiver<bool>,
) -> Completion {
    let job = Job::new(context.clone(), outputs.clone(), stop);
    let end = match command.run(&job).await {
        Ok(()) => Completion::Done,
        Err(JobError::Unwell) => Completion::Unwell,
        Err(JobError::Stopped) => Completion::Stopped,
        // Nothing was done that could stay.
        Err(JobError::Store(error)) if C::ONLY_READS => {
            Completion::Failed(format!("the store failed: {error}"))
        }
        Err(error) => Completion::Failed(error.to_string()),
    };
    // The reader of the output may be gone.
    let _ = outputs.send(Output::End(end.clone())).await;
    end
}

/// Logs the begin or the end of a command in a server. Monitoring may run one that only reads each minute.
pub fn note(log: &Logger, only_reads: bool, what: &'static str) {
    match only_reads {
        true => debug!(log, "{what}"),
        false => info!(log, "{what}"),
    }
}

/// Waits for the first interrupt. A second one ends the process.
pub async fn interrupt() {
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
