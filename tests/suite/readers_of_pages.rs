//! Each reader of pages, and the test that has it read from a store that is unkind (`storage/tests/unkind`): an empty page
//! with a cursor, and then pages of one row. A new reader fails until it is here.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::folders::{is_of_tests, without_tests};
use crate::rules::sources;

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

/// A file, a method, and the file and the name of the test.
const READERS: &[(&str, &str, &str, &str)] = &[
    (
        "actors/src/feeds/node_feeds.rs",
        "fetch_feed",
        "actors/tests/suite/access.rs",
        "tokens_beyond_the_first_page_are_known_at_the_start",
    ),
    (
        "actors/src/feeds/publisher.rs",
        "feeds",
        "actors/tests/suite/feeds/engines.rs",
        "every_follower_of_two_nodes_on_an_unkind_store_sees_the_last_state_of_every_key",
    ),
    (
        "actors/src/feeds/publisher.rs",
        "publish",
        "actors/tests/suite/feeds/engines.rs",
        "every_follower_of_two_nodes_on_an_unkind_store_sees_the_last_state_of_every_key",
    ),
    (
        "actors/src/feeds/subscription.rs",
        "fetch_feed",
        "actors/tests/suite/feeds/engines.rs",
        "every_follower_of_two_nodes_on_an_unkind_store_sees_the_last_state_of_every_key",
    ),
    (
        "actors/src/feeds/tombstones.rs",
        "feeds",
        "actors/tests/suite/feeds/engines.rs",
        "old_tombstones_of_each_feed_of_an_unkind_store_are_forgotten",
    ),
    (
        "actors/src/feeds/tombstones.rs",
        "fetch_feed",
        "actors/tests/suite/feeds/engines.rs",
        "old_tombstones_of_each_feed_of_an_unkind_store_are_forgotten",
    ),
    (
        "actors/src/feeds/tombstones.rs",
        "forget",
        "actors/tests/suite/feeds/engines.rs",
        "old_tombstones_of_each_feed_of_an_unkind_store_are_forgotten",
    ),
    (
        "src/feeds/cli/list.rs",
        "feeds",
        "src/feeds/cli/feed_tests.rs",
        "feeds_and_broadcasts_are_listed",
    ),
    (
        "src/feeds/cli/tail.rs",
        "fetch_feed",
        "src/feeds/cli/feed_tests.rs",
        "a_tail_writes_the_updates_behind_a_number_up_to_the_count",
    ),
    (
        "src/feeds/http/read.rs",
        "fetch_feed",
        "src/feeds/http/tests.rs",
        "pages_of_one_update_have_all_in_order",
    ),
    (
        "src/feeds/import/mod.rs",
        "fetch_feed",
        "src/feeds/import/mod.rs",
        "what_is_published_on_any_page_is_not_due_again",
    ),
    (
        "src/feeds/store.rs",
        "fetch_feed",
        "src/feeds/cli/feed_tests.rs",
        "a_missing_key_or_feed_is_refused",
    ),
    (
        "src/feeds/store.rs",
        "publish",
        "src/feeds/cli/feed_tests.rs",
        "keys_that_others_left_unpublished_are_published_too",
    ),
    (
        "src/monitoring/collect.rs",
        "fetch_feed",
        "tests/suite/metrics.rs",
        "broadcasts_that_a_node_has_not_read_yet_are_its_lag",
    ),
    (
        "src/operate/scheduled/turn.rs",
        "publish",
        "src/operate/scheduled/turn.rs",
        "of_servers_that_meet_one_takes_a_turn_and_another_takes_it_when_it_is_given_back",
    ),
    (
        "src/operate/store_copy/copy.rs",
        "read_rows",
        "src/operate/store_copy/copy/tests.rs",
        "rows_of_all_pages_are_copied_into_a_store_that_has_none_on_any_page",
    ),
    (
        "src/operate/store_copy/each_row.rs",
        "read_rows",
        "src/operate/store_copy/receipts.rs",
        "sequences_are_restored_above_each_number_that_was_given",
    ),
    (
        "src/operate/tables/census.rs",
        "records_by_month",
        "src/operate/tables/tests.rs",
        "the_status_counts_every_agent_and_advises",
    ),
    (
        "src/operate/tables/copy.rs",
        "copy_rows",
        "src/operate/tables/tests.rs",
        "a_copied_table_has_all_records_and_the_next_steps_are_noted",
    ),
    (
        "src/operate/tables/copy.rs",
        "move_records",
        "src/operate/tables/tests.rs",
        "a_copied_table_has_all_records_and_the_next_steps_are_noted",
    ),
    (
        "src/operate/users/repair.rs",
        "repair_records",
        "src/operate/users/repair.rs",
        "records_of_the_future_on_each_page_are_set_to_now",
    ),
    (
        "src/server/maintenance.rs",
        "expire_receipts",
        "src/server/maintenance.rs",
        "all_receipts_that_are_due_are_written_before_the_next_interval",
    ),
    (
        "src/server/maintenance.rs",
        "waiting_page",
        "src/server/maintenance.rs",
        "messages_of_all_pages_of_all_months_are_counted",
    ),
    (
        "src/settings/store/mod.rs",
        "records_by_month",
        "src/settings/store/mod.rs",
        "agents_are_found_behind_the_first_page",
    ),
    (
        "storage/src/inactive_users.rs",
        "delete_rows",
        "src/operate/tables/tests.rs",
        "a_user_is_dropped_with_its_rows_also_after_an_interruption",
    ),
    (
        "storage/src/inactive_users.rs",
        "inactive_users",
        "src/operate/tables/tests.rs",
        "inactive_users_are_counted_and_then_dropped_at_the_rate",
    ),
    (
        "storage/src/inactive_users.rs",
        "fetch_notifications",
        "src/operate/tables/tests.rs",
        "a_user_is_dropped_with_its_rows_also_after_an_interruption",
    ),
    (
        "storage/src/notifications.rs",
        "fetch_notifications",
        "storage/tests/suite/maintenance/notifications.rs",
        "versions_are_stored_and_fetched_as_messages_in_pages",
    ),
];

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
    let known: BTreeSet<_> = READERS
        .iter()
        .map(|(file, method, ..)| ((*file).to_owned(), (*method).to_owned()))
        .collect();
    assert_eq!(found, known);
    for (reader, method, file, test) in READERS {
        let text = fs::read_to_string(Path::new(ROOT).join(file)).unwrap_or_default();
        assert!(
            text.contains(&format!("fn {test}(")),
            "{reader}: {method}: there is no {test} in {file}"
        );
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
