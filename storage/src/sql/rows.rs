//! The rows that are read.

use std::error::Error;

use bytes::Bytes;
use state_machine::{
    Chid, Encoding, LastConnect, Message, MessageId, Month, NodeId, Payload, ReceiptRequest, Span,
    Time, Topic, Uaid, Urgency,
};

use super::values::{AES128GCM, AESGCM, urgency_column};
use crate::feeds::{
    FeedKey, FeedMark, FeedName, FeedState, FeedSyncId, FeedValue, Sequence, Version,
};
use crate::notifications::Notification;
use crate::receipts::ExpectedReceipt;
use crate::record_row::RecordRow;
use crate::registration;
use crate::rules::feed_rows::KeyRow;

/// A row of a result. Its columns are counted from 0, and what has several is read from its first one on.
pub trait SqlRow {
    type Error;

    /// A whole number of any width. None of a null, as in the others.
    fn integer(&self, at: usize) -> Result<Option<i64>, Self::Error>;

    fn text(&self, at: usize) -> Result<Option<&str>, Self::Error>;

    /// A text that may have the character 0.
    fn any_text(&self, at: usize) -> Result<Option<&str>, Self::Error>;

    fn bytes(&self, at: usize) -> Result<Option<&[u8]>, Self::Error>;

    fn id(&self, at: usize) -> Result<[u8; 16], Self::Error>;

    /// The error of a column with what this program does not write.
    fn corrupt(&self, at: usize, what: &str) -> Self::Error;

    /// A column that is not null.
    fn some<T>(&self, at: usize, value: Option<T>) -> Result<T, Self::Error> {
        value.ok_or_else(|| self.corrupt(at, "a column is null"))
    }

    /// A number of at least 0: a negative one counts as 0.
    fn number(&self, at: usize) -> Result<u64, Self::Error> {
        let number = self.integer(at)?;
        Ok(self.some(at, number)?.max(0).unsigned_abs())
    }

    /// A number that was assigned: a negative one is an error.
    fn assigned(&self, at: usize) -> Result<Option<u64>, Self::Error> {
        let number = self.integer(at)?.map(u64::try_from).transpose();
        number.map_err(|error| self.corrupt(at, &error.to_string()))
    }

    fn assigned_here(&self, at: usize) -> Result<u64, Self::Error> {
        let number = self.assigned(at)?;
        self.some(at, number)
    }

    /// A text in another form.
    fn parsed<T, E: Error>(
        &self,
        at: usize,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, Self::Error> {
        let parsed = self.text(at)?.map(parse).transpose();
        parsed.map_err(|error| self.corrupt(at, &error.to_string()))
    }

    fn uaid(&self, at: usize) -> Result<Uaid, Self::Error> {
        self.id(at).map(Uaid)
    }

    fn chid(&self, at: usize) -> Result<Chid, Self::Error> {
        self.id(at).map(Chid)
    }

    fn message_id(&self, at: usize) -> Result<MessageId, Self::Error> {
        self.id(at).map(MessageId::from_bytes)
    }

    fn urgency(&self, at: usize) -> Result<Urgency, Self::Error> {
        let column = self.integer(at)?;
        let is_it = |urgency: &Urgency| Some(urgency_column(*urgency).into()) == column;
        let known = Urgency::ALL.into_iter().find(is_it);
        known.ok_or_else(|| self.corrupt(at, "an unknown urgency"))
    }

    /// A record, in eight columns.
    fn record(&self, at: usize) -> Result<RecordRow, Self::Error> {
        let router_type = self.text(at + 1)?;
        let router_type = self.some(at + 1, router_type)?;
        let data = self.text(at + 7)?;
        let curmonth = self.parsed(at + 5, str::parse::<Month>)?;
        Ok(RecordRow {
            uaid: self.uaid(at)?,
            router_type: router_type.to_owned(),
            recipient: registration::recipient(router_type, || serde_json::from_str(data?).ok()),
            node: self.text(at + 2)?.map(NodeId::new),
            connected_at: Time(self.number(at + 3)?),
            last_connect: LastConnect(self.number(at + 4)?),
            curmonth: Some(self.some(at + 5, curmonth)?),
            oldmonth: self.parsed(at + 6, str::parse::<Month>)?,
        })
    }

    /// Thirteen columns. The second, until when the row is kept, follows from the others.
    fn message(&self, at: usize) -> Result<Message, Self::Error> {
        Ok(Message {
            id: self.message_id(at)?,
            chid: self.chid(at + 2)?,
            topic: self.parsed(at + 3, Topic::parse)?,
            urgency: self.urgency(at + 4)?,
            accepted_at: Time(self.number(at + 5)?),
            ttl: Span(self.number(at + 6)?),
            payload: self.payload(at + 7)?,
            offers: u8::try_from(self.number(at + 11)?).unwrap_or(u8::MAX),
            receipt: self.receipt(at + 12)?.map(Box::new),
        })
    }

    fn payload(&self, at: usize) -> Result<Option<Payload>, Self::Error> {
        let text = |at| self.some(at, self.text(at)?).map(Box::<str>::from);
        let encoding = match self.integer(at)?.map(i16::try_from) {
            None => return Ok(None),
            Some(Ok(AES128GCM)) => Encoding::Aes128Gcm,
            Some(Ok(AESGCM)) => {
                Encoding::AesGcm { encryption: text(at + 1)?, crypto_key: text(at + 2)? }
            }
            Some(_) => return Err(self.corrupt(at, "an unknown encoding")),
        };
        let data = self.some(at + 3, self.bytes(at + 3)?)?;
        Ok(Some(Payload { data: Bytes::copy_from_slice(data), encoding }))
    }

    fn receipt(&self, at: usize) -> Result<Option<ReceiptRequest>, Self::Error> {
        let Some(text) = self.text(at)? else { return Ok(None) };
        let request = ReceiptRequest::from_column(text);
        request.map(Some).ok_or_else(|| self.corrupt(at, "not a receipt"))
    }

    /// The receipt that the row of a message names, and until when that is kept.
    fn receipt_of_message(&self, at: usize) -> Result<Option<ExpectedReceipt>, Self::Error> {
        let deadline = Time(self.number(at + 1)?);
        Ok(self.receipt(at)?.map(|request| ExpectedReceipt { request, deadline }))
    }

    /// A version, in three columns.
    fn notification(&self, at: usize) -> Result<Notification, Self::Error> {
        let version = self.bytes(at + 1)?.map(<[u8; 8]>::try_from);
        let Some(Ok(version)) = version else {
            return Err(self.corrupt(at + 1, "not a SimplePush version"));
        };
        let data = self.any_text(at + 2)?.map(str::to_owned);
        Ok(Notification { chid: self.chid(at)?, version: u64::from_be_bytes(version), data })
    }

    fn feed_name(&self, at: usize) -> Result<FeedName, Self::Error> {
        let name = self.parsed(at, FeedName::from_store)?;
        self.some(at, name)
    }

    fn feed_key(&self, at: usize) -> Result<FeedKey, Self::Error> {
        let key = self.parsed(at, FeedKey::parse)?;
        self.some(at, key)
    }

    /// None of a deleted key.
    fn feed_value(&self, at: usize) -> Result<Option<FeedValue>, Self::Error> {
        let value = self.any_text(at)?.map(FeedValue::parse).transpose();
        value.map_err(|error| self.corrupt(at, &error.to_string()))
    }

    /// Version and number of a key.
    fn key_row(&self, at: usize) -> Result<KeyRow, Self::Error> {
        let version = Version(self.assigned_here(at)?);
        Ok(KeyRow { version, number: self.assigned(at + 1)?.map(FeedSyncId) })
    }

    /// A sequence, in seven columns.
    fn sequence(&self, at: usize) -> Result<Sequence, Self::Error> {
        let mark = match self.assigned(at + 5)? {
            None => None,
            Some(number) => {
                Some(FeedMark { number: FeedSyncId(number), at: Time(self.number(at + 6)?) })
            }
        };
        Ok(Sequence {
            value: FeedSyncId(self.assigned_here(at)?),
            version: self.assigned_here(at + 1)?,
            keys: self.assigned_here(at + 2)?,
            horizon: FeedSyncId(self.assigned_here(at + 3)?),
            forgotten: Version(self.assigned_here(at + 4)?),
            mark,
        })
    }

    fn feed_state(&self, at: usize) -> Result<FeedState, Self::Error> {
        Ok(FeedState { name: self.feed_name(at)?, sequence: self.sequence(at + 1)? })
    }

    fn expected_receipt(&self, at: usize) -> Result<ExpectedReceipt, Self::Error> {
        let request =
            ReceiptRequest { subscription: self.feed_name(at)?, key: self.feed_key(at + 1)? };
        Ok(ExpectedReceipt { request, deadline: Time(self.number(at + 2)?) })
    }
}
