//! The stored ratios, which a change must not exceed by more than the tolerance.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::phase::Operation;
use super::results::Results;

/// The tolerance of a new baseline: what medians of three differ by on a machine with other work.
const TOLERANCE: f64 = 1.25;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Baseline {
    /// A ratio above the stored one times this is a regression, and one below it divided by this an improvement.
    tolerance: f64,
    pub(crate) ratios: BTreeMap<Operation, f64>,
}

/// What differs from a baseline, in one sentence for each operation.
#[derive(Default)]
pub(crate) struct Verdict {
    pub(crate) regressions: Vec<String>,
    pub(crate) improvements: Vec<String>,
}

impl Baseline {
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let named = |error: String| {
            let path = path.display();
            io::Error::other(format!(
                "no baseline in {path}: {error}; `make bench BASELINE=write` stores one"
            ))
        };
        let text = fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
        serde_json::from_str(&text).map_err(|error| named(error.to_string()))
    }

    /// The ratios of this run, with the tolerance of an older baseline.
    pub(crate) fn of(results: &Results, older: Option<&Self>) -> Self {
        let ratio = |operation: &Operation| Some((*operation, results.ratio("now", *operation)?));
        let rounded = |(operation, ratio): (_, f64)| (operation, (ratio * 1000.0).round() / 1000.0);
        let ratios = Operation::value_variants().iter().filter_map(ratio).map(rounded).collect();
        Self { tolerance: older.map_or(TOLERANCE, |older| older.tolerance), ratios }
    }

    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let json = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
        fs::write(path, json + "\n").map_err(|error| {
            io::Error::new(error.kind(), format!("{} cannot be written: {error}", path.display()))
        })
    }

    /// Compares what was measured. An operation without a ratio is a regression.
    pub(crate) fn judge(&self, results: &Results) -> Verdict {
        let mut verdict = Verdict::default();
        let compared = Operation::value_variants().iter().filter(|it| it.yardstick().is_some());
        for operation in compared {
            let ratios = (results.ratio("now", *operation), self.ratios.get(operation));
            let (Some(ratio), Some(stored)) = ratios else {
                verdict
                    .regressions
                    .push(format!("{operation}: one of the ratios is missing: {ratios:?}"));
                continue;
            };
            let change = format!(
                "{operation}: {ratio:.2} of the floor, baseline {stored:.2}, tolerance {}",
                self.tolerance
            );
            if ratio > stored * self.tolerance {
                verdict.regressions.push(change);
            } else if ratio < stored / self.tolerance {
                verdict.improvements.push(change);
            }
        }
        verdict
    }
}
