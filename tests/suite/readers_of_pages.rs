//! Each reader of pages, and the test that has it read from a store that is unkind (`storage/tests/unkind`): an empty page
//! with a cursor, and then pages of one row. A new reader fails until it is here.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::folders::{is_of_tests, without_tests};
use crate::rules::sources;
use crate::standards::exists;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Where the methods of stores are declared.
const CONTRACT: [&str; 5] = ["feeds", "maintenance", "notifications", "receipts", "store"];

/// Parts of a declaration that make its method one of pages or steps.
const OF_PAGES: [&str; 5] = [
    "after: Option<",
    "after: FeedSyncId",
    "through: ",
    "-> StoreFuture<ExpiredReceipts>",
    "the caller repeats",
];

macro_rules! readers {
    ($($test:literal: $($method:ident of $file:literal),+;)+) => {
        &[$($(($test, stringify!($method), $file),)+)+]
    };
}

/// Tests by their paths, and what each has read: a method, and the file of its reader.
const READERS: &[(&str, &str, &str)] = readers! {
    "actors suite access::tokens_beyond_the_first_page_are_known_at_the_start":
        fetch_feed of "actors/src/feeds/node_feeds.rs";
    "actors suite feeds::engines::every_follower_of_two_nodes_on_an_unkind_store_sees_the_last_state_of_every_key":
        feeds of "actors/src/feeds/publisher.rs",
        publish of "actors/src/feeds/publisher.rs",
        fetch_feed of "actors/src/feeds/subscription.rs";
    "actors suite feeds::engines::old_tombstones_of_each_feed_of_an_unkind_store_are_forgotten":
        feeds of "actors/src/feeds/tombstones.rs",
        fetch_feed of "actors/src/feeds/tombstones.rs",
        forget of "actors/src/feeds/tombstones.rs";
    "kalends feeds::cli::feed_tests::feeds_and_broadcasts_are_listed":
        feeds of "src/feeds/cli/list.rs";
    "kalends feeds::cli::feed_tests::a_tail_writes_the_updates_behind_a_number_up_to_the_count":
        fetch_feed of "src/feeds/cli/tail.rs";
    "kalends feeds::http::tests::pages_of_one_update_have_all_in_order":
        fetch_feed of "src/feeds/http/read.rs";
    "kalends feeds::import::tests::what_is_published_on_any_page_is_not_due_again":
        fetch_feed of "src/feeds/import/mod.rs";
    "kalends feeds::cli::feed_tests::a_missing_key_or_feed_is_refused":
        fetch_feed of "src/feeds/store.rs";
    "kalends feeds::cli::feed_tests::keys_that_others_left_unpublished_are_published_too":
        publish of "src/feeds/store.rs";
    "suite metrics::broadcasts_that_a_node_has_not_read_yet_are_its_lag":
        fetch_feed of "src/monitoring/collect.rs";
    "kalends operate::scheduled::turn::tests::of_servers_that_meet_one_takes_a_turn_and_another_takes_it_when_it_is_given_back":
        publish of "src/operate/scheduled/turn.rs";
    "kalends operate::store_copy::copy::tests::rows_of_all_pages_are_copied_into_a_store_that_has_none_on_any_page":
        read_rows of "src/operate/store_copy/copy.rs";
    "kalends operate::store_copy::receipts::tests::sequences_are_restored_above_each_number_that_was_given":
        read_rows of "src/operate/store_copy/each_row.rs";
    "kalends operate::tables::tests::the_status_counts_every_agent_and_advises":
        records_by_month of "src/operate/tables/census.rs";
    "kalends operate::tables::tests::a_copied_table_has_all_records_and_the_next_steps_are_noted":
        copy_rows of "src/operate/tables/copy.rs", move_records of "src/operate/tables/copy.rs";
    "kalends operate::users::repair::tests::records_of_the_future_on_each_page_are_set_to_now":
        repair_records of "src/operate/users/repair.rs";
    "kalends server::maintenance::tests::all_receipts_that_are_due_are_written_before_the_next_interval":
        expire_receipts of "src/server/maintenance.rs";
    "kalends server::maintenance::tests::messages_of_all_pages_of_all_months_are_counted":
        waiting_page of "src/server/maintenance.rs";
    "kalends settings::store::tests::agents_are_found_behind_the_first_page":
        records_by_month of "src/settings/store/mod.rs";
    "kalends operate::tables::tests::a_user_is_dropped_with_its_rows_also_after_an_interruption":
        delete_rows of "storage/src/inactive_users.rs", fetch_notifications of "storage/src/inactive_users.rs";
    "kalends operate::tables::tests::inactive_users_are_counted_and_then_dropped_at_the_rate":
        inactive_users of "storage/src/inactive_users.rs";
    "storage suite maintenance::notifications::versions_are_stored_and_fetched_as_messages_in_pages":
        fetch_notifications of "storage/src/notifications.rs";
};

#[test]
fn each_reader_of_pages_is_tested_on_an_unkind_store() {
    let methods = methods();
    assert!(methods.len() > 10, "{methods:?}");
    let mut found = BTreeSet::new();
    for (path, text) in sources() {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let path = path.strip_prefix(ROOT).expect("it is below").display().to_string();
        let is_caller =
            ["src/", "actors/src/", "storage/src/"].iter().any(|dir| path.starts_with(dir));
        if !is_caller || is_of_tests(name) {
            continue;
        }
        let text = without_tests(&text);
        for method in methods.iter().filter(|method| calls(&text, method)) {
            found.insert((path.clone(), method.clone()));
        }
    }
    let known = READERS.iter().map(|(_, method, file)| ((*file).to_owned(), (*method).to_owned()));
    assert_eq!(found, known.collect());
    for (test, method, reader) in READERS {
        assert!(exists(test), "{reader}: {method}: there is no test {test}");
    }
}

/// Whether a store is asked for this. Others have methods of the same name.
fn calls(text: &str, method: &str) -> bool {
    let call = format!(".{method}(");
    let stores = ["store", "source", "target", "table"];
    let of_store = |(at, _): (usize, &str)| {
        let asked = text[..at].trim_end();
        let asked = asked.strip_suffix("()").unwrap_or(asked);
        stores.iter().any(|store| asked.ends_with(store))
    };
    text.match_indices(&call).any(of_store)
}

/// The methods whose answers are pages, or steps that the caller repeats.
fn methods() -> BTreeSet<String> {
    let mut methods = BTreeSet::new();
    for file in CONTRACT {
        let text = fs::read_to_string(Path::new(ROOT).join(format!("storage/src/{file}.rs")));
        let text = text.expect("it declares a part of the contract");
        for declaration in without_tests(&text).split_inclusive(";\n") {
            let Some((_, signature)) = declaration.rsplit_once("    fn ") else { continue };
            let is_of_pages = OF_PAGES.iter().any(|part| declaration.contains(part));
            if is_of_pages && signature.contains("StoreFuture") {
                let name = signature.split('(').next().unwrap_or_default();
                methods.insert(name.to_owned());
            }
        }
    }
    methods
}
