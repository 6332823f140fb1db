//! Limits by who asks: pushes, connections, new user agents and registers of one sender. Senders and the time enter; an
//! admission or a refusal with its wait leaves, and log lines with the number refused. No limit waits or queues.
//!
//! A sender is a peer's address, an application server's VAPID key, a subscription or a user agent. Each limit is a
//! rate for each sender, and as many at once as in a minute. Of the open connections of an address it is a number.

mod address;
mod connections;
mod connects;
mod idle;
mod limiter;
mod port;
mod refusals;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use actix_web::http::header::HeaderMap;
use actors::socket::ConnectionUse;
use actors::{Admission, Clock, SharedLogLimiter};
use slog::{Logger, warn};
use state_machine::connection::CloseReason;
use state_machine::{Chid, Span, Uaid};

use address::Addresses;
pub use address::{Client, ClientSource};
use connections::ConnectionLimiter;
use connects::ConnectLimiter;
use idle::IdleConnections;
use limiter::Limiter;
pub use limiter::OverLimit;
use port::Port;
pub use port::{OPERATOR_CONNECTIONS_MAX, OpenConnection, PortName, PortState};
use refusals::{Refusals, Sender};

use crate::settings::Settings;
use crate::system::http_port::{Admitted, NotAdmitted};
use crate::system::unread_request;

/// Open connections of one address to the port of `http_listen`.
const PLAIN_CONNECTIONS_MAX: usize = 16;

/// What a peer is answered that is not admitted, and when it should connect again, in seconds.
const ADDRESS_FULL: &str = "too many connections of this address are open: try again later";
const PORT_FULL: &str = "no more connections can be opened here now: try again later";
const RETRY_AFTER_S: u32 = 60;

/// What an HTTP/2 connection that ended above its budget counts in `address_handshakes_per_minute_max`, beside its own.
const OVERSPENT_HANDSHAKES: usize = 60;

/// Minimum time between two log lines about such connections.
const LOG_EVERY: Span = Span::from_secs(60);

/// The limits of a process, which all its threads share.
pub struct Limits {
    addresses: Addresses,
    port: Arc<Port>,
    idle: IdleConnections,
    overspent: SharedLogLimiter,
    router_port: Arc<Port>,
    connects: ConnectLimiter,
    rates: Rates,
    address_connections: ConnectionLimiter,
    plain_connections: ConnectionLimiter,
    clock: Clock,
    log: Logger,
}

/// One row for each limit by rate: its setting, and its policy.
macro_rules! rates {
    ($( $name:ident: $setting:ident, $policy:literal; )+) => {
        struct Rates { $( $name: Limiter, )+ }

        impl Rates {
            fn new(settings: &Settings, log: &Logger) -> Self {
                let new = |setting, policy, per_minute| {
                    Limiter::new(setting, policy, per_minute, settings.limited_senders_max, log.clone())
                };
                Self { $( $name: new(stringify!($setting), $policy, settings.$setting), )+ }
            }

            fn refusals(&self) -> impl Iterator<Item = &Refusals> {
                [$( &self.$name.refusals, )+].into_iter()
            }
        }
    };
}

rates! {
    subscription_pushes: subscription_pushes_per_minute_max, "subscription";
    vapid_key_pushes: vapid_key_pushes_per_minute_max, "vapid-key";
    address_pushes: address_pushes_per_minute_max, "address";
    receipt_subscriptions: receipt_subscriptions_per_minute_max, "receipt-subscriptions";
    address_handshakes: address_handshakes_per_minute_max, "address";
    address_connects: address_connects_per_minute_max, "address";
    address_new_agents: address_new_agents_per_minute_max, "address";
    address_registers: address_registers_per_minute_max, "address";
    agent_registers: agent_registers_per_minute_max, "user-agent";
    agent_hellos: agent_hellos_per_minute_max, "user-agent";
}

/// Who asks for receipts. Keys cost nothing, so an address counts beside its keys.
#[derive(Debug, Clone, Copy)]
pub struct ReceiptSender {
    /// The SHA-256 of the key.
    pub key: Option<[u8; 32]>,
    /// None if this peer has no limit by address.
    pub address: Option<IpAddr>,
}

/// A connection of the public port, until it is dropped. Every open WebSocket has one, so it is small.
pub struct PublicConnection {
    limits: Arc<Limits>,
    /// None if this peer has no limit by address.
    counted: Option<CountedAddress>,
    /// Its number among [`IdleConnections`], if it is counted.
    number: u64,
    usage: Arc<ConnectionUse>,
    _place: OpenConnection,
}

/// Counts a connection for its address until it is dropped.
pub struct CountedAddress {
    limits: Arc<Limits>,
    address: IpAddr,
    /// Whether it is one to the port of `http_listen`.
    is_plain: bool,
}

/// The limits of a WebSocket.
struct AgentLimits {
    limits: Arc<Limits>,
    /// None if connections of this peer have no limit by address.
    address: Option<IpAddr>,
    /// None if its connection was counted when it was opened.
    _counted: Option<CountedAddress>,
}

impl Limits {
    pub fn new(settings: &Settings, clock: Clock, log: Logger) -> Arc<Self> {
        let connections = |setting, max| ConnectionLimiter::new(setting, max, log.clone());
        let workers = settings.worker_threads();
        let router_connections_max = settings.router_connections_max.div_ceil(workers) * workers;
        Arc::new(Self {
            addresses: Addresses::new(settings, log.clone()),
            port: Port::new(PortName::Public, settings.worker_connections_max() * workers),
            idle: IdleConnections::new(),
            overspent: SharedLogLimiter::new(LOG_EVERY),
            router_port: Port::new(PortName::Router, router_connections_max),
            connects: ConnectLimiter::new(settings.connects_per_second_max),
            rates: Rates::new(settings, &log),
            address_connections: connections(
                "address_connections_max",
                settings.address_connections_max,
            ),
            plain_connections: connections("http_listen", PLAIN_CONNECTIONS_MAX),
            clock,
            log,
        })
    }

    /// Admits a connection to the public port, before its handshake. Connections of trusted proxies and of exempt peers
    /// are not counted by address.
    pub fn open_connection(
        self: &Arc<Self>,
        peer: Option<SocketAddr>,
        makes_handshake: bool,
    ) -> Result<Admitted<PublicConnection>, NotAdmitted> {
        let (address, now) = (self.addresses.of_connection(peer), self.clock.now());
        if makes_handshake && !self.handshake_from(address) {
            return Err(NotAdmitted(None));
        }
        let counted =
            self.count_address(address, false).map_err(|()| refused(429, ADDRESS_FULL))?;
        let is_operator = self.addresses.is_operator(peer);
        let place = self.port.try_open(is_operator, now, &self.log);
        let PortState { connections, connections_max, .. } = self.port.state();
        self.idle.make_room(connections, connections_max, now, &self.log);
        let place = place.ok_or_else(|| refused(503, PORT_FULL))?;
        let usage = Arc::<ConnectionUse>::default();
        let add = |counted: &CountedAddress| self.idle.add(counted.address, Arc::clone(&usage));
        let number = counted.as_ref().map_or(0, add);
        let (limits, of_guard) = (Arc::clone(self), Arc::clone(&usage));
        let guard = PublicConnection { limits, counted, number, usage: of_guard, _place: place };
        Ok(Admitted { guard, usage })
    }

    /// Counts a connection of the router port until it is dropped.
    pub fn open_router_connection(&self) -> OpenConnection {
        self.router_port.open(self.clock.now(), &self.log)
    }

    /// How many HTTP/2 connections ended above their budget of work, since the start.
    pub fn overspent(&self) -> u64 {
        self.overspent.total()
    }

    /// Counts a connection that made too much work, and charges it to its address: another one costs that as much again.
    fn count_overspent(&self, address: Option<IpAddr>) {
        if let Some(connections) = self.overspent.count(self.clock.now()) {
            warn_of_overspent(connections, &self.log);
        }
        let handshakes = (0..OVERSPENT_HANDSHAKES).map(|_| self.handshake_from(address));
        let _ = handshakes.take_while(|is_admitted| *is_admitted).count();
    }

    /// How many idle connections of the public port were closed to make room, since the start.
    pub fn idle_closed(&self) -> u64 {
        self.idle.closed()
    }

    pub fn port_state(&self, port: PortName) -> PortState {
        self.port(port).state()
    }

    fn port(&self, name: PortName) -> &Arc<Port> {
        match name {
            PortName::Public => &self.port,
            PortName::Router => &self.router_port,
        }
    }

    /// Charges a TLS handshake, before it costs anything. Returns whether the peer may make it.
    fn handshake_from(&self, address: Option<IpAddr>) -> bool {
        self.charge(&self.rates.address_handshakes, address.map(Sender::Address)).is_ok()
    }

    /// None if the address has [`PLAIN_CONNECTIONS_MAX`] connections to the port of `http_listen`.
    pub fn open_plain_connection(
        self: &Arc<Self>,
        peer: Option<SocketAddr>,
    ) -> Result<Admitted<Option<CountedAddress>>, NotAdmitted> {
        let counted = self.count_address(self.addresses.of_connection(peer), true);
        counted.map(Admitted::new).map_err(|()| NotAdmitted(None))
    }

    /// Fails if the address has as many connections as it may.
    fn count_address(
        self: &Arc<Self>,
        address: Option<IpAddr>,
        is_plain: bool,
    ) -> Result<Option<CountedAddress>, ()> {
        let Some(address) = address else { return Ok(None) };
        let is_open = self.connections(is_plain).try_open(address, self.clock.now());
        let counted = || Some(CountedAddress { limits: Arc::clone(self), address, is_plain });
        if is_open { Ok(counted()) } else { Err(()) }
    }

    fn connections(&self, is_plain: bool) -> &ConnectionLimiter {
        if is_plain { &self.plain_connections } else { &self.address_connections }
    }

    /// Who a request comes from, as limits see it.
    pub fn client(&self, peer: Option<SocketAddr>, headers: &HeaderMap) -> Option<Client> {
        self.addresses.client(peer, headers)
    }

    /// The address that a request counts for; none if its peer has no limit by address.
    pub fn address(&self, peer: Option<SocketAddr>, headers: &HeaderMap) -> Option<IpAddr> {
        self.addresses.of(peer, headers, self.clock.now())
    }

    /// Charges a push before its token is decrypted.
    pub fn push_from(&self, address: Option<IpAddr>) -> Result<(), OverLimit> {
        self.charge(&self.rates.address_pushes, address.map(Sender::Address))
    }

    /// Charges a push that is valid; `key` is the SHA-256 of its VAPID key, whose owner alone uses up its limit.
    pub fn push_to(&self, uaid: Uaid, chid: Chid, key: Option<[u8; 32]>) -> Result<(), OverLimit> {
        self.charge(&self.rates.subscription_pushes, Some(Sender::Subscription(uaid, chid)))?;
        self.charge(&self.rates.vapid_key_pushes, key.map(Sender::VapidKey))
    }

    /// Charges a new receipt subscription.
    pub fn receipt_subscription_of(&self, sender: &ReceiptSender) -> Result<(), OverLimit> {
        let ReceiptSender { key, address } = *sender;
        self.charge(&self.rates.receipt_subscriptions, address.map(Sender::Address))?;
        self.charge(&self.rates.receipt_subscriptions, key.map(Sender::VapidKey))
    }

    /// Charges a request to `/`, whether its handshake is valid or not.
    pub fn connect_from(&self, address: Option<IpAddr>) -> Result<(), OverLimit> {
        self.charge(&self.rates.address_connects, address.map(Sender::Address))
    }

    /// Whether one more user agent may connect now. Its hello is charged, which proves that it is one.
    pub fn has_room_for_connect(&self) -> bool {
        self.connects.has_room(self.clock.now(), &self.log)
    }

    /// The limits of a WebSocket of this peer and address. One that came through a proxy counts for the address until
    /// they are dropped, another one was counted when it was opened. None if the address has as many as it may.
    pub fn of_agent(
        self: &Arc<Self>,
        peer: Option<SocketAddr>,
        address: Option<IpAddr>,
    ) -> Option<Box<dyn Admission>> {
        let was_counted = self.addresses.of_connection(peer).is_some();
        let uncounted = address.filter(|_| !was_counted);
        let counted = self.count_address(uncounted, false).ok()?;
        Some(Box::new(AgentLimits { limits: Arc::clone(self), address, _counted: counted }))
    }

    /// Charges a hello of an agent, or a request of a bridged one that has proved who it is.
    pub fn request_of_agent(&self, uaid: Uaid) -> Result<(), OverLimit> {
        self.charge(&self.rates.agent_hellos, Some(Sender::Agent(uaid)))
    }

    /// Charges a place of `connects_per_second_max`; `is_named` for an agent with a uaid.
    pub fn try_admit(&self, is_named: bool) -> bool {
        self.connects.try_admit(is_named, self.clock.now(), &self.log)
    }

    /// Charges the record of a new agent.
    pub fn new_agent_from(&self, address: Option<IpAddr>) -> Result<(), OverLimit> {
        self.charge(&self.rates.address_new_agents, address.map(Sender::Address))
    }

    /// Charges a channel to its agent.
    pub fn register_of_agent(&self, uaid: Uaid) -> Result<(), OverLimit> {
        self.charge(&self.rates.agent_registers, Some(Sender::Agent(uaid)))
    }

    /// Charges a channel to the address.
    pub fn register_from(&self, address: Option<IpAddr>) -> Result<(), OverLimit> {
        self.charge(&self.rates.address_registers, address.map(Sender::Address))
    }

    /// The limits that would refuse a request of this agent, or a push to this channel of it, now.
    pub fn reached(&self, uaid: Uaid, chid: Option<Chid>) -> Vec<&'static str> {
        let channel =
            chid.map(|chid| (&self.rates.subscription_pushes, Sender::Subscription(uaid, chid)));
        let agent = [&self.rates.agent_registers, &self.rates.agent_hellos]
            .map(|of| (of, Sender::Agent(uaid)));
        let all = channel.into_iter().chain(agent);
        let reached = all.filter(|(limiter, sender)| limiter.is_reached(*sender, self.clock.now()));
        reached.map(|(limiter, _)| limiter.refusals.refused().0).collect()
    }

    /// Logs what each limit has refused since its last log line. Otherwise the rest of a flood would be logged with the
    /// next one.
    pub fn report(&self) {
        let now = self.clock.now();
        self.refusals().for_each(|refusals| refusals.report(now));
        self.connects.report(now, &self.log);
        self.port.report(now, &self.log);
        self.idle.report(now, &self.log);
        self.overspent.rest(now).inspect(|connections| warn_of_overspent(*connections, &self.log));
        self.router_port.report(now, &self.log);
    }

    /// How many requests each limit has refused, by its setting.
    pub fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.refusals().map(Refusals::refused).chain([self.connects.refused()])
    }

    fn refusals(&self) -> impl Iterator<Item = &Refusals> {
        let connections = [&self.address_connections, &self.plain_connections];
        self.rates.refusals().chain(connections.map(|limiter| &limiter.refusals))
    }

    fn charge(&self, limiter: &Limiter, sender: Option<Sender>) -> Result<(), OverLimit> {
        sender.map_or(Ok(()), |sender| limiter.charge(sender, self.clock.now()))
    }
}

impl Admission for AgentLimits {
    /// The limit of the agent first: an agent above it takes no place of others.
    fn hello(&self, uaid: Option<Uaid>) -> Result<(), CloseReason> {
        let of_agent = uaid.map_or(Ok(()), |uaid| self.limits.request_of_agent(uaid));
        of_agent.map_err(|_| CloseReason::TooManyHellos)?;
        match self.limits.try_admit(uaid.is_some()) {
            true => Ok(()),
            false => Err(CloseReason::TooManyConnects),
        }
    }

    fn new_agent(&self) -> bool {
        self.limits.new_agent_from(self.address).is_ok()
    }

    fn register(&self, uaid: Uaid) -> bool {
        self.limits.register_of_agent(uaid).is_ok()
            && self.limits.register_from(self.address).is_ok()
    }
}

impl Drop for PublicConnection {
    fn drop(&mut self) {
        let address = self.counted.as_ref().map(|counted| counted.address);
        if let Some(address) = address {
            self.limits.idle.remove(address, self.number);
        }
        if self.usage.has_overspent() {
            self.limits.count_overspent(address);
        }
    }
}

impl Drop for CountedAddress {
    fn drop(&mut self) {
        self.limits.connections(self.is_plain).close(self.address);
    }
}

fn warn_of_overspent(connections: u64, log: &Logger) {
    warn!(log, "HTTP/2 connections were ended, their peers made more work than requests do";
        "connections" => connections);
}

/// The answer to a peer that is not admitted.
fn refused(code: u16, message: &str) -> NotAdmitted {
    NotAdmitted(Some(unread_request::refusal(code, message, RETRY_AFTER_S)))
}
