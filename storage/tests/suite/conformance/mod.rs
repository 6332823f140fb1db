//! Every sentence of `storage::store` and `storage::feeds`, as a test on each engine.
//!
//! A case is a function that takes a fresh [`World`](world::World). After it, the rows of the whole store are
//! [looked at](crate::raw_rows). It is named once, in `engine!`
//! below, which makes one test of it for every engine. To add an engine, implement
//! [`Engine`](crate::engines::Engine) and add a line at the end.

mod all_versions;
mod bridged;
mod channels;
mod feed_fetching;
mod feed_histories;
mod feed_horizon;
mod feed_keys;
mod feed_lifecycle;
mod feed_publishing;
mod feed_races;
mod feed_time_table;
mod feed_world;
mod fetching;
mod giving_way;
mod lifecycle;
mod messages;
mod months;
mod races;
mod receipts;
mod records;
mod waiting;
mod world;

/// Makes the tests of an engine.
macro_rules! engine {
    ($engine:ident, $new:path) => {
        mod $engine {
            engine!(@with_channels $new(crate::conformance::waiting::LIMITS), waiting:
                the_last_message_that_fits_is_stored_and_no_further_one
                bytes_fit_up_to_the_last_one
                a_replacement_counts_the_difference
                a_message_that_is_stored_again_counts_once
                a_deleted_message_makes_room_for_one
                expired_messages_make_room
                users_and_months_have_bounds_of_their_own
                a_channel_that_is_not_registered_is_not_full
                messages_of_an_unregistered_channel_make_room
                moved_messages_are_stored_above_the_bound_and_count
                copied_messages_are_stored_above_the_bound_and_count
                a_replacement_that_does_not_grow_is_stored_above_the_bound
                stores_at_once_do_not_exceed_the_bound
                counts_survive_a_restart
                nothing_waits_for_a_dropped_user
            );
            engine!(@with_channels $new(crate::conformance::giving_way::LIMITS), giving_way:
                the_least_urgent_and_then_the_oldest_message_gives_way
                a_message_less_urgent_than_all_is_refused
                a_full_channel_takes_from_itself_and_a_full_user_from_all
                as_many_give_way_as_the_new_one_needs_bytes
                nothing_gives_way_to_a_message_that_does_not_fit_even_then
                a_replaced_message_of_a_topic_makes_nothing_give_way
            );
            engine!(@case $new(storage::WaitingLimits::NONE), records:
                each_operation_on_each_record_is_that_of_the_reference
                a_read_sees_every_write_answered_before
            );
            engine!(@case $new(storage::WaitingLimits::NONE), bridged:
                a_dropped_record_leaves_its_channels
                of_two_moves_of_a_bridged_agent_at_once_one_is_written
                channels_are_created_where_the_agent_has_no_row
                of_rows_created_at_once_one_stays
            );
            engine!(@case $new(storage::WaitingLimits::NONE), channels:
                channels_are_none_where_nothing_was_registered
                channels_are_none_where_there_is_no_table
                all_channels_that_were_ever_added_are_read_back
                removing_the_last_channel_leaves_an_empty_set
                removing_a_channel_of_an_unknown_agent_does_not_make_it_known
                a_channel_is_removed_in_each_month_named_and_in_no_other
                a_month_without_a_table_is_passed_over_when_a_channel_is_removed
                channels_cannot_be_added_where_there_is_no_table
                agents_and_months_have_channels_of_their_own
            );
            engine!(@with_channels $new(storage::WaitingLimits::NONE), messages:
                every_kind_of_message_is_fetched_as_it_was_stored
                offers_are_counted_in_the_row_and_move_with_it
                an_offer_of_a_message_that_is_not_stored_writes_nothing
                a_message_of_an_unregistered_channel_is_not_stored
                a_channel_registered_in_another_month_does_not_count
                storing_a_message_again_stores_it_once
                a_greater_id_replaces_the_message_of_its_topic
                a_lesser_id_is_outranked_by_the_one_that_is_there_and_writes_nothing
                a_message_of_an_unregistered_channel_is_not_outranked
                topics_of_other_channels_and_agents_are_other_topics
                a_message_cannot_be_stored_where_there_is_no_table
                a_deleted_message_is_gone_and_no_other
                deleting_what_is_not_there_counts_nothing
                deleting_needs_the_right_agent_and_channel
                a_topic_message_is_deleted_without_its_topic_being_known
                the_replacement_of_a_deleted_message_stays
                messages_are_deleted_in_each_month_named
            );
            engine!(@with_channels $new(storage::WaitingLimits::NONE), receipts:
                a_message_is_fetched_with_its_receipt
                an_acked_message_has_the_receipt_of_its_code
                a_message_without_a_receipt_is_only_deleted
                a_message_beside_acked_ones_is_deleted_and_keeps_its_receipt
                a_message_without_a_receipt_is_withdrawn
                an_ack_again_changes_no_receipt
                an_ack_needs_the_right_agent_channel_and_month
                a_topic_message_is_acked_without_its_topic_being_known
                a_replaced_message_has_no_receipt
                an_outranked_message_changes_no_receipt
                a_message_stored_again_keeps_its_receipt
                an_expired_message_has_the_receipt_once
                an_ack_after_the_end_replaces_expired
                the_row_of_a_receipt_waits_for_an_ack_under_way
                a_withdrawn_or_cancelled_message_has_no_receipt
                a_deleted_message_is_expected_until_it_has_expired
                a_subscription_has_a_bound_and_receipts_count
                receipts_expected_at_once_do_not_exceed_the_bound
                a_receipt_survives_a_move_to_another_month
                a_message_that_a_move_drops_has_no_receipt
                all_that_are_due_at_once_expire
                a_subscription_ends_with_all_its_receipts
                what_is_expected_when_its_subscription_has_ended_is_dropped
                an_ack_and_the_end_at_once_leave_delivered
            );
            engine!(@case $new(storage::WaitingLimits::NONE), fetching:
                messages_are_ordered_by_their_ids
                a_fetch_goes_on_behind_the_last_page
                a_fetch_goes_on_where_the_last_message_was_deleted
                a_page_has_no_more_messages_than_asked_for
                a_page_ends_with_the_message_that_reaches_its_bytes
                the_first_message_is_in_the_page_however_large_it_is
                a_page_limit_of_zero_still_gets_one_message
                pages_together_have_every_message_once
                the_last_page_says_that_it_is_the_last
                an_expired_message_is_not_fetched
                a_message_lives_up_to_its_last_millisecond
                the_longest_ttl_never_expires
                a_live_message_is_found_behind_thousands_that_expired
                an_agent_without_messages_has_an_empty_page
                a_month_without_a_table_has_no_messages
            );
            engine!(@with_channels $new(storage::WaitingLimits::NONE), months:
                months_are_listed_oldest_first
                making_a_month_that_is_there_keeps_what_is_in_it
                a_dropped_month_is_gone_with_all_in_it
                dropping_a_month_that_is_not_there_answers_so
                a_month_made_again_is_empty
                moved_messages_are_in_the_new_month_only
                moving_keeps_the_message_of_a_topic_in_the_new_month
                messages_of_channels_not_registered_in_the_new_month_are_only_deleted
                moving_continues_after_a_crash
                moving_affects_no_other_agents_messages
                nothing_is_lost_when_there_is_no_table_to_move_to
                there_is_nothing_to_move_from_a_month_without_a_table
                moving_to_the_same_month_changes_nothing
            );
            engine!(@case $new(storage::WaitingLimits::NONE), lifecycle:
                everything_answered_is_there_after_a_restart
                a_store_that_works_passes_its_check
                a_call_whose_future_is_dropped_is_still_done
                calls_of_one_agent_happen_in_the_order_they_were_made
                closing_finishes_what_is_queued
                a_closed_store_takes_no_further_work
                closing_again_answers_again
            );
            engine!(@case $new(storage::WaitingLimits::NONE), races:
                puts_of_the_same_instant_are_all_kept
                the_greatest_id_wins_every_race_for_a_topic
                a_delete_that_races_with_the_replacement_hits_only_its_own_message
                of_registrations_at_once_the_latest_stays
                of_registrations_of_the_same_instant_one_is_written
                registrations_at_once_answer_each_the_place_of_the_one_before
                a_late_disconnect_never_clears_a_newer_connection
                of_two_connections_only_the_newer_moves_the_month
                channels_added_at_once_are_all_registered
                a_message_is_taken_by_one_of_the_deletes_that_race_for_it
                a_month_dropped_under_load_breaks_no_call
            );
            engine!(@case $new(storage::WaitingLimits::NONE), feed_keys:
                a_feed_is_unknown_before_its_first_write
                a_feed_is_there_from_its_first_write_on
                each_write_of_a_key_is_one_version_more
                a_publication_is_a_change_of_the_row_too
                republishing_changes_the_version_and_the_number_only
                a_key_that_waits_is_republished_and_gets_one_number
                a_key_that_was_never_written_is_neither_republished_nor_deleted
                a_deleted_key_is_published_without_a_value
                a_key_deleted_before_it_was_published_is_published_as_gone
                there_is_nothing_to_delete_of_a_deleted_key
                a_deleted_key_is_republished_as_gone
                a_deleted_key_is_written_again_and_its_versions_go_on
                a_key_more_than_allowed_is_not_written
                keys_that_were_deleted_count_among_those_allowed
                a_feed_that_may_have_no_keys_is_not_created
                feeds_have_keys_and_numbers_of_their_own
                the_largest_value_and_the_longest_key_come_back
                texts_come_back_as_they_were_written
                keys_that_look_alike_are_different_keys
                making_the_tables_again_keeps_what_is_in_them
            );
            engine!(@case $new(storage::WaitingLimits::NONE), feed_publishing:
                where_nothing_waits_nothing_is_published
                one_publication_gives_the_first_key_the_next_number
                a_batch_is_numbered_in_the_order_of_its_keys
                a_publication_starts_after_the_given_key
                a_publication_gives_no_more_numbers_than_its_limit
                a_limit_of_zero_still_publishes_a_key
                a_key_gets_one_number_for_a_change
                publishing_the_last_record_again_gives_it_a_greater_number
                numbers_go_on_where_no_key_has_one
                numbers_go_on_growing_after_a_restart
                more_keys_than_a_transaction_can_hold_are_all_published
                more_bytes_than_a_transaction_can_hold_are_all_published
            );
            engine!(@case $new(storage::WaitingLimits::NONE), feed_fetching:
                updates_come_by_their_numbers
                more_than_nine_and_ninety_nine_updates_are_ordered_by_their_numbers
                a_fetch_goes_on_behind_its_cursor
                a_fetch_sees_every_publication_answered_before
                a_key_is_not_fetched_before_it_is_published
                pages_have_no_more_updates_than_asked_for_and_together_all
                a_page_ends_with_the_update_that_reaches_its_bytes
                a_page_limit_of_zero_still_reaches_the_end
                the_cursor_moves_over_numbers_that_were_left
                gaps_between_updates_hide_none
                a_cursor_at_the_head_stays_where_it_is
                a_cursor_from_the_future_gets_nothing_and_stays
                a_late_consumer_sees_each_keys_last_state_once
                feeds_are_listed_by_name
                a_list_of_feeds_goes_on_behind_the_last_of_them
            );
            engine!(@case $new(storage::WaitingLimits::NONE), feed_horizon:
                a_feed_that_is_unknown_forgets_nothing
                entries_up_to_the_horizon_are_removed_and_no_longer_count
                a_step_removes_no_more_than_its_limit_and_hides_the_rest
                a_horizon_never_decreases_nor_passes_the_head
                a_cursor_below_the_horizon_is_too_late_and_none_is_not
                a_key_that_waits_is_not_forgotten
                the_versions_of_a_forgotten_key_continue
                horizon_and_mark_are_there_after_a_restart
                a_reader_whose_entries_are_forgotten_meanwhile_starts_over
            );
            engine!(@case $new(storage::WaitingLimits::NONE), feed_lifecycle:
                every_feed_is_there_after_a_restart
                calls_for_feeds_whose_futures_are_dropped_are_still_done
                closing_finishes_what_is_queued_for_feeds
                a_closed_store_takes_no_work_for_feeds
            );
            engine!(@case $new(storage::WaitingLimits::NONE), feed_races:
                publishers_at_once_give_each_number_to_one_key
                writers_of_one_key_are_told_different_versions_and_the_last_value_stays
                first_writes_at_once_make_one_feed
                writers_at_once_make_no_more_keys_than_allowed
                a_write_that_races_with_a_publisher_is_not_lost
                a_reader_beside_a_storm_misses_nothing_and_never_goes_back
                no_number_appears_behind_a_head_that_was_seen
            );
            engine!(@case $new(storage::WaitingLimits::NONE), feed_time_table:
                a_consumer_of_the_time_table_sees_the_last_version
            );
            engine!(@case $new(storage::WaitingLimits::NONE), feed_histories:
                an_engine_matches_the_reference_table
            );
        }
    };
    (@case $new:expr, $module:ident: $($case:ident)*) => {
        engine!(@world crate::conformance::world::World::open($new).await, $module: $($case)*);
    };
    (@with_channels $new:expr, $module:ident: $($case:ident)*) => {
        engine!(@world crate::conformance::world::World::open($new).await.with_channels().await, $module: $($case)*);
    };
    (@world $world:expr, $module:ident: $($case:ident)*) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
                async fn $case() {
                    let world = $world;
                    let engine = world.engine();
                    crate::conformance::$module::$case(world).await;
                    crate::conformance::world::assert_rows_fit(engine).await;
                }
            )*
        }
    };
}

engine!(embedded, crate::engines::InDirectory::new);
engine!(dynamodb, crate::engines::OnWireServer::new);
engine!(postgresql, crate::engines::OnPostgres::new);
