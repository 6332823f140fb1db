//! Compares `docs/sessions.md` with the documentation of the script languages, and its table of store orders with the
//! code.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeSet;
use std::{env, fs};

use harness::scripts::{Language, Script};
use harness::transcript::{TranscriptWriter, default_config, default_limits};
use state_machine::receipt::AckCode;
use state_machine::store::{Cursor, MonthStep, PageLimit, Registration, StoreOp};
use state_machine::{
    Chid, LastConnect, MessageId, MessageKey, Month, NodeBinding, NodeId, RouterType, Span, Time,
    Uaid,
};

const SESSIONS: &str = include_str!("../../src/transcript/mod.rs");
const DELIVERIES: &str = include_str!("../../src/delivery/mod.rs");
const AGENTS: &str = include_str!("../../src/two_nodes/mod.rs");
const STORE: &str = include_str!("../../../src/store.rs");
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sessions.md");

/// Widest line of the table, in characters.
const COLUMNS: usize = 120;

#[test]
fn the_page_on_sessions_says_what_the_code_says() {
    let expected = page();
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(PAGE, &expected).unwrap();
    }
    let page = fs::read_to_string(PAGE).unwrap();
    assert_eq!(page, expected, "run UPDATE_DOCS=1 cargo test -p harness");
}

#[test]
fn the_samples_on_the_page_run_as_they_are_written() {
    for (language, module) in
        [(Language::Session, SESSIONS), (Language::Delivery, DELIVERIES), (Language::Agent, AGENTS)]
    {
        let script = Script::parse(language, sample(&module_docs(module))).unwrap();
        script.replay(|_| ()).unwrap_or_else(|error| panic!("{language:?}:{error}"));
    }
}

fn page() -> String {
    let [sessions, deliveries, agents] = [SESSIONS, DELIVERIES, AGENTS].map(module_docs);
    format!(
        "# Session scripts\n\n{sessions}\n\
         ## Store orders\n\n\
         These are the operations in `store< 0 OPERATION`, with their arguments. The second form of an order has the\n\
         arguments that may be missing. A row without an order continues the meaning above it.\n\n{}\n\
         ## Delivery scripts\n\n{deliveries}\n\
         ## Agent scripts\n\n{agents}\n\
         {COMMANDS}",
        orders()
    )
}

const COMMANDS: &str = "\
## Replay and view

`kalends dev replay FILE...` runs scripts through the state machines and prints the first line that differs. With
`--trace` it prints every step with its phase and its next deadline. With `--write` it writes the effects of the
machines into the files, where they are missing or differ: write the inputs of a new script, and read what it adds.
No file is written if one cannot be filled. The language follows from the name of the file, which ends with
`.session`, `.feed` ([feed histories](feeds.md#writing-a-history)), `.delivery` or `.agent`. The exit code is 1 if a
script fails.

With `--json` it prints a trace as lines of JSON:

- The first line has `file`, `language`, `title`, `start`, and the `machines` before the first step.
- Each step has its `line` in the file, `at_ms` since the start, the `event` and the `effects` as in the file, and the
  `machines`. Where the script fails, `expected` has the effects that it names.
- A machine has a `name`, a `kind`, its `phase`, the `unacked` messages, and all `deadlines` with their reasons. A
  message without `sent_at_ms` is overdue.
- `facts` are texts about the rest: the record, messages in the store, notifications on the way, the cursors of a feed.
- The last line has `replayed`, or `failed` with a `line`, its `event` and a `report`.

`kalends dev view FILE...` writes the same as a page that plays the scripts. It shows the diagram with the current
phase, and the event, effects, unacked messages and deadlines of each step. Where a script fails, it shows the
expected beside the real effects. The command prints the path of the page, which `--output` sets. The page is one
file, and loads nothing. [The site](state-machine.md) has such a page.

The tests run the scripts in `fixtures/sessions` against the machine, the actor and a real socket, and those in
`fixtures/feeds`, `fixtures/deliveries` and `fixtures/agents` against the machines.
";

/// The documentation of a module, without its links.
pub(crate) fn module_docs(source: &str) -> String {
    let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
    let text: String =
        lines.map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line))).collect();
    text.replace("[`", "`").replace("`]", "`")
}

/// The first sample of a documentation.
pub(crate) fn sample(docs: &str) -> &str {
    let (_, behind) = docs.split_once("```text\n").unwrap();
    behind.split_once("```\n").unwrap().0
}

/// A row for each store order: its forms, and what the code documents about it.
fn orders() -> String {
    let config = default_config(default_limits());
    let writer = TranscriptWriter { config: &config, start: START };
    let samples = samples();
    let documented = documented();
    let known: BTreeSet<&str> = documented.iter().map(|(name, _)| name.as_str()).collect();
    let sampled = samples.iter().map(variant).collect::<Vec<_>>();
    assert_eq!(
        sampled.iter().map(String::as_str).collect::<BTreeSet<_>>(),
        known,
        "every order has a sample"
    );
    let mut table = "| order | meaning |\n|---|---|\n".to_owned();
    for (name, meaning) in documented {
        let mut meaning = meaning.as_str();
        for (_, operation) in sampled.iter().zip(&samples).filter(|(its, _)| **its == name) {
            table += &row(&writer.operation(operation, START), meaning);
            meaning = "";
        }
    }
    table
}

fn row(operation: &str, meaning: &str) -> String {
    let mut head = format!("| `{operation}` | ");
    let mut lines = vec![String::new()];
    for word in meaning.split(' ') {
        let line = lines.last_mut().expect("there is always one");
        if head.len() + line.len() + word.len() + " |".len() < COLUMNS {
            let space = if line.is_empty() { "" } else { " " };
            line.push_str(&format!("{space}{word}"));
        } else {
            lines.push(word.to_owned());
        }
    }
    let mut rows = String::new();
    for line in lines {
        rows += &format!("{head}{line} |\n");
        head = "| | ".to_owned();
    }
    rows
}

/// The variants of `StoreOp` in the code, each with its doc comment on one line.
fn documented() -> Vec<(String, String)> {
    let (_, behind) = STORE.split_once("pub enum StoreOp {\n").expect("the code has it");
    let (body, _) = behind.split_once("\n}\n").expect("it has an end");
    let (mut all, mut docs) = (Vec::new(), Vec::new());
    let mut is_summary = true;
    // Doc comments of fields are indented further. The summary of a variant ends with its first paragraph.
    for line in body.lines().filter_map(|line| line.strip_prefix("    ")) {
        match line.strip_prefix("/// ") {
            Some(text) if is_summary => docs.push(text),
            Some(_) => {}
            None if line == "///" => is_summary = false,
            None if line.starts_with(|c: char| c.is_ascii_uppercase()) => {
                let name: String = line.chars().take_while(char::is_ascii_alphanumeric).collect();
                all.push((name, std::mem::take(&mut docs).join(" ")));
                is_summary = true;
            }
            None => {}
        }
    }
    all
}

/// The name of its variant.
fn variant(operation: &StoreOp) -> String {
    format!("{operation:?}").chars().take_while(char::is_ascii_alphanumeric).collect()
}

const START: Time = Time(1_793_700_000_000);

/// One order of each kind; two if an argument may be missing.
fn samples() -> Vec<StoreOp> {
    let names = harness::transcript::Bindings::fixed();
    let text = |name: &str| names.text(name).expect("it is a name");
    let uaid = Uaid::parse(&text("U1")).expect("it is a uaid");
    let [chid, other] = ["C1", "C2"].map(|name| Chid::parse(&text(name)).expect("it is a chid"));
    let key = |name: &str| {
        let id = MessageId::parse(&text(name)).expect("it is a message");
        MessageKey { id, chid, topic: None }
    };
    let messages = vec![key("M1"), key("M2")];
    let month = Month::new(2026, 11).expect("it is a month");
    let from = month.previous();
    let (months, wanting) = (vec![month, from], vec![key("M1r")]);
    let acks = vec![(wanting[0].id, AckCode::DecryptionError)];
    let delete = |messages, acks| StoreOp::Delete { uaid, months: months.clone(), messages, acks };
    let last_connect = LastConnect::of(START, uaid, LastConnect::SHARDS);
    let register = |create_in| StoreOp::Register(registration(uaid, create_in));
    let limits = default_limits();
    let all = PageLimit { rows: limits.fetch_rows_max, bytes: limits.fetch_bytes_max };
    let some = PageLimit { rows: 10, bytes: 4096 };
    let (after, before) = (Some(Cursor::new("M1")), START - Span::from_secs(1));
    let step = MonthStep {
        uaid,
        node: Some(NodeId::new("here")),
        connected_at: START,
        from,
        to: month,
        last_connect,
    };
    let late = MonthStep { last_connect: LastConnect(20_261_103_090_002), ..step.clone() };
    let channels = BTreeSet::from([chid, other]);
    let binding = NodeBinding { node: NodeId::new("here"), connected_at: START };
    vec![
        register(None),
        register(Some(month)),
        StoreOp::ReadChannels { uaid, month },
        StoreOp::Fetch { uaid, month, after: None, limit: all, now: START },
        StoreOp::Fetch { uaid, month, after: after.clone(), limit: some, now: before },
        StoreOp::FetchVersions { uaid, after: None, limit: all, now: START },
        StoreOp::FetchVersions { uaid, after, limit: some, now: before },
        delete(messages.clone(), Vec::new()),
        delete(wanting, acks),
        StoreOp::RecordOffers { uaid, month, messages },
        StoreOp::AddChannels { uaid, month, channels: channels.clone() },
        StoreOp::CreateChannels { uaid, month, channels },
        StoreOp::RemoveChannel { uaid, months: months.clone(), chid },
        StoreOp::RemoveChannelAndVersion { uaid, months, chid },
        StoreOp::UpdateMonth(step.clone()),
        StoreOp::UpdateMonth(late),
        StoreOp::FinishMove(step),
        StoreOp::MoveMessages { uaid, from, to: month },
        StoreOp::ClearNode { uaid, binding },
    ]
}

fn registration(uaid: Uaid, create_in: Option<Month>) -> Registration {
    Registration {
        uaid,
        router_type: RouterType::WebPush,
        node: NodeId::new("here"),
        connected_at: START,
        last_connect: LastConnect::of(START, uaid, LastConnect::SHARDS),
        create_in,
    }
}
