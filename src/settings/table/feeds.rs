//! The settings of the process, and of feeds and broadcasts: the last groups of the table.

/// Calls `$table` with the groups and those of this file.
macro_rules! with_feeds {
    ($table:ident; $($groups:tt)*) => {
        $table! {
            $($groups)*

            group "Process limits" {
                /// Connections that the public port accepts at once, of user agents and application servers together. It is
                /// rounded up to a multiple of the number of workers. A lower limit of open files lowers it, and the log has
                /// both numbers.
                connections_max: usize = 100_000, in COUNT, "connections";

                /// Timeout for receiving the headers of a request.
                request_headers_timeout_ms: u64 = 5000, in WAIT_MS, "ms";

                /// Timeout for receiving the body of a request.
                request_body_timeout_ms: u64 = 10_000, in WAIT_MS, "ms";

                /// Time after which the operating system closes a connection whose peer does not confirm the bytes sent to it.
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
                broadcast_source_url: Option<PublicUrl> = None;

                /// File with the bearer token for `broadcast_source_url`, mode 0600 or 0400. It is read before each request,
                /// and sent only over https: or to this machine.
                broadcast_source_token_file: Option<PathBuf> = None;

                /// Interval between two requests to `broadcast_source_url`.
                broadcast_source_poll_s: u64 = 60, in UP_TO_A_DAY_S, "s";
            }
        }
    };
}

pub(super) use with_feeds;
