//! The tables of the router's file, as the rules of records, feeds and receipts see them.

use std::ops::Deref;

use rusqlite::Connection;

pub(crate) struct RouterFile<'a>(pub(crate) &'a Connection);

impl Deref for RouterFile<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.0
    }
}
