//! Several nodes that reach each other by name, as well as the ways between them let them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use actix_web::rt::spawn;
use actors::{Directory, NodeDirectory};
use state_machine::delivery::NodeAnswer;
use state_machine::{Message, NodeId, Span, Time, Uaid};
use tokio::sync::oneshot;
use tokio::time::sleep;

/// The nodes there are. Clones are one neighbourhood.
#[derive(Clone, Default)]
pub(crate) struct Neighbours(Arc<Mutex<State>>);

/// What becomes of what is sent to a node, and of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Way {
    /// Delivered and answered at once.
    #[default]
    Open,
    /// Delivered after this time, answered at once.
    Slow(Span),
    /// Delivered at once, answered after this time.
    AnswersLate(Span),
    /// Delivered at once, and the answer is lost.
    LosesAnswers,
    /// Neither delivered nor answered.
    Hangs,
    /// The connection is refused at once.
    Refuses,
}

#[derive(Default)]
struct State {
    nodes: BTreeMap<NodeId, Arc<Directory>>,
    ways: BTreeMap<NodeId, Way>,
}

impl Neighbours {
    /// A node is reached from now on; one of the same name is not any more.
    pub(crate) fn join(&self, name: NodeId, node: &Arc<Directory>) {
        self.state().nodes.insert(name, Arc::clone(node));
    }

    /// Sets the way to a node. Requests in flight are not affected.
    pub(crate) fn set_way(&self, to: &NodeId, way: Way) {
        self.state().ways.insert(to.clone(), way);
    }

    fn find(&self, name: &NodeId) -> Option<(Arc<Directory>, Way)> {
        let state = self.state();
        let node = state.nodes.get(name)?;
        Some((Arc::clone(node), state.ways.get(name).copied().unwrap_or_default()))
    }

    /// Sends a node a notification, which has no answer.
    fn tell(&self, name: &NodeId, word: impl FnOnce(&Directory, &NodeId) + 'static) {
        match self.find(name) {
            None | Some((_, Way::Hangs | Way::Refuses)) => {}
            Some((node, Way::Slow(span))) => {
                let name = name.clone();
                spawn(async move {
                    wait(span).await;
                    word(&node, &name);
                });
            }
            Some((node, Way::Open | Way::AnswersLate(_) | Way::LosesAnswers)) => word(&node, name),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl NodeDirectory for Neighbours {
    fn deliver(
        &self,
        name: &NodeId,
        uaid: Uaid,
        message: Message,
    ) -> oneshot::Receiver<NodeAnswer> {
        let Some((node, way)) = self.find(name) else {
            // Dropped without an answer: unreachable.
            return oneshot::channel().1;
        };
        if way == Way::Open {
            return node.deliver(name, uaid, message);
        }
        let (reply, answer) = oneshot::channel();
        let name = name.clone();
        spawn(async move { go(way, reply, || node.deliver(&name, uaid, message)).await });
        answer
    }

    fn notify_stored(&self, name: &NodeId, uaid: Uaid) {
        self.tell(name, move |node, name| node.notify_stored(name, uaid));
    }

    fn notify_moved(&self, name: &NodeId, uaid: Uaid, connected_at: Time) {
        self.tell(name, move |node, name| node.notify_moved(name, uaid, connected_at));
    }
}

/// Brings a push to a node and its answer back, on a way that is not open. As it is between
/// processes, a caller that is dropped is not noticed at the other end.
async fn go(
    way: Way,
    mut reply: oneshot::Sender<NodeAnswer>,
    deliver: impl FnOnce() -> oneshot::Receiver<NodeAnswer>,
) {
    if let Way::Slow(span) = way {
        wait(span).await;
    }
    match way {
        Way::Hangs => return reply.closed().await,
        Way::Refuses => return,
        Way::Open | Way::Slow(_) | Way::AnswersLate(_) | Way::LosesAnswers => {}
    }
    let answer = deliver().await;
    match (way, answer) {
        (Way::LosesAnswers, _) => reply.closed().await,
        (Way::AnswersLate(span), Ok(answer)) => {
            wait(span).await;
            let _ = reply.send(answer);
        }
        (_, Ok(answer)) => {
            let _ = reply.send(answer);
        }
        (_, Err(_)) => {}
    }
}

async fn wait(span: Span) {
    sleep(Duration::from_millis(span.0)).await;
}
