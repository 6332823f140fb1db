//! What the checkers of a connection know of its messages.

use state_machine::ids::Chid;
use state_machine::time::Time;

/// What is known of a message that was sent or acked on this connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum State {
    Unacked {
        chid: Chid,
        ttl_is_zero: bool,
        sent_at: Time,
        expires_at: Time,
        /// Whether its channel was not given up since it was sent, and it was not acked before that.
        is_wanted: bool,
    },
    /// The number of the ack, counted from the first.
    Acked(usize),
}
