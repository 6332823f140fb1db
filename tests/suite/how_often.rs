//! Each period of the sources: a test of what happens in it, or what makes a count needless.

use std::collections::BTreeMap;

use crate::rules::sources;
use crate::standards::exists;

use Count::{By, Limiter, Wait};

enum Count {
    /// A test of what happens in it or at its end, by its path.
    By(&'static str),
    /// A log limiter has it, whose own tests count.
    Limiter,
    /// A pause of a loop that waits for something.
    Wait,
}

macro_rules! periods {
    ($($file:literal $name:ident => $count:expr;)+) => {
        &[$(($file, stringify!($name), $count),)+]
    };
}

/// The constants that are a period, by their file.
const PERIODS: &[(&str, &str, Count)] = periods! {
    "actors/src/access_follower.rs" EXPIRY_CHECK =>
        By("actors suite access::a_token_ends_once_and_once_more_after_the_clock_was_set_back");
    "actors/src/access_follower.rs" RETRY => Wait;
    "actors/src/bridged_agents.rs" FAILED_LOG_EVERY => Limiter;
    "actors/src/drain_schedule.rs" POLL_INTERVAL_MIN =>
        By("actors drain_schedule::tests::the_wait_is_at_least_the_poll_interval");
    "actors/src/endpoint.rs" BRIDGE_LOG_EVERY => Limiter;
    "actors/src/endpoint.rs" FULL_LOG_EVERY => Limiter;
    "actors/src/endpoint.rs" SPACE_LOG_EVERY => Limiter;
    "actors/src/frame_limits.rs" LOG_EVERY => Limiter;
    "actors/src/socket/http2.rs" PING_EVERY =>
        By("suite tls::http2_bounds_the_streams_headers_and_resets_of_a_connection");
    "src/cluster/inbound/mod.rs" LOG_EVERY =>
        By("kalends cluster::inbound::tests::rejected_requests_are_logged_once_a_second");
    "src/cluster/outbound/mod.rs" SWEEP_INTERVAL =>
        By("kalends cluster::outbound::tests::bounds::a_full_table_admits_a_node_once_another_is_unused");
    "src/command/backend.rs" RETRY_EVERY => Wait;
    "src/command/bar.rs" LINE_EVERY => Wait;
    "src/command/job.rs" PROGRESS_EVERY => Wait;
    "src/command/upgrade.rs" SHOW_EVERY => Wait;
    "src/feeds/cli/tail.rs" POLL => Wait;
    "src/feeds/cli/tail.rs" SERVER_RETRY => Wait;
    "src/feeds/cli/tail_url.rs" RETRY => Wait;
    "src/limits/address.rs" LOG_EVERY => Limiter;
    "src/limits/connects.rs" LOG_EVERY => By("kalends limits::connects::tests::refusals_are_logged_once_a_second");
    "src/limits/idle.rs" LOG_EVERY => Limiter;
    "src/limits/idle.rs" LOOK_EVERY =>
        By("kalends limits::idle::tests::all_connections_are_looked_at_ten_times_in_a_second_at_most");
    "src/limits/mod.rs" LOG_EVERY => Limiter;
    "src/limits/port.rs" LOG_EVERY => Limiter;
    "src/limits/refusals.rs" LOG_EVERY => Limiter;
    "src/monitoring/admin_page/beside.rs" ASK_EVERY =>
        By("kalends monitoring::admin_page::asked::tests::a_round_begins_once_in_each_period");
    "src/monitoring/admin_page/beside.rs" COUNT_EVERY =>
        By("kalends monitoring::admin_page::asked::tests::a_round_begins_once_in_each_period");
    "src/monitoring/admin_page/history.rs" READ_EVERY =>
        By("kalends monitoring::admin_page::history::tests::the_history_never_exceeds_its_size");
    "src/monitoring/admin_page/history_file.rs" LOG_EVERY => Limiter;
    "src/monitoring/admin_page/history_file.rs" WRITE_EVERY =>
        By("kalends monitoring::admin_page::history_file::tests::a_history_is_written_seldom_and_read_again");
    "src/monitoring/admin_page/live.rs" CHECK_EVERY =>
        By("kalends monitoring::admin_page::asked::tests::a_round_begins_once_in_each_period");
    "src/monitoring/admin_page/page.rs" LOG_EVERY => Limiter;
    "src/monitoring/statsd.rs" LOG_EVERY => Limiter;
    "src/operate/scheduled/mod.rs" LOOK_EVERY =>
        By("kalends operate::scheduled::turn::tests::a_task_is_due_in_its_hour_and_after_two_missed_turns_at_any_hour");
    "src/operate/users/drop.rs" LOOK_EVERY => Wait;
    "src/push/bridges/guard.rs" LOG_EVERY => Limiter;
    "src/push/bridges/http_client.rs" PING_INTERVAL => Wait;
    "src/push/port/accept_failures.rs" LOG_EVERY => Limiter;
    "src/push/port/access.rs" LOG_EVERY => Limiter;
    "src/push/port/origin_check.rs" LOG_EVERY => Limiter;
    "src/push/request/receipts.rs" LOG_EVERY => Limiter;
    "src/server/acme/orderer.rs" LOOK_EVERY =>
        By("suite acme::a_server_that_failed_often_orders_nothing_when_it_starts_again");
    "src/server/maintenance.rs" COUNT_EVERY =>
        By("kalends server::maintenance::tests::messages_of_all_pages_of_all_months_are_counted");
    "src/server/maintenance.rs" JUDGE_EVERY =>
        By("suite postgresql::settings_that_lose_answered_pushes_are_named_by_the_doctor_and_on_the_operators_page");
    "src/server/maintenance.rs" LOG_EVERY => Limiter;
    "src/server/maintenance.rs" REPORT_EVERY =>
        By("kalends server::maintenance::tests::the_rest_of_a_flood_is_logged_once_without_a_further_refusal");
    "src/server/message_id_floor.rs" RAISE_EVERY =>
        By("kalends server::maintenance::tests::a_correction_of_more_than_a_second_is_followed_once_in_both_directions");
    "src/server/router_url_check.rs" RETRY_EVERY =>
        By("kalends server::router_url_check::tests::a_node_that_reaches_no_node_starts_and_warns_until_it_reaches_itself");
    "src/server/shutdown.rs" LOOK_EVERY => Wait;
    "src/server/shutdown.rs" PROGRESS_EVERY => Wait;
    "src/server/upgrade_log.rs" REPORT_EVERY =>
        By("kalends server::upgrade_log::tests::each_report_of_an_upgrade_is_a_line_with_its_percentage");
    "src/system/parent.rs" LOOK_EVERY =>
        By("suite for_tests::it_ends_with_the_program_that_started_it_also_if_that_is_killed");
    "src/system/tls/mod.rs" LOG_EVERY => Limiter;
    "src/system/tls/reload.rs" LOOK_EVERY =>
        By("kalends system::tls::reload::tests::the_end_of_a_certificate_is_logged_once_a_day_and_its_files_are_read_when_they_change");
    "src/system/tls/reload.rs" WARN_EVERY => Limiter;
};

#[test]
fn each_period_of_the_sources_has_a_count() {
    let root = env!("CARGO_MANIFEST_DIR");
    let mut found = BTreeMap::new();
    for (path, text) in sources() {
        let path =
            path.strip_prefix(root).expect("sources are below the root").display().to_string();
        let is_ours = path.starts_with("src/") || path.starts_with("actors/");
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
        for (name, kind) in constants(&text).filter(|_| is_ours) {
            let is_period = ["EVERY", "INTERVAL", "CHECK", "RETRY", "POLL"]
                .iter()
                .any(|it| name.split('_').any(|word| word == *it));
            let is_bound = ["MAX", "FIRST", "WAIT", "ALONE"].iter().any(|end| name.ends_with(end));
            if is_period && !is_bound && ["Span", "Duration"].contains(&kind) {
                found.insert((path.clone(), name.to_owned()), text.clone());
            }
        }
    }
    for (path, name, count) in PERIODS {
        let text = found.remove(&((*path).to_owned(), (*name).to_owned()));
        let text = text.unwrap_or_else(|| panic!("{path} has no {name}"));
        match count {
            By(test) => assert!(exists(test), "{path}: there is no test {test}"),
            Limiter => {
                let others = text.matches(name).count()
                    - text.matches(&format!("LogLimiter::new({name})")).count();
                // What remains is its own line, and its name in a doc comment.
                let named = text.matches(&format!("[`{name}`]")).count();
                assert_eq!(others, 1 + named, "{path}: {name} is not of a log limiter alone");
            }
            Wait => {}
        }
    }
    let found: Vec<_> = found.into_keys().collect();
    assert!(found.is_empty(), "without a row: {found:?}");
}

/// The names and types of the constants of a file.
fn constants(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split("const ").skip(1).filter_map(|rest| {
        let (name, rest) = rest.split_once(": ")?;
        let is_name = name.chars().all(|sign| sign.is_ascii_uppercase() || sign == '_');
        Some((name, rest.split([' ', ';']).next()?)).filter(|_| is_name)
    })
}
