//! What an endpoint node counts of pushes, for metrics.

use std::time::Duration;

use actix_web::http::StatusCode;
use actors::counters::{Counters, Histogram, LATENCY_BOUNDS};
use state_machine::delivery::Outcome;

use super::error::PushError;
use super::urls::endpoint_token::TokenError;
use super::vapid::VapidError;

/// The counts of all pushes since the start.
pub struct PushCounters {
    /// Valid pushes by their [outcome](OUTCOMES).
    pub outcomes: Counters<{ OUTCOMES.len() }>,
    /// Responses of the push endpoint by their [status](STATUSES).
    pub responses: Counters<{ STATUSES.len() }>,
    /// Requests by the check of their [credentials](VAPID).
    pub vapid: Counters<{ VAPID.len() }>,
    /// From a checked request to the ack, of pushes that were delivered directly.
    pub direct: Histogram,
}

/// The outcomes of valid pushes.
pub const OUTCOMES: [&str; 9] = [
    "delivered",
    "stored",
    "dropped",
    "user_gone",
    "no_such_channel",
    "full",
    "bridge",
    "other_protocol",
    "unavailable",
];

/// The statuses of responses. Any other is counted as `other`.
pub const STATUSES: [&str; 14] = [
    "200", "201", "202", "400", "401", "403", "404", "408", "410", "413", "429", "502", "503",
    "other",
];

/// The results of the check of a sender's credentials.
pub const VAPID: [&str; 5] = ["valid", "none", "invalid", "expired", "other_key"];

impl Default for PushCounters {
    fn default() -> Self {
        Self {
            outcomes: Counters::default(),
            responses: Counters::default(),
            vapid: Counters::default(),
            direct: Histogram::new(LATENCY_BOUNDS),
        }
    }
}

impl PushCounters {
    /// Returns the name of the outcome.
    pub(super) fn count_outcome(&self, outcome: &Outcome, took: Duration) -> &'static str {
        if let Outcome::Delivered = outcome {
            self.direct.add(took);
        }
        let place = match outcome {
            Outcome::Delivered => 0,
            Outcome::Stored => 1,
            Outcome::Dropped => 2,
            Outcome::NoSuchUser | Outcome::UserWentAway => 3,
            Outcome::NoSuchChannel => 4,
            Outcome::Full(_) => 5,
            Outcome::Bridge(_) => 6,
            Outcome::OtherProtocol => 7,
            Outcome::Outranked(_) | Outcome::Unavailable => 8,
        };
        self.outcomes.count(place);
        OUTCOMES[place]
    }

    pub(super) fn count_status(&self, status: StatusCode) {
        let place = STATUSES.iter().position(|known| *known == status.as_str());
        self.responses.count(place.unwrap_or(STATUSES.len() - 1));
    }

    /// Counts the check of a request's credentials, if it was made; `has_some` if there were any.
    pub(super) fn count_vapid<T>(&self, checked: &Result<T, PushError>, has_some: bool) {
        self.vapid.count(match checked {
            Ok(_) if has_some => 0,
            Ok(_) | Err(PushError::Token(TokenError::KeyNeeded)) => 1,
            Err(PushError::Vapid(VapidError::Expired { .. })) => 3,
            Err(PushError::Vapid(_)) => 2,
            Err(PushError::Token(TokenError::OtherKey)) => 4,
            Err(_) => return,
        });
    }
}
