//! The receipt that a push expects while it is delivered.

use slog::warn;
use state_machine::feed::{FeedKey, FeedName};
use state_machine::{Message, ReceiptRequest, Span, Uaid};
use storage::{ExpectedReceipt, StoreError};

use super::app::EndpointRole;
use super::error::PushError;
use super::request::receipts::{RELATION, ReceiptError, ReceiptSubscription, ReceiptWish};
use crate::limits::ReceiptSender;

/// More than a message is kept after its TTL for its ack.
const RESERVE: Span = Span::from_secs(120);

/// A receipt that a push expects while it is delivered.
pub(super) struct ExpectingPush {
    expected: ExpectedReceipt,
    /// The path of the subscription.
    path: String,
}

impl ExpectingPush {
    /// Expects the receipt of a message, which names it from then on. A message with a TTL of zero has none, as it is
    /// not stored.
    pub(super) async fn begin(
        app: &EndpointRole,
        wish: ReceiptWish,
        sender: ReceiptSender,
        uaid: Uaid,
        message: &mut Message,
    ) -> Result<Option<Self>, PushError> {
        let limits = app.limits.receipts;
        if message.ttl_is_zero() {
            return Ok(None);
        }
        let given = wish.token.map(|token| {
            let given = app.receipt_urls.open(&token).filter(|given| given.is_of(sender.key));
            let given = given.filter(|given| message.accepted_at < given.ends_at);
            given.ok_or(ReceiptError::UnknownLink)
        });
        let needed_until = message.expires_at() + RESERVE + limits.keep;
        let subscription = match given.transpose()? {
            Some(given) if needed_until <= given.ends_at => given,
            _ => {
                app.common.limits.receipt_subscription_of(&sender)?;
                ReceiptSubscription::new(message.accepted_at + limits.lifetime, sender.key)
            }
        };
        let path = app.receipt_urls.path(&subscription);
        Self::expect(app, uaid, message, subscription.feed(), path).await.map(Some)
    }

    async fn expect(
        app: &EndpointRole,
        uaid: Uaid,
        message: &mut Message,
        subscription: FeedName,
        path: String,
    ) -> Result<Self, PushError> {
        message.id = message.id.with_receipt(true);
        let key = FeedKey::parse(&app.message_urls.encrypt(uaid, &message.key()));
        let key = key.expect("a path is a key");
        let request = ReceiptRequest { subscription, key };
        message.receipt = Some(Box::new(request.clone()));
        let expected = ExpectedReceipt { request, deadline: message.kept_until() };
        let this = Self { expected, path };
        let limits = app.limits.receipts;
        match app.common.store.expect_receipt(this.expected.clone(), limits.messages_max).await {
            Ok(true) => Ok(this),
            Ok(false) => {
                let common = &app.common;
                app.receipts_full.count(common.clock.now(), limits.messages_max, &common.log);
                Err(ReceiptError::Full.into())
            }
            Err(error) => {
                log_failure(app, &error);
                Err(PushError::Unavailable)
            }
        }
    }

    /// Expects the receipt of the message's new id in place of the one before. Both URLs name the message for its
    /// sender.
    pub(super) async fn of_new_id(
        self,
        app: &EndpointRole,
        uaid: Uaid,
        message: &mut Message,
    ) -> Result<Self, PushError> {
        let (path, subscription) = (self.path.clone(), self.expected.request.subscription.clone());
        self.cancel(app).await;
        Self::expect(app, uaid, message, subscription, path).await
    }

    /// Expects the receipt no more: the message was not stored.
    pub(super) async fn cancel(self, app: &EndpointRole) {
        if let Err(error) = app.common.store.cancel_receipt(self.expected).await {
            log_failure(app, &error);
        }
    }

    /// The header that names the subscription.
    pub(super) fn link(&self, origin: &str) -> String {
        format!("<{origin}{}>; rel=\"{RELATION}\"", self.path)
    }
}

fn log_failure(app: &EndpointRole, error: &StoreError) {
    warn!(app.common.log, "the store failed for the receipt of a push"; "error" => %error);
}
