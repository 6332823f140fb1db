//! Every sentence of `storage::maintenance`, `storage::inactive_users` and
//! `storage::notifications`, as a test on each engine; and what only one of the engines can meet.
//!
//! A case is a function that takes a fresh [`World`](world::World), named once in `engine!` below.

mod copy_table;
mod created_records;
mod dropped_users;
mod dropping_inactive_users;
mod dynamo_feeds;
mod dynamo_replies;
mod dynamo_tables;
mod embedded_files;
mod engines;
mod id_floor;
mod inactive_users;
mod key_fingerprints;
mod month_counts;
mod notifications;
mod preflight;
mod tables;
mod whole_copies;
mod world;

/// Makes the tests of an engine.
macro_rules! engine {
    ($engine:ident, $new:path) => {
        mod $engine {
            engine!(@case $new, inactive_users:
                users_are_found_from_the_first_to_the_last_hour_of_the_months
                users_are_found_in_batches_and_each_once
                users_of_one_hour_and_shard_that_are_more_than_a_batch_are_all_found
                records_that_are_marked_are_deleted_and_no_others
            );
            engine!(@case $new, created_records:
                a_created_record_is_read_back_and_found_by_its_last_connect
                a_record_is_created_only_where_there_is_none
            );
            engine!(@case $new, dropped_users:
                a_user_who_reconnected_after_being_found_is_not_marked
                a_marked_user_is_unknown_and_stays_in_the_index
                the_rows_of_a_user_are_deleted_in_every_month
                a_step_deletes_channels_and_a_bounded_number_of_messages
                an_interrupted_drop_is_completed_by_the_next_one
                a_month_has_rows_while_an_agent_has_some
            );
            engine!(@case $new, dropping_inactive_users:
                nothing_is_dropped_before_the_first_call
                each_call_drops_one_batch
                a_dry_run_finds_the_same_users_and_drops_none
                users_of_two_months_ago_and_earlier_are_dropped
                no_user_is_inactive_if_the_oldest_month_is_recent
            );
            engine!(@case $new, copy_table:
                channels_and_messages_are_copied
                copying_again_writes_nothing
                copying_never_replaces_a_newer_message_of_a_topic
                copying_takes_no_channel_away
                many_rows_are_copied_in_steps
                there_is_no_copying_without_both_tables
                copying_a_month_to_itself_does_nothing
            );
            engine!(@case $new, id_floor:
                the_floor_of_ids_is_only_raised
                a_floor_that_a_clock_far_ahead_has_left_is_replaced
            );
            engine!(@case $new, month_counts:
                records_are_counted_by_both_months
                agents_behind_a_bridge_are_counted_moved_and_found_inactive
                records_that_name_a_month_are_made_to_name_another
                more_records_than_one_step_takes_are_counted_and_moved
                moved_records_are_not_moved_again
                a_move_that_would_end_where_it_began_is_finished
                records_of_the_future_are_set_to_now_and_others_stay
                more_records_than_one_step_takes_are_repaired
            );
            engine!(@case $new, notifications:
                only_a_higher_version_replaces
                every_version_has_its_place_in_the_order
                notifications_are_fetched_by_channel_in_pages
                deleting_an_older_version_keeps_the_newer_one
                a_delete_of_a_higher_version_deletes_the_lower_one
                data_is_replaced_with_its_version
                versions_are_stored_and_fetched_as_messages_in_pages
                acked_versions_are_deleted_in_no_month_and_only_they
                a_dropped_user_leaves_no_version
                a_channels_notification_is_deleted_whatever_its_version
                a_removed_channel_of_simplepush_leaves_no_version
                agents_have_notifications_of_their_own
                nothing_is_there_before_the_first_is_saved
                creating_a_table_ahead_is_idempotent_and_keeps_its_rows
            );
            engine!(@case $new, preflight:
                a_good_store_passes_and_is_left_as_it_was
            );
            engine!(@case $new, tables:
                tables_are_listed_router_first_then_months_oldest_first
                a_table_that_is_made_twice_is_there_once
            );
            engine!(@case $new, whole_copies:
                rows_of_every_kind_are_the_same_in_every_engine
                many_rows_are_read_in_pages_and_each_once
            );
        }
    };
    (@case $new:path, $module:ident: $($case:ident)*) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    crate::maintenance::$module::$case($new()).await;
                }
            )*
        }
    };
}

engine!(embedded, crate::maintenance::engines::embedded);
engine!(dynamodb, crate::maintenance::engines::dynamodb);
engine!(postgresql, crate::maintenance::engines::postgresql);
