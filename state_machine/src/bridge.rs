//! User agents that are reached through the push service of their platform, a bridge.

use std::fmt;

use crate::time::Span;

/// A bridge: the `router_type` of its agents, and the first part of their registration URLs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BridgeName {
    /// Firebase Cloud Messaging, HTTP v1.
    Fcm,
    /// Apple Push Notification service.
    Apns,
}

/// How a bridge reaches a user agent: the `router_data` of its record.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct BridgeRecipient {
    pub bridge: BridgeName,
    /// The application that the agent is part of, as in its registration URL.
    pub app: Box<str>,
    /// The token that the bridge gave this installation of the application. It is a secret of the agent.
    pub token: Box<str>,
    /// APNs only: the `aps` dictionary that the agent asked for, as JSON.
    pub aps: Option<Box<str>>,
}

/// The answer of a bridge to one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BridgeOutcome {
    /// The bridge has accepted the message, and delivers it.
    Accepted,
    /// The bridge does not know the recipient any more.
    RecipientGone,
    /// The message is larger than the bridge allows, counted as the bridge counts.
    TooLarge {
        /// The limit of the bridge.
        max_bytes: usize,
    },
    /// The bridge allows no further message now, or too many messages wait for it.
    Busy {
        /// The `Retry-After` that the bridge answered; none if it named no time.
        retry_after: Option<Span>,
    },
    /// This server has no such application.
    UnknownApp,
    /// The bridge refuses the message for a reason that the operator must mend.
    Misconfigured,
    /// The bridge refuses this server's credentials, or does not issue any.
    Unauthorized,
    /// The bridge cannot be reached, or answers that it failed.
    Unavailable,
    /// The bridge did not answer in time. It may have the message.
    TimedOut,
}

impl BridgeName {
    pub const ALL: [Self; 2] = [Self::Fcm, Self::Apns];

    /// The `router_type` in the router table.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fcm => "fcm",
            Self::Apns => "apns",
        }
    }

    /// None for a `router_type` of another kind, and for the bridges of autopush that were shut down.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|bridge| bridge.as_str() == text)
    }
}

impl fmt::Debug for BridgeRecipient {
    /// Leaves the token out: what is logged must not contain it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.bridge.as_str(), self.app)
    }
}
