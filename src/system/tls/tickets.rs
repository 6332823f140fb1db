//! Session tickets that any server with the same `keys.toml` opens: after a restart, and on another node.
//!
//! ```text
//! name (16 bytes) | nonce (12) | state of the session, sealed with AES-256-GCM-SIV (RFC 8452), with its tag (16)
//! ```
//!
//! Each day has keys of its own, derived from the crypto keys and the number of the day. The name identifies the key. The
//! first crypto key seals, all open, so that a ticket outlives the addition of a key.
//!
//! A key of this process seals a ticket of TLS 1.2, which holds the key of its session: `keys.toml` must not open what was
//! recorded years ago. A session of TLS 1.3 that resumes has a new key exchange
//! (RFC 8446 §2.2), and early data is off.

use std::fmt;
use std::sync::Arc;

use actors::Clock;
use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Okm, Prk};
use aws_lc_rs::rand;
use parking_lot::RwLock;
use rustls::ProtocolVersion;
use rustls::server::ProducesTickets;
use state_machine::Time;

const DAY_S: u64 = 24 * 60 * 60;

/// Days on which a ticket opens, with that of its making. RFC 8446 §4.6.1 allows seven days.
const DAYS: u64 = 7;

const NAME_BYTES: usize = 16;

/// Makes and opens the tickets of all connections.
pub struct Tickets {
    /// Of the crypto keys: that of the first seals, all open.
    shared: Vec<Prk>,
    /// Of this process, for TLS 1.2.
    own: Prk,
    clock: Clock,
    table: RwLock<Arc<Table>>,
}

/// The keys that are valid on a day.
struct Table {
    day: u64,
    /// Those of tomorrow come first: the clock of another node may be ahead. Then those of each day back.
    keys: Vec<TicketKey>,
}

struct TicketKey {
    day: u64,
    is_own: bool,
    name: [u8; NAME_BYTES],
    key: LessSafeKey,
}

/// The length of a name.
struct NameLength;

impl Tickets {
    /// Makes keys from roots that other servers have too, of which the first seals and all open.
    pub fn new(shared: Vec<Prk>, clock: Clock) -> Self {
        let mut secret = [0; 32];
        rand::fill(&mut secret).expect("the operating system gives random bytes");
        let own = Prk::new_less_safe(HKDF_SHA256, &secret);
        let table = RwLock::new(Arc::new(Table::of(day(clock.now()), &shared, &own)));
        Self { shared, own, clock, table }
    }

    /// The keys of today. They are made at the first handshake of a day, and after the clock was set.
    fn today(&self) -> Arc<Table> {
        let day = day(self.clock.now());
        let table = Arc::clone(&self.table.read());
        if table.day == day {
            return table;
        }
        let table = Arc::new(Table::of(day, &self.shared, &self.own));
        *self.table.write() = Arc::clone(&table);
        table
    }
}

impl Table {
    fn of(day: u64, shared: &[Prk], own: &Prk) -> Self {
        let days = (0..=DAYS).map(|back| (day + 1).saturating_sub(back));
        let keys = days.flat_map(|day| {
            let shared = shared.iter().map(move |root| TicketKey::derive(root, day, false));
            shared.chain([TicketKey::derive(own, day, true)])
        });
        Self { day, keys: keys.collect() }
    }

    /// The key that seals today.
    fn sealing(&self, is_own: bool) -> Option<&TicketKey> {
        self.keys.iter().find(|key| key.day == self.day && key.is_own == is_own)
    }
}

impl TicketKey {
    fn derive(root: &Prk, day: u64, is_own: bool) -> Self {
        let day_bytes = day.to_be_bytes();
        let [name_info, key_info]: [[&[u8]; 2]; 2] =
            [b"name".as_slice(), b"key"].map(|what| [what, &day_bytes]);
        let mut name = [0; NAME_BYTES];
        let named = root.expand(&name_info, NameLength).and_then(|named| named.fill(&mut name));
        named.expect("a name is short");
        let key: Okm<'_, _> = root.expand(&key_info, &AES_256_GCM_SIV).expect("a key is short");
        Self { day, is_own, name, key: LessSafeKey::new(UnboundKey::from(key)) }
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    /// Until the last day of a ticket that is made now has ended, in seconds.
    fn lifetime(&self) -> u32 {
        let left = DAYS * DAY_S - self.clock.now().as_secs() % DAY_S;
        left.try_into().unwrap_or(u32::MAX)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let table = self.today();
        let TicketKey { name, key, .. } = table.sealing(!is_tls13(plain))?;
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        let mut sealed = plain.to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        key.seal_in_place_append_tag(unique, Aad::from(name), &mut sealed).ok()?;
        Some([&name[..], &nonce, &sealed].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<NAME_BYTES>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let table = self.today();
        let TicketKey { key, .. } = table.keys.iter().find(|key| key.name == *name)?;
        let mut plain = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = key.open_in_place(nonce, Aad::from(name), &mut plain).ok()?.len();
        plain.truncate(length);
        Some(plain)
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tickets(redacted)")
    }
}

impl KeyType for NameLength {
    fn len(&self) -> usize {
        NAME_BYTES
    }
}

fn day(now: Time) -> u64 {
    now.as_secs() / DAY_S
}

/// Whether rustls wrote this state for TLS 1.3: the version follows the server name, which may be absent. A state that is
/// written otherwise is taken for one of TLS 1.2, and opens in this process only.
fn is_tls13(plain: &[u8]) -> bool {
    let version = match plain {
        [0, rest @ ..] => rest.first_chunk(),
        [1, length, rest @ ..] => rest.get(usize::from(*length)..).and_then(<[u8]>::first_chunk),
        _ => None,
    };
    version
        .is_some_and(|version| u16::from_be_bytes(*version) == u16::from(ProtocolVersion::TLSv1_3))
}

#[cfg(test)]
mod tests {
    use state_machine::Span;

    use super::*;

    /// The middle of a day.
    const NOW: Time = Time(1_795_392_000_000 + 12 * 60 * 60 * 1000);
    const KEY: [u8; 32] = [1; 32];
    const OTHER: [u8; 32] = [2; 32];

    /// States of TLS 1.3, without a server name and with one, and of TLS 1.2.
    const SESSION: &[u8] = &[0, 3, 4, 0x13, 1, 42, 43, 44];
    const NAMED: &[u8] = &[1, 2, b'a', b'b', 3, 4, 0x13, 1, 42, 43, 44];
    const TLS12: &[u8] = &[0, 3, 3, 0x13, 1, 42, 43, 44];

    fn tickets_at(keys: &[[u8; 32]], now: Time) -> (Tickets, Clock) {
        let clock = Clock::starting_at(now);
        let roots = keys.iter().map(|key| Prk::new_less_safe(HKDF_SHA256, key)).collect();
        (Tickets::new(roots, clock.clone()), clock)
    }

    fn tickets(keys: &[[u8; 32]]) -> Tickets {
        tickets_at(keys, NOW).0
    }

    #[test]
    fn a_ticket_of_tls_1_3_opens_with_the_same_keys_and_an_added_one_and_with_no_others() {
        for session in [SESSION, NAMED] {
            let ticket = tickets(&[KEY]).encrypt(session).unwrap();
            for (keys, opened) in [
                (&[KEY][..], Some(session)),
                (&[OTHER, KEY], Some(session)),
                (&[KEY, OTHER], Some(session)),
                (&[OTHER], None),
            ] {
                assert_eq!(tickets(keys).decrypt(&ticket).as_deref(), opened, "{keys:?}");
            }
        }
        let of_the_first = tickets(&[OTHER, KEY]).encrypt(SESSION).unwrap();
        assert_eq!(tickets(&[KEY]).decrypt(&of_the_first), None);
    }

    #[test]
    fn a_ticket_of_tls_1_2_or_of_an_unknown_form_opens_in_its_process_only() {
        for session in [TLS12, &[], &[0], &[1, 200, 3, 4], &[1], &[7, 3, 4]] {
            let ours = tickets(&[KEY]);
            let ticket = ours.encrypt(session).unwrap();
            assert_eq!(ours.decrypt(&ticket).as_deref(), Some(session));
            assert_eq!(tickets(&[KEY]).decrypt(&ticket), None, "{session:?}");
        }
    }

    #[test]
    fn a_ticket_that_was_cut_or_changed_anywhere_does_not_open() {
        let ours = tickets(&[KEY]);
        let ticket = ours.encrypt(SESSION).unwrap();
        assert_ne!(ours.encrypt(SESSION).unwrap(), ticket, "a nonce is used once");
        for end in 0..ticket.len() {
            assert_eq!(ours.decrypt(&ticket[..end]), None, "{end}");
            let mut changed = ticket.clone();
            changed[end] ^= 1;
            assert_eq!(ours.decrypt(&changed), None, "{end}");
        }
        assert_eq!(ours.decrypt(&[&ticket[..], &[0]].concat()), None);
        // The name of another day, whose key is valid too.
        let (yesterday, _) = tickets_at(&[KEY], Time(NOW.0 - DAY_S * 1000));
        let other = yesterday.encrypt(SESSION).unwrap();
        let mixed = [&other[..NAME_BYTES], &ticket[NAME_BYTES..]].concat();
        assert_eq!(ours.decrypt(&mixed), None);
    }

    #[test]
    fn a_ticket_opens_for_its_lifetime_and_on_the_day_before_it_if_the_clock_is_set_back() {
        let (ours, clock) = tickets_at(&[KEY], NOW);
        let ticket = ours.encrypt(SESSION).unwrap();
        let lifetime_ms = u64::from(ours.lifetime()) * 1000;
        assert_eq!(lifetime_ms, (6 * DAY_S + DAY_S / 2) * 1000);
        let day_ms = DAY_S * 1000;
        for (now, opens) in [
            (NOW.0 + day_ms, true),
            (NOW.0 + lifetime_ms - 1, true),
            (NOW.0 + lifetime_ms, false),
            (NOW.0 + 400 * day_ms, false),
            // Set back, and then right again.
            (NOW.0 - day_ms, true),
            (NOW.0 - 2 * day_ms, false),
            (0, false),
            (NOW.0, true),
        ] {
            clock.set(Time(now));
            assert_eq!(ours.decrypt(&ticket).is_some(), opens, "{now}");
            let (other, _) = tickets_at(&[KEY], Time(now));
            assert_eq!(other.decrypt(&ticket).is_some(), opens, "{now}");
            let new = ours.encrypt(SESSION).unwrap();
            assert_eq!(ours.decrypt(&new).as_deref(), Some(SESSION), "{now}");
        }
        let (midnight, _) = tickets_at(&[KEY], Time(NOW.0 - day_ms / 2));
        assert_eq!(u64::from(midnight.lifetime()), DAYS * DAY_S);
    }

    #[test]
    fn each_day_and_each_crypto_key_has_a_key_of_its_own() {
        let names = |keys: &[[u8; 32]], now| {
            let table = tickets_at(keys, now).0.today();
            let names = table.keys.iter().filter(|key| !key.is_own).map(|key| key.name);
            names.collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(names(&[KEY], NOW).len(), 8);
        assert_eq!(names(&[KEY, OTHER], NOW).len(), 16);
        let later = names(&[KEY], NOW + Span::from_secs(7 * DAY_S));
        assert_eq!(names(&[KEY], NOW).intersection(&later).count(), 1);
    }
}
