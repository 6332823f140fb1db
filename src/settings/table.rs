//! The settings. Each is defined here and nowhere else: name, type, default, allowed range, unit
//! and documentation.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use slog::Level;
use state_machine::LastConnect;

use super::sources::{RawSettings, SettingsError};
use super::value::{BillingMode, LogFormat, NamePart, PublicUrl, StoreKind, TomlKind, Value};
use crate::peers::address::AllowedNodes;

/// A setting, as far as it does not depend on its type.
#[derive(Debug)]
pub struct Setting {
    /// Its one name.
    pub name: &'static str,
    /// What it does.
    pub doc: &'static str,
    /// What its number counts.
    pub unit: Option<&'static str>,
    /// Which numbers it can be.
    pub range: Option<RangeInclusive<u64>>,
    /// How it stands in a file.
    pub toml_kind: TomlKind,
    /// What a flag's help calls its value.
    pub placeholder: &'static str,
    /// Its default, as text.
    pub default: fn() -> String,
}

/// Settings that are documented together.
#[derive(Debug)]
pub struct Group {
    /// The heading.
    pub title: &'static str,
    /// The settings.
    pub settings: &'static [Setting],
}

impl Setting {
    /// All settings, in the order of the documentation.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        GROUPS.iter().flat_map(|group| group.settings)
    }

    /// The setting of that name.
    pub fn find(name: &str) -> Option<&'static Self> {
        Self::all().find(|setting| setting.name == name)
    }
}

macro_rules! settings {
    ($( group $title:literal { $(
        $(#[doc = $doc:literal])+
        $name:ident: $type:ty = $default:expr $(, in $range:expr)? $(, $unit:literal)?;
    )+ } )+) => {
        /// All settings, checked.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Settings { $($(
            $(#[doc = $doc])+
            pub $name: $type,
        )+)+ }

        impl Default for Settings {
            fn default() -> Self {
                Self { $($( $name: $default, )+)+ }
            }
        }

        impl Settings {
            /// Reads every setting from what is given, or says all that is wrong with it.
            pub(super) fn read(mut given: RawSettings) -> Result<Self, SettingsError> {
                let settings = Self { $($( $name: given.read(stringify!($name), $default), )+)+ };
                given.finish(settings)
            }
        }

        /// The whole table, in the order of the documentation.
        pub static GROUPS: &[Group] = &[ $( Group {
            title: $title,
            settings: &[ $( Setting {
                name: stringify!($name),
                doc: concat!($($doc),+),
                unit: optional!($($unit)?),
                range: optional!($($range)?),
                toml_kind: <$type as Value>::TOML_KIND,
                placeholder: <$type as Value>::PLACEHOLDER,
                default: || <$type as Value>::show(&$default),
            }, )+ ],
        }, )+ ];
    };
}

macro_rules! optional {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
}

/// Any number that a queue or a set in memory may reasonably be bounded by.
const COUNT: RangeInclusive<u64> = 1..=10_000_000;
/// Waits that are answered by software: up to ten minutes.
const WAIT_MS: RangeInclusive<u64> = 1..=600_000;
/// Spans that are counted in seconds: up to a day.
const UP_TO_A_DAY_S: RangeInclusive<u64> = 1..=86_400;

settings! {
    group "The server" {
        /// Directory of the database and the keys. Made when it is missing; belongs to one server
        /// at a time. Back up the whole directory while the server is stopped: without router.db all
        /// user agents must subscribe again, without keys.toml no endpoint that was handed out opens.
        data_dir: PathBuf = PathBuf::from("./kalends-data");

        /// Address and port that user agents and application servers connect to. Port 0 takes any
        /// free one.
        listen: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080));

        /// Origin under which the server is reached from outside. Needed where that is not the
        /// listen address, behind a proxy that ends TLS for instance. Endpoints begin with it and
        /// VAPID tokens must name it. Choose it before the first browser connects: subscriptions keep the
        /// endpoint they got, application servers sign for the origin in it, and after a change their
        /// signed pushes to the older subscriptions are refused.
        public_url: Option<PublicUrl> = None;

        /// Worker threads; 0 starts one for each core.
        workers: usize = 0, in 0..=1024, "threads";

        /// Moves message tables with the month. `false` freezes the newest table.
        rotation: bool = true;
    }

    group "Storage" {
        /// Where records and messages are kept: embedded, which is SQLite files in `data_dir`, or
        /// dynamodb, which is Amazon DynamoDB or anything that speaks its API. `data_dir` holds the
        /// keys in either case.
        store: StoreKind = StoreKind::Embedded;

        /// Makes DynamoDB tables that are missing. With `false` they are made by hand or by `kalends
        /// tables create`, and the server refuses to start without them. Embedded tables are always made.
        create_tables: bool = true;

        /// Writes that may wait for the disk; above it storage answers that it is busy. Embedded only.
        write_queue_max: usize = 8192, in COUNT, "writes";

        /// Keys of the `last_connect` index that one hour is spread over, so that the first hour of
        /// a month makes none of them hot. Never lower it while `kalends users drop-inactive` is still to
        /// find records that were written with more.
        last_connect_shards: usize = LastConnect::SHARDS, in 1..=9999, "keys";

        /// Region of DynamoDB, such as eu-central-1. Where it is not set, the usual variables and
        /// files of AWS name it (AWS_REGION, ~/.aws/config). Credentials come only from there.
        dynamodb_region: Option<NamePart> = None;

        /// Where DynamoDB is reached, for anything that is not AWS: http://127.0.0.1:8000.
        dynamodb_endpoint_url: Option<PublicUrl> = None;

        /// What the names of all tables begin with, so that several installations can share an account.
        dynamodb_table_prefix: NamePart = NamePart::default();

        /// What the names of message tables begin with: `message` gives message_2026_11.
        dynamodb_message_prefix: NamePart = NamePart::new("message");

        /// How tables that are made are paid for: on-demand or provisioned.
        dynamodb_billing: BillingMode = BillingMode::OnDemand;

        /// Read capacity of provisioned tables that are made. A new month's table gets this month's.
        dynamodb_read_units: u32 = 5, in 1..=1_000_000, "units a second";

        /// Write capacity of provisioned tables that are made. A new month's table gets this month's.
        dynamodb_write_units: u32 = 5, in 1..=1_000_000, "units a second";

        /// How long connecting to DynamoDB may take.
        dynamodb_connect_timeout_ms: u64 = 2000, in WAIT_MS, "ms";

        /// How long DynamoDB may take to answer one attempt.
        dynamodb_attempt_timeout_ms: u64 = 3000, in WAIT_MS, "ms";

        /// How long an operation may take with all its attempts and the waits between them.
        dynamodb_operation_timeout_ms: u64 = 10_000, in WAIT_MS, "ms";

        /// How often an operation that failed or was throttled is attempted; then the push is
        /// answered 503, and a session tries again after `store_retry_ms`.
        dynamodb_attempts_max: u32 = 6, in 1..=100, "attempts";

        /// How long is waited before the second attempt, at random up to this; it doubles with
        /// each further one.
        dynamodb_backoff_ms: u64 = 50, in WAIT_MS, "ms";

        /// Longest wait between two attempts.
        dynamodb_backoff_max_ms: u64 = 2000, in WAIT_MS, "ms";

        /// Operations that may be under way or wait at once; above it storage answers that it is busy.
        dynamodb_requests_max: usize = 4096, in COUNT, "operations";

        /// Writes of one user agent that may be under way or wait at once; more are answered that storage is
        /// busy, for that agent only.
        dynamodb_agent_writes_max: usize = 192, in 32..=100_000, "operations";

        /// Connections to DynamoDB at most, each with one request at a time.
        dynamodb_connections_max: usize = 256, in 1..=65_535, "connections";

        /// Threads that talk to DynamoDB.
        dynamodb_threads: usize = 2, in 1..=1024, "threads";

        /// Rows that one operation reads or writes at the same time, when it has several.
        dynamodb_rows_in_flight_max: usize = 16, in 1..=1000, "rows";
    }

    group "Logging" {
        /// The least level that is logged: critical, error, warning, info, debug or trace.
        /// Release builds have no trace lines.
        log_level: Level = Level::Info;

        /// How log lines are written: human, json, or auto, which is human on a terminal and JSON
        /// elsewhere.
        log_format: LogFormat = LogFormat::Auto;

        /// Log lines that may wait to be written. Those above it are dropped, and the log says how
        /// many.
        log_queue_max: usize = 8192, in COUNT, "lines";
    }

    group "A user agent's session" {
        /// How long a new connection may take to say hello before it is closed.
        hello_timeout_ms: u64 = 5000, in WAIT_MS, "ms";

        /// A connection from which nothing came for so long is pinged. A proxy in front must keep
        /// idle connections for longer than this and `keepalive_grace_s` together (nginx:
        /// `proxy_read_timeout`).
        keepalive_interval_s: u64 = 300, in UP_TO_A_DAY_S, "s";

        /// How long a pinged connection may stay silent before it is closed.
        keepalive_grace_s: u64 = 30, in UP_TO_A_DAY_S, "s";

        /// A session is closed at about this age, so that the agent connects again and moves to
        /// the current month.
        session_max_days: u64 = 14, in 1..=28, "days";

        /// How often a session looks for messages in storage that nobody told it of.
        storage_recheck_s: u64 = 1800, in UP_TO_A_DAY_S, "s";

        /// How long a session in a new month waits for the acks of last month's messages before
        /// it carries them over; 0 waits for ever. Firefox gives up a command after 10 s.
        drain_wait_ms: u64 = 8000, in 0..=600_000, "ms";

        /// How long a session waits before it repeats what storage refused; it doubles with every
        /// refusal, up to 64 times this.
        store_retry_ms: u64 = 1000, in WAIT_MS, "ms";

        /// Messages read from storage at a time.
        fetch_rows_max: usize = 100, in 1..=10_000, "messages";

        /// Payload read from storage at a time; one message is always read.
        fetch_bytes_max: usize = 1_048_576, in 4096..=1_073_741_824, "bytes";

        /// Messages sent to one agent that may wait for its ack.
        unacked_max: usize = 128, in 1..=100_000, "messages";

        /// Commands of one agent that may wait until its session is ready.
        deferred_commands_max: usize = 256, in 1..=100_000, "commands";

        /// Ids of acked messages that a session remembers, so that one which is stored late is
        /// deleted and not sent again.
        remembered_acks_max: usize = 128, in 1..=100_000, "messages";

        /// Channels one user agent may register.
        channels_max: usize = 2000, in 1..=100_000, "channels";

        /// Largest frame a user agent may send.
        frame_bytes_max: usize = 65_536, in 1024..=16_777_216, "bytes";

        /// Messages that may wait in the mailbox of one session.
        client_mailbox_max: usize = 64, in 1..=100_000, "messages";
    }

    group "A push" {
        /// How long the endpoint waits for the user agent's ack before it stores the message.
        ack_wait_ms: u64 = 1000, in WAIT_MS, "ms";

        /// How much longer than `ack_wait_ms` the endpoint waits for a session that does not
        /// answer, because its peer has stopped reading.
        answer_grace_ms: u64 = 500, in WAIT_MS, "ms";

        /// Pushes that may wait for an ack; above it they are stored at once, and dropped where their TTL is 0.
        pushes_awaiting_ack_max: usize = 10_000, in COUNT, "pushes";

        /// Largest body of a push. Never less than the 4096 bytes that RFC 8030 promises. Bodies in
        /// the old aesgcm encoding may always have 4222 (5630 characters of base64). To accept
        /// in aes128gcm too what Mozilla's service accepts, set 4222.
        payload_bytes_max: usize = 4096, in 4096..=1_048_576, "bytes";

        /// Longest time a message is kept. A greater TTL is lowered to it, and the answer says so.
        ttl_max_s: u64 = 2_592_000, in 0..=31_536_000, "s";

        /// Memory for verified VAPID tokens, which are remembered until they expire: about 500 bytes
        /// a token.
        vapid_cache_bytes_max: usize = 33_554_432, in 4096..=1_073_741_824, "bytes";

        /// Pushes that may wait for the store at once; above it they are answered 503. Those that wait for an ack
        /// are not among them.
        pushes_in_flight_max: usize = 20_000, in COUNT, "pushes";
    }

    group "Several nodes" {
        /// Address and port of a connection node's router port, on which other nodes hand it messages. Keep
        /// it in a private network: requests are signed, and not encrypted.
        router_listen: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 8081));

        /// URL under which the other nodes reach this node's router port. It is the node's name in router records,
        /// so no two nodes may have the same. Needed where the router port listens on all addresses.
        router_url: Option<PublicUrl> = None;

        /// Nodes that are ever called, separated by commas: names (`node1.example.net`), ends of names (`*.example.net`),
        /// addresses and nets (`10.0.0.1`, `10.0.0.0/8`, `[fd00::]/8`), each with `:PORT` for that port only. What stands
        /// in a router record and is not among these is left alone. The node's own `router_url` must be among them.
        nodes_allowed: AllowedNodes = AllowedNodes::loopback();

        /// Connections of other nodes that the router port accepts at once, beside those of the public port. An
        /// endpoint node has up to `node_requests_max` at a time, and a few for what it tells.
        router_connections_max: usize = 10_000, in COUNT, "connections";

        /// How far the clocks of two nodes may be apart. A request between nodes that was signed longer ago, or
        /// later than now, is refused.
        cluster_clock_skew_s: u64 = 60, in 1..=3600, "s";

        /// Requests that may be under way from this node to one other. Above it a message is stored at once, and the
        /// node is told of it when there is room.
        node_requests_max: usize = 512, in COUNT, "requests";

        /// How long connecting to another node may take.
        node_connect_timeout_ms: u64 = 500, in WAIT_MS, "ms";

        /// How much longer than `ack_wait_ms` and `answer_grace_ms` together an endpoint node waits for the answer
        /// of a connection node.
        node_answer_grace_ms: u64 = 500, in WAIT_MS, "ms";

        /// How long a node that failed is left alone before it is tried again; it doubles with each failure.
        /// Meanwhile messages for its user agents are stored at once.
        peer_backoff_ms: u64 = 500, in WAIT_MS, "ms";

        /// The longest that a node which failed is left alone. When it is back, the agents that messages
        /// were stored for are told.
        peer_backoff_max_ms: u64 = 5000, in WAIT_MS, "ms";

        /// User agents of one node that may wait to be told that a message was stored for them. Those above
        /// it find it when they look by themselves (`storage_recheck_s`).
        peer_pending_notifications_max: usize = 10_000, in COUNT, "user agents";

        /// Connections to one other node that are kept open while nothing is sent on them.
        node_connections_idle_max: usize = 64, in 1..=65_535, "connections";

        /// How long a connection to another node is kept open while nothing is sent on it.
        node_connection_idle_s: u64 = 30, in 1..=60, "s";

        /// Other nodes that are remembered at once. Of one more nobody is told anything until another has
        /// not been asked for a while; messages for its user agents are stored.
        nodes_max: usize = 1000, in 1..=100_000, "nodes";

        /// User agents that may connect in a second. One more is answered 503 before anything is
        /// read for it, so that storage can keep up when all come back at once. 0 is no limit.
        connects_per_second_max: usize = 2000, in 0..=1_000_000, "user agents a second";

        /// How long a connection node that was told to stop takes to close its sessions, evenly spread, so that the
        /// agents do not all come to the other nodes at once. `kalends serve` closes all at once.
        drain_s: u64 = 30, in 0..=3600, "s";

        /// How long a node that was told to stop goes on answering, while `/__lbheartbeat__` tells the load balancer to
        /// send no more: an endpoint node takes pushes for so long, and a connection node that has no session left stays
        /// for so long, but no longer than `drain_s`.
        drain_lame_duck_s: u64 = 5, in 0..=600, "s";
    }

    group "Feeds and broadcasts" {
        /// Keys of one feed. Those that were deleted count too: what is left of one, its tombstone, tells
        /// consumers that come later. Where a feed is full, a new key is answered 507, and the keys that are
        /// there can still be written. The feed `broadcasts` has at most 10000, as every node has them in memory.
        feed_keys_max: u64 = 100_000, in COUNT, "keys";

        /// Largest value of a key. 262144 is the most that fits into an item of DynamoDB with all
        /// that is kept beside it. A broadcast's version has at most 1024.
        feed_value_bytes_max: usize = 65_536, in 1..=262_144, "bytes";

        /// Updates of one page. `limit` of a request can ask for fewer, never for more. DynamoDB gives at most 1000.
        feed_page_max: usize = 1000, in 1..=10_000, "updates";

        /// Values of one page; one update is always read.
        feed_page_bytes_max: usize = 1_048_576, in 4096..=1_073_741_824, "bytes";

        /// Pages of more than 64 KiB that are on their way at once: each is in memory until its reader has
        /// taken it. One more is answered 503 with `Retry-After`.
        feed_pages_max: usize = 256, in 1..=100_000, "pages";

        /// Longest time that a request with `wait` is held until the feed has something for it. A proxy in
        /// front must let a request wait for longer than this (nginx: `proxy_read_timeout`).
        feed_wait_max_s: u64 = 60, in 0..=3600, "s";

        /// How long an event stream may be silent before a comment is sent on it, so that
        /// proxies keep it open and a reader that is gone is noticed.
        feed_keepalive_s: u64 = 15, in 1..=3600, "s";

        /// Consumers that follow feeds at once: event streams, and requests that wait. Above it they are
        /// answered 503 with `Retry-After`.
        feed_followers_max: usize = 10_000, in COUNT, "consumers";

        /// Keys that one transaction gives their numbers to. DynamoDB takes 100 items in one, so there a
        /// batch holds fewer keys than this.
        feed_batch_max: usize = 100, in 1..=10_000, "keys";

        /// How often a feed that somebody here follows is looked at for what other nodes
        /// published: it bounds how late their changes come. A change written on this node is told at once.
        feed_poll_ms: u64 = 1000, in WAIT_MS, "ms";

        /// How long publishing or reading a feed waits before it repeats what storage refused; it doubles with
        /// every refusal, up to 64 times this.
        feed_retry_ms: u64 = 1000, in WAIT_MS, "ms";

        /// How often all feeds are looked through for changes that a node wrote and did not live
        /// to publish. It is done at start too.
        feed_sweep_s: u64 = 60, in UP_TO_A_DAY_S, "s";

        /// Feeds that may be followed at once, and those that may wait to be published besides. To follow one more is
        /// answered 503; one more that was written is as durable, and published by a later sweep.
        feeds_open_max: usize = 10_000, in COUNT, "feeds";

        /// Messages that may wait in the mailbox of the publisher, where what does not get in is found by a sweep; and in
        /// that of what tells of broadcasts, where a session that does not get in is closed and comes again.
        feed_mailbox_max: usize = 4096, in COUNT, "messages";

        /// Raise it by one, and no token that was made for a feed before is taken any longer. Nodes that
        /// share a store need the same number.
        feed_tokens_epoch: u32 = 0, in 0..=4_294_967_295, "revocations";

        /// How long it takes until all connected user agents were told of a broadcast that changed,
        /// evenly spread, so that they do not all ask its owner for the new version at once. 0 tells all of them at once.
        broadcast_fanout_ms: u64 = 60_000, in 0..=3_600_000, "ms";

        /// Broadcasts that one user agent may subscribe to.
        broadcasts_per_agent_max: usize = 64, in 1..=10_000, "broadcasts";

        /// Origin of an HTTP service whose broadcasts are taken over into the feed `broadcasts`, in the form of
        /// Mozilla's megaphone: `GET /v1/broadcasts` answers `{"broadcasts": {"ID": "VERSION"}}`.
        broadcast_source_url: Option<PublicUrl> = None;

        /// File with the bearer token that `broadcast_source_url` asks for, mode 0600 or 0400. It is read anew
        /// before each request.
        broadcast_source_token_file: Option<PathBuf> = None;

        /// How often `broadcast_source_url` is asked.
        broadcast_source_poll_s: u64 = 60, in UP_TO_A_DAY_S, "s";
    }

    group "The process" {
        /// Connections, of user agents and application servers together, that the public port accepts at once.
        connections_max: usize = 100_000, in COUNT, "connections";

        /// How long a request's headers may take to arrive.
        request_headers_timeout_ms: u64 = 5000, in WAIT_MS, "ms";

        /// How long a request's body may take to arrive.
        request_body_timeout_ms: u64 = 10_000, in WAIT_MS, "ms";

        /// A connection whose peer has not confirmed sent bytes for so long is closed by the
        /// operating system.
        tcp_user_timeout_ms: u64 = 30_000, in 1..=3_600_000, "ms";

        /// Messages that may wait in the registry's mailbox.
        registry_mailbox_max: usize = 4096, in COUNT, "messages";

        /// Messages that may wait in an endpoint actor's mailbox.
        endpoint_mailbox_max: usize = 4096, in COUNT, "messages";

        /// How long a server that was told to stop may take to finish what it began.
        shutdown_wait_ms: u64 = 10_000, in 0..=600_000, "ms";
    }
}

#[cfg(test)]
mod tests;
