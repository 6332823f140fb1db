//! Prints the output of a command on standard output: as text, or one JSON object a line.

use indicatif::HumanBytes;
use serde::Serialize;
use serde_json::{Value, json};
use state_machine::feed::{FeedKey, FeedPage, FeedSyncId, FeedValue, Update};
use std::collections::BTreeSet;
use std::io::{Write, stderr};
use std::mem;
use storage::feeds::FeedState;
use storage::maintenance::{Capacity, PreflightCheck, Table, TableStatus, Throughput};

use super::bar::Bar;
use super::command::AdminError;
use super::inspect;
use super::output::{Completion, CopiedTable, Output, Status};
use super::print_access::{access_text, new_access_text};
use super::print_nodes::nodes_text;
use super::tail_cursor::TailCursor;

/// Bytes of output after which a tail keeps its cursor, also within a page.
const KEEP_AFTER_BYTES: usize = 128 * 1024;

pub struct Printer<W> {
    to: W,
    is_json: bool,
    bar: Bar,
    /// Whether the head of a list of feeds or access tokens was printed.
    has_listed: bool,
    tail: Option<TailCursor>,
}

impl<W: Write> Printer<W> {
    /// Prints to `to`, and progress on `bar`.
    pub fn new(to: W, is_json: bool, bar: Bar) -> Self {
        Self { to, is_json, bar, has_listed: false, tail: None }
    }

    /// The same printer, which keeps the cursor of the updates that it prints.
    pub fn tailing(self, tail: TailCursor) -> Self {
        Self { tail: Some(tail), ..self }
    }

    pub fn tail(&self) -> Option<&TailCursor> {
        self.tail.as_ref()
    }

    /// Prints an output. The last one is returned instead.
    pub fn print(&mut self, output: Output) -> Result<Option<Completion>, AdminError> {
        let text = match output {
            Output::Progress(progress) => {
                self.bar.show(&progress);
                return Ok(None);
            }
            Output::End(end) => {
                self.bar.end();
                return Ok(Some(end));
            }
            Output::Page(page) => return self.page(&page).map(|()| None),
            Output::Problem(text) => {
                self.eprint(&text);
                return Ok(None);
            }
            Output::Note(text) => text + "\n",
            Output::Check(check) => check_text(&check) + "\n",
            Output::Tables(tables) if self.is_json => with_months(json!({ "tables": tables })),
            Output::Tables(tables) => tables_text(&tables),
            Output::Status(status) if self.is_json => with_months(json!(status)),
            Output::Status(status) => status_text(&status),
            Output::Inspection(facts) if self.is_json => to_json(&facts),
            Output::Inspection(facts) => inspect::text::of(&facts),
            Output::Nodes(rows) if self.is_json => to_json(&json!({ "nodes": rows })),
            Output::Nodes(rows) => nodes_text(&rows),
            Output::Feeds(feeds) if self.is_json => feeds.iter().map(to_json).collect(),
            Output::Feeds(feeds) => {
                let is_first = !mem::replace(&mut self.has_listed, true);
                feeds_text(&feeds, is_first)
            }
            Output::Copied(tables) if self.is_json => with_months(json!({ "tables": tables })),
            Output::Copied(tables) => copied_text(&tables),
            Output::NewAccess(access) if self.is_json => to_json(&access),
            Output::NewAccess(access) => new_access_text(&access),
            Output::Access(rows) if self.is_json => rows.iter().map(to_json).collect(),
            Output::Access(rows) => {
                let is_first = !mem::replace(&mut self.has_listed, true);
                access_text(&rows, is_first)
            }
            Output::Broadcasts(all) => {
                let line = |(id, version): &(FeedKey, FeedValue)| match self.is_json {
                    true => to_json(&json!({ "id": id, "version": version })),
                    false => {
                        let (id, version) =
                            (on_one_line(id.as_str()), on_one_line(version.as_str()));
                        format!("{id} = {version}\n")
                    }
                };
                all.iter().map(line).collect()
            }
        };
        self.write(&text)?;
        Ok(None)
    }

    /// Removes the progress bar.
    pub fn end(&self) {
        self.bar.end();
    }

    /// Prints a line on standard error.
    pub fn eprint(&self, text: &str) {
        // It may be closed.
        let _ = self.bar.aside(|| writeln!(stderr(), "kalends: {text}"));
    }

    /// Prints the updates of a page. The cursor is kept after every [`KEEP_AFTER_BYTES`] and at the end: a consumer that
    /// has the updates up to a number has all that the feed still holds up to there.
    fn page(&mut self, page: &FeedPage) -> Result<(), AdminError> {
        let (mut text, mut count) = (String::new(), 0);
        for update in &page.updates {
            text += &if self.is_json { to_json(update) } else { update_text(update) };
            count += 1;
            if text.len() >= KEEP_AFTER_BYTES {
                self.keep(&text, count, update.feed_sync_id, page.head)?;
                (text, count) = (String::new(), 0);
            }
        }
        self.keep(&text, count, page.cursor, page.head)
    }

    fn keep(
        &mut self,
        text: &str,
        count: u64,
        cursor: FeedSyncId,
        head: FeedSyncId,
    ) -> Result<(), AdminError> {
        self.write(text)?;
        if let Some(tail) = &mut self.tail {
            tail.printed(count, cursor, head)?;
            self.bar.follow(&tail.progress());
        }
        Ok(())
    }

    fn write(&mut self, text: &str) -> Result<(), AdminError> {
        let to = &mut self.to;
        let written = self.bar.aside(|| to.write_all(text.as_bytes()).and_then(|()| to.flush()));
        Ok(written?)
    }
}

/// A line of JSON.
fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("all keys are text") + "\n"
}

fn check_text(check: &PreflightCheck) -> String {
    match &check.outcome {
        Ok(()) => format!("ok      {}", check.what),
        Err(problem) => format!("FAILED  {}: {problem}", check.what),
    }
}

fn tables_text(tables: &[TableStatus]) -> String {
    let rows = tables.iter().map(|status| {
        [
            table_text(status.table),
            status.name.clone(),
            status.state.clone(),
            status.items.to_string(),
            HumanBytes(status.bytes).to_string(),
            throughput_text(status.capacity),
        ]
    });
    columns(Some(["TABLE", "NAME", "STATE", "ITEMS", "SIZE", "THROUGHPUT"]), rows)
}

fn copied_text(tables: &[CopiedTable]) -> String {
    let rows = tables.iter().map(|copied| {
        let CopiedTable { table, rows, sha256 } = copied;
        [table_text(*table), rows.to_string(), sha256.clone()]
    });
    columns(Some(["TABLE", "ROWS", "SHA-256"]), rows)
}

pub(super) fn table_text(table: Table) -> String {
    match table {
        Table::Messages(month) => month.to_string(),
        Table::Router => "router".into(),
        Table::Notifications => "notifications".into(),
        Table::Sequences => "sequences".into(),
        Table::Feeds => "feeds".into(),
    }
}

fn throughput_text(capacity: Capacity) -> String {
    match capacity {
        Capacity::Unmetered => "unmetered".into(),
        Capacity::OnDemand => "on demand".into(),
        Capacity::Provisioned(Throughput { read, write }) => {
            format!("{read} reads, {write} writes/s")
        }
    }
}

fn status_text(status: &Status) -> String {
    let Status { this_month, tables, agents, unfinished_moves, .. } = status;
    let rotation = if status.rotation { "on" } else { "off" };
    let mut text = tables_text(tables);
    text += &format!("\nIt is {this_month}, rotation is {rotation}\n\n");
    let months: BTreeSet<_> = agents.keys().chain(unfinished_moves.keys()).collect();
    if months.is_empty() {
        text += "There are no agents\n";
    } else {
        let count = |count: Option<&u64>| count.copied().unwrap_or(0).to_string();
        let rows = months.into_iter().map(|month| {
            [month.to_string(), count(agents.get(month)), count(unfinished_moves.get(month))]
        });
        text += &columns(Some(["MONTH", "AGENTS ON IT", "MOVING AWAY FROM IT"]), rows);
    }
    for advice in &status.advice {
        text += &format!("\n- {advice}");
    }
    text + "\n"
}

fn update_text(update: &Update) -> String {
    let Update { feed_sync_id, key, value, .. } = update;
    let key = on_one_line(key.as_str());
    match value {
        Some(value) => format!("{feed_sync_id} {key} = {}\n", on_one_line(value.as_str())),
        None => format!("{feed_sync_id} {key} deleted\n"),
    }
}

fn feeds_text(feeds: &[FeedState], is_first: bool) -> String {
    let rows = feeds.iter().map(|FeedState { name, sequence }| {
        [name.to_string(), sequence.value.to_string(), sequence.keys.to_string()]
    });
    columns(is_first.then_some(["FEED", "HEAD", "KEYS"]), rows)
}

/// Escapes control characters: the writer of a feed or of an archive must not control the terminal.
pub(crate) fn on_one_line(text: &str) -> String {
    let escape = |character: char| match character.is_control() {
        true => character.escape_default().to_string(),
        false => character.to_string(),
    };
    text.chars().map(escape).collect()
}

/// Aligns the cells of each column below the head, without blanks at the ends of lines.
pub(super) fn columns<const N: usize>(
    head: Option<[&str; N]>,
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    let head = head.map(|head| head.map(str::to_owned));
    let rows: Vec<_> = head.into_iter().chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// All tables as JSON. A table that is not one of a month has `month` null.
fn with_months(mut value: Value) -> String {
    for table in value["tables"].as_array_mut().into_iter().flatten() {
        table.as_object_mut().map(|table| table.entry("month").or_insert(Value::Null));
    }
    to_json(&value)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use state_machine::Month;
    use state_machine::feed::{FeedName, Sequence, Version};

    use super::*;
    use crate::operate::admin::output::Progress;

    fn printer(is_json: bool) -> Printer<Vec<u8>> {
        Printer::new(Vec::new(), is_json, Bar::new(false))
    }

    fn printed(printer: Printer<Vec<u8>>) -> String {
        String::from_utf8(printer.to).unwrap()
    }

    fn print(is_json: bool, output: Output) -> String {
        let mut printer = printer(is_json);
        assert_eq!(printer.print(output).unwrap(), None);
        printed(printer)
    }

    fn month(text: &str) -> Month {
        text.parse().unwrap()
    }

    fn tables() -> Vec<TableStatus> {
        let row = |name: &str, table, capacity| {
            let (name, state) = (name.into(), "active".into());
            TableStatus { table, name, state, items: 12, bytes: 4096, capacity }
        };
        let units = Capacity::Provisioned(Throughput { read: 5, write: 6 });
        vec![
            row("router", Table::Router, Capacity::OnDemand),
            row("message_2026_11", Table::Messages(month("2026_11")), units),
        ]
    }

    fn status() -> Output {
        Output::Status(Box::new(Status {
            this_month: month("2026_11"),
            rotation: true,
            tables: tables(),
            agents: BTreeMap::from([(month("2026_10"), 3), (month("2026_11"), 40)]),
            unfinished_moves: BTreeMap::from([(month("2026_09"), 1)]),
            other_types: 5,
            unfinished_drops: 2,
            droppable: vec![month("2026_08")],
            advice: vec!["do this".into(), "do that".into()],
        }))
    }

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

    #[test]
    fn tables_are_printed_in_columns() {
        assert_eq!(
            print(false, Output::Tables(tables())),
            "TABLE    NAME             STATE   ITEMS  SIZE      THROUGHPUT\n\
             router   router           active  12     4.00 KiB  on demand\n\
             2026_11  message_2026_11  active  12     4.00 KiB  5 reads, 6 writes/s\n"
        );
    }

    #[test]
    fn a_status_shows_the_agents_by_month_and_the_advice() {
        let printed = print(false, status());
        let expected = "\n\nIt is 2026_11, rotation is on\n\n\
             MONTH    AGENTS ON IT  MOVING AWAY FROM IT\n\
             2026_09  0             1\n\
             2026_10  3             0\n\
             2026_11  40            0\n\n\
             - do this\n- do that\n";
        assert!(printed.ends_with(expected), "{printed}");
    }

    #[test]
    fn json_is_one_object_with_exact_numbers() {
        let printed = print(true, Output::Tables(tables()));
        assert_eq!(printed.lines().count(), 1);
        let printed: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(printed["tables"][0]["holds"], "router");
        assert!(printed["tables"][0].as_object().unwrap()["month"].is_null());
        assert_eq!(printed["tables"][0]["throughput"], "on_demand");
        assert_eq!(printed["tables"][1]["holds"], "messages");
        assert_eq!(printed["tables"][1]["month"], "2026_11");
        assert_eq!(printed["tables"][1]["bytes"], 4096);
        assert_eq!(printed["tables"][1]["throughput"]["provisioned"]["write"], 6);
        let printed: Value = serde_json::from_str(&print(true, status())).unwrap();
        assert_eq!(printed["clients"]["2026_10"], 3);
        assert_eq!(printed["unfinished_moves"]["2026_09"], 1);
        assert_eq!((&printed["other_types"], &printed["unfinished_drops"]), (&5.into(), &2.into()));
        assert_eq!(printed["droppable"][0], "2026_08");
        assert_eq!(printed["advice"][1], "do that");
    }

    #[test]
    fn a_check_begins_with_its_outcome() {
        let check = |outcome| {
            print(false, Output::Check(PreflightCheck { what: "read router".into(), outcome }))
        };
        assert_eq!(check(Ok(())), "ok      read router\n");
        assert_eq!(check(Err("allow it".into())), "FAILED  read router: allow it\n");
    }

    #[test]
    fn progress_is_not_printed_on_standard_output() {
        let progress = Progress { what: "x".into(), done: 1, of: None };
        assert_eq!(print(false, Output::Progress(progress)), "");
    }

    #[test]
    fn an_update_is_one_line_whatever_it_holds() {
        let updates = || {
            page(vec![update(5, Some("\"1\"")), update(6, Some("x\n\u{1b}[2J")), update(7, None)])
        };
        let expected = "5 a/b = \"1\"\n6 a/b = x\\n\\u{1b}[2J\n7 a/b deleted\n";
        assert_eq!(print(false, Output::Page(updates())), expected);
        let json = print(true, Output::Page(updates()));
        let first = r#"{"feed_sync_id":5,"key":"a/b","version":2,"value":"\"1\""}"#;
        assert_eq!(json.lines().next(), Some(first));
        assert_eq!(json.lines().count(), 3);
        assert_eq!(print(true, Output::Page(page(vec![]))), "");
    }

    #[test]
    fn the_cursor_is_kept_within_a_large_page_and_at_its_end() {
        let most = "x".repeat(FeedValue::BYTES_MAX);
        let tail = TailCursor::begin(&FeedName::broadcasts(), 0, None).unwrap();
        let mut printer = printer(false).tailing(tail);
        let large = [3, 5, 6, 8].map(|number| update(number, Some(&most)));
        printer.page(&page(vec![update(1, Some("x"))])).unwrap();
        assert_eq!((printer.tail().unwrap().cursor(), printer.tail().unwrap().count()), (9, 1));
        printer.page(&page(large.to_vec())).unwrap();
        assert_eq!((printer.tail().unwrap().cursor(), printer.tail().unwrap().count()), (9, 5));

        // An output that fails after two of them.
        let tail = TailCursor::begin(&FeedName::broadcasts(), 0, None).unwrap();
        let mut room = vec![0; 2 * (most.len() + 100)];
        let mut printer = Printer::new(&mut room[..], false, Bar::new(false)).tailing(tail);
        printer.page(&page(large.to_vec())).unwrap_err();
        assert_eq!((printer.tail().unwrap().cursor(), printer.tail().unwrap().count()), (5, 2));
    }

    #[test]
    fn feeds_are_printed_in_columns_under_one_head() {
        let sequence = Sequence { value: FeedSyncId(12), keys: 3, ..Sequence::default() };
        let feeds = || Output::Feeds(vec![FeedState { name: FeedName::broadcasts(), sequence }]);
        let mut printer = printer(false);
        printer.print(feeds()).unwrap();
        printer.print(feeds()).unwrap();
        let expected = "FEED        HEAD  KEYS\nbroadcasts  12    3\nbroadcasts  12  3\n";
        assert_eq!(printed(printer), expected);
        let json = "{\"feed\":\"broadcasts\",\"head\":12,\"keys\":3}\n";
        assert_eq!(print(true, feeds()), json);
    }

    #[test]
    fn broadcasts_are_printed_with_their_versions() {
        let (id, version) = (FeedKey::parse("a/b").unwrap(), FeedValue::parse("\"1\"").unwrap());
        let all = || Output::Broadcasts(vec![(id.clone(), version.clone())]);
        assert_eq!(print(false, all()), "a/b = \"1\"\n");
        assert_eq!(print(true, all()), "{\"id\":\"a/b\",\"version\":\"\\\"1\\\"\"}\n");
    }
}
