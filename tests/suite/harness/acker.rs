//! A user agent that acknowledges every notification.

use std::cell::RefCell;
use std::rc::Rc;

use actix_web::rt::spawn;
use actix_web::rt::task::JoinHandle;
use tokio::sync::Notify;

use super::agent::{Agent, Notification};
use super::wait::{AT_ONCE, within};

/// Runs in its own task until the server disconnects or this is dropped.
pub(crate) struct Acker {
    taken: Rc<Taken>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Taken {
    notifications: RefCell<Vec<Notification>>,
    changed: Notify,
}

impl Acker {
    pub(super) fn start(mut agent: Agent) -> Self {
        let taken = Rc::<Taken>::default();
        let task = spawn({
            let taken = Rc::clone(&taken);
            async move {
                while let Some(notification) = agent.next_untimed().await {
                    agent.ack(&notification).await;
                    taken.notifications.borrow_mut().push(notification);
                    taken.changed.notify_one();
                }
            }
        });
        Self { taken, task }
    }

    /// Waits until `is_enough` holds, and returns the notifications received so far.
    pub(crate) async fn until(
        &self,
        what: &str,
        is_enough: impl Fn(&[Notification]) -> bool,
    ) -> Vec<Notification> {
        let enough = async {
            while !is_enough(&self.taken.notifications.borrow()) {
                self.taken.changed.notified().await;
            }
        };
        within(AT_ONCE, what, enough).await;
        self.taken.notifications.borrow().clone()
    }
}

impl Drop for Acker {
    fn drop(&mut self) {
        self.task.abort();
    }
}
