//! What each limit does to each way in. A route or a setting that is in no row fails the test of the table.

use Cell::{Bytes, No, Refused, Tested};
use Way::{
    Delete, FeedChange, FeedRead, FeedWait, FeedWrite, Fixed, Frame, Handshake, Hello, Matrix,
    Page, PhoneChannel, PhoneNew, PhoneRequest, Plain, Post, Put, Receipts, Register, Upgrade,
};

use super::ways::Way;

/// What a limit does to the requests of some ways.
pub(super) enum Cell {
    /// It refuses a further request of the same sender with this answer, and none of another.
    Refused(&'static str),
    /// It refuses a request of more than so many bytes.
    Bytes(usize, &'static str),
    /// A test elsewhere, by its path.
    Tested(&'static str),
    /// Why they do not meet it.
    No(&'static str),
}

pub(super) struct Limit {
    pub(super) setting: &'static str,
    /// The value that the driven ways meet.
    pub(super) value: &'static str,
    pub(super) cells: &'static [(&'static [&'static [Way]], Cell)],
}

const PUSHES: &[Way] = &[Post, Put, Matrix];
const CONNECTS: &[Way] = &[Upgrade, Page];
const SESSIONS: &[Way] = &[Hello, Register, Frame];
const PHONES: &[Way] = &[PhoneNew, PhoneRequest, PhoneChannel];
const FEEDS: &[Way] = &[FeedRead, FeedWait, FeedWrite, FeedChange];
const READS: &[Way] = &[Receipts, Delete, Fixed];
const PORTS: &[Way] = &[Handshake, Plain];
pub(super) const ALL: &[&[Way]] = &[PUSHES, CONNECTS, SESSIONS, PHONES, FEEDS, READS, PORTS];

const NO_PUSH: &str = "it sends no push";
const NO_AGENT: &str = "no user agent registers or connects with it";
const VERSIONS: &str = "a channel keeps one version, and no other message counts with it";

/// The kinds of a route.
pub(super) fn of_route(method: &str, path: &str) -> Option<&'static [Way]> {
    let is_push = path.starts_with("/wpush/") && path.ends_with("{token}");
    Some(match (method, path) {
        ("HEAD" | "OPTIONS", _) => &[Fixed],
        ("GET", "/" | "/u/{token}" | "/u/{token}/") => CONNECTS,
        // It counts as a push of its address, and has no message.
        ("GET", _) if is_push => &[Fixed],
        ("POST", _) if is_push => &[Post],
        ("PUT", _) if is_push => &[Put],
        ("POST", "/_matrix/push/v1/notify") => &[Matrix],
        ("GET", "/_matrix/push/v1/notify" | "/health" | "/__heartbeat__" | "/__lbheartbeat__")
        | ("GET", "/__version__" | "/status" | "/openapi.json" | "/errors" | "/web/{file}") => {
            &[Fixed]
        }
        ("DELETE", "/m/{id}") => &[Delete],
        ("GET", "/receipts/{token}") => &[Receipts],
        ("GET", "/v1/feeds/{feed}") => &[FeedRead, FeedWait],
        ("PUT", "/v1/feeds/{feed}/{key}" | "/v1/feeds/{feed}/{key}/republish") => &[FeedWrite],
        ("DELETE", "/v1/feeds/{feed}/{key}")
        | ("POST" | "DELETE", "/v1/feeds/{feed}/{key}/republish") => &[FeedChange],
        ("POST", "/v1/{bridge}/{app}/registration") => &[PhoneNew],
        ("GET" | "PUT" | "DELETE", "/v1/{bridge}/{app}/registration/{uaid}")
        | ("DELETE", "/v1/{bridge}/{app}/registration/{uaid}/subscription/{channel}") => {
            &[PhoneRequest]
        }
        ("POST", "/v1/{bridge}/{app}/registration/{uaid}/subscription") => &[PhoneChannel],
        _ => return None,
    })
}

macro_rules! limits {
    ($( $setting:ident = $value:literal { $( $ways:expr => $cell:expr; )+ } )+) => {
        &[$( Limit { setting: stringify!($setting), value: $value, cells: &[$( (&$ways, $cell), )+] }, )+]
    };
}

/// The limits that a request can meet.
pub(super) const LIMITS: &[Limit] = limits! {
    address_pushes_per_minute_max = "4" {
        [&[Post, Put]] => Refused("429 201 address");
        [&[Matrix]] => Refused("429 M_LIMIT_EXCEEDED address");
        [CONNECTS, SESSIONS, PHONES, FEEDS, READS, PORTS] => No(NO_PUSH);
    }
    subscription_pushes_per_minute_max = "4" {
        [&[Post, Put]] => Refused("429 201 subscription");
        [&[Matrix]] => Refused("429 M_LIMIT_EXCEEDED subscription");
        [CONNECTS, SESSIONS, PHONES, FEEDS, READS, PORTS] => No(NO_PUSH);
    }
    vapid_key_pushes_per_minute_max = "4" {
        [&[Post, Put]] => Refused("429 201 vapid-key");
        [&[Matrix]] => No("its endpoints have no key");
        [CONNECTS, SESSIONS, PHONES, FEEDS, READS, PORTS] => No(NO_PUSH);
    }
    receipt_subscriptions_per_minute_max = "4" {
        [&[Post]] => Refused("429 201 receipt-subscriptions");
        [&[Put, Matrix]] => No("it asks for no receipt");
        [CONNECTS, SESSIONS, PHONES, FEEDS, READS, PORTS] => No(NO_PUSH);
    }
    receipt_messages_max = "4" {
        [&[Post]] =>
            Tested("receipts::limits::a_full_subscription_refuses_further_messages_and_another_takes_them");
        [&[Put, Matrix]] => No("it asks for no receipt");
        [CONNECTS, SESSIONS, PHONES, FEEDS, READS, PORTS] => No(NO_PUSH);
    }
    payload_bytes_max = "4096" {
        [&[Post, Put]] => Bytes(4096, "413 104");
        [&[Matrix]] => Bytes(4096, "413 M_TOO_LARGE");
        [CONNECTS, SESSIONS, PHONES, FEEDS, READS, PORTS] => No(NO_PUSH);
    }
    ttl_max_s = "0" {
        [&[Post, Matrix]] =>
            Tested("every_limit::a_push_by_each_way_is_kept_no_longer_than_the_limit");
        [&[Put]] => No("a version has no TTL");
        [CONNECTS, SESSIONS, PHONES, FEEDS, READS, PORTS] => No(NO_PUSH);
    }
    user_messages_max = "1" {
        [&[Post]] => Refused("429 201");
        [&[Matrix]] => Refused("429 M_LIMIT_EXCEEDED");
        [&[Put]] => No(VERSIONS);
        [CONNECTS, SESSIONS, PHONES, FEEDS, READS, PORTS] => No(NO_PUSH);
    }
    channel_messages_max = "1" {
        [&[Post]] => Refused("429 201");
        [&[Matrix]] => Refused("429 M_LIMIT_EXCEEDED");
        [&[Put]] => No(VERSIONS);
        [CONNECTS, SESSIONS, PHONES, FEEDS, READS, PORTS] => No(NO_PUSH);
    }
    user_bytes_max = "100" {
        [&[Post]] => Bytes(100, "429 201");
        [&[Matrix]] => Bytes(100, "429 M_LIMIT_EXCEEDED");
        [&[Put]] => No(VERSIONS);
        [CONNECTS, SESSIONS, PHONES, FEEDS, READS, PORTS] => No(NO_PUSH);
    }
    channel_bytes_max = "100" {
        [&[Post]] => Bytes(100, "429 201");
        [&[Matrix]] => Bytes(100, "429 M_LIMIT_EXCEEDED");
        [&[Put]] => No(VERSIONS);
        [CONNECTS, SESSIONS, PHONES, FEEDS, READS, PORTS] => No(NO_PUSH);
    }
    disk_free_min = "0" {
        [&[Post, Register]] =>
            Tested("full_disk::a_full_disk_refuses_messages_and_nothing_else_and_recovers_without_a_restart");
        [&[Matrix]] => Tested("matrix::without_space_on_the_disk_the_homeserver_repeats");
        [&[Put], PHONES, FEEDS] => No("the store refuses the write, which is the same for all ways");
        [CONNECTS, &[Hello, Frame], READS, PORTS] => No("it stores nothing");
    }
    address_connects_per_minute_max = "4" {
        [&[Upgrade]] => Refused("429 upgrade address");
        [&[Page], PHONES] => Refused("429 201 address");
        [SESSIONS] => No("its connection was charged");
        [PUSHES, FEEDS, READS, PORTS] => No(NO_AGENT);
    }
    address_connections_max = "4" {
        [&[Upgrade]] => Refused("429 upgrade");
        [&[Page], PHONES, SESSIONS] => No("it opens no WebSocket");
        [PUSHES, FEEDS, READS, PORTS] => No(NO_AGENT);
    }
    connects_per_second_max = "4" {
        [&[Upgrade]] => Tested("every_limit::a_handshake_is_refused_while_no_further_agent_may_connect");
        [&[Hello]] => Tested("limits::known_agents_connect_while_new_ones_exceed_the_limit");
        [PHONES] => Tested("push::registration::tests::requests_are_limited_by_address_and_by_agent");
        [&[Page, Register, Frame]] => No("no user agent connects with it");
        [PUSHES, FEEDS, READS, PORTS] => No(NO_AGENT);
    }
    address_new_agents_per_minute_max = "4" {
        [&[Register]] =>
            Refused("register 429 too many new user agents of this address, try again later");
        [&[PhoneNew]] => Refused("429 201 address");
        [CONNECTS, &[Hello, Frame, PhoneRequest, PhoneChannel]] => No("it makes no record");
        [PUSHES, FEEDS, READS, PORTS] => No(NO_AGENT);
    }
    address_registers_per_minute_max = "4" {
        [&[Register]] => Refused("register 429 too many registers, try again later");
        [&[PhoneNew, PhoneChannel]] => Refused("429 201 address");
        [CONNECTS, &[Hello, Frame, PhoneRequest]] => No("it registers no channel");
        [PUSHES, FEEDS, READS, PORTS] => No(NO_AGENT);
    }
    agent_registers_per_minute_max = "4" {
        [&[Register]] => Refused("register 429 too many registers, try again later");
        [&[PhoneChannel]] => Refused("429 201 user-agent");
        [&[PhoneNew]] => No("the agent is new");
        [CONNECTS, &[Hello, Frame, PhoneRequest]] => No("it registers no channel");
        [PUSHES, FEEDS, READS, PORTS] => No(NO_AGENT);
    }
    agent_hellos_per_minute_max = "4" {
        [&[Hello]] => Refused("closed 4429");
        [&[PhoneRequest, PhoneChannel]] => Refused("429 201 user-agent");
        [CONNECTS, &[Register, Frame, PhoneNew]] => No("it has no uaid yet, or its hello was charged");
        [PUSHES, FEEDS, READS, PORTS] => No(NO_AGENT);
    }
    channels_max = "2" {
        [&[Register]] => Refused("register 413 too many channels");
        [&[PhoneChannel]] => Refused("413 104");
        [CONNECTS, &[Hello, Frame, PhoneNew, PhoneRequest]] => No("it adds no channel to others");
        [PUSHES, FEEDS, READS, PORTS] => No(NO_AGENT);
    }
    frame_bytes_max = "65536" {
        [SESSIONS] =>
            Tested("bad_frames::a_fragmented_message_over_the_limit_closes_the_session");
        [PUSHES, CONNECTS, PHONES, FEEDS, READS, PORTS] => No("it is no frame");
    }
    agent_frames_per_second_max = "1000" {
        [SESSIONS] =>
            Tested("limits::an_agent_above_its_frame_rate_is_read_more_slowly_and_stays_connected");
        [PUSHES, CONNECTS, PHONES, FEEDS, READS, PORTS] => No("it is no frame");
    }
    address_handshakes_per_minute_max = "4" {
        [&[Handshake]] => Tested("every_limit::each_peer_of_a_port_for_both_families_has_limits_of_its_own");
        [PUSHES, CONNECTS, SESSIONS, PHONES, FEEDS, READS, &[Plain]] => No("it makes no TLS handshake");
    }
    http_listen = "127.0.0.1:0" {
        [&[Plain]] => Tested("every_limit::each_peer_of_a_port_for_both_families_has_limits_of_its_own");
        [PUSHES, CONNECTS, SESSIONS, PHONES, FEEDS, READS, &[Handshake]] => No("it has another port");
    }
    feed_keys_max = "2" {
        [&[FeedWrite]] => Refused("507 315");
        [PUSHES, CONNECTS, SESSIONS, PHONES, &[FeedRead, FeedWait, FeedChange], READS, PORTS] =>
            No("it makes no key");
    }
    feed_value_bytes_max = "100" {
        [&[FeedWrite]] => Bytes(100, "413 104");
        [PUSHES, CONNECTS, SESSIONS, PHONES, &[FeedRead, FeedWait, FeedChange], READS, PORTS] =>
            No("it has no value");
    }
    feed_followers_max = "1" {
        [&[FeedWait]] => Tested("feeds::following::a_closed_stream_frees_its_slot");
        [PUSHES, CONNECTS, SESSIONS, PHONES, &[FeedRead, FeedWrite, FeedChange], READS, PORTS] =>
            No("it follows no feed; the receipts of a push are one");
    }
    feed_pages_max = "1" {
        [&[FeedRead]] => Tested("feeds::slow::unread_pages_are_limited_and_small_ones_are_still_answered");
        [PUSHES, CONNECTS, SESSIONS, PHONES, &[FeedWait, FeedWrite, FeedChange], READS, PORTS] =>
            No("its pages are small");
    }
    connections_max = "1" {
        [PUSHES, CONNECTS, SESSIONS, PHONES, FEEDS, READS, &[Handshake]] =>
            Tested("open_files::the_soft_limit_is_raised_and_strangers_cannot_use_up_the_files");
        [&[Plain]] => No("its port has a number of its own");
    }
    pushes_in_flight_max = "1" {
        [&[Post]] => Tested("bursts::pushes_above_the_limit_are_answered_503_and_the_others_are_kept");
        [&[Put, Matrix]] => No("the endpoint actor counts a push of any way");
        [CONNECTS, SESSIONS, PHONES, FEEDS, READS, PORTS] => No(NO_PUSH);
    }
    agent_pushes_awaiting_bridge_max = "1" {
        [&[Post]] => Tested("bridges::phones::a_flood_to_one_phone_leaves_places_to_another_and_health_counts_it");
        [&[Put, Matrix]] => No("the endpoint actor counts a push of any way");
        [CONNECTS, SESSIONS, PHONES, FEEDS, READS, PORTS] => No(NO_PUSH);
    }
};

macro_rules! bounds {
    ($($what:literal: $($setting:ident)+;)+) => {
        &[$(($what, &[$(stringify!($setting)),+])),+]
    };
}

/// Limits that no request meets by its way, and what they bound.
pub(super) const BOUNDS: &[(&str, &[&str])] = bounds! {
    "the store, which is busy above it for each write alike":
        write_queue_max dynamodb_attempts_max dynamodb_backoff_max_ms dynamodb_requests_max
        dynamodb_agent_writes_max dynamodb_connections_max dynamodb_rows_in_flight_max
        postgresql_requests_max postgresql_agent_writes_max postgresql_connections_max;
    "what a session holds or reads at a time; it refuses no request":
        session_max_days first_fetch_rows_max fetch_rows_max fetch_bytes_max unacked_max
        deferred_commands_max remembered_acks_max client_mailbox_max broadcasts_per_agent_max;
    "a mailbox or a list in memory; what is above it waits, is stored or is forgotten":
        log_queue_max push_history_max pushes_awaiting_ack_max agent_pushes_awaiting_ack_max
        vapid_cache_bytes_max limited_senders_max registry_mailbox_max endpoint_mailbox_max
        feed_mailbox_max feed_batch_max feeds_open_max;
    "calls of another node or of a bridge":
        router_connections_max node_requests_max peer_backoff_max_ms peer_pending_notifications_max
        node_connections_idle_max nodes_max bridge_pushes_in_flight_max bridge_backoff_max_ms;
    "an answer, which is cut and not refused":
        feed_page_max feed_page_bytes_max feed_wait_max_s;
};
