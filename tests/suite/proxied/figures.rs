//! The figures of the samples, and the settings that they depend on.

use kalends::settings::Settings;

use super::Sample;

const CONNECT: &str = "location ~ ^/(u/[^/]*/?)?$ {";
const ENDPOINT: &str = "location / {";

/// The value of a directive in an nginx block, in seconds or bytes.
fn figure(block: &str, directive: &str) -> u64 {
    let sample = Sample::read("nginx.conf");
    let block = sample.text().split_once(block).expect("the sample has the block").1;
    let block = block.split_once("\n    }").expect("a block has an end").0;
    let line = block.lines().find_map(|line| line.trim().strip_prefix(directive));
    in_units(line.expect("the block has the directive").trim().trim_end_matches(';'))
}

/// The value of a line of a unit, in seconds.
fn timeout_of(unit: &str) -> u64 {
    let sample = Sample::read(unit);
    let line = sample.text().lines().find_map(|line| line.strip_prefix("TimeoutStopSec="));
    in_units(line.expect("the unit has a timeout"))
}

fn in_units(value: &str) -> u64 {
    let digits = value.trim_end_matches(|unit: char| !unit.is_ascii_digit());
    let number: u64 = digits.parse().expect("a figure is a number");
    match &value[digits.len()..] {
        "m" => number * 60,
        "k" => number * 1024,
        "s" | "" => number,
        unit => panic!("an unexpected unit of {value:?}: {unit:?}"),
    }
}

#[test]
fn nginx_timeouts_and_body_limits_exceed_those_of_kalends() {
    let settings = Settings::default();
    let silent = settings.keepalive_interval_s + settings.keepalive_grace_s;
    assert!(figure(CONNECT, "proxy_read_timeout") > silent);
    let silent = settings.feed_wait_max_s.max(settings.feed_keepalive_s);
    assert!(figure(ENDPOINT, "proxy_read_timeout") > silent);
    let largest = settings.payload_bytes_max.max(settings.feed_value_bytes_max) as u64;
    assert!(figure(ENDPOINT, "client_max_body_size") > 2 * largest);
}

#[test]
fn systemd_waits_longer_than_a_node_needs_to_stop() {
    let settings = Settings::default();
    let stop = settings.shutdown_wait_ms / 1000;
    assert!(timeout_of("kalends.service") > stop);
    assert!(timeout_of("kalends-connect.service") > settings.drain_s + 2);
    assert!(timeout_of("kalends-endpoint.service") > settings.drain_lame_duck_s + stop);
}
