//! A user agent in a few hundred bytes: hello, one channel, pongs and acks.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mio::net::TcpStream;
use serde::Deserialize;
use serde_json::from_slice;
use uuid::Uuid;

use super::frames::{self, CLOSE, PING, PONG, TEXT};

/// A user agent, connected or not.
#[derive(Default)]
pub(crate) struct Agent {
    pub(crate) socket: Option<TcpStream>,
    pub(crate) stage: Stage,
    /// Attempts that were refused since it was last present.
    pub(crate) refused: u8,
    /// Bytes of the server that are no complete answer or frame yet. It is empty but for moments.
    pub(crate) unread: Vec<u8>,
    uaid: Uuid,
    /// The path of the endpoint URL; empty before the channel is registered.
    pub(crate) endpoint: Box<str>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    #[default]
    Absent,
    Connecting,
    Upgrading,
    Greeting,
    Registering,
    Present,
}

/// What the server's bytes mean to the crowd.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News {
    Nothing,
    /// The agent has its channel and waits for messages. It is known unless it lost its uaid and channel.
    Present {
        is_known: bool,
    },
    Ping,
    /// The notification of this push.
    Arrived(usize),
    /// The server refused the connection, with the wait that it requested.
    Refused(Option<Duration>),
}

/// The fields of a server's message that an agent needs.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Message<'a> {
    #[serde(rename = "messageType")]
    kind: &'a str,
    uaid: &'a str,
    status: u16,
    #[serde(rename = "pushEndpoint")]
    endpoint: &'a str,
    #[serde(rename = "channelID")]
    channel: &'a str,
    version: &'a str,
    data: &'a str,
}

impl Agent {
    /// The connection is open: requests the upgrade.
    pub(crate) fn upgrade(&mut self, frames: &mut Vec<u8>) {
        self.stage = Stage::Upgrading;
        frames.extend(
            b"GET / HTTP/1.1\r\nHost: idle\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
            Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
            Sec-WebSocket-Protocol: push-notification\r\n\r\n",
        );
    }

    /// Reads one answer or frame, and appends what it sends in return. Returns the bytes that were read; none if it is
    /// incomplete.
    pub(crate) fn read(&mut self, bytes: &[u8], frames: &mut Vec<u8>) -> Option<(usize, News)> {
        if self.stage == Stage::Upgrading {
            let end = end_of_head(bytes)?;
            return Some((end, self.on_answer(&bytes[..end], frames)));
        }
        let (frame, end) = frames::first(bytes)?;
        let news = match frame.opcode {
            TEXT => self.on_message(&from_slice(frame.payload).unwrap_or_default(), frames),
            PING => {
                frames::write(frames, PONG, frame.payload);
                News::Ping
            }
            // The server then closes the connection.
            CLOSE => {
                frames::write(frames, CLOSE, frame.payload);
                News::Nothing
            }
            _ => News::Nothing,
        };
        Some((end, news))
    }

    fn on_answer(&mut self, head: &[u8], frames: &mut Vec<u8>) -> News {
        if status_of(head) != 101 {
            return News::Refused(header(head, "retry-after").map(Duration::from_secs));
        }
        self.stage = Stage::Greeting;
        let hello = match self.uaid.is_nil() {
            true => r#"{"messageType":"hello","use_webpush":true}"#.to_owned(),
            false => {
                let uaid = self.uaid.simple();
                format!(r#"{{"messageType":"hello","uaid":"{uaid}","use_webpush":true}}"#)
            }
        };
        frames::write(frames, TEXT, hello.as_bytes());
        News::Nothing
    }

    fn on_message(&mut self, message: &Message<'_>, frames: &mut Vec<u8>) -> News {
        match (message.kind, message.status) {
            ("hello", 200) => self.on_hello(message.uaid.parse().unwrap_or_default(), frames),
            ("register", 200) => {
                let path = message.endpoint.splitn(4, '/').last().unwrap_or_default();
                let is_known = self.endpoint.is_empty();
                self.endpoint = path.into();
                self.present(is_known)
            }
            ("hello" | "register", _) => News::Refused(None),
            ("notification", _) => {
                let Message { channel, version, .. } = message;
                let ack = format!(
                    r#"{{"messageType":"ack","updates":[{{"channelID":"{channel}","version":"{version}","code":100}}]}}"#
                );
                frames::write(frames, TEXT, ack.as_bytes());
                number_of(message.data).map_or(News::Nothing, News::Arrived)
            }
            _ => News::Nothing,
        }
    }

    fn on_hello(&mut self, uaid: Uuid, frames: &mut Vec<u8>) -> News {
        if self.uaid == uaid && !self.endpoint.is_empty() {
            return self.present(true);
        }
        self.uaid = uaid;
        self.stage = Stage::Registering;
        let channel = Uuid::new_v4();
        let register = format!(r#"{{"messageType":"register","channelID":"{channel}"}}"#);
        frames::write(frames, TEXT, register.as_bytes());
        News::Nothing
    }

    fn present(&mut self, is_known: bool) -> News {
        (self.stage, self.refused) = (Stage::Present, 0);
        News::Present { is_known }
    }
}

/// The size of a complete head of an HTTP answer.
pub(crate) fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|end| end == b"\r\n\r\n").map(|end| end + 4)
}

/// The status of an HTTP answer; 0 if it is none.
pub(crate) fn status_of(head: &[u8]) -> u16 {
    let status = head.get(9..12).and_then(|status| str::from_utf8(status).ok());
    status.and_then(|status| status.parse().ok()).unwrap_or_default()
}

/// The header of this lower-case name, if it is a number.
pub(crate) fn header(head: &[u8], name: &str) -> Option<u64> {
    let mut lines = str::from_utf8(head).ok()?.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| key.eq_ignore_ascii_case(name))?.1.trim().parse().ok()
}

/// The number that a push has as its body.
fn number_of(data: &str) -> Option<usize> {
    let body = String::from_utf8(URL_SAFE_NO_PAD.decode(data).ok()?).ok()?;
    body.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_agent_learns_how_long_to_wait() {
        for (answer, wait) in [
            (
                "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 3\r\n\r\n",
                Some(Duration::from_secs(3)),
            ),
            ("HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n", None),
            ("no answer\r\n\r\n", None),
        ] {
            let (mut agent, mut frames) = (Agent::default(), Vec::new());
            agent.upgrade(&mut frames);
            frames.clear();
            assert_eq!(agent.read(&answer.as_bytes()[..answer.len() - 1], &mut frames), None);
            let read = agent.read(answer.as_bytes(), &mut frames);
            assert_eq!(read, Some((answer.len(), News::Refused(wait))));
            assert!(frames.is_empty(), "{answer}");
        }
    }
}
