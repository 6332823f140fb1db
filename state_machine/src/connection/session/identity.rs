//! The agent's id, and the record that names this connection.

use super::Session;
use crate::connection::effect::Effect;
use crate::connection::step::StepContext;
use crate::month::{Month, MonthMove};
use crate::record::{LastConnect, NodeBinding, RouterType};
use crate::store::{MonthStep, Registration, StoreOp};
use crate::time::{Span, Time};

impl Session {
    /// Replaces the agent's uaid by a new one without a record. Commands that wait are kept.
    pub(in crate::connection) fn assign_new_uaid(&mut self, cx: &mut StepContext<'_>) {
        let uaid = cx.seed.fresh_uaid;
        cx.out.push(Effect::Deregister { uaid: self.uaid });
        cx.out.push(Effect::Register { uaid });
        let Self { commands, subscriptions, ops, .. } =
            std::mem::replace(self, Self::new(uaid, cx.now, self.is_simplepush));
        (self.commands, self.subscriptions, self.ops) = (commands, subscriptions, ops);
    }

    /// Whether a connection that is registered with this `connected_at` is later than this one.
    ///
    /// The `connected_at` of a record only grows. So of two connections that both were written, the
    /// one with the greater `connected_at` is the later one, however far the clocks of their nodes
    /// are apart.
    pub(in crate::connection) fn is_before(&self, connected_at: Time) -> bool {
        self.connected_at < connected_at
    }

    /// Whether the record names a later connection: its `connected_at` is greater than that of this
    /// connection, and not after `now`.
    ///
    /// An equal `connected_at` is this connection's own write, whose answer was lost. A
    /// `connected_at` later than `now` is from a clock that is ahead, and proves nothing. A session
    /// that gave way to it could never register.
    pub(in crate::connection) fn is_superseded_by(&self, seen: Time, now: Time) -> bool {
        self.connected_at < seen && seen <= now
    }

    /// Sets a `connected_at` greater than that of the record.
    pub(in crate::connection) fn advance_connected_at(&mut self, seen: Time, cx: &StepContext<'_>) {
        self.connected_at = cx.now.max(seen + Span(1));
    }

    /// Writes the record, and creates it with the month `create_in` if there is none.
    pub(in crate::connection) fn register(
        &mut self,
        create_in: Option<Month>,
        cx: &mut StepContext<'_>,
    ) {
        self.has_record = true;
        let registration = Registration {
            uaid: self.uaid,
            router_type: match self.is_simplepush {
                true => RouterType::SimplePush,
                false => RouterType::WebPush,
            },
            node: cx.config.node.clone(),
            connected_at: self.connected_at,
            last_connect: self.last_connect(cx),
            create_in,
        };
        match create_in {
            Some(_) => self.submit_command(StoreOp::Register(registration), cx),
            None => self.submit(StoreOp::Register(registration), cx),
        }
    }

    /// Removes this node from the record.
    pub(super) fn clear_node(&mut self, cx: &mut StepContext<'_>) {
        let binding = NodeBinding { node: cx.config.node.clone(), connected_at: self.connected_at };
        self.submit(StoreOp::ClearNode { uaid: self.uaid, binding }, cx);
    }

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
            let Self { uaid, connected_at, .. } = *self;
            cx.out.push(Effect::NotifyPreviousNode { node, uaid, connected_at });
        }
    }

    pub(in crate::connection) fn month_step(
        &self,
        MonthMove { from, to }: MonthMove,
        cx: &StepContext<'_>,
    ) -> MonthStep {
        MonthStep {
            uaid: self.uaid,
            node: Some(cx.config.node.clone()),
            connected_at: self.connected_at,
            from,
            to,
            last_connect: self.last_connect(cx),
        }
    }

    fn last_connect(&self, cx: &StepContext<'_>) -> LastConnect {
        LastConnect::of(cx.now, self.uaid, cx.config.limits.last_connect_shards)
    }
}
