//! A TCP connection to the server for peers that write arbitrary bytes.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::Server;
use super::answer::Answer;
use super::wait::{AT_ONCE, note, within, write_until_blocked};

/// The connection, and the received bytes of an incomplete answer.
pub(crate) struct Raw {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Raw {
    pub(crate) async fn open(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address()).await;
        Self { stream: stream.expect("the server takes connections"), unread: Vec::new() }
    }

    /// A connection for which the kernel keeps few unread bytes.
    pub(crate) async fn open_with_small_buffer(server: &Server) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket can be made");
        socket.set_recv_buffer_size(4096).expect("a socket has a buffer");
        let stream = socket.connect(server.address()).await.expect("the server takes connections");
        Self { stream, unread: Vec::new() }
    }

    /// Connects from a loopback address of its own, such as 127.0.0.2.
    pub(crate) async fn open_from(local: IpAddr, to: SocketAddr) -> Self {
        let socket = if local.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
        let socket = socket.expect("a socket can be made");
        socket.bind(SocketAddr::new(local, 0)).expect("loopback has this address");
        let stream = socket.connect(to).await.expect("the server takes connections");
        Self { stream, unread: Vec::new() }
    }

    /// Writes bytes, and ignores that the server may have closed the connection.
    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = within(AT_ONCE, "the server reads", self.stream.write_all(bytes.as_ref())).await;
    }

    /// Writes `bytes` again and again until the server reads no more of them.
    pub(crate) async fn write_until_blocked(&mut self, bytes: &str) {
        write_until_blocked(&mut self.stream, bytes.as_bytes()).await;
    }

    /// Closes the sending side of the connection.
    pub(crate) async fn finish_writing(&mut self) {
        self.stream.shutdown().await.expect("the connection is open");
    }

    /// Whether anything arrives before the end of the connection.
    pub(crate) async fn is_answered(&mut self) -> bool {
        within(AT_ONCE, "the server answers", self.read()).await > 0
    }

    /// Waits for the next answer, at most [`AT_ONCE`].
    pub(crate) async fn answer(&mut self) -> Answer {
        let answer = within(AT_ONCE, "the server answers", self.try_answer()).await;
        answer.unwrap_or_else(|| panic!("half an answer: {:?}", self.unread))
    }

    /// The next answer, without a time limit; `None` if the connection ends before it is complete.
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

    /// Reads up to `text`, which must arrive within `bound`, and returns what precedes it.
    pub(crate) async fn until(&mut self, bound: Duration, text: &str) -> String {
        let at = async {
            loop {
                let found =
                    self.unread.windows(text.len()).position(|bytes| bytes == text.as_bytes());
                if let Some(at) = found {
                    return at;
                }
                assert!(self.read().await > 0, "the connection ended: {:?}", self.unread);
            }
        };
        let at = within(bound, "the server sends it", at).await;
        let bytes = self.unread.drain(..at + text.len()).collect();
        String::from_utf8(bytes).expect("the server sends text")
    }

    /// Reads to the end of the connection, which must follow within `bound`.
    pub(crate) async fn rest(mut self, bound: Duration) -> Vec<u8> {
        let end = async { while self.read().await > 0 {} };
        within(bound, "the server closes the connection", end).await;
        self.unread
    }

    /// The number of bytes read; 0 at the end of the connection or after a reset.
    async fn read(&mut self) -> usize {
        let count = self.stream.read_buf(&mut self.unread).await.unwrap_or(0);
        note(&self.unread);
        count
    }
}

/// Parses an answer at the start of `bytes` and returns it with its length.
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

/// The rest of a request whose body is larger than 4096 bytes, in each transfer form, with the form's name.
pub(crate) fn oversized_bodies() -> [(&'static str, String); 5] {
    let chunks = |count| {
        let chunk = format!("400\r\n{}\r\n", "x".repeat(1024));
        format!("Transfer-Encoding: chunked\r\n\r\n{}", chunk.repeat(count))
    };
    [
        ("announced and sent", format!("Content-Length: 4097\r\n\r\n{}", "x".repeat(4097))),
        ("announced and not sent", "Content-Length: 4097\r\n\r\n".to_owned()),
        ("announced as larger than the memory", "Content-Length: 99999999999\r\n\r\n".to_owned()),
        ("in chunks", chunks(5)),
        ("in chunks without an end", chunks(100)),
    ]
}
