//! The `status` of an answer. The numbers are the protocol's, borrowed from HTTP.

/// The agent's request succeeded.
pub const OK: u16 = 200;
/// The VAPID key of a register is not a point on P-256.
pub const INVALID_KEY: u16 = 400;
/// The message or one of its other fields is invalid.
pub const INVALID: u16 = 401;
/// The server accepts pushes with other VAPID keys only, or none without one.
pub const KEY_NOT_ALLOWED: u16 = 403;
/// The agent has its maximum of channels.
pub const TOO_MANY: u16 = 413;
/// The agent, or its address, registers more than a limit allows; it may retry later.
pub const OVER_LIMIT: u16 = 429;
/// Too many commands of this agent are pending; it may retry.
pub const UNAVAILABLE: u16 = 503;
