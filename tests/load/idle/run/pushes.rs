//! The application server: pushes over a few connections, and when each was answered and delivered.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Instant;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use super::Result;
use super::agent::{end_of_head, header, status_of};

/// Connections over which pushes are sent.
pub(crate) const SENDERS: usize = 16;

/// Size of the body of a push.
const BODY_BYTES: usize = 256;

/// All pushes, and the connections that send them.
pub(crate) struct Pushes {
    server: SocketAddr,
    /// The token of the first sender.
    first_token: usize,
    senders: Vec<Sender>,
    idle: Vec<usize>,
    /// Requests that wait for an idle sender.
    queue: VecDeque<(usize, String)>,
    pub(crate) all: Vec<Push>,
}

/// A push and its durations in µs.
pub(crate) struct Push {
    begun: Instant,
    /// The status of the answer; 0 if the connection ended without one.
    pub(crate) answer: Option<(u16, u32)>,
    pub(crate) arrived_us: Option<u32>,
}

#[derive(Default)]
struct Sender {
    socket: Option<TcpStream>,
    unread: Vec<u8>,
    /// The push that waits for its answer.
    push: Option<usize>,
}

impl Pushes {
    /// No push yet. The senders have the tokens after this one.
    pub(crate) fn new(first_token: usize, server: SocketAddr) -> Self {
        let senders = (0..SENDERS).map(|_| Sender::default()).collect();
        let (idle, queue) = ((0..SENDERS).collect(), VecDeque::new());
        Self { server, first_token, senders, idle, queue, all: Vec::new() }
    }

    /// A push to this path begins now. A sender that is idle sends it with the next [`flush`](Self::flush).
    pub(crate) fn begin(&mut self, path: &str) {
        let number = self.all.len();
        self.all.push(Push { begun: Instant::now(), answer: None, arrived_us: None });
        let request = format!(
            "POST /{path} HTTP/1.1\r\nHost: idle\r\nTTL: 10800\r\nContent-Encoding: aes128gcm\r\n\
            Content-Length: {BODY_BYTES}\r\n\r\n{number:BODY_BYTES$}"
        );
        self.queue.push_back((number, request));
    }

    /// Sends what waits, as far as senders are idle.
    pub(crate) fn flush(&mut self, registry: &Registry) -> Result<()> {
        while !self.queue.is_empty()
            && let Some(sender) = self.idle.pop()
        {
            self.connect(sender, registry)?;
            let (number, request) = self.queue.pop_front().expect("it is not empty");
            let sender = &mut self.senders[sender];
            sender.push = Some(number);
            if let Some(socket) = &mut sender.socket {
                // A request is shorter than the buffer of the socket. After an error the next read fails too.
                let _ = socket.write_all(request.as_bytes());
            }
        }
        Ok(())
    }

    pub(crate) fn arrived(&mut self, number: usize) {
        let push = &mut self.all[number];
        let took_us = push.took_us();
        push.arrived_us.get_or_insert(took_us);
    }

    /// Whether each push was answered, and delivered if it was accepted.
    pub(crate) fn is_complete(&self) -> bool {
        self.all.iter().all(|push| match push.answer {
            Some((status, _)) => status != 201 || push.arrived_us.is_some(),
            None => false,
        })
    }

    /// Reads the answer of the sender with this token.
    pub(crate) fn on_readable(&mut self, token: usize, buffer: &mut [u8]) {
        let index = token - self.first_token;
        let sender = &mut self.senders[index];
        while let Some(socket) = &mut sender.socket {
            match socket.read(buffer) {
                Ok(0) => sender.socket = None,
                Ok(count) => sender.unread.extend(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(_) => sender.socket = None,
            }
        }
        let status = match sender.answered() {
            None if sender.socket.is_none() => Some(0),
            status => status,
        };
        if let Some(status) = status {
            self.answered(index, status);
        }
    }

    fn answered(&mut self, index: usize, status: u16) {
        let sender = &mut self.senders[index];
        sender.unread.clear();
        if let Some(number) = sender.push.take() {
            let push = &mut self.all[number];
            push.answer = Some((status, push.took_us()));
            self.idle.push(index);
        }
    }

    fn connect(&mut self, index: usize, registry: &Registry) -> Result<()> {
        let socket = &mut self.senders[index].socket;
        if socket.is_some() {
            return Ok(());
        }
        let connect = || {
            let stream = std::net::TcpStream::connect(self.server)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            registry.register(&mut stream, Token(self.first_token + index), Interest::READABLE)?;
            Ok(stream)
        };
        let connected: std::io::Result<_> = connect();
        *socket = Some(connected.map_err(|error| format!("no connection for pushes: {error}"))?);
        Ok(())
    }
}

impl Sender {
    /// The status of a complete answer.
    fn answered(&self) -> Option<u16> {
        let end = end_of_head(&self.unread)?;
        let head = &self.unread[..end];
        let body = header(head, "content-length").unwrap_or_default();
        (self.unread.len() >= end + body as usize).then(|| status_of(head))
    }
}

impl Push {
    fn took_us(&self) -> u32 {
        u32::try_from(self.begun.elapsed().as_micros()).unwrap_or(u32::MAX)
    }
}
