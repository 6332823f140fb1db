//! What the histories of `fixtures/feeds` show.

use harness::feed::transcript::{ConsumerStep, History, Input};
use harness::scripts::{Language, Script};

use crate::fixtures::Fixture;
use crate::scripts::scripts;

#[test]
fn only_the_number_differs_between_the_two_time_tables_and_only_one_update_is_lost() {
    let [naive, ours] = ["_naive", ""].map(|kind| {
        let text = named(&format!("time_table{kind}.feed")).text;
        let history = History::parse(&text).unwrap();
        assert!(Script::Feed(history.clone()).replay(|_| {}).is_ok());
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
    for Fixture { file, text } in scripts(Language::Feed) {
        let history = History::parse(&text).unwrap();
        let is_naive = !history.setup.naive.is_empty();
        let compares = |input: &Input| matches!(input, Input::Consumer(_, ConsumerStep::Compares));
        for step in history.steps.iter().filter(|step| compares(&step.input)) {
            let misses = !step.effects[0].text.ends_with("misses nothing");
            assert_eq!(misses, is_naive, "{file}:{}", step.line);
            compared += 1;
        }
    }
    assert!(compared > 20, "only {compared}");
}

/// The expected results of a history's last input.
fn last(history: &History) -> Vec<&str> {
    let expected = &history.steps.last().unwrap().effects;
    expected.iter().map(|effect| effect.text.as_str()).collect()
}

fn named(name: &str) -> Fixture {
    let mut all = scripts(Language::Feed).into_iter();
    all.find(|fixture| fixture.file.ends_with(name)).unwrap_or_else(|| panic!("no {name}"))
}
