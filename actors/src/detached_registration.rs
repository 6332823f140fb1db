//! What a connection leaves behind that ends while its registration is under way.

use std::future::Future;
use std::sync::Arc;

use actix::spawn;
use state_machine::store::{RegisterResult, Registration, StoreAnswer};
use storage::StoreError;
use tokio::sync::oneshot;

use crate::client::ClientShared;

/// Brings the answer to a registration. Where nobody waits for it any longer, another node on which the agent was
/// connected before is told all the same: the agent's next connection here finds this node in the record, and has
/// nobody to tell.
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
