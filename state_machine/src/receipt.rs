//! Delivery receipts (RFC 8030 §5.1): what an application server learns about a message that asked for one.
//!
//! ```text
//!   expected ──acked──► delivered, with the code of the ack
//!      │                   ▲ acked after all
//!      ├──its TTL ended──► expired
//!      └──replaced, deleted by its sender or refused──► nothing
//! ```
//!
//! A receipt subscription is a reserved feed ([`FeedName::receipts`]): a key is the path of a message, its value the
//! [`Receipt`]. Until one of the two states is reached the message is *expected*: a row beside the feed, which no reader
//! sees.

use std::fmt;

use crate::feed::{FeedKey, FeedName, FeedValue};

/// Where the receipt of a message is written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReceiptRequest {
    /// The feed of the receipt subscription.
    pub subscription: FeedName,
    /// The path of the message's URL, by which its sender knows it.
    pub key: FeedKey,
}

/// What an agent did with a message that it acked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AckCode {
    /// It was delivered to the app, 100.
    Delivered,
    /// It could not be decrypted, 101.
    DecryptionError,
    /// It was decrypted, and the app has not handled it, 102.
    NotHandled,
}

/// The end of a message, as its sender reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Receipt {
    /// The user agent acked it.
    Delivered(AckCode),
    /// Its TTL ended without an ack.
    Expired,
}

impl AckCode {
    const ALL: [Self; 3] = [Self::Delivered, Self::DecryptionError, Self::NotHandled];

    /// The code of an ack. Some agents send none, and others may invent one: either acks the message.
    pub fn of(code: Option<u16>) -> Self {
        Self::ALL.into_iter().find(|known| Some(known.number()) == code).unwrap_or(Self::Delivered)
    }

    pub fn number(self) -> u16 {
        match self {
            Self::Delivered => 100,
            Self::DecryptionError => 101,
            Self::NotHandled => 102,
        }
    }
}

impl Receipt {
    /// The receipt in a value of the feed. None of a value that this program does not write.
    pub fn parse(value: &FeedValue) -> Option<Self> {
        let code = value.as_str().strip_prefix("delivered ").map(str::parse);
        match code {
            Some(code) => {
                let code: u16 = code.ok()?;
                let known = AckCode::ALL.into_iter().find(|known| known.number() == code);
                known.map(Self::Delivered)
            }
            None => (value.as_str() == "expired").then_some(Self::Expired),
        }
    }

    pub fn value(self) -> FeedValue {
        FeedValue::parse(&self.to_string()).expect("it is shorter than a value may be")
    }
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delivered(code) => write!(f, "delivered {}", code.number()),
            Self::Expired => f.write_str("expired"),
        }
    }
}

impl ReceiptRequest {
    /// The request in one text, for a column of a message's row.
    pub fn to_column(&self) -> String {
        format!("{} {}", self.subscription, self.key)
    }

    /// The reverse of [`ReceiptRequest::to_column`]. None of a text that it does not write.
    pub fn from_column(text: &str) -> Option<Self> {
        let (subscription, key) = text.split_once(' ')?;
        let subscription = FeedName::from_store(subscription).ok()?;
        Some(Self { subscription, key: FeedKey::parse(key).ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Time;

    #[test]
    fn a_receipt_is_read_as_it_was_written() {
        let all = AckCode::ALL.map(Receipt::Delivered).into_iter().chain([Receipt::Expired]);
        for receipt in all {
            assert_eq!(Receipt::parse(&receipt.value()), Some(receipt));
        }
        for other in ["", "delivered", "delivered 103", "delivered x", "expired 100"] {
            assert_eq!(Receipt::parse(&FeedValue::parse(other).unwrap()), None, "{other}");
        }
    }

    #[test]
    fn an_ack_without_a_known_code_is_one_of_a_delivered_message() {
        for (code, expected) in [
            (None, AckCode::Delivered),
            (Some(100), AckCode::Delivered),
            (Some(101), AckCode::DecryptionError),
            (Some(102), AckCode::NotHandled),
            (Some(7), AckCode::Delivered),
        ] {
            assert_eq!(AckCode::of(code), expected, "{code:?}");
        }
    }

    #[test]
    fn a_request_is_read_from_its_column() {
        let request = ReceiptRequest {
            subscription: FeedName::receipts(Time(1_796_000_000_000), 7),
            key: FeedKey::parse("/m/abc").unwrap(),
        };
        assert_eq!(ReceiptRequest::from_column(&request.to_column()), Some(request));
        assert_eq!(ReceiptRequest::from_column("nothing"), None);
    }
}
