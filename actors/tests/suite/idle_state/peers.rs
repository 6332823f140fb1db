//! User agents on a thread of their own, which is not counted.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use state_machine::MessageId;
use tokio::sync::oneshot;

use crate::node::CHANNEL;

const HANDSHAKE: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
    Sec-WebSocket-Protocol: push-notification\r\n\r\n";

const HELLO: &str = r#"{"messageType":"hello","use_webpush":true}"#;

/// Connects user agents one after the other. Each has sent hello, and registered a channel if it is to have one.
pub(super) async fn connect(
    address: SocketAddr,
    count: usize,
    has_channel: bool,
) -> Vec<TcpStream> {
    let (done, connected) = oneshot::channel();
    thread::spawn(move || done.send((0..count).map(|_| agent(address, has_channel)).collect()));
    connected.await.unwrap()
}

/// Opens HTTP connections one after the other. Each has sent a request and received the head of its answer.
pub(super) async fn ask(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let (done, answered) = oneshot::channel();
    let ask = move |_| {
        let mut stream = open(address);
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        head(&mut stream);
        stream
    };
    thread::spawn(move || done.send((0..count).map(ask).collect()));
    answered.await.unwrap()
}

/// Acks a message of the channel.
pub(super) fn ack(agent: &mut TcpStream, id: MessageId) {
    let update = format!(r#"{{"channelID":"{CHANNEL}","version":"{id}"}}"#);
    send(agent, &format!(r#"{{"messageType":"ack","updates":[{update}]}}"#));
}

fn agent(address: SocketAddr, has_channel: bool) -> TcpStream {
    let mut stream = open(address);
    stream.write_all(HANDSHAKE).unwrap();
    assert!(head(&mut stream).starts_with(b"HTTP/1.1 101"));
    send(&mut stream, HELLO);
    receive(&mut stream);
    if has_channel {
        send(&mut stream, &format!(r#"{{"messageType":"register","channelID":"{CHANNEL}"}}"#));
        receive(&mut stream);
    }
    stream
}

/// A connection whose reads end some time.
fn open(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    stream
}

/// Reads the head of an answer.
fn head(stream: &mut TcpStream) -> Vec<u8> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(byte(stream));
    }
    head
}

/// Sends a text frame whose mask changes nothing (RFC 6455 §5.2).
fn send(stream: &mut TcpStream, text: &str) {
    let mut frame = vec![0x81, 0x80 | 126];
    frame.extend(u16::try_from(text.len()).unwrap().to_be_bytes());
    frame.extend([0; 4]);
    frame.extend(text.bytes());
    stream.write_all(&frame).unwrap();
}

/// Reads a text frame of up to 64 KiB, which reports a success.
fn receive(stream: &mut TcpStream) {
    assert_eq!(byte(stream), 0x81);
    let length = match byte(stream) {
        126 => usize::from(u16::from_be_bytes([byte(stream), byte(stream)])),
        short => usize::from(short),
    };
    let text = (0..length).map(|_| byte(stream)).collect();
    assert!(String::from_utf8(text).unwrap().contains(r#""status":200"#));
}

fn byte(stream: &mut TcpStream) -> u8 {
    let mut byte = [0];
    stream.read_exact(&mut byte).unwrap();
    byte[0]
}
