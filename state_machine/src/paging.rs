//! What all paged reads share: of messages and of feeds.

use std::sync::Arc;

/// The position of a paged read. The text is opaque: only the engine that made it reads it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cursor(Arc<str>);

/// The maximum size of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageLimit {
    /// The maximum number of messages; at least 1.
    pub rows: usize,
    /// Payload bytes after which no further message is added. The first message is always added.
    pub bytes: usize,
}

/// The operation failed, or its outcome is unknown. The caller may retry it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoreFailed;

impl PageLimit {
    /// Whether a page with this much takes no more. An empty one takes a row of any size.
    pub fn is_reached(self, rows: usize, bytes: usize) -> bool {
        rows > 0 && (rows >= self.rows || bytes >= self.bytes)
    }
}

impl Cursor {
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text, for the engine that made it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
