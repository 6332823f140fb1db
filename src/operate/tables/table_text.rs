//! Tables as text and as JSON.

use indicatif::HumanBytes;
use serde_json::Value;
use storage::maintenance::{Capacity, Table, TableStatus, Throughput};

use crate::command::text::{columns, to_json};

pub fn tables_text(tables: &[TableStatus]) -> String {
    let rows = tables.iter().map(|status| {
        [
            table_text(status.table),
            status.name.clone(),
            status.state.clone(),
            status.items.to_string(),
            HumanBytes(status.bytes).to_string(),
            throughput_text(status.capacity),
        ]
    });
    columns(Some(["TABLE", "NAME", "STATE", "ITEMS", "SIZE", "THROUGHPUT"]), rows)
}

pub fn table_text(table: Table) -> String {
    match table {
        Table::Messages(month) => month.to_string(),
        Table::Router => "router".into(),
        Table::Notifications => "notifications".into(),
        Table::Sequences => "sequences".into(),
        Table::Feeds => "feeds".into(),
    }
}

fn throughput_text(capacity: Capacity) -> String {
    match capacity {
        Capacity::Unmetered => "unmetered".into(),
        Capacity::OnDemand => "on demand".into(),
        Capacity::Provisioned(Throughput { read, write }) => {
            format!("{read} reads, {write} writes/s")
        }
    }
}

/// All tables as JSON. A table that is not one of a month has `month` null.
pub fn with_months(mut value: Value) -> String {
    for table in value["tables"].as_array_mut().into_iter().flatten() {
        table.as_object_mut().map(|table| table.entry("month").or_insert(Value::Null));
    }
    to_json(&value)
}
