//! The agent's id, and the record that names this connection.

use super::Session;
use crate::connection::StepContext;
use crate::connection::effect::Effect;
use crate::ids::Uaid;
use crate::month::Month;
use crate::record::{LastConnect, NodeBinding, RouterType};
use crate::store::{MonthStep, Registration, StoreOp};
use crate::time::{Span, Time};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    uaid: Uaid,
    /// The `connected_at` of this connection in the record.
    connected_at: Time,
    /// Whether a record was written with this uaid, or may have been.
    has_record: bool,
}

impl Identity {
    pub(super) fn new(uaid: Uaid, connected_at: Time) -> Self {
        Self { uaid, connected_at, has_record: false }
    }

    pub(super) fn uaid(&self) -> Uaid {
        self.uaid
    }

    /// Whether a connection that is registered with this `connected_at` is later than this one.
    ///
    /// The `connected_at` of a record only grows. So of two connections that both were written, the
    /// one with the greater `connected_at` is the later one, however far the clocks of their nodes
    /// are apart.
    pub(super) fn is_before(&self, connected_at: Time) -> bool {
        self.connected_at < connected_at
    }

    /// Whether the record names a later connection: its `connected_at` is greater than that of this
    /// connection, and not after `now`.
    ///
    /// An equal `connected_at` is this connection's own write, whose answer was lost. A
    /// `connected_at` later than `now` is from a clock that is ahead, and proves nothing. A session
    /// that gave way to it could never register.
    pub(super) fn is_superseded_by(&self, seen: Time, now: Time) -> bool {
        self.connected_at < seen && seen <= now
    }

    /// Sets a `connected_at` greater than that of the record.
    pub(super) fn restamp(&mut self, seen: Time, now: Time) {
        self.connected_at = now.max(seen + Span(1));
    }

    pub(super) fn register(&mut self, create_in: Option<Month>, cx: &StepContext<'_>) -> StoreOp {
        self.has_record = true;
        StoreOp::Register(Registration {
            uaid: self.uaid,
            router_type: RouterType::WebPush,
            node: cx.config.node.clone(),
            connected_at: self.connected_at,
            last_connect: self.last_connect(cx),
            create_in,
        })
    }

    /// The operation that removes this node from the record, if there may be one.
    pub(super) fn clear_node(&self, cx: &StepContext<'_>) -> Option<StoreOp> {
        let binding = NodeBinding { node: cx.config.node.clone(), connected_at: self.connected_at };
        self.has_record.then_some(StoreOp::ClearNode { uaid: self.uaid, binding })
    }

    fn last_connect(&self, cx: &StepContext<'_>) -> LastConnect {
        LastConnect::of(cx.now, self.uaid, cx.config.limits.last_connect_shards)
    }
}

impl Session {
    /// Notifies the node that the record named before, if it is another one. On this node the registry has replaced
    /// the older connection already.
    ///
    /// If the answer to the first attempt to register was lost, the second attempt finds this node in the record. The
    /// other node is not notified then, and its connection ends as silent.
    pub(in crate::connection) fn notify_previous_node(
        &self,
        before: Option<NodeBinding>,
        cx: &mut StepContext<'_>,
    ) {
        if let Some(NodeBinding { node, .. }) = before.filter(|it| it.node != cx.config.node) {
            let Identity { uaid, connected_at, .. } = self.identity;
            cx.out.push(Effect::NotifyPreviousNode { node, uaid, connected_at });
        }
    }

    pub(in crate::connection) fn month_step(
        &self,
        from: Month,
        to: Month,
        cx: &StepContext<'_>,
    ) -> MonthStep {
        MonthStep {
            uaid: self.identity.uaid,
            node: cx.config.node.clone(),
            connected_at: self.identity.connected_at,
            from,
            to,
            last_connect: self.identity.last_connect(cx),
        }
    }
}
