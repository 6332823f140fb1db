//! The form of histories: printed histories can be parsed, and an error explains a line that cannot
//! be parsed or executed.

use harness::feed::transcript::History;
use harness::scripts::{Language, Script};

use crate::script_errors::explained;

const TITLE: &str = "# A test.\n";

/// A publisher that has read fred, and a consumer.
const BEGUN: &str = "writer> write fred bob\ntable< fred version=1 waits value=bob\n\
    P1> written\nP1< publish\nC1> starts\nC1< fetch after=0\n";

#[test]
fn every_line_in_is_written_as_it_is_read() {
    for line in [
        "writer> write fred bob",
        "writer> write \"fred b\" \"\"",
        "writer> write \"[fred, \\\"b\\\"]\" bob",
        "writer> republish fred",
        "writer> delete fred",
        "table> forgets 2",
        "P1> written",
        "P1> watched yes",
        "P1> watched no",
        "P1> finds",
        "P1> reads",
        "P1> commits",
        "P1> commits unheard",
        "P255> publishes",
        "P1> fails",
        "P1> crashes",
        "C1> starts",
        "C1> starts after=7",
        "C1> hears 2",
        "C1> reads head",
        "C1> reads updates",
        "C1> fetches",
        "C1> consumed",
        "C1> fails",
        "C1> crashes",
        "C1> compares",
        "wait 1500ms",
    ] {
        let history = parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let [step] = &history.steps[..] else { panic!("{line} is not one step") };
        assert_eq!(step.input.to_string(), line);
    }
}

#[test]
fn the_head_is_written_as_it_is_read() {
    for head in [
        "# A title.\n",
        "# A title.\nlimits batch=2 page=3 keys=4 retry=50ms poll=2s\nnaive P1 P3\n",
        "# A title.\nlimits keys=0\n",
    ] {
        let history = History::parse(&format!("{head}wait 1s\n")).unwrap();
        assert_eq!(history.head(), head);
    }
}

#[test]
fn what_differs_is_shown_line_by_line() {
    let lines = "P1> finds\nP1< found [fred version=1]\nP1> reads\nP1< sequence 0 version=0\n\
        P1> commits\ntable< fred version=2 number=1 value=bob\nP1< announce 7\n";
    let expected = "12: after `P1> commits`\n\
        \x20     table< fred version=2 number=1 value=bob\n\
        \x20 14 - P1< announce 7\n\
        \x20    + P1< announce 1\n\
        \x20    (- expected, + got)";
    assert_eq!(fault(lines), expected);
    for missing_or_more in ["P1> finds", "C1> hears 1\nC1< fetch after=0", "writer> delete fred"] {
        assert!(fault(missing_or_more).starts_with("8: after `"), "{missing_or_more}");
    }
}

#[test]
fn what_cannot_happen_now_is_explained_with_its_line() {
    for (lines, expected) in OUT_OF_TURN {
        assert_eq!(fault(lines), expected, "{lines}");
    }
}

#[test]
fn what_cannot_be_read_is_explained_with_its_line() {
    explained(Language::Feed, TITLE, &EXPLAINED);
    let untitled = History::parse("writer> write fred bob").unwrap_err().to_string();
    assert_eq!(untitled, "1: the first line must be the title of the history: `# A sentence.`");
}

fn parse(lines: &str) -> Result<History, String> {
    History::parse(&format!("{TITLE}{lines}\n")).map_err(|error| error.to_string())
}

/// The error for lines that follow the beginning.
fn fault(lines: &str) -> String {
    let history = parse(&format!("{BEGUN}{lines}")).unwrap();
    Script::Feed(history).replay(|_| {}).unwrap_err().to_string()
}

/// Lines after the beginning that cannot be executed, and their errors.
const OUT_OF_TURN: [(&str, &str); 9] = [
    ("P2> finds", "8: P2 has no pending publication: write `P2> written` first"),
    (
        "P1> reads\nP1< sequence 0 version=0\nP1> commits",
        "10: P1 commits what it read: write `P1> finds` and `P1> reads` first",
    ),
    ("C2> fetches", "8: C2 has no pending fetch"),
    ("C2> hears 1", "8: C2 is not started: write `C2> starts` first"),
    ("C1> starts", "8: C1 is already started: write `C1> crashes` first"),
    (
        "C1> reads updates",
        "8: C1 reads updates up to the head it read: write `C1> reads head` first",
    ),
    ("C1> consumed", "8: C1 has no page to consume"),
    (
        "P1> fails\nwait 1001ms",
        "9: this waits until +1001ms, over a deadline (P1: retry at +1s): wait until that first",
    ),
    ("C1> fails\nC1> fails", "9: C1 has no pending fetch"),
];

/// Lines after the title, and the beginning of their errors.
const EXPLAINED: [(&str, &str); 20] = [
    ("", "1: the history has no input"),
    ("limits batch=2", "1: the history has no input"),
    ("table< conflict", "2: an effect before the first input"),
    ("P1> written\ntabel< conflict", "3: expected table<, P1< or C1<, got `tabel<`"),
    ("reader> reads", "2: expected writer>, P1>, C1>, wait, a result"),
    ("P256> written", "2: expected writer>, P1>, C1>, wait, a result"),
    ("writer> put fred bob", "2: expected write, republish or delete, got `put`"),
    ("writer>", "2: expected write, republish or delete after the last word"),
    ("writer> write fred", "2: expected a value after the last word"),
    ("writer> write \"\" bob", "2: expected a key, got `\"\"`"),
    ("writer> write fred bob jim", "2: nothing may follow here, got `jim`"),
    ("P1> sleeps", "2: expected one of written, watched yes, watched no, finds,"),
    ("\nC1> hears two", "3: expected one of starts, reads head, reads updates,"),
    ("C1> starts after=-1", "2: expected one of starts, reads head, reads updates,"),
    ("wait 5", "2: expected a span such as 1500ms, 8s, 30m, 1h or 14d, got `5`"),
    ("limits batch=0", "2: expected batch= and a number from 1, got `0`"),
    ("limits colour=red", "2: unknown field colour=; known here: batch, page, keys, retry, poll"),
    ("naive", "2: expected P1 after `naive`"),
    ("naive C1", "2: expected P1, got `C1`"),
    ("wait 1s\nnaive P1", "3: `naive` must precede the first input"),
];
