//! How far `kalends feed tail` has come.

use std::path::Path;

use state_machine::feed::FeedName;

use super::cursor_file::{CursorError, CursorFile};
use super::feed::Page;
use super::output::Progress;

/// What was printed of a feed.
#[derive(Debug)]
pub struct TailCursor {
    feed: FeedName,
    cursor: u64,
    head: u64,
    count: u64,
    file: Option<CursorFile>,
}

impl TailCursor {
    /// Begins behind the number in the file, where it is there, else behind `after`.
    pub fn begin(feed: &FeedName, after: u64, file: Option<&Path>) -> Result<Self, CursorError> {
        let opened = file.map(|path| CursorFile::open(path, feed)).transpose()?;
        let (file, kept) = match opened {
            Some((file, kept)) => (Some(file), kept),
            None => (None, None),
        };
        Ok(Self { feed: feed.clone(), cursor: kept.unwrap_or(after), head: 0, count: 0, file })
    }

    /// A page was printed, and whoever reads it can have it: now that is remembered, and not before.
    pub fn printed(&mut self, page: &Page) -> Result<(), CursorError> {
        self.count += page.updates.len() as u64;
        self.head = self.head.max(page.head);
        if page.cursor == self.cursor {
            return Ok(());
        }
        self.cursor = page.cursor;
        self.file.as_mut().map_or(Ok(()), |file| file.save(page.cursor))
    }

    /// Behind which number to go on.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// How many updates were printed.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether all that is known to be there was printed.
    pub fn is_at_the_head(&self) -> bool {
        self.cursor >= self.head
    }

    /// How far that is.
    pub fn progress(&self) -> Progress {
        Progress {
            what: format!("numbers of {}", self.feed),
            done: self.cursor,
            of: Some(self.head),
        }
    }

    /// The same when it ends, as a sentence.
    pub fn summary(&self) -> String {
        let Self { feed, cursor, head, count, .. } = self;
        let updates = if *count == 1 { "update" } else { "updates" };
        match cursor < head {
            true => format!("{count} {updates} of {feed}, up to number {cursor} of {head}"),
            false => format!("{count} {updates} of {feed}, up to its number {cursor}"),
        }
    }
}
