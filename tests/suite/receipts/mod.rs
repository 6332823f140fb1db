//! Delivery receipts of a running server (RFC 8030 §5.1, §6.3).

mod killed;
mod limits;
mod reading;
mod sending;
mod subscription;

pub(crate) use subscription::{Receipt, Receipts, Sent, acked, send};
