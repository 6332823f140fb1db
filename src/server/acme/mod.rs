//! Certificates of an authority that speaks ACME (RFC 8555), such as Let's Encrypt
//! ([decision 41](../../docs/decisions/0041-certificates-by-acme.md)). The settings of a domain enter, and requests to
//! the port of http-01. Certificates in [`Certificates`](crate::system::tls::certificates::Certificates) leave.
//!
//! - [`schedule`]: when a certificate is ordered; [`orderer`]: the orders.
//! - [`files`]: the account and the certificates on the disk.
//! - [`port`]: the port of http-01, which sends all other requests to https.

mod error;
mod files;
pub mod orderer;
pub mod port;
pub mod schedule;
