//! The section about costs in `docs/storage.md`, computed from the measured costs.

use std::fs;
use std::path::Path;

use super::prices::{self, PRICES, Price};

/// A day of the average user agent that the documentation assumes.
struct Day {
    connects: f64,
    hours_online: f64,
    pushes: f64,
    months: f64,
}

const DAY: Day = Day { connects: 4.0, hours_online: 10.0, pushes: 12.0, months: 1.0 / 30.0 };

const SECONDS: f64 = 86_400.0;

/// The ratio of the busiest hour to the average one.
const PEAK: f64 = 3.0;

/// `storage_recheck_s` is half an hour.
const RECHECKS_AN_HOUR: f64 = 2.0;

/// The value of `last_connect_shards`.
const SPREAD: f64 = 10.0;

/// Capacity units of one user agent per day.
#[derive(Default)]
struct Units {
    read: f64,
    write: f64,
    index: f64,
}

impl Units {
    fn of(day: &Day) -> Self {
        let direct = day.pushes * day.hours_online / 24.0;
        let stored = day.pushes - direct;
        let mut units = Self::default();
        units.add(&prices::LATER, day.connects - day.months);
        units.add(&prices::MOVE, day.months);
        units.add(&prices::RECHECK, day.hours_online * RECHECKS_AN_HOUR);
        units.add(&prices::DIRECT, direct);
        units.add(&prices::STORED_1_KB, stored);
        // The first push after a disconnect finds the agent offline, and clears the node in its
        // record.
        units.write += day.connects * (prices::FIRST_STORED.write - prices::STORED.write);
        // A delete consumes the size of the deleted item, and a unit for the count.
        units.write += stored * prices::STORED_1_KB.write;
        units
    }

    fn add(&mut self, price: &Price, times: f64) {
        self.read += price.read * times;
        self.write += price.write * times;
        self.index += price.index * times;
    }
}

#[test]
fn the_documentation_matches_the_measured_costs() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/storage.md");
    let text = fs::read_to_string(file).expect("the document is there");
    for table in [price_table(), fleet_table()] {
        assert!(text.contains(&table), "docs/storage.md must contain:\n{table}");
    }
}

fn price_table() -> String {
    let header = "| operation | requests | read | write | index write |\n|---|---|---|---|---|\n";
    PRICES.iter().map(row).fold(header.to_owned(), |table, row| table + &row)
}

fn row(price: &Price) -> String {
    let Price { what, requests, read, write, index } = price;
    let requests: Vec<_> =
        requests.iter().map(|(operation, count)| format!("{count} {operation}")).collect();
    let requests = if requests.is_empty() { "none".to_owned() } else { requests.join(", ") };
    format!("| {what} | {requests} | {read} | {write} | {index} |\n")
}

fn fleet_table() -> String {
    let Units { read, write, index } = Units::of(&DAY);
    let a_second = |units: f64| format!("{}", (units / SECONDS).round());
    let connects = DAY.connects / SPREAD;
    let rows = [
        ("read units a second, on average", read),
        ("read units a second, in the busiest hour", read * PEAK),
        ("write units a second to tables, on average", write),
        ("write units a second to tables, in the busiest hour", write * PEAK),
        ("write units a second to the index, on average", index),
        ("write units a second to the index, in the busiest hour", index * PEAK),
        ("of these to each of the ten keys of that hour", connects * PEAK),
    ];
    let header = "| | a million | a hundred million |\n|---|---|---|\n".to_owned();
    rows.into_iter().fold(header, |table, (what, units)| {
        table + &format!("| {what} | {} | {} |\n", a_second(units * 1e6), a_second(units * 1e8))
    })
}
