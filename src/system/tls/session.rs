//! The TLS of a connection, without IO: received bytes enter, bytes to send leave.
//!
//! It is the unbuffered connection of rustls, which holds no buffer of its own. What was received is decrypted in the
//! buffer of the thread ([`super::tls_stream`]), and only a record that has not arrived whole is kept here, so an idle
//! user agent keeps none.

use std::mem;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus,
    WriteTraffic,
};
use rustls::{Error, ServerConfig};
use tokio::io::ReadBuf;

/// Bytes of one record of TLS 1.2 at most, the larger one of both versions (RFC 5246 §6.2.3).
pub const RECORD_BYTES_MAX: usize = HEADER_BYTES + (1 << 14) + 2048;

/// Bytes before a record.
const HEADER_BYTES: usize = 5;

/// What a record adds to its plaintext, in bytes, for the ciphers of rustls.
const OVERHEAD_BYTES: usize = 64;

pub struct Session {
    tls: UnbufferedServerConnection,
    /// The received part of a record, or of a handshake message, that is not complete.
    unfinished: Vec<u8>,
    /// Decrypted bytes for which a reader had no room.
    unread: BytesMut,
    /// Encrypted bytes that the socket has not taken.
    unsent: BytesMut,
    received: Received,
}

/// How far the peer has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Received {
    More,
    /// The alert of the end, close_notify: nothing follows.
    End,
    /// A fault, after which nothing is read or written.
    Fault,
}

/// What is sent once the handshake allows it.
#[derive(Clone, Copy)]
enum Act<'a> {
    Encrypt(&'a [u8]),
    End,
}

impl Act<'_> {
    fn perform(
        self,
        traffic: &mut WriteTraffic<'_, ServerConnectionData>,
        unsent: &mut BytesMut,
    ) -> Result<(), Error> {
        let bytes = match self {
            Self::Encrypt(bytes) => bytes.len(),
            Self::End => 0,
        };
        extend(unsent, bytes + OVERHEAD_BYTES, |room| {
            let written = match self {
                Self::Encrypt(bytes) => traffic.encrypt(bytes, room),
                Self::End => traffic.queue_close_notify(room),
            };
            written.map_err(|error| match error {
                EncryptError::InsufficientSize(error) => Some(error),
                EncryptError::EncryptExhausted => None,
            })
        })
    }
}

impl Session {
    pub fn new(config: Arc<ServerConfig>) -> Result<Self, Error> {
        Ok(Self {
            tls: UnbufferedServerConnection::new(config)?,
            unfinished: Vec::new(),
            unread: BytesMut::new(),
            unsent: BytesMut::new(),
            received: Received::More,
        })
    }

    pub fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// The protocol that the handshake selected (ALPN).
    pub fn protocol(&self) -> Option<&[u8]> {
        self.tls.alpn_protocol()
    }

    /// Copies the bytes of a record that is not complete to the front of `buffer`, behind which the next ones are
    /// received.
    pub fn unfinished(&self, buffer: &mut [u8]) -> usize {
        let (front, _) = buffer.split_at_mut(self.unfinished.len());
        front.copy_from_slice(&self.unfinished);
        front.len()
    }

    /// How many more bytes the record needs that is not complete, as far as its header tells (RFC 8446 §5.1).
    pub fn missing(&self) -> usize {
        let [_, _, _, high, low, ..] = *self.unfinished.as_slice() else { return 0 };
        let record = HEADER_BYTES + usize::from(u16::from_be_bytes([high, low]));
        record.saturating_sub(self.unfinished.len())
    }

    /// Decrypts what was received, which begins with [`Self::unfinished`].
    pub fn receive(&mut self, received: &mut [u8], read: &mut ReadBuf<'_>) -> Result<(), Error> {
        self.unfinished = Vec::new();
        let used = self.process(received, read, None)?;
        let unfinished = received.get(used..).unwrap_or_default();
        if unfinished.len() >= RECORD_BYTES_MAX {
            self.received = Received::Fault;
            return Err(Error::General("a handshake message is too large".to_owned()));
        }
        self.unfinished = unfinished.to_vec();
        Ok(())
    }

    /// Moves decrypted bytes that wait to a reader. Whether it need not receive: there were some, or none follow.
    pub fn read(&mut self, read: &mut ReadBuf<'_>) -> bool {
        let bytes = self.unread.len().min(read.remaining());
        read.put_slice(&self.unread[..bytes]);
        advance(&mut self.unread, bytes);
        bytes > 0 || self.received != Received::More
    }

    /// Whether nothing is read or written any more, because of a fault of the peer.
    pub fn is_broken(&self) -> bool {
        self.received == Received::Fault
    }

    /// Encrypts bytes, and adds them to those to send.
    pub fn encrypt(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.act(Act::Encrypt(bytes))
    }

    /// Adds the alert of the end to the bytes to send, once.
    pub fn end(&mut self) -> Result<(), Error> {
        self.act(Act::End)
    }

    fn act(&mut self, act: Act<'_>) -> Result<(), Error> {
        if self.is_broken() {
            return Err(Error::General("the peer has broken TLS".to_owned()));
        }
        // A record that is not complete yields nothing, and the state of the handshake refers to it.
        let mut unfinished = mem::take(&mut self.unfinished);
        let acted = self.process(&mut unfinished, &mut ReadBuf::new(&mut []), Some(act));
        self.unfinished = unfinished;
        acted.map(|_| ())
    }

    /// Encrypted bytes that wait to be sent.
    pub fn unsent(&self) -> &[u8] {
        &self.unsent
    }

    /// The socket took so many of [`Self::unsent`].
    pub fn sent(&mut self, bytes: usize) {
        advance(&mut self.unsent, bytes);
    }

    /// Handles all that was received. Returns how many bytes of it are not needed any more. After a fault of the peer,
    /// the alert that names it is among the bytes to send.
    fn process(
        &mut self,
        received: &mut [u8],
        read: &mut ReadBuf<'_>,
        act: Option<Act<'_>>,
    ) -> Result<usize, Error> {
        let Self { tls, unread, unsent, received: peer, .. } = self;
        let (mut used, mut fault) = (0, None);
        loop {
            let is_last = fault.is_some();
            let UnbufferedStatus { discard, state } =
                tls.process_tls_records(received.get_mut(used..).unwrap_or_default());
            let is_done = match state {
                Ok(ConnectionState::EncodeTlsData(mut encoded)) => {
                    extend(unsent, OVERHEAD_BYTES, |room| {
                        encoded.encode(room).map_err(|error| match error {
                            EncodeError::InsufficientSize(error) => Some(error),
                            EncodeError::AlreadyEncoded => None,
                        })
                    })?;
                    false
                }
                Ok(ConnectionState::TransmitTlsData(transmitted)) => {
                    transmitted.done();
                    false
                }
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        deliver(record?.payload, read, unread);
                    }
                    false
                }
                Ok(ConnectionState::PeerClosed) => {
                    *peer = Received::End;
                    false
                }
                Ok(ConnectionState::WriteTraffic(mut traffic)) if fault.is_none() => {
                    act.map_or(Ok(()), |act| act.perform(&mut traffic, unsent))?;
                    true
                }
                Ok(
                    ConnectionState::WriteTraffic(_)
                    | ConnectionState::BlockedHandshake
                    | ConnectionState::Closed,
                ) => true,
                // The configuration allows no early data.
                Ok(_) => return Err(Error::General("an unexpected state of TLS".to_owned())),
                // The alert that names the first fault comes next.
                Err(error) => {
                    *peer = Received::Fault;
                    fault.get_or_insert(error);
                    false
                }
            };
            used += discard;
            if is_done || is_last {
                return fault.map_or(Ok(used), Err);
            }
        }
    }
}

/// Gives decrypted bytes to the reader, after those that wait.
fn deliver(bytes: &[u8], read: &mut ReadBuf<'_>, unread: &mut BytesMut) {
    let room = if unread.is_empty() { read.remaining() } else { 0 };
    let (now, later) = bytes.split_at(bytes.len().min(room));
    read.put_slice(now);
    unread.extend_from_slice(later);
}

/// Appends what `write` writes into the room that it gets, which is `room` bytes, or as many as it asks for.
fn extend(
    to: &mut BytesMut,
    mut room: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Option<InsufficientSizeError>>,
) -> Result<(), Error> {
    let before = to.len();
    loop {
        to.resize(before + room, 0);
        match write(&mut to[before..]) {
            Ok(written) => {
                to.truncate(before + written);
                return Ok(());
            }
            Err(Some(InsufficientSizeError { required_size })) if required_size > room => {
                room = required_size;
            }
            Err(_) => {
                to.truncate(before);
                return Err(Error::General("TLS encrypts nothing any more".to_owned()));
            }
        }
    }
}

/// Drops bytes from the front, and the buffer with its last one: an idle connection has none.
fn advance(buffer: &mut BytesMut, bytes: usize) {
    buffer.advance(bytes);
    if buffer.is_empty() {
        *buffer = BytesMut::new();
    }
}

#[cfg(test)]
mod tests;
