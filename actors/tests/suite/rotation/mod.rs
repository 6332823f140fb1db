//! The month that turns, with real actors on real stores.
//!
//! A case is a function that takes an empty [`World`](world::World). It is named once, in `engine!`
//! below, which makes one test of it for every engine. Time is real in these tests, but no limit is
//! reached unless a case sets the clock.

mod agent;
mod carrying;
mod clocks;
mod cuts;
mod endpoints;
mod frozen;
mod long_ago;
mod moving;
mod world;

pub(crate) use agent::Agent;
pub(crate) use world::{ACK_WAIT, NEW, OLD, World, in_month, it_becomes, lasting};

/// Makes the tests of an engine.
macro_rules! engine {
    ($engine:ident, $new:path) => {
        mod $engine {
            engine!(@case $new, moving:
                a_client_of_this_month_touches_no_other
                a_client_of_last_month_takes_its_messages_and_moves
                what_a_broken_off_copy_left_in_the_new_month_goes_with_the_acks
                a_client_takes_more_than_a_page_before_it_moves
                channels_are_copied_without_messages_and_the_record_moves_last
                commands_and_pushes_during_every_step_of_a_move_wait_for_its_end
                a_session_stays_open_over_midnight_and_its_agent_moves_when_it_reconnects
            );
            engine!(@case $new, carrying:
                unacked_messages_are_moved_and_redelivered_until_acked
                messages_that_had_no_room_to_be_sent_are_carried_over_too
                an_ack_after_the_carrying_settles_the_message
                a_drain_wait_of_nothing_waits_for_the_acks_for_ever
                messages_that_no_connection_can_take_are_carried_over_too
                of_a_topic_only_the_newest_message_is_left_after_the_carrying
            );
            engine!(@case $new, cuts:
                a_move_is_brought_to_its_end_wherever_it_is_cut
                a_move_of_a_silent_agent_is_brought_to_its_end_wherever_it_is_cut
                a_move_with_a_row_stored_late_is_brought_to_its_end_wherever_it_is_cut
                a_move_whose_node_dies_twice_is_brought_to_its_end
            );
            engine!(@case $new, endpoints:
                an_endpoint_that_stores_after_the_move_finds_the_new_month
                an_endpoint_that_stores_after_the_move_reaches_the_agent_that_stayed
                a_row_stored_between_the_copy_and_the_record_is_found_by_the_last_look
                a_second_look_that_fails_promises_nothing_and_the_row_is_found
                an_endpoint_whose_channel_was_given_up_after_the_move_leaves_nothing
            );
            engine!(@case $new, long_ago:
                a_client_two_months_behind_takes_what_is_left_and_moves
                a_client_three_months_behind_takes_what_is_left_and_moves
                a_client_moves_over_the_new_year
                a_move_to_a_month_without_a_table_waits_for_it_and_loses_nothing
                a_move_that_was_cut_is_finished_months_later
                a_client_whose_old_table_was_dropped_in_the_midst_of_a_move_keeps_its_uaid
                a_client_whose_table_was_dropped_gets_a_new_uaid_and_subscribes_again
                a_client_without_a_record_or_without_channels_gets_a_new_uaid
                a_look_that_fails_never_gives_a_new_uaid
                a_store_that_is_closed_never_gives_a_new_uaid
            );
            engine!(@case $new, clocks:
                a_record_that_moved_stays_where_it_is_on_a_node_whose_clock_is_behind
                a_client_moves_when_it_comes_to_a_node_whose_clock_is_ahead
                a_move_that_another_connection_overtakes_is_left_to_it_or_finished
            );
            engine!(@case $new, frozen:
                where_rotation_is_off_one_table_is_used_for_months
                where_rotation_is_on_again_clients_move
                switched_off_in_the_midst_of_a_month_nobody_moves_back
                frozen_in_the_midst_of_a_move_it_is_finished
            );
        }
    };
    (@case $new:path, $module:ident: $($case:ident)*) => {
        mod $module {
            $(
                #[test]
                fn $case() {
                    crate::clockwork::run_in_real_time(async {
                        let engine = $new(storage::WaitingLimits::NONE);
                        let world = crate::rotation::world::World::open(engine).await;
                        crate::rotation::$module::$case(world).await;
                    });
                }
            )*
        }
    };
}

engine!(embedded, crate::engines::InDirectory::new);
engine!(dynamodb, crate::engines::OnWireServer::new);
engine!(postgresql, crate::engines::OnPostgres::new);
