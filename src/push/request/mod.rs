//! What the request of a sender says. What goes in are headers and a body. What comes out are the options of a push,
//! its payload, its wish for a receipt, or the form of SimplePush. Nothing here waits, and nothing knows the server's
//! state.

pub mod push_headers;
pub mod receipts;
pub(super) mod simplepush_form;
