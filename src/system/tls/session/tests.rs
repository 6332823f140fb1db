use std::io::{Read, Write};

use actors::Clock;
use aws_lc_rs::hkdf::{HKDF_SHA256, Prk};
use proptest::collection::vec;
use proptest::prelude::*;
use rcgen::{CertificateParams, KeyPair};
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};
use state_machine::Time;

use super::*;
use crate::system::tls;
use crate::system::tls::certificate::{Certificate, validity};
use crate::system::tls::certificates::Certificates;
use crate::system::tls::tickets::Tickets;

const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

/// The configurations of a server and of a client that trusts it, in each version.
struct Configs {
    server: Arc<ServerConfig>,
    clients: [Arc<ClientConfig>; 2],
}

impl Configs {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["push.example.net".to_owned()]).unwrap();
        let chain = vec![params.self_signed(&key).unwrap().der().clone()];
        let mut roots = RootCertStore::empty();
        roots.add(chain[0].clone()).unwrap();
        let clients = VERSIONS.map(|version| {
            let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
                .with_protocol_versions(&[version])
                .unwrap();
            let mut config = config.with_root_certificates(roots.clone()).with_no_client_auth();
            config.resumption = Resumption::disabled();
            Arc::new(config)
        });
        let certificates = Certificates::default();
        let valid = validity(&chain[0]).unwrap();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let key = Arc::new(CertifiedKey::from_der(chain, key, &default_provider()).unwrap());
        certificates.replace(Certificate { key, valid });
        let root = Prk::new_less_safe(HKDF_SHA256, &[1; 32]);
        let tickets = Arc::new(Tickets::new(vec![root], Clock::starting_at(Time(0))));
        let server = Arc::new(tls::config(Arc::new(certificates), tickets).unwrap());
        Self { server, clients }
    }
}

/// A session, and its peer with the buffered API of rustls.
struct Pair {
    client: ClientConnection,
    server: Session,
    /// What was sent to the server, and has not arrived.
    on_the_way: Vec<u8>,
    /// What the server read, and the client.
    read: [Vec<u8>; 2],
}

impl Pair {
    fn new(configs: &Configs, version: usize) -> Self {
        let name = ServerName::try_from("push.example.net").unwrap();
        Self {
            client: ClientConnection::new(Arc::clone(&configs.clients[version]), name).unwrap(),
            server: Session::new(Arc::clone(&configs.server)).unwrap(),
            on_the_way: Vec::new(),
            read: Default::default(),
        }
    }

    /// What the client has encrypted leaves it.
    fn send(&mut self) {
        while self.client.wants_write() {
            self.client.write_tls(&mut self.on_the_way).unwrap();
        }
    }

    /// So many bytes arrive at the server, which is read with so much room. What it answers arrives at the client.
    fn arrive(&mut self, bytes: usize, room: usize) -> Result<(), Error> {
        let mut buffer = vec![0; RECORD_BYTES_MAX];
        let before = self.server.unfinished(&mut buffer);
        let bytes = bytes.min(self.on_the_way.len()).min(buffer.len() - before);
        let arrived = self.on_the_way.drain(..bytes);
        buffer.splice(before.., arrived);
        let mut room = vec![0; room];
        let mut read = ReadBuf::new(&mut room);
        let received = self.server.receive(&mut buffer, &mut read);
        self.read[0].extend(read.filled());
        self.answer();
        received
    }

    fn answer(&mut self) {
        let mut unsent = self.server.unsent();
        let bytes = unsent.len();
        while !unsent.is_empty() {
            self.client.read_tls(&mut unsent).unwrap();
            // A client that has failed reads no more.
            let _ = self.client.process_new_packets();
            let _ = self.client.reader().read_to_end(&mut self.read[1]);
        }
        self.server.sent(bytes);
    }

    fn read_rest(&mut self) {
        let mut room = [0; 100];
        loop {
            let mut read = ReadBuf::new(&mut room);
            self.server.read(&mut read);
            if read.filled().is_empty() {
                return;
            }
            self.read[0].extend(read.filled());
        }
    }

    fn shake_hands(&mut self) {
        for _ in 0..4 {
            self.send();
            self.arrive(usize::MAX, 0).unwrap();
        }
        assert!(!self.client.is_handshaking() && !self.server.is_handshaking());
    }

    fn kept_bytes(&self) -> usize {
        let Session { unfinished, unread, unsent, .. } = &self.server;
        unfinished.capacity() + unread.capacity() + unsent.capacity()
    }
}

/// What one of the two does.
#[derive(Debug, Clone, Copy)]
enum Step {
    ClientWrites(usize),
    ServerWrites(usize),
    /// A key update, which asks the server for one too.
    ClientUpdatesKeys,
    /// So many bytes arrive, for a reader with so much room.
    Arrive(usize, usize),
    ServerReads(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let sizes = || prop_oneof![0..40_usize, 0..40_000_usize];
    prop_oneof![
        sizes().prop_map(Step::ClientWrites),
        sizes().prop_map(Step::ServerWrites),
        Just(Step::ClientUpdatesKeys),
        (sizes(), sizes()).prop_map(|(bytes, room)| Step::Arrive(bytes, room)),
        sizes().prop_map(Step::ServerReads),
    ]
}

/// Bytes that differ wherever two of them are taken for one another.
fn text(from: &mut u32, bytes: usize) -> Vec<u8> {
    let text =
        (0..bytes).map(|at| (from.wrapping_add(at as u32).wrapping_mul(2_654_435_761) >> 24) as u8);
    let text = text.collect();
    *from = from.wrapping_add(bytes as u32);
    text
}

#[test]
fn all_bytes_arrive_in_order_wherever_records_are_cut_and_an_idle_session_keeps_none() {
    let configs = Configs::new();
    let cases = (0..VERSIONS.len(), vec(step(), 0..40), 1..2000_usize);
    proptest!(ProptestConfig::with_cases(300), |((version, steps, cut) in cases)| {
        let mut pair = Pair::new(&configs, version);
        let (mut at, mut sent) = ([0, 1 << 31], [Vec::new(), Vec::new()]);
        // The handshake arrives in pieces.
        while pair.client.is_handshaking() || pair.server.is_handshaking() {
            pair.send();
            prop_assert!(!pair.on_the_way.is_empty());
            pair.arrive(cut, 0).unwrap();
        }
        for step in steps {
            match step {
                Step::ClientWrites(bytes) => {
                    let text = text(&mut at[0], bytes);
                    pair.client.writer().write_all(&text).unwrap();
                    sent[0].extend(text);
                    pair.send();
                }
                Step::ServerWrites(bytes) => {
                    let text = text(&mut at[1], bytes);
                    pair.server.encrypt(&text).unwrap();
                    sent[1].extend(text);
                    pair.answer();
                }
                Step::ClientUpdatesKeys => {
                    // There are no key updates in TLS 1.2.
                    prop_assert_eq!(pair.client.refresh_traffic_keys().is_ok(), version == 1);
                    pair.send();
                }
                Step::Arrive(bytes, room) => pair.arrive(bytes, room).unwrap(),
                Step::ServerReads(bytes) => {
                    let mut room = vec![0; bytes];
                    let mut read = ReadBuf::new(&mut room);
                    pair.server.read(&mut read);
                    pair.read[0].extend(read.filled());
                }
            }
        }
        pair.client.send_close_notify();
        pair.send();
        while !pair.on_the_way.is_empty() {
            pair.arrive(cut, 10).unwrap();
        }
        // The peer has ended, and still reads.
        let text = text(&mut at[1], 20);
        pair.server.encrypt(&text).unwrap();
        sent[1].extend(text);
        pair.server.end().unwrap();
        pair.server.end().unwrap();
        pair.answer();
        pair.read_rest();
        prop_assert_eq!(pair.read.each_ref().map(Vec::len), sent.each_ref().map(Vec::len));
        prop_assert!(pair.read == sent);
        prop_assert!(pair.server.read(&mut ReadBuf::new(&mut [0])), "the end is known");
        // The client received the end, once.
        prop_assert!(matches!(pair.client.reader().read(&mut [0]), Ok(0)));
        prop_assert_eq!(pair.kept_bytes(), 0);
    });
}

/// What happens to a byte of the peer, or to the bytes from it on.
#[derive(Debug, Clone, Copy)]
enum Change {
    Replace(u8),
    Remove(usize),
    Insert(u8, usize),
    /// The first bytes of all are sent again.
    Repeat(usize),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        any::<u8>().prop_map(Change::Replace),
        (1..300_usize).prop_map(Change::Remove),
        (any::<u8>(), 1..300_usize).prop_map(|(byte, times)| Change::Insert(byte, times)),
        (1..300_usize).prop_map(Change::Repeat),
    ]
}

fn changed(bytes: &mut Vec<u8>, at: usize, change: Change) {
    let at = at.min(bytes.len());
    match change {
        Change::Replace(byte) => bytes.iter_mut().skip(at).take(1).for_each(|found| *found = byte),
        Change::Remove(count) => drop(bytes.drain(at..bytes.len().min(at + count))),
        Change::Insert(byte, times) => drop(bytes.splice(at..at, vec![byte; times])),
        Change::Repeat(count) => {
            let first = bytes[..count.min(bytes.len())].to_vec();
            drop(bytes.splice(at..at, first));
        }
    }
}

#[test]
fn no_hostile_record_panics_or_is_read_and_the_peer_learns_the_fault() {
    let configs = Configs::new();
    let cases = (0..VERSIONS.len(), any::<bool>(), 0..900_usize, change(), 1..700_usize);
    proptest!(ProptestConfig::with_cases(1000), |((version, after, at, change, cut) in cases)| {
        let mut pair = Pair::new(&configs, version);
        if after {
            pair.shake_hands();
            pair.client.writer().write_all(&[b'a'; 400]).unwrap();
            pair.client.writer().write_all(&[b'a'; 400]).unwrap();
        }
        pair.send();
        changed(&mut pair.on_the_way, at, change);
        let mut ended = Ok(());
        while !pair.on_the_way.is_empty() && ended.is_ok() {
            ended = pair.arrive(cut, 50);
            prop_assert!(pair.kept_bytes() <= 2 * RECORD_BYTES_MAX);
        }
        pair.read_rest();
        prop_assert!(pair.read[0].len() <= 800 && pair.read[0].iter().all(|byte| *byte == b'a'));
        prop_assert_eq!(pair.server.is_broken(), ended.is_err());
        if after && ended.is_err() {
            let told = pair.client.process_new_packets();
            prop_assert!(matches!(told, Err(Error::AlertReceived(_))), "{told:?}");
            // Nothing is encrypted for a peer that has failed.
            prop_assert!(pair.server.encrypt(b"a").is_err());
        }
    });
}

#[test]
fn a_handshake_message_larger_than_a_record_is_refused() {
    let configs = Configs::new();
    let mut pair = Pair::new(&configs, 1);
    // The header of a client's hello of 60,000 bytes, and then a part of it in each record.
    let mut part = vec![1, 0, 0xea, 0x60];
    let mut refused = Ok(());
    for _ in 0..60 {
        part.resize(1000, 0);
        pair.on_the_way.extend([22, 3, 1]);
        pair.on_the_way.extend((part.len() as u16).to_be_bytes());
        pair.on_the_way.append(&mut part);
        refused = pair.arrive(usize::MAX, 0);
        if refused.is_err() {
            break;
        }
        assert!(pair.kept_bytes() <= 2 * RECORD_BYTES_MAX);
    }
    assert!(refused.unwrap_err().to_string().contains("a handshake message is too large"));
    assert!(pair.server.is_broken());
}
