//! What was asked of a DynamoDB server, and how many capacity units that consumed.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

/// Requests and units, by operation and kind of table.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Bill {
    /// Every request, by operation: those too that have no price and those that failed.
    pub(crate) requests: BTreeMap<String, usize>,
    pub(crate) units: Units,
}

/// Capacity units.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Units {
    /// Of 4 KB, read consistently.
    pub(crate) read: f64,
    /// Of 1 KB, to tables.
    pub(crate) write: f64,
    /// Of 1 KB, to indexes.
    pub(crate) index_write: f64,
}

const READS: [&str; 5] = ["GetItem", "Query", "Scan", "BatchGetItem", "TransactGetItems"];
const WRITES: [&str; 5] =
    ["PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems"];

impl Bill {
    /// Whether an operation consumes units.
    pub(super) fn has_a_price(operation: &str) -> bool {
        READS.contains(&operation) || WRITES.contains(&operation)
    }

    /// A request was answered, with what it says of its price: nothing where it failed.
    pub(super) fn answered(&mut self, operation: &str, answer: &Value) {
        *self.requests.entry(operation.to_owned()).or_default() += 1;
        let said = match &answer["ConsumedCapacity"] {
            Value::Array(said) => said.as_slice(),
            said => std::slice::from_ref(said),
        };
        for consumed in said {
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

    /// Requests that have a price, by operation.
    pub(crate) fn priced(&self) -> BTreeMap<&str, usize> {
        let requests = self.requests.iter().map(|(operation, count)| (operation.as_str(), *count));
        requests.filter(|(operation, _)| Self::has_a_price(operation)).collect()
    }

    /// How many requests of these operations there were.
    pub(crate) fn count(&self, operations: &[&str]) -> usize {
        operations.iter().filter_map(|operation| self.requests.get(*operation)).sum()
    }
}

impl fmt::Display for Bill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requests =
            self.priced().into_iter().map(|(operation, count)| format!("{count} {operation}"));
        let requests: Vec<_> = requests.collect();
        let Units { read, write, index_write } = self.units;
        write!(f, "{}: {read} read, {write} write, {index_write} index write", requests.join(", "))
    }
}
