//! The client of `admin.sock`.

use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::BytesMut;
use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt, Limited, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::error::CommandError;
use super::output::{Completion, Output};
use super::protocol::{FILE, PATH, VERSION, VERSION_HEADER, short_path};
use super::text::to_json;

/// Maximum size of one line of output, in bytes: a page of a feed is 64 KiB and one value, and JSON may write a byte
/// as six.
const LINE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Maximum size of a refusal, in bytes.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// How long the server may take to begin its answer. It begins before the job does, so only a server that is stopped,
/// hung or out of connections takes longer.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// Connects to the server that holds the data directory.
pub async fn connect(data_dir: &Path) -> io::Result<UnixStream> {
    let (_dir, path) = short_path(data_dir, FILE)?;
    UnixStream::connect(path).await
}

/// Takes an output, and returns the last one.
pub type Sink<'a, R> = &'a mut dyn FnMut(Output<R>) -> Result<Option<Completion>, CommandError>;

/// Runs a command in the server and passes its output to `sink`. The body of the HTTP request stays open until `stop`; its end
/// makes the server stop the job between two steps.
pub async fn call<R: DeserializeOwned>(
    stream: UnixStream,
    request: (&str, impl Serialize),
    sink: Sink<'_, R>,
    stop: impl Future + Send + 'static,
) -> Result<Completion, CommandError> {
    let line = to_json(&request);
    let line = stream::once(ready(Ok::<_, Infallible>(Frame::data(Bytes::from(line)))));
    let until_stop = stream::once(stop).filter_map(|_| ready(None));
    let request = hyper::Request::post(PATH)
        .header(HOST, "kalends")
        .header(VERSION_HEADER, VERSION)
        .body(StreamBody::new(Box::pin(line.chain(until_stop))))
        .expect("the parts of the request are constant");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
    let read = async {
        let response = timeout(ANSWER_WAIT, sender.send_request(request)).await;
        let response = response.map_err(|_| CommandError::ServerHangs)?.map_err(lost)?;
        read_response(response, sink).await
    };
    tokio::pin!(read);
    tokio::select! {
        end = &mut read => end,
        // What the server sent before it closed the connection is still to be read.
        _ = connection => read.await,
    }
}

async fn read_response<R: DeserializeOwned>(
    response: Response<Incoming>,
    sink: Sink<'_, R>,
) -> Result<Completion, CommandError> {
    let status = response.status();
    let mut body = response.into_body();
    if status != StatusCode::OK {
        let text = Limited::new(body, REFUSAL_BYTES_MAX).collect().await;
        let text = text.map_err(|error| CommandError::Server(io::Error::other(error)))?;
        return Err(CommandError::Job(String::from_utf8_lossy(&text.to_bytes()).into_owned()));
    }
    let mut unread = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(lost)?.into_data() else { continue };
        unread.extend_from_slice(&data);
        while let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
            let line = unread.split_to(end + 1);
            let output = serde_json::from_slice(&line);
            if let Some(end) = sink(output.map_err(|_| CommandError::NoAnswer)?)? {
                return Ok(end);
            }
        }
        if unread.len() > LINE_BYTES_MAX {
            return Err(CommandError::NoAnswer);
        }
    }
    Err(CommandError::ServerGone)
}

fn lost(error: hyper::Error) -> CommandError {
    CommandError::Server(io::Error::other(error))
}
