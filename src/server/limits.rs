//! The limits of sessions, pushes and feeds, taken from the settings.

use std::time::Duration;

use actors::{BridgedLimits, EndpointLimits, FeedLimits};
use state_machine::connection::Limits;
use state_machine::feed::{ConsumerLimits, PublisherLimits};
use state_machine::store::PageLimit;
use state_machine::{Month, Span};

use crate::feeds::http::service::FOLLOWED_BYTES_MAX;
use crate::push::app::PushLimits;
use crate::push::push_headers::PushRules;
use crate::push::receipts::ReceiptLimits;
use crate::settings::{Settings, StoreKind};

/// Poll interval of a followed feed if no other process writes to the store: practically never.
const POLL_ALONE: Span = Span::from_secs(24 * 60 * 60);

pub(super) fn of_session(settings: &Settings) -> Limits {
    const DAY_S: u64 = 24 * 60 * 60;
    Limits {
        hello_timeout: Span(settings.hello_timeout_ms),
        ack_wait: Span(settings.ack_wait_ms),
        drain_wait: Span(settings.drain_wait_ms),
        keepalive_interval: Span::from_secs(settings.keepalive_interval_s),
        keepalive_grace: Span::from_secs(settings.keepalive_grace_s),
        ping_floor: Span(settings.ping_floor_ms),
        session_max: Span::from_secs(settings.session_max_days * DAY_S),
        storage_recheck: Span::from_secs(settings.storage_recheck_s),
        store_retry: Span(settings.store_retry_ms),
        first_fetch_rows_max: settings.first_fetch_rows_max,
        fetch_rows_max: settings.fetch_rows_max,
        fetch_bytes_max: settings.fetch_bytes_max,
        unacked_max: settings.unacked_max,
        deferred_commands_max: settings.deferred_commands_max,
        remembered_acks_max: settings.remembered_acks_max,
        channels_max: settings.channels_max,
        broadcasts_per_agent_max: settings.broadcasts_per_agent_max,
        last_connect_shards: settings.last_connect_shards,
    }
}

/// `node_grace` is the time that other nodes may take beyond a session of this process.
pub(super) fn of_pushes(settings: &Settings, node_grace: Duration) -> EndpointLimits {
    let Settings { ack_wait_ms, answer_grace_ms, .. } = *settings;
    EndpointLimits {
        answer_wait: Duration::from_millis(ack_wait_ms + answer_grace_ms) + node_grace,
        pushes_awaiting_ack_max: settings.pushes_awaiting_ack_max,
        agent_pushes_awaiting_ack_max: settings.agent_pushes_awaiting_ack_max,
        agent_pushes_awaiting_bridge_max: settings
            .agent_pushes_awaiting_ack_max
            // One user agent leaves most of its application's places to others.
            .min((settings.bridge_pushes_in_flight_max / 4).max(1)),
        in_flight_max: settings.pushes_in_flight_max,
        mailbox_max: settings.endpoint_mailbox_max,
    }
}

pub(super) fn of_bridged_agents(settings: &Settings, frozen_month: Option<Month>) -> BridgedLimits {
    let Settings { channels_max, last_connect_shards, .. } = *settings;
    BridgedLimits { channels_max, last_connect_shards, frozen_month }
}

pub(super) fn of_a_push(settings: &Settings) -> PushLimits {
    PushLimits {
        payload_bytes_max: settings.payload_bytes_max,
        aesgcm_bytes_max: settings.aesgcm_bytes_max(),
        ttl_max: Span::from_secs(settings.ttl_max_s),
        receipts: ReceiptLimits {
            messages_max: settings.receipt_messages_max,
            keep: Span::from_secs(settings.receipts_keep_s),
            lifetime: Span::from_secs(settings.ttl_max_s + 2 * settings.receipts_keep_s),
        },
        rules: PushRules {
            lenient: settings.lenient_senders,
            payload_header_required: settings.payload_header_required,
        },
        body_timeout: Duration::from_millis(settings.request_body_timeout_ms),
    }
}

pub(super) fn of_feeds(settings: &Settings) -> FeedLimits {
    let poll = match settings.store {
        StoreKind::Embedded => POLL_ALONE,
        StoreKind::DynamoDb | StoreKind::PostgreSql => Span(settings.feed_poll_ms),
    };
    let retry = Span(settings.feed_retry_ms);
    let bytes = settings.feed_page_bytes_max.min(FOLLOWED_BYTES_MAX);
    let rows = settings.feed_page_max;
    FeedLimits {
        publisher: PublisherLimits { batch_max: settings.feed_batch_max, retry, poll },
        consumer: ConsumerLimits { page: PageLimit { rows, bytes }, retry },
        feeds_open_max: settings.feeds_open_max,
        keys_max: settings.feed_keys_max,
        followers_max: settings.feed_followers_max,
        sweep: Span::from_secs(settings.feed_sweep_s),
        tombstones_keep: Some(Span::from_secs(settings.feed_tombstones_keep_s))
            .filter(|keep| keep.0 > 0),
        mailbox_max: settings.feed_mailbox_max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut Settings)) -> Settings {
        let mut settings = Settings::default();
        change(&mut settings);
        settings
    }

    #[test]
    fn an_agent_has_at_most_a_quarter_of_the_places_of_its_bridge_and_at_least_one() {
        for (places, of_agent, expected) in [(1000, 64, 64), (100, 64, 25), (3, 64, 1), (100, 2, 2)]
        {
            let settings = with(|settings| {
                settings.bridge_pushes_in_flight_max = places;
                settings.agent_pushes_awaiting_ack_max = of_agent;
            });
            let limits = of_pushes(&settings, Duration::ZERO);
            assert_eq!(limits.agent_pushes_awaiting_bridge_max, expected, "{places} {of_agent}");
        }
    }

    #[test]
    fn each_wait_that_is_a_sum_has_all_its_parts() {
        let settings = with(|settings| {
            (settings.ack_wait_ms, settings.answer_grace_ms) = (1000, 200);
            (settings.ttl_max_s, settings.receipts_keep_s) = (5000, 700);
            settings.session_max_days = 3;
        });
        let limits = of_pushes(&settings, Duration::from_millis(30));
        assert_eq!(limits.answer_wait, Duration::from_millis(1230));
        assert_eq!(of_a_push(&settings).receipts.lifetime, Span::from_secs(6400));
        assert_eq!(of_session(&settings).session_max, Span::from_secs(3 * 24 * 60 * 60));
    }

    #[test]
    fn feeds_of_a_store_of_other_nodes_are_polled_and_pages_of_followers_are_small() {
        for (store, poll) in [(StoreKind::Embedded, POLL_ALONE), (StoreKind::DynamoDb, Span(70))] {
            let settings = with(|settings| (settings.store, settings.feed_poll_ms) = (store, 70));
            assert_eq!(of_feeds(&settings).publisher.poll, poll);
        }
        for (bytes, expected) in [(5000, 5000), (FOLLOWED_BYTES_MAX + 1, FOLLOWED_BYTES_MAX)] {
            let settings = with(|settings| settings.feed_page_bytes_max = bytes);
            assert_eq!(of_feeds(&settings).consumer.page.bytes, bytes.min(expected));
        }
        for (keep_s, keep) in [(0, None), (1, Some(Span(1000)))] {
            let settings = with(|settings| settings.feed_tombstones_keep_s = keep_s);
            assert_eq!(of_feeds(&settings).tombstones_keep, keep);
        }
    }
}
