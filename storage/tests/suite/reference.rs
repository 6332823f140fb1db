//! Calls of a store, and what the contract answers: the store of the harness, which shares no code with the engines.

use std::collections::BTreeSet;

use harness::model_store;
use state_machine::{BridgeRecipient, Message, Month, Uaid};
use storage::{
    BridgedRegistration, PageLimit, SettledMessages, StoreAdmin, StoreAnswer, StoreError, StoreOp,
};

use crate::names::{NOW, all_messages};

/// One call of a store.
#[derive(Debug, Clone)]
pub(crate) enum Call {
    Execute(StoreOp),
    Record(Uaid),
    RegisterBridged(BridgedRegistration),
    Drop(Uaid, Option<BridgeRecipient>),
    /// Marks a record for the drop of its user.
    Mark(Uaid),
    Store(Uaid, Month, Message),
    EnsureMonth(Month),
    DropMonth(Month),
    Months,
}

pub(crate) async fn answer(store: &dyn StoreAdmin, call: Call) -> String {
    match call {
        Call::Execute(StoreOp::Fetch { uaid, month, limit, .. }) => {
            text(waiting(store, uaid, month, limit).await)
        }
        Call::Execute(op) => {
            if let StoreOp::MoveMessages { to, .. } = op {
                // The contract leaves the answer open where there is neither a message nor a table.
                store.ensure_month(to).await.unwrap();
            }
            text(store.execute(op).await)
        }
        Call::Record(uaid) => text(store.record(uaid).await),
        Call::RegisterBridged(bridged) => text(store.register_bridged(bridged).await),
        Call::Drop(uaid, None) => text(store.drop_user(uaid).await),
        Call::Drop(uaid, Some(recipient)) => text(store.drop_bridged(uaid, recipient).await),
        Call::Mark(uaid) => {
            text(store.mark_dropped(uaid, None).await.map(|marked| marked.map(|it| it.binding)))
        }
        Call::Store(uaid, month, message) => text(store.store_message(uaid, month, message).await),
        Call::EnsureMonth(month) => text(store.ensure_month(month).await),
        Call::DropMonth(month) => text(store.drop_month(month).await),
        Call::Months => text(store.months().await),
    }
}

/// The store of the harness, and the months that have a table.
#[derive(Default)]
pub(crate) struct Reference {
    pub(crate) store: model_store::Store,
    months: BTreeSet<Month>,
}

impl Reference {
    pub(crate) fn answer(&mut self, call: Call) -> String {
        match call {
            Call::Execute(op) => self.execute(op),
            Call::Record(uaid) => done(self.store.records.get(&uaid).cloned()),
            Call::RegisterBridged(bridged) => done(self.store.register_bridged(bridged)),
            Call::Drop(uaid, recipient) => done(self.store.drop_user(uaid, recipient.as_ref())),
            Call::Mark(uaid) => done(self.store.mark_dropped(uaid, None)),
            Call::Store(_, month, _) if !self.months.contains(&month) => missing(month),
            Call::Store(uaid, month, message) => done(self.store.store(uaid, month, message)),
            Call::EnsureMonth(month) => {
                self.months.insert(month);
                done(())
            }
            Call::DropMonth(month) => {
                self.store.drop_month(month);
                done(self.months.remove(&month))
            }
            Call::Months => done(self.months.iter().collect::<Vec<_>>()),
        }
    }

    fn execute(&mut self, mut op: StoreOp) -> String {
        match &mut op {
            StoreOp::AddChannels { month, .. } | StoreOp::CreateChannels { month, .. }
                if !self.months.contains(month) =>
            {
                return missing(*month);
            }
            StoreOp::MoveMessages { to, .. } => drop(self.months.insert(*to)),
            StoreOp::Delete { uaid, months, .. } => {
                months.retain(|month| self.months.contains(month));
                let before = self.store.rows(*uaid).count();
                let uaid = *uaid;
                self.store.execute(&op);
                let deleted = before - self.store.rows(uaid).count();
                let settled = SettledMessages { deleted, ..SettledMessages::default() };
                return done(StoreAnswer::Deleted(settled));
            }
            StoreOp::Fetch { uaid, month, .. } => {
                let all = PageLimit { rows: usize::MAX, bytes: usize::MAX };
                let (uaid, month, after) = (*uaid, *month, None);
                let op = StoreOp::Fetch { uaid, month, after, limit: all, now: NOW };
                return text(self.store.execute(&op).page().unwrap().messages);
            }
            _ => {}
        }
        done(self.store.execute(&op))
    }
}

fn done(answer: impl std::fmt::Debug) -> String {
    text(Ok::<_, StoreError>(answer))
}

fn missing(month: Month) -> String {
    text(Err::<(), _>(StoreError::NoSuchMonth(month)))
}

fn text(answer: impl std::fmt::Debug) -> String {
    format!("{answer:?}")
}

/// All messages, by id.
async fn waiting(
    store: &dyn StoreAdmin,
    uaid: Uaid,
    month: Month,
    limit: PageLimit,
) -> Vec<Message> {
    let mut messages = all_messages(store, uaid, month, limit, NOW).await;
    messages.sort_by_key(|message| message.id);
    messages
}
