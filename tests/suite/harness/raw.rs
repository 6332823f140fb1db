//! A TCP connection to the server, of a peer that writes bytes and may leave out half of them.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Server;
use super::answer::Answer;
use super::wait::{AT_ONCE, within};

/// The connection, and what came of an answer that is not whole yet.
pub(crate) struct Raw {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Raw {
    /// Connects.
    pub(crate) async fn open(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address()).await;
        Self { stream: stream.expect("the server takes connections"), unread: Vec::new() }
    }

    /// Writes; a server that closed meanwhile is no matter.
    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = within(AT_ONCE, "the server reads", self.stream.write_all(bytes.as_ref())).await;
    }

    /// Ends our side of the connection.
    pub(crate) async fn finish_writing(&mut self) {
        self.stream.shutdown().await.expect("the connection is open");
    }

    /// The next answer.
    pub(crate) async fn answer(&mut self) -> Answer {
        let answer = within(AT_ONCE, "the server answers", self.try_answer()).await;
        answer.unwrap_or_else(|| panic!("half an answer: {:?}", self.unread))
    }

    /// The next answer, however long it takes; none where the connection ends before.
    pub(crate) async fn try_answer(&mut self) -> Option<Answer> {
        loop {
            if let Some((answer, length)) = parse(&self.unread) {
                self.unread.drain(..length);
                return Some(answer);
            }
            if self.read().await == 0 {
                return None;
            }
        }
    }

    /// Everything up to the end of the connection, which must come within `bound`.
    pub(crate) async fn rest(mut self, bound: Duration) -> Vec<u8> {
        let end = async { while self.read().await > 0 {} };
        within(bound, "the server closes the connection", end).await;
        self.unread
    }

    /// Bytes that came now; none at the end. A reset is an end too.
    async fn read(&mut self) -> usize {
        self.stream.read_buf(&mut self.unread).await.unwrap_or(0)
    }
}

/// An answer at the start of `bytes`, and its length.
fn parse(bytes: &[u8]) -> Option<(Answer, usize)> {
    const HEAD_END: &[u8] = b"\r\n\r\n";
    let head_end = bytes.windows(HEAD_END.len()).position(|window| window == HEAD_END)?;
    let head = std::str::from_utf8(&bytes[..head_end]).expect("the server writes ASCII");
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().expect("a status is a number");
    let header = |line: &str| {
        let (name, value) = line.split_once(": ").expect("a header has a name");
        (name.to_ascii_lowercase(), value.to_owned())
    };
    let headers = lines.map(header).collect();
    let mut answer = Answer { status, headers, body: Vec::new() };
    let length =
        answer.header("content-length").map_or(0, |length| length.parse().expect("digits"));
    let body_start = head_end + HEAD_END.len();
    answer.body = bytes.get(body_start..body_start + length)?.to_vec();
    Some((answer, body_start + length))
}
