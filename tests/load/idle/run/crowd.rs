//! All user agents and the application server: one thread, one poll, one buffer.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::mem::{replace, take};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use socket2::{Domain, Socket, Type};

use super::Result;
use super::agent::{Agent, News, Stage};
use super::pushes::Pushes;

/// Agents that connect from one address. Linux has 28,232 ports for it, and searches for long when it has used half.
const AGENTS_PER_ADDRESS: usize = 14_000;

/// Size of the one buffer for what the server sends.
const BUFFER_BYTES: usize = 64 * 1024;

/// Events that one poll returns.
const EVENTS_MAX: usize = 4096;

/// Longest wait of an agent that was refused without `Retry-After`: it doubles from 1 s to this.
const BACKOFF_MAX_S: u64 = 16;

/// Longest random wait in addition to `Retry-After`.
const JITTER_MS: u64 = 1000;

/// The user agents, and what they have noticed.
pub(crate) struct Crowd {
    poll: Poll,
    events: Events,
    buffer: Vec<u8>,
    agents: Vec<Agent>,
    server: SocketAddr,
    connecting_max: usize,
    /// Whether agents connect. Nothing does while the server is down.
    pub(crate) is_open: bool,
    waiting: VecDeque<usize>,
    retries: BinaryHeap<Reverse<(Instant, usize)>>,
    connecting: usize,
    pub(crate) present: usize,
    pub(crate) counts: Counts,
    pub(crate) pushes: Pushes,
}

/// Numbers of events from the start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) refused: u64,
    /// Connections of present agents that ended.
    pub(crate) closed: u64,
    /// Present agents that had to register again.
    pub(crate) forgotten: u64,
    pub(crate) pings: u64,
}

impl Crowd {
    pub(crate) fn new(agents: usize, connecting_max: usize, server: SocketAddr) -> Result<Self> {
        let poll = Poll::new().map_err(|error| format!("no poll can be made: {error}"))?;
        Ok(Self {
            poll,
            events: Events::with_capacity(EVENTS_MAX),
            buffer: vec![0; BUFFER_BYTES],
            agents: Vec::with_capacity(agents),
            server,
            connecting_max,
            is_open: true,
            waiting: VecDeque::with_capacity(agents),
            retries: BinaryHeap::new(),
            connecting: 0,
            present: 0,
            counts: Counts::default(),
            pushes: Pushes::new(agents, server),
        })
    }

    /// So many more agents connect from now on.
    pub(crate) fn begin(&mut self, agents: usize) {
        let begun = self.begun();
        self.agents.resize_with(begun + agents, Agent::default);
        self.waiting.extend(begun..self.begun());
    }

    /// The number of agents that have begun to connect.
    pub(crate) fn begun(&self) -> usize {
        self.agents.len()
    }

    /// Connects, reads and answers what is due, and waits at most this long for something to do.
    pub(crate) fn turn(&mut self, wait: Duration) -> Result<()> {
        self.connect_waiting()?;
        self.pushes.flush(self.poll.registry())?;
        match self.poll.poll(&mut self.events, Some(wait)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => {
                return Err(format!("the poll fails: {error}"));
            }
            _ => {}
        }
        let events = replace(&mut self.events, Events::with_capacity(0));
        for event in &events {
            match event.token().0 {
                agent if agent < self.agents.len() => {
                    self.on_agent(agent, event.is_writable(), event.is_read_closed());
                }
                sender => self.pushes.on_readable(sender, &mut self.buffer),
            }
        }
        self.events = events;
        Ok(())
    }

    /// Pushes to a random agent.
    pub(crate) fn push(&mut self) {
        self.pushes.begin(&self.agents[fastrand::usize(..self.agents.len())].endpoint);
    }

    fn connect_waiting(&mut self) -> Result<()> {
        if !self.is_open {
            return Ok(());
        }
        let now = Instant::now();
        while let Some(Reverse((due, agent))) = self.retries.peek().copied()
            && due <= now
        {
            self.retries.pop();
            self.waiting.push_back(agent);
        }
        while self.connecting < self.connecting_max
            && let Some(agent) = self.waiting.pop_front()
        {
            self.connect(agent)?;
        }
        Ok(())
    }

    fn connect(&mut self, index: usize) -> Result<()> {
        let mut socket = connect_from(address_of(index), self.server)?;
        let both = Interest::READABLE | Interest::WRITABLE;
        let is_registered = self.poll.registry().register(&mut socket, Token(index), both);
        is_registered.map_err(|error| format!("no socket can be polled: {error}"))?;
        let agent = &mut self.agents[index];
        (agent.socket, agent.stage) = (Some(socket), Stage::Connecting);
        self.connecting += 1;
        Ok(())
    }

    fn on_agent(&mut self, index: usize, is_writable: bool, is_closed: bool) {
        let agent = &mut self.agents[index];
        let Some(socket) = &agent.socket else { return };
        if agent.stage == Stage::Connecting {
            if !matches!(socket.take_error(), Ok(None)) {
                return self.end(index, None);
            }
            if !is_writable {
                return;
            }
            let mut request = Vec::new();
            agent.upgrade(&mut request);
            if !agent.write(&request) {
                return self.end(index, None);
            }
        }
        let mut buffer = take(&mut self.buffer);
        let is_open = self.read(index, &mut buffer, is_closed);
        self.buffer = buffer;
        if !is_open {
            self.end(index, None);
        }
    }

    /// Reads until nothing is left; false if the connection has ended.
    fn read(&mut self, index: usize, buffer: &mut [u8], is_closed: bool) -> bool {
        loop {
            let agent = &mut self.agents[index];
            let kept = agent.unread.len();
            buffer[..kept].copy_from_slice(&take(&mut agent.unread));
            let Some(socket) = &mut agent.socket else { return true };
            let count = match socket.read(&mut buffer[kept..]) {
                Ok(0) => return false,
                Ok(count) => count,
                Err(error) => {
                    agent.unread = buffer[..kept].to_vec();
                    return error.kind() == ErrorKind::WouldBlock;
                }
            };
            let end = kept + count;
            if !self.take(index, &buffer[..end]) {
                return false;
            }
            // A read that leaves space has emptied the socket. The end of a connection has no event of its own then.
            if end < buffer.len() && !is_closed {
                return true;
            }
        }
    }

    /// Takes all complete frames, and answers them; false if the connection has ended.
    fn take(&mut self, index: usize, mut bytes: &[u8]) -> bool {
        let mut answers = Vec::new();
        while let Some((count, news)) = self.agents[index].read(bytes, &mut answers) {
            bytes = &bytes[count..];
            match news {
                News::Nothing => {}
                News::Ping => self.counts.pings += 1,
                News::Arrived(push) => self.pushes.arrived(push),
                News::Present { is_known } => {
                    self.connecting -= 1;
                    self.present += 1;
                    self.counts.forgotten += u64::from(!is_known);
                }
                News::Refused(wait) => {
                    self.end(index, wait);
                    return true;
                }
            }
        }
        let agent = &mut self.agents[index];
        agent.unread = bytes.to_vec();
        answers.is_empty() || agent.write(&answers)
    }

    /// The connection has ended, and the agent connects again: a present one at once, a refused one later.
    fn end(&mut self, index: usize, wait: Option<Duration>) {
        let agent = &mut self.agents[index];
        agent.socket = None;
        agent.unread = Vec::new();
        if take(&mut agent.stage) == Stage::Present {
            self.present -= 1;
            self.counts.closed += 1;
            self.waiting.push_back(index);
            return;
        }
        self.connecting -= 1;
        self.counts.refused += 1;
        let backoff = Duration::from_secs((1 << agent.refused.min(16)).min(BACKOFF_MAX_S));
        agent.refused = agent.refused.saturating_add(1);
        let wait = wait.map_or_else(
            || backoff.mul_f64(0.5 + fastrand::f64() / 2.0),
            |wait| wait + Duration::from_millis(fastrand::u64(..JITTER_MS)),
        );
        self.retries.push(Reverse((Instant::now() + wait, index)));
    }
}

impl Agent {
    /// Whether all was written. What an agent sends fits into the buffer of its socket.
    fn write(&mut self, bytes: &[u8]) -> bool {
        let written = self.socket.as_mut().map(|socket| socket.write(bytes));
        matches!(written, Some(Ok(count)) if count == bytes.len())
    }
}

/// The address from which this agent connects.
fn address_of(agent: usize) -> Ipv4Addr {
    let network = u32::from(Ipv4Addr::new(127, 1, 0, 1));
    Ipv4Addr::from(network + u32::try_from(agent / AGENTS_PER_ADDRESS).expect("agents are bounded"))
}

/// Begins to connect. The end of the socket is a reset, which leaves no port in TIME_WAIT.
fn connect_from(address: Ipv4Addr, server: SocketAddr) -> Result<TcpStream> {
    let connect = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None)?;
        socket.set_linger(Some(Duration::ZERO))?;
        socket.set_tcp_nodelay(true)?;
        socket.bind(&SocketAddr::from((address, 0)).into())?;
        match socket.connect(&server.into()) {
            Err(error) if error.raw_os_error() != Some(EINPROGRESS) => Err(error),
            _ => Ok(TcpStream::from_std(socket.into())),
        }
    };
    connect().map_err(|error| advice(address, &error))
}

/// What the operator can do about a socket that cannot be made.
fn advice(address: Ipv4Addr, error: &std::io::Error) -> String {
    let advice = match error.kind() {
        ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable => {
            "each address needs 14,000 free ports: set net.ipv4.ip_local_port_range to \"32768 60999\" or more"
        }
        ErrorKind::OutOfMemory => "the kernel has no memory for it: try fewer --agents",
        ErrorKind::ConnectionRefused => "the server does not listen: look at its log",
        _ => "raise the limit of open files (ulimit -n), or try fewer --agents",
    };
    format!("no socket from {address}: {error}: {advice}")
}

/// The connection is being made.
const EINPROGRESS: i32 = rustix::io::Errno::INPROGRESS.raw_os_error();
