//! The cost of each operation, which `cost` measures and `docs/storage.md` documents.

/// The cost of one operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Price {
    pub(super) what: &'static str,
    /// The number of requests by DynamoDB operation, in alphabetical order.
    pub(super) requests: &'static [(&'static str, usize)],
    /// Strongly consistent reads, in units of 4 KB.
    pub(super) read: f64,
    /// Writes to tables, in units of 1 KB.
    pub(super) write: f64,
    /// Writes to the index, in units of 1 KB.
    pub(super) index: f64,
}

macro_rules! prices {
    ($($name:ident: $what:literal, [$($operation:ident $count:literal),*], $read:literal, $write:literal, $index:literal;)+) => {
        $(pub(super) const $name: Price = Price {
            what: $what,
            requests: &[$((stringify!($operation), $count)),*],
            read: $read,
            write: $write,
            index: $index,
        };)+

        /// All costs, in the order of the documentation.
        pub(super) const PRICES: &[Price] = &[$($name),+];
    };
}

prices! {
    NEW_AGENT: "connect, a new agent", [], 0.0, 0.0, 0.0;
    FIRST_CHANNEL: "register the first channel", [UpdateItem 2], 0.0, 2.0, 1.0;
    CHANNEL: "register another channel", [UpdateItem 1], 0.0, 1.0, 0.0;
    UNREGISTER: "unregister a channel", [UpdateItem 1], 0.0, 1.0, 0.0;
    DIRECT: "push to a connected agent, acked", [GetItem 1], 1.0, 0.0, 0.0;
    DISCONNECT: "disconnect", [], 0.0, 0.0, 0.0;
    FIRST_STORED: "first push after a disconnect, 100 bytes", [GetItem 3, PutItem 2, Query 1, UpdateItem 2], 4.0, 3.0, 0.0;
    STORED: "stored push, 100 bytes", [GetItem 3, PutItem 1, UpdateItem 1], 3.0, 2.0, 0.0;
    STORED_1_KB: "stored push, 1 KB", [GetItem 3, PutItem 1, UpdateItem 1], 3.0, 3.0, 0.0;
    STORED_4_KB: "stored push, 4 KB", [GetItem 3, PutItem 1, UpdateItem 1], 3.0, 6.0, 0.0;
    STORED_TOPIC: "stored push with a topic, 100 bytes", [GetItem 3, PutItem 1, UpdateItem 1], 3.0, 2.0, 0.0;
    REPLACED: "another of that topic, which takes its place", [GetItem 3, PutItem 1, UpdateItem 2], 3.0, 3.0, 0.0;
    FETCH: "connect within the hour, with five messages of 6 KB together", [GetItem 1, Query 1, UpdateItem 1], 3.0, 1.0, 0.0;
    ACKS: "acks of those five", [DeleteItem 5, UpdateItem 1], 0.0, 11.0, 0.0;
    RECONNECT: "connect within the hour, nothing waiting", [GetItem 1, Query 1, UpdateItem 1], 2.0, 1.0, 0.0;
    RECHECK: "look into storage, nothing there", [Query 1], 1.0, 0.0, 0.0;
    DROPPED: "a sender drops a message of 100 bytes", [DeleteItem 1, GetItem 1, UpdateItem 1], 1.0, 2.0, 0.0;
    MOVE: "connect in a new month, nothing waiting", [GetItem 1, Query 3, UpdateItem 4], 4.0, 4.0, 2.0;
    MOVE_3: "connect in a new month, 3 messages of 100 bytes, acked", [DeleteItem 6, GetItem 1, Query 3, UpdateItem 5], 4.0, 8.0, 2.0;
    LATER: "connect in another hour, nothing waiting", [GetItem 1, Query 1, UpdateItem 1], 2.0, 1.0, 2.0;
    HEALTH: "health check", [UpdateItem 1], 0.0, 1.0, 0.0;
}
