//! What every request of the public port passes. A connection enters, with its headers and its body. What leaves is a
//! body within its limits, a request id, an admission of the agent, or the answer to a method that a URL does not take.

pub mod accept_failures;
pub mod access;
pub mod authorization;
pub(crate) mod body;
pub mod local_request;
pub mod methods;
pub mod origin_check;
pub mod request_body_drain;
pub mod request_id;
