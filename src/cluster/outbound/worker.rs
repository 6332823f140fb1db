//! The worker of a node: sends pending notifications, and probes while the breaker is open.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use hyper::StatusCode;
use state_machine::Uaid;
use state_machine::breaker::Epoch;
use tokio::time::timeout;

use super::Shared;
use super::peer_state::{NextAction, PeerState};
use crate::cluster::request::PeerRequest;

/// The agent of a probe. No agent has this id, so that the answer is "not here".
const PROBE_AGENT: Uaid = Uaid([0; 16]);

/// Runs until there is nothing to do for the node.
pub(super) async fn run(shared: Arc<Shared>, peer: Arc<PeerState>) {
    loop {
        let now = shared.ticks.now();
        match peer.next(now) {
            NextAction::Idle => return,
            NextAction::Evict => return shared.evict(&peer),
            NextAction::Wait(until) => {
                let wait = Duration::from_millis(until.since(now).0);
                // Either way, the next action is determined again.
                let _ = timeout(wait, peer.recovered.notified()).await;
            }
            NextAction::Flush(epoch, notifications) => {
                let sent =
                    notifications.iter().map(|request| send(&shared, &peer, epoch, *request));
                let sent = join_all(sent).await;
                let failed = notifications.into_iter().zip(sent).filter(|(_, is_done)| !is_done);
                peer.requeue(failed.map(|(request, _)| request), shared.ticks.now());
            }
            NextAction::Probe(epoch) => {
                send(&shared, &peer, epoch, PeerRequest::MessageStored(PROBE_AGENT)).await;
            }
        }
    }
}

/// Sends a notification. False if it must be repeated: no answer, or no capacity.
async fn send(shared: &Shared, peer: &PeerState, epoch: Epoch, request: PeerRequest) -> bool {
    let wait = shared.limits.notification_wait;
    let result = shared.call(&peer.peer, request, Bytes::new(), wait).await;
    peer.finished(epoch, &result, shared.ticks.now());
    !matches!(result, Err(_) | Ok(StatusCode::ACCEPTED | StatusCode::SERVICE_UNAVAILABLE))
}
