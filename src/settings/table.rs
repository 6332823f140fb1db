//! The table of settings: name, type, default, range, unit and documentation, each written once.

#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use slog::Level;
use state_machine::LastConnect;
use storage::WhenFull;

use super::raw::{RawSettings, SettingsError};
use super::setting::{
    COUNT, Group, PER_MINUTE, Setting, UP_TO_A_DAY_S, WAIT_MS, optional, settings,
};
use super::value::{
    AccessMode, AddressOrOff, AgeRecipient, AllowedOrigins, AllowedVapidKeys, BillingMode,
    DirectoryUrl, DomainName, Email, FormerUrls, ListenAddress, NamePart, PostgresUrl, PublicUrl,
    SchemaName, StoreKind, Value,
};
use crate::system::networks::Networks;
use crate::system::node_address::AllowedNodes;
use crate::system::telemetry::LogFormat;

/// The default of `metrics_listen`.
pub const METRICS_LISTEN: AddressOrOff =
    AddressOrOff(Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8082)));

impl Setting {
    /// All settings, in the order of the documentation.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        GROUPS.iter().flat_map(|group| group.settings)
    }

    /// The setting named `name`.
    pub fn find(name: &str) -> Option<&'static Self> {
        Self::all().find(|setting| setting.name == name)
    }
}

settings! {
    group "Server" {
        /// Directory of the database and the keys. The server creates it if it is missing; one server at a time uses
        /// it. Back it up with `kalends backup`: without router.db every user agent must subscribe again, and without
        /// keys.toml no endpoint URL issued so far works.
        data_dir: PathBuf = PathBuf::from("./kalends-data");

        /// Address and port for user agents and application servers. Port 0 selects a free port. With `unix:` and a path,
        /// such as `unix:/run/kalends/http.sock`, it is a Unix socket for a proxy on this machine. Then `public_url` is
        /// required, the proxy terminates TLS, and its `X-Forwarded-For` counts as if it were in `trusted_proxies`.
        listen: ListenAddress = ListenAddress::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)));

        /// Public origin of the server, with which endpoint URLs begin and which VAPID tokens must name. Set it if it
        /// differs from the listen address, for instance behind a proxy that terminates TLS. Choose it before the first
        /// browser connects: a subscription keeps its endpoint URL, and application servers sign for the origin in it.
        /// After a change, signed pushes to older subscriptions are rejected, unless `former_urls` has the old origin.
        public_url: Option<PublicUrl> = None;

        /// Origins that `public_url` had before, separated by commas, 16 at most. Pushes that are signed for one of them
        /// are accepted, and so are Matrix pushkeys that begin with one. Their names must lead to this server for as long
        /// as pushes come, which `kalends_former_url_pushes_total` counts.
        former_urls: FormerUrls = FormerUrls::default();

        /// Origins of web pages that may open the WebSocket of user agents beside the public origin, separated by
        /// commas. Others get 403; `*` allows all. User agents need no entry: they send no web origin.
        origins_allowed: AllowedOrigins = AllowedOrigins::default();

        /// Who may connect as a user agent: `open` admits all, `token` those whose URL has an access token of
        /// `kalends access add`, as in `wss://push.example.net/u/TOKEN`. Others get 401.
        access: AccessMode = AccessMode::Open;

        /// Shows a page to a browser that opens the address of the server: how to use it, and a trial. On a closed server
        /// the page is at `/u/TOKEN` only, and elsewhere one that names the operator as who has the address.
        web_page: bool = true;

        /// Number of worker threads; 0 starts one for each core.
        workers: usize = 0, in 0..=1024, "threads";

        /// Creates a message table for each month and moves user agents to it. With `false`, the table in use stays in
        /// use: the newest that user agents are on.
        rotation: bool = true;

        /// Serves SimplePush, the protocol before Web Push, to user agents whose `hello` has no `use_webpush: true`.
        /// Those of UnifiedPush have none either, so this server is not for them then.
        simplepush: bool = false;
    }

    group "TLS" {
        /// File with the certificate of the public port and those of its issuers, in PEM. With it and `tls_key` the port
        /// speaks TLS, and no proxy is needed in front. The files are read again when they change, and at SIGHUP.
        tls_certificate: Option<PathBuf> = None;

        /// File with the private key of `tls_certificate`, in PEM.
        tls_key: Option<PathBuf> = None;

        /// Public name of this server, such as push.example.net, for a server without a proxy. `listen` is then [::]:443
        /// by default, `http_listen` [::]:80, and `public_url` https:// with this name. The server orders its certificate
        /// and renews it (ACME), unless `tls_certificate` is set. By this setting you agree to the terms of the authority.
        domain: Option<DomainName> = None;

        /// Address and port that answer the authority over http and redirect all others to `public_url`; `off` for none.
        /// With `domain`, [::]:80 is the default. With `off` the authority must reach port 443.
        http_listen: AddressOrOff = AddressOrOff(None);

        /// ACME directory of the authority that issues the certificate of `domain`.
        acme_directory_url: DirectoryUrl = DirectoryUrl::lets_encrypt(), secret "password";

        /// Email address that the authority may write to. Let's Encrypt needs none.
        acme_contact: Option<Email> = None;

        /// Time for a TLS handshake. The server then closes the connection.
        tls_handshake_timeout_ms: u64 = 10_000, in WAIT_MS, "ms";
    }

    group "Storage" {
        /// Store for records and messages: `embedded` keeps SQLite files in `data_dir`, `dynamodb` uses Amazon DynamoDB
        /// or a server with the same API, `postgresql` a PostgreSQL database. The keys are in `data_dir` in every case.
        store: StoreKind = StoreKind::Embedded;

        /// Creates missing tables in DynamoDB or PostgreSQL. With `false`, create them by hand or with `kalends tables create`; the
        /// server does not start without them. Embedded tables are always created.
        create_tables: bool = true;

        /// Copies each SQLite file of an older version into `before-VERSION` in `data_dir` before the start changes it. The
        /// copies are the way back to the older version; remove them when you do not need it any more. With too little
        /// space the server does not start.
        migration_copy: bool = true;

        /// Writes that may wait for the disk. Above it, the store is busy and a push gets 503. Embedded store only.
        write_queue_max: usize = 8192, in COUNT, "writes";

        /// Free space to keep on the disk of `data_dir`. With less, pushes that must be stored get 503, while user
        /// agents connect, subscribe and receive from the space that is left. With less than half of it, new user
        /// agents and channels are refused too. 0 keeps none. Embedded store only.
        disk_free_min: u64 = 67_108_864, in 0..=1_000_000_000_000, "bytes";

        /// Serves from a `data_dir` whose file system cannot sync files or directories, such as some network and FUSE file
        /// systems. A power loss can then lose subscriptions and messages that were answered. With `false`, the server
        /// does not start on it.
        allow_unsynced_data_dir: bool = false;

        /// Index keys that the records of one hour are spread over, so that none is hot in the first hour of a month.
        /// Do not lower it while records written with more remain: `kalends users drop-inactive` would miss them.
        last_connect_shards: usize = LastConnect::SHARDS, in 1..=9999, "keys";

        /// Region of DynamoDB, such as eu-central-1. If it is not set, the variables and files of the AWS SDK apply
        /// (AWS_REGION, ~/.aws/config). Credentials are read only from those.
        dynamodb_region: Option<NamePart> = None;

        /// Endpoint of a DynamoDB server other than that of AWS, such as http://127.0.0.1:8000.
        dynamodb_endpoint_url: Option<PublicUrl> = None, secret "password";

        /// Prefix of all table names, so that several installations can share an account.
        dynamodb_table_prefix: NamePart = NamePart::default();

        /// Prefix of the names of message tables: `message` gives message_2026_11.
        dynamodb_message_prefix: NamePart = NamePart::new("message");

        /// Billing mode of tables that the server creates: on-demand or provisioned.
        dynamodb_billing: BillingMode = BillingMode::OnDemand;

        /// Read capacity of provisioned tables that the server creates. That of a new month gets the current one's.
        dynamodb_read_units: u32 = 5, in 1..=1_000_000, "units a second";

        /// Write capacity of provisioned tables that the server creates. The table of a new month gets the capacity of
        /// the current one.
        dynamodb_write_units: u32 = 5, in 1..=1_000_000, "units a second";

        /// Timeout for connecting to DynamoDB.
        dynamodb_connect_timeout_ms: u64 = 2000, in WAIT_MS, "ms";

        /// Timeout for one attempt of an operation.
        dynamodb_attempt_timeout_ms: u64 = 3000, in WAIT_MS, "ms";

        /// Timeout for an operation with all its attempts and the waits between them.
        dynamodb_operation_timeout_ms: u64 = 10_000, in WAIT_MS, "ms";

        /// Attempts of an operation that fails or is throttled. After the last one, a push gets 503 and a session
        /// retries after `store_retry_ms`.
        dynamodb_attempts_max: u32 = 6, in 1..=100, "attempts";

        /// Longest wait before the second attempt; the wait is random. The limit doubles with each further attempt.
        dynamodb_backoff_ms: u64 = 50, in WAIT_MS, "ms";

        /// Longest wait between two attempts.
        dynamodb_backoff_max_ms: u64 = 2000, in WAIT_MS, "ms";

        /// Operations in flight or waiting. Above it, the store is busy.
        dynamodb_requests_max: usize = 4096, in COUNT, "operations";

        /// Writes of one user agent in flight or waiting. Above it, the store is busy for that agent only.
        dynamodb_agent_writes_max: usize = 192, in 32..=100_000, "operations";

        /// Connections to DynamoDB. Each carries one request at a time.
        dynamodb_connections_max: usize = 256, in 1..=65_535, "connections";

        /// Threads that talk to DynamoDB.
        dynamodb_threads: usize = 2, in 1..=1024, "threads";

        /// Rows that one operation reads or writes concurrently.
        dynamodb_rows_in_flight_max: usize = 16, in 1..=1000, "rows";

        /// Database of `store = "postgresql"`, such as postgresql://kalends@db.example.net/push. Several hosts may be named,
        /// separated by commas: the one that takes writes is used. What is left out is that of the variables PGHOST, PGPORT,
        /// PGUSER, PGDATABASE, PGPASSWORD, PGSSLMODE and PGSSLROOTCERT. To another machine the connection is encrypted and the
        /// server's certificate checked, unless the URL says `sslmode=require` or `disable`.
        postgresql_url: Option<PostgresUrl> = None, secret "password";

        /// File with the password of the database user, so that it is in no URL.
        postgresql_password_file: Option<PathBuf> = None;

        /// Schema of the tables, so that several installations can share a database.
        postgresql_schema: SchemaName = SchemaName::new("kalends");

        /// Set it if the URL leads to PgBouncer, or another pooler, in transaction mode: no statement is kept prepared.
        postgresql_pooler: bool = false;

        /// Timeout for connecting to PostgreSQL.
        postgresql_connect_timeout_ms: u64 = 2000, in WAIT_MS, "ms";

        /// Timeout for a statement or a transaction, and for waiting for a connection.
        postgresql_operation_timeout_ms: u64 = 10_000, in WAIT_MS, "ms";

        /// Operations in flight or waiting. Above it, the store is busy.
        postgresql_requests_max: usize = 8192, in COUNT, "operations";

        /// Writes of one user agent in flight or waiting. Above it, the store is busy for that agent only.
        postgresql_agent_writes_max: usize = 192, in 32..=100_000, "operations";

        /// Connections for writes, as many for records, for other reads, and for transactions of several steps.
        postgresql_connections_max: usize = 3, in 1..=1000, "connections";

        /// Threads that talk to PostgreSQL.
        postgresql_threads: usize = 2, in 1..=1024, "threads";
    }

    group "Logging" {
        /// Lowest level that is logged: critical, error, warn, info, debug or trace (not in release builds).
        log_level: Level = Level::Info;

        /// Format of log lines: human, json, or auto, which is human on a terminal and JSON elsewhere.
        log_format: LogFormat = LogFormat::Auto;

        /// Log lines that may wait to be written. Further lines are dropped, and the log reports their number.
        log_queue_max: usize = 8192, in COUNT, "lines";
    }

    group "Monitoring" {
        /// Address and port of `GET /metrics`, for Prometheus; `off` for none. Keep it in a private network. If the
        /// default is taken, the server goes on without it; if another address is taken, it does not start.
        metrics_listen: AddressOrOff = METRICS_LISTEN;

        /// Shows an operator's page at `/admin` on this port: `kalends access operator` prints the link to it.
        admin_page: bool = true;

        /// Time between two updates of open operator's pages.
        admin_page_interval_ms: u64 = 2000, in 10..=60_000, "ms";

        /// Address and port of a statsd server, which gets the metrics over UDP. Not set: none.
        statsd_address: Option<SocketAddr> = None;

        /// Interval at which the statsd server gets them.
        statsd_interval_s: u64 = 10, in UP_TO_A_DAY_S, "s";

        /// Pushes that each process remembers for `kalends inspect`, about 100 bytes each: when, to which channel, and
        /// how they ended. They have no contents and no sender. 0 is none.
        push_history_max: usize = 10_000, in 0..=10_000_000, "pushes";
    }

    group "Sessions" {
        /// Time for a new connection to send hello. The server then closes it.
        hello_timeout_ms: u64 = 5000, in WAIT_MS, "ms";

        /// Silence of a user agent after which the server pings it. A proxy in front must keep idle connections for
        /// longer than this and `keepalive_grace_s` together (nginx: `proxy_read_timeout`).
        keepalive_interval_s: u64 = 300, in UP_TO_A_DAY_S, "s";

        /// Time for a pinged user agent to send anything. The server then closes the connection.
        keepalive_grace_s: u64 = 30, in UP_TO_A_DAY_S, "s";

        /// Time after an answer to `{}` in which a session ignores further ones: some agents answer it with `{}`.
        ping_floor_ms: u64 = 3000, in WAIT_MS, "ms";

        /// Approximate age at which a session is closed, so that the agent reconnects and moves to the current month.
        session_max_days: u64 = 14, in 1..=28, "days";

        /// Interval at which a session reads the store for messages that it was not notified of.
        storage_recheck_s: u64 = 1800, in UP_TO_A_DAY_S, "s";

        /// Time that a session in a new month waits for the acks of last month's messages before it moves them to the
        /// new table; 0 waits without limit. Firefox gives up a command after 10 s.
        drain_wait_ms: u64 = 8000, in 0..=600_000, "ms";

        /// Wait before a session repeats a failed store operation. It doubles with each failure, up to 64 times this.
        store_retry_ms: u64 = 1000, in WAIT_MS, "ms";

        /// Messages that a session reads from the store first. It reads more after the first ack, or 50 ms later: an
        /// agent that connects and leaves again and again costs few reads.
        first_fetch_rows_max: usize = 16, in 1..=10_000, "messages";

        /// Messages that a session reads from the store at a time.
        fetch_rows_max: usize = 100, in 1..=10_000, "messages";

        /// Payload that a session reads from the store at a time. One message is always read.
        fetch_bytes_max: usize = 1_048_576, in 4096..=1_073_741_824, "bytes";

        /// Messages sent to one user agent for whose ack it still waits. A channel with messages that it waited for in
        /// vain may have half as many unacked ones.
        unacked_max: usize = 128, in 1..=100_000, "messages";

        /// Commands of one user agent that may wait until its session is ready.
        deferred_commands_max: usize = 256, in 1..=100_000, "commands";

        /// Ids of acked messages that a session remembers. A message that is stored after its ack is then deleted and
        /// not sent again.
        remembered_acks_max: usize = 128, in 1..=100_000, "messages";

        /// Channels that one user agent may register.
        channels_max: usize = 2000, in 1..=100_000, "channels";

        /// Size of the largest frame that a user agent may send.
        frame_bytes_max: usize = 65_536, in 1024..=16_777_216, "bytes";

        /// Frames and KiB that one user agent may send in a second, and as many at once. Above it the server reads from
        /// it no faster. 0 is no limit.
        agent_frames_per_second_max: usize = 1000, in 0..=1_000_000, "frames";

        /// Capacity of a session's mailbox.
        client_mailbox_max: usize = 64, in 1..=100_000, "messages";
    }

    group "Pushes" {
        /// Time that the endpoint waits for the user agent's ack. It then stores the message.
        ack_wait_ms: u64 = 1000, in WAIT_MS, "ms";

        /// Time beyond `ack_wait_ms` that the endpoint waits for a session that does not answer because its peer has
        /// stopped reading.
        answer_grace_ms: u64 = 250, in WAIT_MS, "ms";

        /// Pushes that may wait for an ack. Above it, a message is stored at once, or dropped if its TTL is 0.
        pushes_awaiting_ack_max: usize = 10_000, in COUNT, "pushes";

        /// Pushes to one user agent that may wait for an ack, so that none uses up `pushes_awaiting_ack_max`. So many may
        /// wait for its bridge, but at most a quarter of `bridge_pushes_in_flight_max`; a further one gets 429.
        agent_pushes_awaiting_ack_max: usize = 64, in COUNT, "pushes";

        /// Size of the largest body of a push; RFC 8030 requires at least 4096. A body in the old aesgcm encoding may
        /// always have 5630, the limit of Mozilla's service. That service accepts 5630 in aes128gcm too; set that to
        /// accept the same.
        payload_bytes_max: usize = 4096, in 4096..=1_048_576, "bytes";

        /// Refuses a body in aes128gcm that does not begin as RFC 8291 requires, or that has the VAPID key of its push as
        /// its key, with 400. By default bodies are not looked at: some gateways send other data under that name.
        payload_header_required: bool = false;

        /// Takes pushes without `TTL`, as if it were `ttl_max_s`, and without `Content-Encoding`, as if it were aes128gcm.
        lenient_senders: bool = false;

        /// Longest time that a message is kept. A greater TTL is lowered to it, and the response has the lowered value.
        ttl_max_s: u64 = 2_592_000, in 0..=31_536_000, "s";

        /// Memory for verified VAPID tokens, which are cached until they expire: about 256 bytes each.
        vapid_cache_bytes_max: usize = 33_554_432, in 4096..=1_073_741_824, "bytes";

        /// VAPID public keys of the application servers that may push, in base64url, separated by commas. With such a
        /// list, pushes with another key or none get 401, and registers with another key or none 403. Empty allows all.
        vapid_keys_allowed: AllowedVapidKeys = AllowedVapidKeys::default();

        /// Pushes that may wait for the store. Above it, a push gets 503. Pushes that wait for an ack do not count.
        pushes_in_flight_max: usize = 20_000, in COUNT, "pushes";

        /// Takes notifications of Matrix homeservers at `/_matrix/push/v1/notify`, for endpoints of this server only. With
        /// `false` that path is answered 404, and apps use another gateway.
        matrix_gateway: bool = true;
    }

    group "Waiting messages" {
        /// Messages that may wait for one user agent, in the table of one month. A further push gets 429 with
        /// `Retry-After`, unless `when_full` is `replace`. 0 is no bound.
        user_messages_max: u64 = 1000, in 0..=100_000, "messages";

        /// Size of the messages that may wait for one user agent. 0 is no bound.
        user_bytes_max: u64 = 4_194_304, in 0..=1_073_741_824, "bytes";

        /// Messages that may wait in one channel. Lower it so that one channel leaves room for others. 0 is no bound.
        channel_messages_max: u64 = 1000, in 0..=100_000, "messages";

        /// Size of the messages that may wait in one channel. 0 is no bound.
        channel_bytes_max: u64 = 4_194_304, in 0..=1_073_741_824, "bytes";

        /// What happens to a push above these bounds. `refuse` answers 429. `replace` deletes the least urgent and then
        /// the oldest messages until the new one fits. For that it reads all messages of the user agent. A push that is
        /// less urgent than all of them gets 429.
        when_full: WhenFull = WhenFull::Refuse;

        /// Interval at which expired messages of all user agents are deleted. 0 deletes those of a user agent only when
        /// it connects, when its bound is reached, or with their month. DynamoDB deletes them by itself.
        expiry_interval_s: u64 = 10, in 0..=86_400, "s";
    }

    group "Maintenance" {
        /// Drops users that were inactive for `inactive_months`, and then the tables of past months that no user is on, each
        /// Sunday at `maintenance_hour`. Of several servers one does it. With `false`, run `kalends users drop-inactive` and
        /// `kalends tables drop-old` by cron, since disks fill otherwise.
        maintenance: bool = true;

        /// The hour of the day, in UTC, in which maintenance and backups begin. Choose a quiet one.
        maintenance_hour: u64 = 4, in 0..=23, "h";

        /// Months without a connection after which a user is dropped. A browser that is not opened for most of a year keeps
        /// its subscriptions with 12.
        inactive_months: u32 = 12, in 2..=600, "months";

        /// Directory in which the server writes an archive each day, as `kalends backup` does, whatever `maintenance` is:
        /// an absolute path, best on another disk. It must exist. The archive has the keys, so only the user of the server
        /// may read it. For the embedded store only. Not set, no archive is written.
        backup_dir: Option<PathBuf> = None;

        /// Whether the server warns if it has made no backup for a week. Set `false` if something else copies the disk. For
        /// the embedded store only.
        backup_reminder: bool = true;

        /// Archives to keep in `backup_dir`: files with the name `kalends-DATE.tar` or `.tar.age`. Older ones are removed,
        /// and other files stay.
        backup_keep: usize = 7, in 1..=1000, "archives";

        /// Encrypts the archives to this recipient of age, such as age1... The program `age` must be installed. Keep its
        /// identity elsewhere: without it no archive can be restored.
        backup_recipient: Option<AgeRecipient> = None;
    }

    group "Cluster" {
        /// Address and port of a connection node's router port, on which endpoint nodes deliver messages. Keep it in a
        /// private network: requests are signed, not encrypted.
        router_listen: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 8081));

        /// URL at which the other nodes reach this node's router port. It names the node in router records, so it must
        /// be unique. It is required if the router port listens on all addresses.
        router_url: Option<PublicUrl> = None;

        /// Nodes that this node may call, separated by commas: names (`node1.example.net`), name suffixes
        /// (`*.example.net`), addresses and networks (`10.0.0.1`, `10.0.0.0/8`, `[fd00::]/8`). Each may have a `:PORT`
        /// and then allows that port only. A node in a router record that is not in this list is never called. The
        /// node's own `router_url` must be in the list.
        nodes_allowed: AllowedNodes = AllowedNodes::loopback();

        /// Connections that the router port accepts at once, beside those of the public port. An endpoint node has up
        /// to `node_requests_max` of them, and a few for notifications. A lower limit of open files lowers it too.
        router_connections_max: usize = 10_000, in COUNT, "connections";

        /// Largest difference between the clocks of two nodes that agree. A request that was signed earlier than that,
        /// or that much in the future, is refused, with the time of the node up to a day. The caller signs with that
        /// time, and reports the clock.
        cluster_clock_skew_s: u64 = 60, in 1..=3600, "s";

        /// Requests in flight to one other node. Above it, a message is stored at once and the node is notified later.
        node_requests_max: usize = 512, in COUNT, "requests";

        /// Timeout for connecting to another node.
        node_connect_timeout_ms: u64 = 500, in WAIT_MS, "ms";

        /// Time beyond `ack_wait_ms` and `answer_grace_ms` that an endpoint node waits for the response of a connection
        /// node.
        node_answer_grace_ms: u64 = 250, in WAIT_MS, "ms";

        /// Wait after the first failure of a node before it is called again. It doubles with each failure. Meanwhile
        /// messages for its user agents are stored at once.
        peer_backoff_ms: u64 = 500, in WAIT_MS, "ms";

        /// Longest wait before a failed node is called again. When it answers, it is notified of the messages stored
        /// for its agents.
        peer_backoff_max_ms: u64 = 5000, in WAIT_MS, "ms";

        /// User agents of one node for which a notification may be pending. Above it, a notification is dropped and the
        /// session finds the message at its next check of the store (`storage_recheck_s`).
        peer_pending_notifications_max: usize = 10_000, in COUNT, "user agents";

        /// Idle connections kept open to one other node.
        node_connections_idle_max: usize = 64, in 1..=65_535, "connections";

        /// Time that an idle connection to another node is kept open.
        node_connection_idle_s: u64 = 30, in 1..=60, "s";

        /// Size of the table of peer nodes. When it is full, notifications for further nodes are dropped until an idle
        /// entry is evicted; messages for their agents are stored.
        nodes_max: usize = 1000, in 1..=100_000, "nodes";

        /// User agents that may connect in a second, counted by their hello. A further one gets 503, or is closed at
        /// its hello before anything is read for it, so that the store keeps up when all agents reconnect at once.
        /// Agents without a uaid leave half of this many places to the others. 0 is no limit.
        connects_per_second_max: usize = 2000, in 0..=1_000_000, "user agents a second";

        /// Time over which a stopping connection node closes its sessions, evenly spread, so that the agents do not all
        /// reconnect at once. `kalends serve --role all` closes all at once.
        drain_s: u64 = 30, in 0..=3600, "s";

        /// Time that a stopping node keeps serving while `/__lbheartbeat__` reports to load balancers that it drains.
        /// An endpoint node accepts pushes for all of it. A connection node without sessions stays for this time, at
        /// most for `drain_s`.
        drain_lame_duck_s: u64 = 5, in 0..=600, "s";
    }

    group "Limits by sender" {
        /// Proxies whose `X-Forwarded-For` header names the address that a request counts for, separated by commas:
        /// addresses and networks (`10.0.0.1`, `10.0.0.0/8`, `fd00::/8`). Of a proxy on this machine, write its
        /// loopback address. If the header is malformed or missing, the address of the proxy counts. Name proxies only:
        /// clients within these networks all count as the proxy.
        trusted_proxies: Networks = Networks::default();

        /// Applies the limits by address to peers on loopback too. By default they have none: programs on this machine
        /// are trusted, and a proxy on it belongs in `trusted_proxies`.
        loopback_limited: bool = false;

        /// Senders that each of these limits remembers, about 150 bytes each. A sender that is forgotten because there
        /// are more of them starts anew.
        limited_senders_max: usize = 50_000, in COUNT, "senders";

        /// Pushes to one subscription in a minute, and at once. A further one gets 429. 0 is no limit.
        subscription_pushes_per_minute_max: usize = 6000, in PER_MINUTE, "pushes a minute";

        /// Pushes signed with one VAPID key in a minute, and at once. A further one gets 429. 0 is no limit.
        vapid_key_pushes_per_minute_max: usize = 600_000, in PER_MINUTE, "pushes a minute";

        /// Requests to the push endpoint from one address in a minute, and at once. A further one gets 429. IPv6
        /// addresses with the same first 56 bits count as one, for each limit by address. 0 is no limit.
        address_pushes_per_minute_max: usize = 60_000, in PER_MINUTE, "pushes a minute";

        /// TLS handshakes of the public port from one address in a minute, and at once. A further connection is closed
        /// before its handshake, which costs about 0.25 ms of a core. Peers in `trusted_proxies` have no such limit. 0
        /// is no limit.
        address_handshakes_per_minute_max: usize = 6000, in PER_MINUTE, "handshakes a minute";

        /// Requests for a WebSocket, and those of phones over HTTP, from one address in a minute, and at once. A further
        /// one gets 429. 0 is no limit.
        address_connects_per_minute_max: usize = 3000, in PER_MINUTE, "connects a minute";

        /// Open connections of one address to the public port, of HTTP and WebSockets together. A further one gets 429, or
        /// is closed before its TLS handshake. Behind a proxy in `trusted_proxies` these are WebSockets. 0 is no limit.
        address_connections_max: usize = 10_000, in 0..=10_000_000, "connections";

        /// New user agents from one address in a minute, and at once. A user agent is new when it registers its first
        /// channel. A further register gets status 429. 0 is no limit.
        address_new_agents_per_minute_max: usize = 60, in PER_MINUTE, "user agents a minute";

        /// Registers from one address in a minute, and at once. A further one gets status 429. 0 is no limit.
        address_registers_per_minute_max: usize = 6000, in PER_MINUTE, "registers a minute";

        /// Registers of one user agent in a minute, and at once. A further one gets status 429. 0 is no limit.
        agent_registers_per_minute_max: usize = 3000, in PER_MINUTE, "registers a minute";

        /// Connections of one user agent in a minute, and at once. A further one is closed at its hello. 0 is no limit.
        agent_hellos_per_minute_max: usize = 3000, in PER_MINUTE, "connections a minute";
    }

    group "Bridges" {
        /// File of the applications that are reached through FCM and APNs, in TOML; docs/bridges.md has its format.
        /// Without it there are no bridges and no registrations over HTTP. The path should be absolute.
        bridges_file: Option<PathBuf> = None;

        /// Pushes of one application that wait for its bridge. A further one gets 429.
        bridge_pushes_in_flight_max: usize = 1000, in COUNT, "pushes";

        /// Timeout of a push through a bridge, with the token and the connection that it may need.
        bridge_timeout_ms: u64 = 10_000, in WAIT_MS, "ms";

        /// Wait after the fifth failure of a bridge in a row before it is called again, by one push. It doubles with each
        /// failure. Meanwhile pushes of the application get 502 at once.
        bridge_backoff_ms: u64 = 1000, in WAIT_MS, "ms";

        /// Longest wait before a failed bridge is called again, also if its `Retry-After` is longer.
        bridge_backoff_max_ms: u64 = 60_000, in WAIT_MS, "ms";
    }

    group "Process limits" {
        /// Connections that the public port accepts at once, of user agents and application servers together. It is
        /// rounded up to a multiple of the number of workers. A lower limit of open files lowers it, and the log has
        /// both numbers. At 90 % idle HTTP connections are closed, first of the addresses that have the most.
        connections_max: usize = 100_000, in COUNT, "connections";

        /// Timeout for receiving the headers of a request.
        request_headers_timeout_ms: u64 = 5000, in WAIT_MS, "ms";

        /// Timeout for receiving the body of a request.
        request_body_timeout_ms: u64 = 10_000, in WAIT_MS, "ms";

        /// Time after which a connection is closed whose peer does not confirm the bytes sent to it, or does not read them
        /// from a Unix socket.
        tcp_user_timeout_ms: u64 = 30_000, in 1..=3_600_000, "ms";

        /// Capacity of the registry's mailbox.
        registry_mailbox_max: usize = 4096, in COUNT, "messages";

        /// Capacity of an endpoint actor's mailbox. When it is full, further pushes wait.
        endpoint_mailbox_max: usize = 4096, in COUNT, "messages";

        /// Time for a stopping server to finish the work in progress.
        shutdown_wait_ms: u64 = 10_000, in 0..=600_000, "ms";
    }

    group "Delivery receipts" {
        /// Messages of one receipt subscription: those that wait for their receipt, and receipts, which are kept until
        /// the subscription ends. A push with the link of a full one gets 429. Each needs up to 500 bytes of the store.
        receipt_messages_max: u64 = 100_000, in COUNT, "messages";

        /// Time that a receipt can be read at least. A receipt subscription ends `ttl_max_s` and twice this after it was
        /// made. A push whose receipt could come too late for it gets a new one.
        receipts_keep_s: u64 = 86_400, in 600..=31_536_000, "s";

        /// New receipt subscriptions of one VAPID key and of one address in a minute, and at once. A further push that
        /// asks for one gets 429, and one with the link of an earlier answer does not. 0 is no limit.
        receipt_subscriptions_per_minute_max: usize = 60, in PER_MINUTE, "subscriptions a minute";
    }

    group "Feeds and broadcasts" {
        /// Keys of one feed. A deleted key counts too, until its tombstone is forgotten
        /// (`feed_tombstones_keep_s`). When a feed is full, a new key gets 507 and existing keys can still be written. The feed `broadcasts` has at most
        /// 10000 keys, as every node keeps it in memory.
        feed_keys_max: u64 = 100_000, in COUNT, "keys";

        /// Size of the largest value of a key. An item of DynamoDB has room for 262144. The version of a broadcast has
        /// at most 1024.
        feed_value_bytes_max: usize = 65_536, in 1..=262_144, "bytes";

        /// Updates in one page. A request may ask for fewer with `limit`. DynamoDB returns at most 1000.
        feed_page_max: usize = 1000, in 1..=10_000, "updates";

        /// Size of the values in one page. One update is always read.
        feed_page_bytes_max: usize = 1_048_576, in 4096..=1_073_741_824, "bytes";

        /// Pages larger than 64 KiB in transfer at once. Each is in memory until it was received. A further request gets
        /// 503.
        feed_pages_max: usize = 256, in 1..=100_000, "pages";

        /// Longest time that a request with `wait` is held until the feed changes. A proxy in front must allow a longer
        /// time (nginx: `proxy_read_timeout`).
        feed_wait_max_s: u64 = 60, in 0..=3600, "s";

        /// Silence of an event stream after which the server sends a comment. It keeps proxies from closing the stream
        /// and detects clients that are gone.
        feed_keepalive_s: u64 = 15, in 1..=3600, "s";

        /// Consumers that follow feeds at once: event streams and waiting requests. A further one gets 503.
        feed_followers_max: usize = 10_000, in COUNT, "consumers";

        /// Keys that one transaction publishes. DynamoDB has at most 100 items in one, so fewer keys.
        feed_batch_max: usize = 100, in 1..=10_000, "keys";

        /// Interval at which a followed feed is read for updates published by other nodes; their updates arrive at most
        /// this late. An update written on this node is sent at once.
        feed_poll_ms: u64 = 1000, in WAIT_MS, "ms";

        /// Wait before a failed store operation of a feed is repeated. It doubles with each failure, up to 64 times
        /// this.
        feed_retry_ms: u64 = 1000, in WAIT_MS, "ms";

        /// Interval at which all feeds are searched for updates that were written but not published, because the node
        /// that wrote them ended. The first search is at startup.
        feed_sweep_s: u64 = 60, in UP_TO_A_DAY_S, "s";

        /// How long the tombstone of a deleted key is kept for consumers that read later. It is forgotten between once
        /// and twice this time after the deletion. A consumer that was away longer gets 410 and starts over. 0 keeps
        /// tombstones for ever.
        feed_tombstones_keep_s: u64 = 2_592_000, in 0..=315_360_000, "s";

        /// Maximum number of feeds with followers, and of feeds queued for publishing. A further follow request gets
        /// 503; a further write is durable, and is published by the next sweep.
        feeds_open_max: usize = 10_000, in COUNT, "feeds";

        /// Capacity of the publisher's mailbox and of the broadcaster's. If the publisher's is full, the next sweep
        /// (`feed_sweep_s`) publishes the change; if the broadcaster's is full, the session is closed and the agent
        /// reconnects.
        feed_mailbox_max: usize = 4096, in COUNT, "messages";

        /// Number of times that feed tokens were revoked. Raising it by one invalidates all tokens issued so far. Nodes
        /// that share a store need the same number.
        feed_tokens_epoch: u32 = 0, in 0..=4_294_967_295, "revocations";

        /// Time over which a changed broadcast is sent to the connected user agents, evenly spread, so that they do not
        /// all request the new version at once. 0 sends it to all at once.
        broadcast_fanout_ms: u64 = 60_000, in 0..=3_600_000, "ms";

        /// Broadcasts that one user agent may subscribe to.
        broadcasts_per_agent_max: usize = 64, in 1..=10_000, "broadcasts";

        /// Origin of an HTTP service whose broadcasts are imported into the feed `broadcasts`. It must have the API of
        /// Mozilla's megaphone: `GET /v1/broadcasts` returns `{"broadcasts": {"ID": "VERSION"}}`.
        broadcast_source_url: Option<PublicUrl> = None, secret "password";

        /// File with the bearer token for `broadcast_source_url`, mode 0600 or 0400. It is read before each request,
        /// and sent only over https: or to this machine.
        broadcast_source_token_file: Option<PathBuf> = None;

        /// Interval between two requests to `broadcast_source_url`.
        broadcast_source_poll_s: u64 = 60, in UP_TO_A_DAY_S, "s";
    }
}
