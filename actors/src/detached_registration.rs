//! A registration that outlives its connection.

use std::future::Future;
use std::sync::Arc;

use actix::spawn;
use state_machine::store::{RegisterResult, Registration, StoreAnswer};
use storage::StoreError;
use tokio::sync::oneshot;

use crate::client::ClientShared;

/// Returns the answer to a registration. If the connection ends first, the task notifies the
/// agent's previous node all the same: the agent's next connection here finds this node in the
/// record, and does not know of the previous one.
pub(crate) fn finish_detached<A>(
    answer: A,
    registration: &Registration,
    shared: &Arc<ClientShared>,
) -> impl Future<Output = Result<StoreAnswer, StoreError>> + use<A>
where
    A: Future<Output = Result<StoreAnswer, StoreError>> + 'static,
{
    let Registration { uaid, connected_at, .. } = *registration;
    let shared = Arc::clone(shared);
    let (hand_over, handed) = oneshot::channel();
    spawn(async move {
        let Err(Ok(answer)) = hand_over.send(answer.await) else { return };
        if let StoreAnswer::Registered(RegisterResult::Registered(_, Some(before))) = answer
            && before.node != shared.config.node
        {
            shared.nodes.notify_moved(&before.node, uaid, connected_at);
        }
    });
    async { handed.await.unwrap_or(Err(StoreError::Closed)) }
}
