//! Prints the updates of a feed, and keeps the cursor of those that it has printed.

use std::io::Write;
use std::mem;

use state_machine::feed::{FeedName, FeedPage, FeedSyncId, Update};

use super::tail_cursor::TailCursor;
use crate::command::printer::Printer;
use crate::command::text::{on_one_line, to_json};
use crate::command::{CommandError, Completion, Output, Report};

/// Bytes of output after which the cursor is kept, also within a page.
const KEEP_AFTER_BYTES: usize = 128 * 1024;

pub struct UpdatePrinter<W> {
    pub printer: Printer<W>,
    pub tail: TailCursor,
    /// Updates that are wanted in all.
    pub count: Option<u64>,
    pub once: bool,
    pub restart_if_gone: bool,
}

/// The updates that are still to be printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remaining {
    pub feed: FeedName,
    pub after: u64,
    pub count: Option<u64>,
    pub once: bool,
    pub restart_if_gone: bool,
}

/// What is printed when a tail begins again with the first update.
pub fn restarts(feed: &FeedName, cursor: u64) -> String {
    format!(
        "deletions of {feed} behind number {cursor} are forgotten: starting over, and what is not printed again is \
         deleted"
    )
}

impl Report for FeedPage {
    fn text(&self, _is_first: bool) -> String {
        self.updates.iter().map(|update| update.text(false)).collect()
    }

    fn json(&self) -> String {
        self.updates.iter().map(to_json).collect()
    }
}

impl Report for Update {
    fn text(&self, _is_first: bool) -> String {
        let Self { feed_sync_id, key, value, .. } = self;
        let key = on_one_line(key.as_str());
        match value {
            Some(value) => format!("{feed_sync_id} {key} = {}\n", on_one_line(value.as_str())),
            None => format!("{feed_sync_id} {key} deleted\n"),
        }
    }
}

impl<W: Write> UpdatePrinter<W> {
    pub fn remaining(&self) -> Remaining {
        let count = self.count.map(|count| count.saturating_sub(self.tail.count()));
        let (feed, after) = (self.tail.feed().clone(), self.tail.cursor());
        let Self { once, restart_if_gone, .. } = *self;
        Remaining { feed, after, count, once, restart_if_gone }
    }

    /// Prints an output. The last one is returned instead.
    pub fn print(&mut self, output: Output<FeedPage>) -> Result<Option<Completion>, CommandError> {
        match output {
            Output::Report(page) => self.page(&page).map(|()| None),
            output => self.printer.print(output),
        }
    }

    /// Prints the updates of a page. The cursor is kept after every [`KEEP_AFTER_BYTES`] and at the end: a consumer that
    /// has the updates up to a number has all that the feed still holds up to there.
    pub fn page(&mut self, page: &FeedPage) -> Result<(), CommandError> {
        let (mut text, mut count) = (String::new(), 0);
        for update in &page.updates {
            text += &self.printer.text_of(update);
            count += 1;
            if text.len() >= KEEP_AFTER_BYTES {
                self.keep(&mem::take(&mut text), count, update.feed_sync_id, page.head)?;
                count = 0;
            }
        }
        self.keep(&text, count, page.cursor, page.head)
    }

    /// Continues with the first update.
    pub fn restart(&mut self) -> Result<(), CommandError> {
        self.keep("", 0, FeedSyncId::NONE, FeedSyncId::NONE)
    }

    fn keep(
        &mut self,
        text: &str,
        count: u64,
        cursor: FeedSyncId,
        head: FeedSyncId,
    ) -> Result<(), CommandError> {
        self.printer.write(text)?;
        let kept = self.tail.printed(count, cursor, head);
        kept.map_err(|error| CommandError::Job(error.to_string()))?;
        self.printer.bar.follow(&self.tail.progress());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use state_machine::feed::{FeedKey, FeedValue, Version};

    use super::*;

    fn update(number: u64, value: Option<&str>) -> Update {
        Update {
            feed_sync_id: FeedSyncId(number),
            key: FeedKey::parse("a/b").unwrap(),
            version: Version(2),
            value: value.map(|value| FeedValue::parse(value).unwrap()),
        }
    }

    fn page(updates: Vec<Update>) -> FeedPage {
        let (cursor, head) = (FeedSyncId(9), FeedSyncId(99));
        FeedPage { updates, cursor, head, ..FeedPage::default() }
    }

    fn printer<W: Write>(to: W) -> UpdatePrinter<W> {
        let tail = TailCursor::begin(&FeedName::broadcasts(), 0, None).unwrap();
        let printer = Printer::new(to, false);
        UpdatePrinter { printer, tail, count: None, once: false, restart_if_gone: false }
    }

    #[test]
    fn an_update_is_one_line_whatever_it_holds() {
        let updates =
            page(vec![update(5, Some("\"1\"")), update(6, Some("x\n\u{1b}[2J")), update(7, None)]);
        let expected = "5 a/b = \"1\"\n6 a/b = x\\n\\u{1b}[2J\n7 a/b deleted\n";
        assert_eq!(updates.text(true), expected);
        let json = updates.json();
        let first = r#"{"feed_sync_id":5,"key":"a/b","version":2,"value":"\"1\""}"#;
        assert_eq!(json.lines().next(), Some(first));
        assert_eq!(json.lines().count(), 3);
        assert_eq!(page(vec![]).json(), "");
    }

    #[test]
    fn the_cursor_is_kept_within_a_large_page_and_at_its_end() {
        let most = "x".repeat(FeedValue::BYTES_MAX);
        let mut whole = printer(Vec::new());
        let large = [3, 5, 6, 8].map(|number| update(number, Some(&most)));
        whole.page(&page(vec![update(1, Some("x"))])).unwrap();
        assert_eq!((whole.tail.cursor(), whole.tail.count()), (9, 1));
        whole.page(&page(large.to_vec())).unwrap();
        assert_eq!((whole.tail.cursor(), whole.tail.count()), (9, 5));

        // An output that fails after two of them.
        let mut room = vec![0; 2 * (most.len() + 100)];
        let mut full = printer(&mut room[..]);
        full.page(&page(large.to_vec())).unwrap_err();
        assert_eq!((full.tail.cursor(), full.tail.count()), (5, 2));
    }
}
