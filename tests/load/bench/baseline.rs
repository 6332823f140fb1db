//! The stored ratios, which a change must not exceed by more than the tolerance.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

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
        let name = path.display();
        let text = fs::read_to_string(path).map_err(|error| {
            io::Error::other(match error.kind() {
                ErrorKind::NotFound => {
                    format!("no baseline in {name}: `make bench BASELINE=write` stores one")
                }
                _ => format!("{name} cannot be read: {error}"),
            })
        })?;
        serde_json::from_str(&text)
            .map_err(|error| io::Error::other(format!("{name} is not valid: {error}")))
    }

    /// The ratios of this run, with the tolerance of an older baseline. An error names an operation without a ratio.
    pub(crate) fn of(results: &Results, older: Option<&Self>) -> io::Result<Self> {
        let mut ratios = BTreeMap::new();
        for operation in Operation::compared() {
            let ratio = results.ratio("now", operation).ok_or_else(|| {
                let title = operation.title();
                io::Error::other(format!(
                    "{title}: no positive ratio was measured, nothing is stored"
                ))
            })?;
            ratios.insert(operation, (ratio * 1000.0).round() / 1000.0);
        }
        Ok(Self { tolerance: older.map_or(TOLERANCE, |older| older.tolerance), ratios })
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
        for operation in Operation::compared() {
            let title = operation.title();
            let ratios = (results.ratio("now", operation), self.ratios.get(&operation));
            let (Some(ratio), Some(stored)) = ratios else {
                let missing =
                    ratios.0.map_or("no positive ratio was measured", |_| "not in the baseline");
                verdict.regressions.push(format!("{title}: {missing}"));
                continue;
            };
            let change = format!(
                "{title}: {ratio:.2} of the floor, baseline {stored:.2}, tolerance {}",
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
