//! The configuration that a connection gets when it is created.

use crate::ids::{NodeId, Uaid};
use crate::month::Month;
use crate::time::{Span, Time};
use crate::wire::VapidKey;

/// Shared by all connections of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Config {
    /// This node's name in router records.
    pub node: NodeId,
    /// Without rotation, the month that stays in use (docs/sources.md#push-service-rotation-guide).
    pub frozen_month: Option<Month>,
    /// Whether an agent whose hello has no `use_webpush` speaks SimplePush.
    pub simplepush: bool,
    /// The VAPID keys that an application server may have, for which alone channels are registered. Empty: any, or none.
    pub vapid_keys: Box<[VapidKey]>,
    /// The bounds of each connection.
    pub limits: Limits,
}

/// The bounds of a connection. `docs/settings.md` has the defaults and the reasons.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Limits {
    /// The maximum time from the connection to its `hello`.
    pub hello_timeout: Span,
    /// How long an ack is waited for before a message counts as one that must be on disk.
    pub ack_wait: Span,
    /// How long the old month's acks are waited for; zero waits without limit.
    pub drain_wait: Span,
    /// Silence after which the peer is pinged.
    pub keepalive_interval: Span,
    /// Silence after that ping that ends the connection.
    pub keepalive_grace: Span,
    /// Time after an answered ping in which further pings are ignored, because some agents answer `{}` with `{}`.
    pub ping_floor: Span,
    /// How long a session lasts, so that agents that stay connected still change months.
    pub session_max: Span,
    /// The interval of storage scans without a notification.
    pub storage_recheck: Span,
    /// Wait before a failed store operation is submitted again; doubles up to 64 times this.
    pub store_retry: Span,
    /// Messages that the first fetch of a connection asks for at most.
    pub first_fetch_rows_max: usize,
    /// Messages a fetch asks for at most.
    pub fetch_rows_max: usize,
    /// Payload bytes a fetch asks for at most.
    pub fetch_bytes_max: usize,
    /// Messages sent and not acked at most.
    pub unacked_max: usize,
    /// Commands that wait at most.
    pub deferred_commands_max: usize,
    /// Acked ids remembered at most, and acked ids that wait for their delete.
    pub remembered_acks_max: usize,
    /// Channels of one user agent at most.
    pub channels_max: usize,
    /// Broadcasts that one user agent may subscribe to at most. One answer refuses at most as many
    /// others.
    pub broadcasts_per_agent_max: usize,
    /// Keys of the `last_connect` index that one hour is spread over.
    pub last_connect_shards: usize,
}

impl Config {
    /// The month that messages are to be stored in at `now`.
    pub fn message_month(&self, now: Time) -> Month {
        self.frozen_month.unwrap_or_else(|| Month::of(now))
    }

    /// Why no push could reach a channel with this key; none if one can.
    pub(super) fn refusal_of(&self, key: Option<&VapidKey>) -> Option<&'static str> {
        match key {
            _ if self.vapid_keys.is_empty() => None,
            None => Some("this server needs the VAPID key of the application server"),
            Some(key) if self.vapid_keys.contains(key) => None,
            Some(_) => Some("this server does not list this VAPID key"),
        }
    }
}

/// The randomness of one connection, drawn outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionSeed {
    /// The uaid to assign if the agent has none that is known.
    pub fresh_uaid: Uaid,
    /// Spreads deadlines of connections that began together.
    pub jitter: u16,
}

impl ConnectionSeed {
    /// Its slot in the staggered fan-out, evenly distributed.
    pub fn slot(self) -> u32 {
        // The first bytes may be those of an access token.
        let [.., a, b, c, d] = self.fresh_uaid.0;
        u32::from_be_bytes([a, b, c, d])
    }

    /// `span` shortened by up to an eighth.
    pub(crate) fn with_jitter(self, span: Span) -> Span {
        let eighth = span.0 / 8;
        Span(span.0 - eighth.saturating_mul(u64::from(self.jitter)) / (u64::from(u16::MAX) + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_spread_over_the_slots_by_the_first_bytes_of_their_ids() {
        let seed = |first| ConnectionSeed { fresh_uaid: Uaid([first; 16]), jitter: 0 };
        assert_eq!(seed(0).slot(), 0);
        assert_eq!(seed(0x80).slot(), 0x8080_8080);
    }

    #[test]
    fn the_greatest_jitter_shortens_by_less_than_an_eighth() {
        let seed = |jitter| ConnectionSeed { fresh_uaid: Uaid([1; 16]), jitter };
        let span = Span(8 * 65_536);
        assert_eq!(seed(0).with_jitter(span), span);
        assert_eq!(seed(32_768).with_jitter(span), Span(span.0 - 32_768));
        assert_eq!(seed(u16::MAX).with_jitter(span), Span(span.0 - 65_535));
    }
}
