//! A command that a server can run: its arguments are read, and its output is written as lines.

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::LocalBoxStream;
use futures_util::{FutureExt, StreamExt, stream};
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::context::Context;
use super::job::OUTPUTS_MAX;
use super::output::Completion;
use super::store_command::{StoreCommand, perform};
use super::text::to_json;

/// A command of the list, without its type.
#[derive(Debug, Clone, Copy)]
pub struct Served {
    pub name: &'static str,
    pub follows: bool,
    pub only_reads: bool,
    /// Starts the job with these arguments, unless the command line would refuse them.
    pub start: fn(Value, Context, watch::Receiver<bool>) -> Result<Started, String>,
}

/// A job, and the lines of its output.
pub struct Started {
    pub job: LocalBoxFuture<'static, Completion>,
    pub lines: LocalBoxStream<'static, Bytes>,
}

impl Served {
    pub const fn of<C: StoreCommand>() -> Self {
        Self { name: C::NAME, follows: C::FOLLOWS, only_reads: C::ONLY_READS, start: start::<C> }
    }
}

fn start<C: StoreCommand>(
    args: Value,
    context: Context,
    stop: watch::Receiver<bool>,
) -> Result<Started, String> {
    let command: C = serde_json::from_value(args)
        .map_err(|error| format!("the server does not know this request: {error}"))?;
    if !command.is_within_bounds() {
        return Err("the request has a number that is out of bounds".to_owned());
    }
    let (outputs, queue) = mpsc::channel(OUTPUTS_MAX);
    let job = async move { perform(command, &context, outputs, stop).await };
    let lines = stream::unfold(queue, async |mut queue| {
        let output = queue.recv().await?;
        Some((Bytes::from(to_json(&output)), queue))
    });
    Ok(Started { job: job.boxed_local(), lines: lines.boxed_local() })
}
