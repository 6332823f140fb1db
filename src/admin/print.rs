//! What a command prints on standard output: for people, or one JSON object a line.

use std::io::{Write, stderr};

use indicatif::HumanBytes;
use serde_json::json;

use super::bar::Bar;
use super::command::AdminError;
use super::feed::Page;
use super::output::{Ask, CheckRow, Completion, Holds, Output, Status, TableRow};
use super::print_feed::{broadcasts_text, feeds_text, page_text};
use super::request::{MonthName, Units};
use super::tail_cursor::TailCursor;

/// Prints lines as they come.
pub struct Printer<W> {
    to: W,
    is_json: bool,
    bar: Bar,
    has_listed: bool,
    tailed: Option<TailCursor>,
}

impl<W: Write> Printer<W> {
    /// Prints to `to`, and shows progress on `bar`.
    pub fn new(to: W, is_json: bool, bar: Bar) -> Self {
        Self { to, is_json, bar, has_listed: false, tailed: None }
    }

    /// The same for a feed's updates: what was printed is remembered.
    pub fn tailing(self, tailed: TailCursor) -> Self {
        Self { tailed: Some(tailed), ..self }
    }

    /// How far a feed's updates were printed.
    pub fn tailed(&self) -> Option<&TailCursor> {
        self.tailed.as_ref()
    }

    /// Prints a line; gives the end, if that is what it was.
    pub fn print(&mut self, line: Output) -> Result<Option<Completion>, AdminError> {
        let text = match line {
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
            Output::Tables(tables) if self.is_json => {
                json!({ "tables": tables }).to_string() + "\n"
            }
            Output::Tables(tables) => tables_text(&tables) + "\n",
            Output::Status(status) if self.is_json => json!(status).to_string() + "\n",
            Output::Status(status) => status_text(&status) + "\n",
            Output::Feeds(feeds) => {
                let is_first = !std::mem::replace(&mut self.has_listed, true);
                feeds_text(&feeds, self.is_json, is_first)
            }
            Output::Broadcasts(broadcasts) => broadcasts_text(&broadcasts, self.is_json),
        };
        self.write(&text)?;
        Ok(None)
    }

    /// Takes the progress away.
    pub fn end(&self) {
        self.bar.end();
    }

    /// Says something on standard error.
    pub fn eprint(&self, text: &str) {
        // Where it is closed there is nobody to tell.
        let _ = self.bar.aside(|| writeln!(stderr(), "kalends: {text}"));
    }

    fn page(&mut self, page: &Page) -> Result<(), AdminError> {
        self.write(&page_text(page, self.is_json))?;
        if let Some(tailed) = &mut self.tailed {
            tailed.printed(page)?;
            self.bar.follow(&tailed.progress(), tailed.is_at_the_head());
        }
        Ok(())
    }

    fn write(&mut self, text: &str) -> Result<(), AdminError> {
        let to = &mut self.to;
        let written = self.bar.aside(|| to.write_all(text.as_bytes()).and_then(|()| to.flush()));
        Ok(written?)
    }
}

fn check_text(check: &CheckRow) -> String {
    match &check.problem {
        None => format!("ok      {}", check.what),
        Some(problem) => format!("FAILED  {}: {problem}", check.what),
    }
}

fn tables_text(tables: &[TableRow]) -> String {
    let head = ["TABLE", "NAME", "STATE", "ITEMS", "SIZE", "THROUGHPUT"].map(str::to_owned);
    let row = |table: &TableRow| {
        [
            table_text(table),
            table.name.clone(),
            table.state.clone(),
            table.items.to_string(),
            HumanBytes(table.bytes).to_string(),
            throughput_text(table.throughput),
        ]
    };
    columns(&[vec![head], tables.iter().map(row).collect()].concat())
}

fn table_text(table: &TableRow) -> String {
    match (table.holds, table.month) {
        (Holds::Messages, Some(month)) => month.into(),
        (Holds::Messages, None) => "messages".into(),
        (Holds::Router, _) => "router".into(),
        (Holds::Notifications, _) => "notifications".into(),
        (Holds::Sequences, _) => "sequences".into(),
        (Holds::Feeds, _) => "feeds".into(),
    }
}

fn throughput_text(throughput: Ask) -> String {
    match throughput {
        Ask::Unmetered => "unmetered".into(),
        Ask::OnDemand => "on demand".into(),
        Ask::Provisioned(Units { read, write }) => format!("{read} reads, {write} writes/s"),
    }
}

fn status_text(status: &Status) -> String {
    let mut text = tables_text(&status.tables);
    text += &format!("\n\nIt is {}, rotation is ", String::from(status.this_month));
    text += if status.rotation { "on" } else { "off" };
    text += "\n\n";
    text += &clients_text(status);
    for advice in &status.advice {
        text += &format!("\n- {advice}");
    }
    text
}

fn clients_text(status: &Status) -> String {
    let count = |count: Option<&u64>| count.copied().unwrap_or(0).to_string();
    let months = status.clients.keys().chain(status.unfinished_moves.keys());
    let mut months: Vec<MonthName> = months.copied().collect();
    months.sort();
    months.dedup();
    if months.is_empty() {
        return "There are no clients\n".into();
    }
    let head = ["MONTH", "CLIENTS ON IT", "MOVING AWAY FROM IT"].map(str::to_owned);
    let row = |month: &MonthName| {
        let (on, away) = (status.clients.get(month), status.unfinished_moves.get(month));
        [String::from(*month), count(on), count(away)]
    };
    columns(&[vec![head], months.iter().map(row).collect()].concat()) + "\n"
}

/// Rows whose cells stand under each other, without blanks at their ends.
pub(super) fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::Value;

    use super::*;
    use crate::admin::output::Progress;

    fn print(is_json: bool, line: Output) -> String {
        let mut printer = Printer::new(Vec::new(), is_json, Bar::new(false));
        assert_eq!(printer.print(line).unwrap(), None);
        String::from_utf8(printer.to).unwrap()
    }

    fn month(text: &str) -> MonthName {
        MonthName(text.parse().unwrap())
    }

    fn tables() -> Vec<TableRow> {
        let row = |name: &str, holds, month, throughput| {
            let (name, state) = (name.into(), "active".into());
            TableRow { holds, month, name, state, items: 12, bytes: 4096, throughput }
        };
        let units = Ask::Provisioned(Units { read: 5, write: 6 });
        vec![
            row("router", Holds::Router, None, Ask::OnDemand),
            row("message_2026_11", Holds::Messages, Some(month("2026_11")), units),
        ]
    }

    fn status() -> Output {
        Output::Status(Box::new(Status {
            this_month: month("2026_11"),
            rotation: true,
            tables: tables(),
            clients: BTreeMap::from([(month("2026_10"), 3), (month("2026_11"), 40)]),
            unfinished_moves: BTreeMap::from([(month("2026_09"), 1)]),
            droppable: vec![month("2026_08")],
            advice: vec!["do this".into(), "do that".into()],
        }))
    }

    #[test]
    fn tables_stand_in_columns() {
        assert_eq!(
            print(false, Output::Tables(tables())),
            "TABLE    NAME             STATE   ITEMS  SIZE      THROUGHPUT\n\
             router   router           active  12     4.00 KiB  on demand\n\
             2026_11  message_2026_11  active  12     4.00 KiB  5 reads, 6 writes/s\n"
        );
    }

    #[test]
    fn a_status_says_who_is_where_and_what_to_do() {
        let printed = print(false, status());
        let expected = "\n\nIt is 2026_11, rotation is on\n\n\
             MONTH    CLIENTS ON IT  MOVING AWAY FROM IT\n\
             2026_09  0              1\n\
             2026_10  3              0\n\
             2026_11  40             0\n\n\
             - do this\n- do that\n";
        assert!(printed.ends_with(expected), "{printed}");
    }

    #[test]
    fn json_is_one_object_with_exact_numbers() {
        let printed = print(true, Output::Tables(tables()));
        assert_eq!(printed.lines().count(), 1);
        let printed: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(printed["tables"][0]["holds"], "router");
        assert_eq!(printed["tables"][0]["throughput"], "on_demand");
        assert_eq!(printed["tables"][1]["month"], "2026_11");
        assert_eq!(printed["tables"][1]["bytes"], 4096);
        assert_eq!(printed["tables"][1]["throughput"]["provisioned"]["write"], 6);
        let printed: Value = serde_json::from_str(&print(true, status())).unwrap();
        assert_eq!(printed["clients"]["2026_10"], 3);
        assert_eq!(printed["unfinished_moves"]["2026_09"], 1);
        assert_eq!(printed["droppable"][0], "2026_08");
        assert_eq!(printed["advice"][1], "do that");
    }

    #[test]
    fn checks_are_told_apart_at_their_beginning() {
        let check = |problem: Option<&str>| {
            let problem = problem.map(str::to_owned);
            print(false, Output::Check(CheckRow { what: "read router".into(), problem }))
        };
        assert_eq!(check(None), "ok      read router\n");
        assert_eq!(check(Some("allow it")), "FAILED  read router: allow it\n");
    }

    #[test]
    fn progress_is_nothing_that_is_printed() {
        let progress = Progress { what: "x".into(), done: 1, of: None };
        assert_eq!(print(false, Output::Progress(progress)), "");
    }
}
