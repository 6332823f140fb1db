//! Runs every history of `fixtures/feeds`.

use harness::feed::transcript::{ConsumerStep, History, Input, StepReport, replay};

use crate::fixtures::{self as folder, Fixture};

#[test]
fn every_history_runs_as_it_is_written() {
    let mut failures = Vec::new();
    for Fixture { file, text } in fixtures() {
        match History::parse(&text) {
            Err(error) => failures.push(format!("{file}:{error}")),
            Ok(history) => {
                let error = replay(&history, |_| {}).err();
                failures.extend(error.map(|error| format!("{file}:{error}")));
            }
        }
    }
    assert!(failures.is_empty(), "\n\n{}\n", failures.join("\n\n"));
}

#[test]
fn a_history_printed_as_a_trace_is_the_same_history() {
    for Fixture { file, text } in fixtures() {
        let printed = print(&text);
        assert_eq!(print(&printed), printed, "{file}");
        let steps = |text: &str| History::parse(text).unwrap().steps.len();
        assert_eq!(steps(&printed), steps(&text), "{file}");
    }
}

#[test]
fn only_the_number_differs_between_the_two_time_tables_and_only_one_update_is_lost() {
    let [naive, ours] = ["_naive", ""].map(|kind| {
        let text = named(&format!("time_table{kind}.feed")).text;
        let history = History::parse(&text).unwrap();
        assert!(replay(&history, |_| {}).is_ok());
        history
    });
    let until_t6 = |history: &History| -> Vec<Input> {
        history.steps.iter().map(|step| step.input.clone()).take(11).collect()
    };
    assert_eq!(until_t6(&naive), until_t6(&ours));
    assert_eq!(last(&naive), ["C1< misses fred version=4 number=1 value=jim"]);
    assert_eq!(last(&ours), ["C1< misses nothing"]);
}

#[test]
fn a_consumer_that_compares_misses_something_only_where_a_publisher_is_naive() {
    let mut compared = 0;
    for Fixture { file, text } in fixtures() {
        let history = History::parse(&text).unwrap();
        let is_naive = !history.setup.naive.is_empty();
        let compares = |input: &Input| matches!(input, Input::Consumer(_, ConsumerStep::Compares));
        for step in history.steps.iter().filter(|step| compares(&step.input)) {
            let misses = !step.expected[0].1.ends_with("misses nothing");
            assert_eq!(misses, is_naive, "{file}:{}", step.line);
            compared += 1;
        }
    }
    assert!(compared > 20, "only {compared}");
}

#[test]
fn every_title_is_a_sentence_of_its_own() {
    let title = |fixture: &Fixture| History::parse(&fixture.text).unwrap().title;
    let mut titles: Vec<String> = fixtures().iter().map(title).collect();
    let wrong: Vec<&String> = titles.iter().filter(|title| !title.ends_with('.')).collect();
    assert_eq!(wrong, Vec::<&String>::new());
    let files = titles.len();
    titles.sort();
    titles.dedup();
    assert_eq!(titles.len(), files);
}

/// The expected results of a history's last input.
fn last(history: &History) -> Vec<&str> {
    let expected = &history.steps.last().unwrap().expected;
    expected.iter().map(|(_, line)| line.as_str()).collect()
}

/// Runs a history and prints what happened.
fn print(text: &str) -> String {
    let history = History::parse(text).unwrap();
    let mut steps = String::new();
    replay(&history, |ran: &StepReport| steps += &ran.to_string()).unwrap();
    history.head() + "\n" + &steps
}

fn named(name: &str) -> Fixture {
    let mut all = fixtures().into_iter();
    all.find(|fixture| fixture.file.ends_with(name)).unwrap_or_else(|| panic!("no {name}"))
}

/// All histories in the order of their names.
pub(crate) fn fixtures() -> Vec<Fixture> {
    const HISTORIES_MIN: usize = 27;
    folder::fixtures("feeds", "feed", HISTORIES_MIN)
}
