//! HTTP at the lowest cost for the sender, who shares the machine with the server.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, ToSocketAddrs};

/// A connection that is kept for consecutive requests.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    line: String,
}

impl Connection {
    pub(crate) async fn open(server: impl ToSocketAddrs) -> io::Result<Self> {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), line: String::new() })
    }

    /// Sends a complete request, and returns the status of its answer, which has a length and was read completely.
    pub(crate) async fn request(&mut self, request: &[u8]) -> io::Result<u16> {
        self.stream.write_all(request).await?;
        let status = self.read_line().await?.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| io::Error::other("the answer has no status"))?;
        let mut length = 0;
        while let Some((name, value)) = self.read_line().await?.split_once(": ") {
            if name.eq_ignore_ascii_case("content-length") {
                length = value.parse().map_err(io::Error::other)?;
            }
        }
        self.stream.read_exact(&mut vec![0; length]).await?;
        Ok(status)
    }

    async fn read_line(&mut self) -> io::Result<&str> {
        self.line.clear();
        match self.stream.read_line(&mut self.line).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(self.line.trim_end()),
        }
    }
}
