//! Requests that a DynamoDB server received, and the capacity units that they consumed.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

/// Requests and capacity units, summed over tables.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CapacityUsage {
    /// The number of requests by operation, including those that consume no units or failed.
    pub(crate) requests: BTreeMap<String, usize>,
    pub(crate) units: Units,
}

/// Consumed capacity, in DynamoDB's units.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Units {
    /// Strongly consistent reads, in units of 4 KB.
    pub(crate) read: f64,
    /// Writes to tables, in units of 1 KB.
    pub(crate) write: f64,
    /// Writes to indexes, in units of 1 KB.
    pub(crate) index_write: f64,
}

const READS: [&str; 5] = ["GetItem", "Query", "Scan", "BatchGetItem", "TransactGetItems"];
const WRITES: [&str; 5] =
    ["PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems"];

impl CapacityUsage {
    /// Whether an operation consumes capacity units.
    pub(super) fn is_billed(operation: &str) -> bool {
        READS.contains(&operation) || WRITES.contains(&operation)
    }

    /// Adds a request and the `ConsumedCapacity` of its answer, which is absent if it failed.
    pub(super) fn answered(&mut self, operation: &str, answer: &Value) {
        *self.requests.entry(operation.to_owned()).or_default() += 1;
        let consumed = match &answer["ConsumedCapacity"] {
            Value::Array(consumed) => consumed.as_slice(),
            consumed => std::slice::from_ref(consumed),
        };
        for consumed in consumed {
            let all = consumed["CapacityUnits"].as_f64().unwrap_or(0.0);
            if READS.contains(&operation) {
                self.units.read += all;
                continue;
            }
            let table = consumed["Table"]["CapacityUnits"].as_f64().unwrap_or(all);
            self.units.write += table;
            self.units.index_write += all - table;
        }
    }

    /// The number of requests that consume units, by operation.
    pub(crate) fn billed(&self) -> BTreeMap<&str, usize> {
        let requests = self.requests.iter().map(|(operation, count)| (operation.as_str(), *count));
        requests.filter(|(operation, _)| Self::is_billed(operation)).collect()
    }

    /// The number of requests of these operations.
    pub(crate) fn count(&self, operations: &[&str]) -> usize {
        operations.iter().filter_map(|operation| self.requests.get(*operation)).sum()
    }
}

impl fmt::Display for CapacityUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requests =
            self.billed().into_iter().map(|(operation, count)| format!("{count} {operation}"));
        let requests: Vec<_> = requests.collect();
        let Units { read, write, index_write } = self.units;
        write!(f, "{}: {read} read, {write} write, {index_write} index write", requests.join(", "))
    }
}
