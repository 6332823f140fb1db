//! Limits by who asks. They are charged before a connection costs the store anything.

use state_machine::Uaid;
use state_machine::connection::CloseReason;

/// The limits of one connection, which know its peer.
pub trait Admission {
    /// Charges a hello with this uaid, or with none. The error is the reason to close the connection.
    fn hello(&self, uaid: Option<Uaid>) -> Result<(), CloseReason>;

    /// Charges the record of a new agent. False refuses its first register.
    fn new_agent(&self) -> bool;

    /// Charges a channel of this agent. False refuses the register.
    fn register(&self, uaid: Uaid) -> bool;
}
