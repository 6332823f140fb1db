//! A scripted node on a loopback port.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actors::Clock;
use socket2::SockRef;
use state_machine::{NodeId, Span, Time};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::cluster::signature::{
    ANSWER_MAC_HEADER, ClusterKeys, Refused, Request, RequestMac, Signature, TIME_HEADER,
};

pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) address: SocketAddr,
    inner: Arc<Inner>,
    seen: UnboundedReceiver<Seen>,
    serving: JoinHandle<()>,
}

/// The reaction of a node to a request.
#[derive(Clone)]
pub(super) enum Act {
    Answer(Answer),
    AnswerAndClose(Answer),
    /// Writes these bytes and resets the connection, like a process that is killed.
    Reset(Vec<u8>),
    /// Answers once a status is sent; closes the connection if the sender is dropped.
    Hold(watch::Receiver<Option<u16>>),
}

type Answer = Arc<dyn Fn(&RequestMac) -> Vec<u8> + Send + Sync>;

/// An event at a node.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Connected,
    Asked(Asked),
    HungUp,
}

/// A request with a valid signature, whatever its time.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) line: String,
    pub(super) body: Vec<u8>,
}

struct Inner {
    id: NodeId,
    keys: Arc<ClusterKeys>,
    clock: Clock,
    act: Mutex<Act>,
    told: UnboundedSender<Seen>,
}

impl Act {
    /// A signed answer of this status.
    pub(super) fn sign(keys: &Arc<ClusterKeys>, status: u16) -> Self {
        let keys = Arc::clone(keys);
        Self::Answer(Arc::new(move |mac| signed(&keys, mac, status, "")))
    }

    /// These bytes for each request.
    pub(super) fn write(answer: &str) -> Self {
        let answer = answer.as_bytes().to_vec();
        Self::Answer(Arc::new(move |_| answer.clone()))
    }

    /// Waits for a status from the returned sender.
    pub(super) fn hold() -> (watch::Sender<Option<u16>>, Self) {
        let (tell, told) = watch::channel(None);
        (tell, Self::Hold(told))
    }
}

/// A signed answer that refuses the time of a request.
pub(super) fn other_time(keys: &ClusterKeys, mac: &RequestMac, now: Time) -> Vec<u8> {
    let (time, mac) = keys.sign_time(mac, now);
    let headers = format!("{ANSWER_MAC_HEADER}: {mac}\r\n{TIME_HEADER}: {time}");
    format!("HTTP/1.1 401 X\r\n{headers}\r\ncontent-length: 0\r\n\r\n").into_bytes()
}

/// A signed answer with further headers, each with its line end.
pub(super) fn signed(keys: &ClusterKeys, mac: &RequestMac, status: u16, more: &str) -> Vec<u8> {
    let mac = keys.sign_answer(mac, status);
    let length =
        if more.to_lowercase().contains("content-length") { "" } else { "content-length: 0\r\n" };
    format!("HTTP/1.1 {status} X\r\n{ANSWER_MAC_HEADER}: {mac}\r\n{more}{length}\r\n").into_bytes()
}

impl Node {
    pub(super) async fn start(keys: &Arc<ClusterKeys>, clock: &Clock, act: Act) -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::start_at(any, keys, clock, act).await
    }

    pub(super) async fn start_at(
        address: SocketAddr,
        keys: &Arc<ClusterKeys>,
        clock: &Clock,
        act: Act,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let id = NodeId::new(&format!("http://{address}"));
        let (told, seen) = unbounded_channel();
        let (keys, clock, act) = (Arc::clone(keys), clock.clone(), Mutex::new(act));
        let inner = Arc::new(Inner { id: id.clone(), keys, clock, act, told });
        let serving = tokio::spawn(serve(listener, Arc::clone(&inner)));
        Self { id, address, inner, seen, serving }
    }

    pub(super) fn set_clock(&self, now: Time) {
        self.inner.clock.set(now);
    }

    /// Changes the reaction to further requests.
    pub(super) fn set(&self, act: Act) {
        *self.inner.act.lock().unwrap() = act;
    }

    /// Waits for the next event.
    pub(super) async fn next(&mut self) -> Seen {
        let seen = tokio::time::timeout(Duration::from_secs(20), self.seen.recv()).await;
        seen.expect("an event within 20 s").unwrap()
    }

    /// Waits for the next request, and skips other events.
    pub(super) async fn asked(&mut self) -> Asked {
        loop {
            if let Seen::Asked(asked) = self.next().await {
                return asked;
            }
        }
    }

    /// The events since the last call.
    pub(super) fn noticed(&mut self) -> Vec<Seen> {
        std::iter::from_fn(|| self.seen.try_recv().ok()).collect()
    }

    /// The requests since the last call.
    pub(super) fn requests(&mut self) -> Vec<String> {
        let asked = self.noticed().into_iter().filter_map(|seen| match seen {
            Seen::Asked(asked) => Some(asked.line),
            Seen::Connected | Seen::HungUp => None,
        });
        asked.collect()
    }

    /// The connections since the last call.
    pub(super) fn connections(&mut self) -> usize {
        self.noticed().iter().filter(|seen| **seen == Seen::Connected).count()
    }

    /// Ends with all its connections, and returns its address.
    pub(super) async fn die(mut self) -> SocketAddr {
        self.serving.abort();
        // Then its listener is closed.
        assert!((&mut self.serving).await.unwrap_err().is_cancelled());
        self.address
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, inner: Arc<Inner>) {
    let mut conversations = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        inner.notice(Seen::Connected);
        let inner = Arc::clone(&inner);
        conversations.spawn(async move {
            converse(BufReader::new(stream), &inner).await;
            inner.notice(Seen::HungUp);
        });
    }
}

async fn converse(mut stream: BufReader<TcpStream>, inner: &Inner) -> Option<()> {
    loop {
        let (asked, verified) = inner.read(&mut stream).await?;
        inner.notice(Seen::Asked(asked));
        let mac = match verified {
            Ok(mac) => mac,
            Err(Refused::OtherTime { request, .. }) => {
                let answer = other_time(&inner.keys, &request, inner.clock.now());
                stream.write_all(&answer).await.ok()?;
                continue;
            }
            Err(Refused::OtherDay(_)) => {
                let answer = b"HTTP/1.1 401 X\r\ncontent-length: 0\r\n\r\n";
                return stream.write_all(answer).await.ok();
            }
            Err(refused) => panic!("the request is not signed for this node: {refused}"),
        };
        let act = inner.act.lock().unwrap().clone();
        match act {
            Act::Answer(answer) => stream.write_all(&answer(&mac)).await.ok()?,
            Act::AnswerAndClose(answer) => return stream.write_all(&answer(&mac)).await.ok(),
            Act::Reset(bytes) => {
                stream.write_all(&bytes).await.ok()?;
                SockRef::from(stream.get_ref()).set_linger(Some(Duration::ZERO)).ok()?;
                return None;
            }
            Act::Hold(mut told) => {
                let mut bytes = [0];
                let status = tokio::select! {
                    told = told.wait_for(Option::is_some) => told.ok().and_then(|told| *told),
                    _ = stream.read(&mut bytes) => None,
                };
                let answer = signed(&inner.keys, &mac, status?, "");
                stream.write_all(&answer).await.ok()?;
            }
        }
    }
}

impl Inner {
    fn notice(&self, seen: Seen) {
        // A test that has ended has dropped the receiver.
        let _ = self.told.send(seen);
    }

    async fn read(
        &self,
        stream: &mut BufReader<TcpStream>,
    ) -> Option<(Asked, Result<RequestMac, Refused>)> {
        let line = read_line(stream).await?;
        let (mut authorization, mut length) = (String::new(), 0);
        loop {
            let header = read_line(stream).await?;
            match header.split_once(": ") {
                Some(("authorization", value)) => authorization = value.to_owned(),
                Some(("content-length", value)) => length = value.parse().unwrap(),
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.ok()?;
        let line = line.strip_suffix(" HTTP/1.1").expect("it speaks HTTP/1.1").to_owned();
        let (method, path) = line.split_once(' ').unwrap();
        let request = Request { method, path, node: &self.id, body: &body };
        let signature = Signature::read(&authorization, self.clock.now(), Span(60_000));
        let verified = signature.and_then(|signature| self.keys.verify(&request, &signature));
        Some((Asked { line, body }, verified))
    }
}

async fn read_line(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    line.strip_suffix("\r\n").map(str::to_owned)
}
