//! A writer and consumers of a feed.

use std::io;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::{TcpStream, ToSocketAddrs};

use super::http::Connection;

/// A feed of a server, with a token to write and read it.
#[derive(Clone)]
pub(crate) struct Feed {
    pub(crate) address: String,
    token: String,
}

/// A consumer of a stream of server-sent events.
pub(crate) struct Follower(Lines<BufReader<TcpStream>>);

impl Feed {
    /// The token names the feed.
    pub(crate) fn new(address: String, token: String) -> Self {
        assert!(token.split('.').nth(2).is_some(), "{token:?} is no token of a feed");
        Self { address, token }
    }

    /// The request line and the headers that all requests have.
    fn head(&self, method: &str, path: &str) -> String {
        let name = self.token.split('.').nth(2).expect("it was checked");
        let Self { address, token } = self;
        format!(
            "{method} /v1/feeds/{name}{path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n"
        )
    }

    /// Writes a key, durably.
    pub(crate) async fn put(
        &self,
        connection: &mut Connection,
        key: &str,
        value: &str,
    ) -> io::Result<()> {
        let head = self.head("PUT", &format!("/{key}"));
        let request = format!("{head}Content-Length: {}\r\n\r\n{value}", value.len());
        match connection.request(request.as_bytes()).await? {
            200 | 201 => Ok(()),
            status => Err(io::Error::other(format!("a PUT to a feed was answered {status}"))),
        }
    }

    /// Follows the feed from its beginning.
    pub(crate) async fn follow(&self) -> io::Result<Follower> {
        Follower::open(&self.address, &self.head("GET", "")).await
    }
}

impl Follower {
    /// Opens a stream with this request line and these headers.
    pub(crate) async fn open(server: impl ToSocketAddrs, head: &str) -> io::Result<Self> {
        let mut stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        stream.write_all(format!("{head}Accept: text/event-stream\r\n\r\n").as_bytes()).await?;
        Ok(Self(BufReader::new(stream).lines()))
    }

    /// Waits for the data of the next event.
    pub(crate) async fn data(&mut self) -> io::Result<Value> {
        while let Some(line) = self.0.next_line().await? {
            if let Some(data) = line.strip_prefix("data:") {
                return Ok(serde_json::from_str(data)?);
            }
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }

    /// Waits for the value of the next update.
    pub(crate) async fn value(&mut self) -> io::Result<String> {
        let update = self.data().await?;
        let value = update["value"].as_str().map(str::to_owned);
        value.ok_or_else(|| io::Error::other(format!("{update} is no update")))
    }
}
