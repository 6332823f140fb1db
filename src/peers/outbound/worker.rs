//! What attends to a node while there is something to do: it tells it what waits, and tries it when it was left alone
//! for long enough.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use hyper::{Method, StatusCode};
use state_machine::Uaid;
use state_machine::breaker::Epoch;
use tokio::time::timeout;

use super::Shared;
use super::call::OutboundRequest;
use super::peer_state::{NextAction, PeerState};
use super::pending_notifications::Notification;

/// An agent that nobody is. A node that says that it is not there shows that it answers.
const NOBODY: Uaid = Uaid([0; 16]);

/// Attends to a node until there is nothing to do.
pub(super) async fn run(shared: Arc<Shared>, peer_state: Arc<PeerState>) {
    loop {
        let now = shared.ticks.now();
        match peer_state.next(now) {
            NextAction::Idle => return,
            NextAction::Evict => return shared.forget(&peer_state),
            NextAction::Wait(until) => {
                let wait = Duration::from_millis(until.since(now).0);
                // Over or woken: what there is to do now is asked again.
                let _ = timeout(wait, peer_state.recovered()).await;
            }
            NextAction::ProbeOrFlush(epoch, notifications) => {
                probe_or_flush(&shared, &peer_state, epoch, notifications).await
            }
        }
    }
}

async fn probe_or_flush(
    shared: &Shared,
    peer_state: &PeerState,
    epoch: Epoch,
    notifications: Vec<Notification>,
) {
    if notifications.is_empty() {
        asked(shared, peer_state, epoch, Notification::MessageStored(NOBODY)).await;
        return;
    }
    let told =
        notifications.iter().map(|notification| asked(shared, peer_state, epoch, *notification));
    let told = join_all(told).await;
    let left = notifications.into_iter().zip(told).filter(|(_, is_done)| !is_done);
    peer_state.requeue(left.map(|(notification, _)| notification), shared.ticks.now());
}

/// Asks a node one thing; whether that is done with.
async fn asked(
    shared: &Shared,
    peer_state: &PeerState,
    epoch: Epoch,
    notification: Notification,
) -> bool {
    let wait = shared.limits.notification_wait;
    let result = shared.caller.call(&peer_state.peer, request_of(notification), wait).await;
    peer_state.ended(epoch, &result, shared.ticks.now());
    // Anything else, and a node that knows nobody of that name too, is the last word.
    !matches!(result, Err(_) | Ok(StatusCode::ACCEPTED | StatusCode::SERVICE_UNAVAILABLE))
}

/// How a node is asked it.
pub(super) fn request_of(notification: Notification) -> OutboundRequest {
    let (method, path) = match notification {
        Notification::MessageStored(uaid) => (Method::PUT, format!("/notif/{uaid}")),
        Notification::ConnectedElsewhere(uaid, since) => {
            (Method::DELETE, format!("/notif/{uaid}/{}", since.0))
        }
    };
    OutboundRequest { method, path, body: Bytes::new() }
}
