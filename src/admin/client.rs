//! A command's end of `admin.sock`.

use std::io::{self, Write};
use std::path::Path;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;

use super::address::{Address, FILE};
use super::command::AdminError;
use super::output::{Completion, Output};
use super::print::Printer;
use super::request::Request;

/// Bytes a line of an answer may have: the tables of many years fit, and the largest value of a
/// feed, of which JSON may make six bytes of one.
const LINE_BYTES_MAX: u64 = 2 * 1024 * 1024;

/// Connects to the server that has the data directory.
pub async fn connect(data_dir: &Path) -> io::Result<UnixStream> {
    let address = Address::new(data_dir, FILE)?;
    UnixStream::connect(address.path()).await
}

/// Asks for something and prints what is answered. When `stop` comes, the server is told to stop.
pub async fn ask<W: Write>(
    stream: UnixStream,
    request: &Request,
    printer: &mut Printer<W>,
    stop: impl Future,
) -> Result<Completion, AdminError> {
    let (read, mut write) = stream.into_split();
    // Where it cannot be written, the answer says why, or that there is none.
    let _ = write.write_all(request.to_line().as_bytes()).await;
    let print = print_lines(BufReader::new(read), printer);
    tokio::pin!(print);
    tokio::select! {
        end = &mut print => return end,
        _ = stop => {}
    }
    // The server stops between two steps and says so, unless it is gone.
    let _ = write.shutdown().await;
    print.await
}

async fn print_lines<W: Write>(
    mut read: BufReader<OwnedReadHalf>,
    printer: &mut Printer<W>,
) -> Result<Completion, AdminError> {
    loop {
        let mut line = Vec::new();
        let count = (&mut read).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await;
        if count.map_err(AdminError::Server)? == 0 {
            return Err(AdminError::ServerGone);
        }
        let line = serde_json::from_slice::<Output>(&line).map_err(|_| AdminError::NoAnswer)?;
        if let Some(end) = printer.print(line)? {
            return Ok(end);
        }
    }
}
