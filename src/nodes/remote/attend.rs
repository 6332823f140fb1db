//! What attends to a node while there is something to do: it tells it what waits, and tries it when it was left alone
//! for long enough.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use hyper::{Method, StatusCode};
use state_machine::Uaid;
use state_machine::breaker::Round;
use tokio::time::timeout;

use super::Shared;
use super::call::Ask;
use super::errands::Errand;
use super::link::{Link, Next};

/// An agent that nobody is. A node that says that it is not there shows that it answers.
const NOBODY: Uaid = Uaid([0; 16]);

/// Attends to a node until there is nothing to do.
pub(super) async fn attend(shared: Arc<Shared>, link: Arc<Link>) {
    loop {
        let now = shared.ticks.now();
        match link.next(now) {
            Next::Nothing => return,
            Next::Forget => return shared.forget(&link),
            Next::Wait(until) => {
                let wait = Duration::from_millis(until.since(now).0);
                // Over or woken: what there is to do now is asked again.
                let _ = timeout(wait, link.is_back()).await;
            }
            Next::Visit(round, errands) => visit(&shared, &link, round, errands).await,
        }
    }
}

async fn visit(shared: &Shared, link: &Link, round: Round, errands: Vec<Errand>) {
    if errands.is_empty() {
        asked(shared, link, round, Errand::Stored(NOBODY)).await;
        return;
    }
    let told = errands.iter().map(|errand| asked(shared, link, round, *errand));
    let told = join_all(told).await;
    let left = errands.into_iter().zip(told).filter(|(_, is_done)| !is_done);
    link.put_back(left.map(|(errand, _)| errand), shared.ticks.now());
}

/// Asks a node one thing; whether that is done with.
async fn asked(shared: &Shared, link: &Link, round: Round, errand: Errand) -> bool {
    let wait = shared.limits.errand_wait;
    let result = shared.caller.ask(&link.peer, ask(errand), wait).await;
    link.ended(round, &result, shared.ticks.now());
    // Anything else, and a node that knows nobody of that name too, is the last word.
    !matches!(result, Err(_) | Ok(StatusCode::ACCEPTED | StatusCode::SERVICE_UNAVAILABLE))
}

/// How a node is asked it.
pub(super) fn ask(errand: Errand) -> Ask {
    let (method, path) = match errand {
        Errand::Stored(uaid) => (Method::PUT, format!("/notif/{uaid}")),
        Errand::Moved(uaid, since) => (Method::DELETE, format!("/notif/{uaid}/{}", since.0)),
    };
    Ask { method, path, body: Bytes::new() }
}
