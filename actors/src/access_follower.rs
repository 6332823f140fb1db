//! Follows the feed of the access tokens, and closes the connections of a token that has ended or was replaced.

use std::collections::BTreeSet;

use actix::dev::SendError;
use actix::{Actor, AsyncContext, Context, StreamHandler};
use slog::{Logger, info, warn};
use state_machine::Span;
use state_machine::access::{AccessGrant, AccessId, AccessTable};
use state_machine::feed::{FeedName, FeedPage};

use crate::access::Access;
use crate::alarm::Alarm;
use crate::feeds::{FeedSubscription, Feeds, SubscriptionError, pages};
use crate::mailbox::BoundedAddr;
use crate::registry::{CloseAccess, RegistryActor};

/// The longest time until the clock is compared with the next expiry: the clock may be set.
const EXPIRY_CHECK: Span = Span::from_secs(60);

/// The wait before the registry is notified again whose mailbox was full.
const RETRY: Span = Span::from_secs(1);

impl Access {
    /// Follows the feed of the tokens from now on. Connections are closed by `registry`.
    pub fn follow(&self, feeds: &Feeds, registry: BoundedAddr<RegistryActor>, log: Logger) {
        let now = self.0.clock.now();
        // There are no connections yet.
        let table = self.0.table.read();
        let ended = table.iter().filter(|(_, grant)| grant.has_ended(now));
        let closed = ended.map(|(id, _)| id).collect();
        drop(table);
        let (access, feeds, alarm) = (self.clone(), feeds.clone(), Alarm::default());
        let replaced = BTreeSet::new();
        AccessActor { access, feeds, registry, closed, replaced, alarm, log }.start();
    }
}

struct AccessActor {
    access: Access,
    feeds: Feeds,
    registry: BoundedAddr<RegistryActor>,
    /// The tokens that have ended and whose connections the registry closes.
    closed: BTreeSet<AccessId>,
    /// The ids whose token was replaced, and whose connections the registry does not close yet.
    replaced: BTreeSet<AccessId>,
    alarm: Alarm,
    log: Logger,
}

impl AccessActor {
    fn subscription(&self) -> FeedSubscription {
        let cursor = self.access.0.table.read().cursor();
        self.feeds.subscribe_when_created(FeedName::access(), cursor)
    }

    /// Closes the connections of tokens that have ended or were replaced, and sets the alarm for the next one.
    fn close_ended(&mut self, ctx: &mut Context<Self>) {
        let now = self.access.0.clock.now();
        let mut wait = None;
        {
            let table = self.access.0.table.read();
            // The clock may have been set back: such a token ends once more.
            let has_ended = |id: &AccessId| table.get(*id).is_none_or(|it| it.has_ended(now));
            self.closed.retain(has_ended);
            let is_over = |id: &AccessId, grant: &AccessGrant| {
                self.replaced.contains(id) || grant.has_ended(now) && !self.closed.contains(id)
            };
            let over = table.iter().filter(|(id, grant)| is_over(id, grant));
            for (id, grant) in over.collect::<Vec<_>>() {
                match self.registry.try_send(CloseAccess { id }) {
                    Ok(()) => {
                        self.replaced.remove(&id);
                        let has_ended = grant.has_ended(now);
                        log_closed(grant, has_ended, &self.log);
                        if has_ended {
                            self.closed.insert(id);
                        }
                    }
                    Err(SendError::Full(_)) => wait = Some(now + RETRY),
                    // The node is stopping.
                    Err(SendError::Closed(_)) => {}
                }
            }
            let check = now + EXPIRY_CHECK;
            let may_end = table.iter().any(|(_, grant)| grant.expires_s.is_some());
            let expiry = may_end.then(|| table.next_expiry(now).map_or(check, |at| at.min(check)));
            wait = wait.or(expiry);
        }
        self.alarm.set(wait, &self.access.0.clock, ctx, |actor: &mut Self, ctx| {
            actor.alarm.has_fired();
            actor.close_ended(ctx);
        });
    }
}

fn log_closed(grant: &AccessGrant, has_ended: bool, log: &Logger) {
    let name = &grant.name;
    if has_ended {
        info!(log, "an access token has ended, its user agents are closed"; "name" => name);
    } else {
        info!(log, "an access token was replaced, its user agents are closed"; "name" => name);
    }
}

impl Actor for AccessActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.add_stream(pages(self.subscription()));
        self.close_ended(ctx);
    }
}

impl StreamHandler<Result<FeedPage, SubscriptionError>> for AccessActor {
    fn handle(&mut self, page: Result<FeedPage, SubscriptionError>, ctx: &mut Self::Context) {
        match page {
            Ok(page) => self.replaced.extend(self.access.apply(page)),
            Err(SubscriptionError::Closed) => {}
            Err(SubscriptionError::End(error)) => {
                warn!(self.log, "the access tokens were replaced, reading them from the beginning";
                    "error" => ?error);
                *self.access.0.table.write() = AccessTable::default();
                ctx.add_stream(pages(self.subscription()));
            }
        }
        self.close_ended(ctx);
    }

    /// Keeps the actor alive: another stream may be there, and tokens expire.
    fn finished(&mut self, _: &mut Self::Context) {}
}
