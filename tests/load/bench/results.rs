//! The figures of all rounds.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use clap::ValueEnum;
use serde_json::{Value, json};

use super::baseline::Baseline;
use super::phase::Operation;

/// The figures by program and operation, one for each round.
#[derive(Default)]
pub(crate) struct Results(BTreeMap<(String, Operation), Vec<f64>>);

impl Results {
    pub(crate) fn add(&mut self, program: &str, operation: Operation, figure: f64) {
        self.0.entry((program.to_owned(), operation)).or_default().push(figure);
    }

    /// The median of the ratios of each round to the floor of that round. None: it has no floor, was not measured, or
    /// is not positive, as memory can be that the server had free before.
    pub(crate) fn ratio(&self, program: &str, operation: Operation) -> Option<f64> {
        let floor = self.runs("floor", operation.yardstick()?)?;
        let runs = self.runs(program, operation)?;
        // The largest number stands for a floor without a cost.
        let ratio = |(figure, floor): (&f64, &f64)| {
            if *floor > 0.0 { figure / floor } else { f64::INFINITY }
        };
        median(runs.iter().zip(floor).map(ratio)).filter(|ratio| ratio.is_finite() && *ratio > 0.0)
    }

    fn runs(&self, program: &str, operation: Operation) -> Option<&[f64]> {
        self.0.get(&(program.to_owned(), operation)).map(Vec::as_slice)
    }

    fn median(&self, program: &str, operation: Operation) -> Option<f64> {
        median(self.runs(program, operation)?.iter().copied())
    }

    pub(crate) fn json(&self) -> Value {
        let mut operations = json!({});
        for ((program, operation), runs) in &self.0 {
            operations[operation.to_string()][program] = json!({
                "median": self.median(program, *operation),
                "ratio": self.ratio(program, *operation),
                "runs": runs,
            });
        }
        operations
    }

    /// A table in Markdown, below its units.
    pub(crate) fn table(&self, baseline: Option<&Baseline>) -> Result<String, fmt::Error> {
        let mut table = String::from(
            "Medians of the rounds. µs: CPU of the server for one. ms: time of the sender. KiB: memory of the server \
             for one more.\nRatios: to the floor's direct push, connect or idle connection.\n\n\
             | operation | floor | before | now | before / floor | now / floor | baseline |\n\
             |---|---|---|---|---|---|---|\n",
        );
        let cell = |figure: Option<f64>, decimals| {
            figure.map_or("–".to_owned(), |figure| format!("{figure:.decimals$}"))
        };
        for operation in Operation::value_variants() {
            write!(table, "| {} |", operation.title())?;
            for program in ["floor", "before", "now"] {
                write!(table, " {} |", cell(self.median(program, *operation), 1))?;
            }
            let stored = baseline.and_then(|baseline| baseline.ratios.get(operation).copied());
            let [before, now] = ["before", "now"].map(|program| self.ratio(program, *operation));
            for ratio in [before, now, stored] {
                write!(table, " {} |", cell(ratio, 2))?;
            }
            writeln!(table)?;
        }
        Ok(table)
    }
}

fn median(figures: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<_> = figures.collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}
