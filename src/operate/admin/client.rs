//! The client of `admin.sock`.

use std::convert::Infallible;
use std::fs::File;
use std::future::ready;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::BytesMut;
use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt, Limited, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::command::AdminError;
use super::commands::Request;
use super::output::{Completion, Output};
use super::print::Printer;
use super::socket::{FILE, PATH, VERSION, VERSION_HEADER};

/// Maximum size of one line of output, in bytes: a page of a feed is 64 KiB and one value, and JSON may write a byte
/// as six.
const LINE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Maximum size of a refusal, in bytes.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// How long the server may take to begin its answer. It begins before the job does, so only a server that is stopped,
/// hung or out of connections takes longer.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// A short path to the file `name` in `dir`, valid while the returned directory is open. The address of a Unix socket has
/// room for 107 bytes, and the path of a data directory may be longer.
pub(super) fn short_path(dir: &Path, name: &str) -> io::Result<(File, PathBuf)> {
    let dir = File::open(dir)?;
    let path = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name);
    Ok((dir, path))
}

/// Connects to the server that holds the data directory.
pub async fn connect(data_dir: &Path) -> io::Result<UnixStream> {
    let (_dir, path) = short_path(data_dir, FILE)?;
    UnixStream::connect(path).await
}

/// Runs a request in the server and prints its output. The body of the HTTP request stays open until `stop`; its end
/// makes the server stop the job between two steps.
pub async fn call<W: Write>(
    stream: UnixStream,
    request: &Request,
    printer: &mut Printer<W>,
    stop: impl Future + Send + 'static,
) -> Result<Completion, AdminError> {
    let line = serde_json::to_string(request).expect("all keys are text") + "\n";
    let line = stream::once(ready(Ok::<_, Infallible>(Frame::data(Bytes::from(line)))));
    let until_stop = stream::once(stop).filter_map(|_| ready(None));
    let request = hyper::Request::post(PATH)
        .header(HOST, "kalends")
        .header(VERSION_HEADER, VERSION)
        .body(StreamBody::new(Box::pin(line.chain(until_stop))))
        .expect("the parts of the request are constant");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
    let printed = async {
        let response = timeout(ANSWER_WAIT, sender.send_request(request)).await;
        let response = response.map_err(|_| AdminError::ServerHangs)?.map_err(lost)?;
        print_response(response, printer).await
    };
    tokio::pin!(printed);
    tokio::select! {
        end = &mut printed => end,
        // What the server sent before it closed the connection is still to be read.
        _ = connection => printed.await,
    }
}

async fn print_response<W: Write>(
    response: Response<Incoming>,
    printer: &mut Printer<W>,
) -> Result<Completion, AdminError> {
    let status = response.status();
    let mut body = response.into_body();
    if status != StatusCode::OK {
        let text = Limited::new(body, REFUSAL_BYTES_MAX).collect().await;
        let text = text.map_err(|error| AdminError::Server(io::Error::other(error)))?;
        return Err(AdminError::Job(String::from_utf8_lossy(&text.to_bytes()).into_owned()));
    }
    let mut unread = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(lost)?.into_data() else { continue };
        unread.extend_from_slice(&data);
        while let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
            let line = unread.split_to(end + 1);
            let output = serde_json::from_slice::<Output>(&line);
            if let Some(end) = printer.print(output.map_err(|_| AdminError::NoAnswer)?)? {
                return Ok(end);
            }
        }
        if unread.len() > LINE_BYTES_MAX {
            return Err(AdminError::NoAnswer);
        }
    }
    Err(AdminError::ServerGone)
}

fn lost(error: hyper::Error) -> AdminError {
    AdminError::Server(io::Error::other(error))
}
