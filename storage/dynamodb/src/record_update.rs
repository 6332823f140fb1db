//! Updates of one item of the router table.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::{
    AttributeValue, ReturnValue, ReturnValuesOnConditionCheckFailure as OnFailure,
};
use state_machine::{BridgeName, LastConnect, Month, Time, Uaid};
use storage::maintenance::DROPPED;
use storage::rules::record_rows::{GuardedChange, RecordChange, RecordGuard};

use crate::attributes::{UAID, number, text};
use crate::client::DynamoClient;
use crate::error::{CallError, Item};

pub(crate) const UPDATE: &str = "UpdateItem";

pub(crate) struct RecordUpdate {
    key: String,
    expression: String,
    condition: Option<String>,
    values: HashMap<String, AttributeValue>,
}

/// The result of [`RecordUpdate::try_send`].
pub(crate) enum Updated {
    /// With the item before it, without attributes if there was none.
    Done(Item),
    /// The condition does not hold for this item.
    Refused {
        item: Option<Item>,
        /// An earlier attempt may have made the update.
        indeterminate: bool,
    },
}

impl RecordUpdate {
    pub(crate) fn of(uaid: Uaid) -> Self {
        Self::of_key(uaid.to_string())
    }

    pub(crate) fn of_key(key: String) -> Self {
        Self { key, expression: String::new(), condition: None, values: HashMap::new() }
    }

    pub(crate) fn of_change(client: &DynamoClient, change: &GuardedChange) -> Self {
        let GuardedChange { uaid, guards, change } = change;
        let update = Self::of(*uaid).changing(client, *change).only_if("attribute_exists(uaid)");
        guards.iter().fold(update, |update, guard| update.guarded(client, guard))
    }

    fn changing(self, client: &DynamoClient, change: RecordChange) -> Self {
        let month = |month| text(client.names.value(month));
        match change {
            RecordChange::Months { curmonth, oldmonth, last_connect } => {
                let update = self.set("curmonth", month(curmonth)).seen(last_connect);
                match oldmonth {
                    Some(oldmonth) => update.set("oldmonth", month(oldmonth)),
                    None => update.remove("oldmonth"),
                }
            }
            RecordChange::EndMove => self.remove("oldmonth"),
            RecordChange::ClearNode => self.remove("node_id"),
            RecordChange::MarkDropped => self.set("router_type", text(DROPPED)),
            RecordChange::Connected { at, last_connect } => {
                self.set("connected_at", number(at.0)).seen(last_connect)
            }
        }
    }

    fn seen(self, last_connect: Option<LastConnect>) -> Self {
        match last_connect {
            Some(key) => self.set("last_connect", number(key.0)),
            None => self,
        }
    }

    fn guarded(self, client: &DynamoClient, guard: &RecordGuard) -> Self {
        match guard {
            RecordGuard::Node(node) => {
                self.only_if("node_id = :node").with(":node", text(node.as_str()))
            }
            RecordGuard::Bridged => self.of_bridge("router_type IN (:fcm, :apns)"),
            RecordGuard::ConnectedAt(at) => self
                .only_if(match at {
                    Time(0) => "(attribute_not_exists(connected_at) OR connected_at = :at)",
                    _ => "connected_at = :at",
                })
                .with(":at", number(at.0)),
            RecordGuard::LastConnect(key) => {
                self.only_if("last_connect = :seen").with(":seen", number(key.0))
            }
            RecordGuard::Curmonth(month) => self
                .only_if(
                    "(curmonth IN (:cur, :full_cur, :bare_cur) OR attribute_not_exists(curmonth) \
                     AND current_month IN (:cur, :full_cur, :bare_cur))",
                )
                .with_forms([":cur", ":full_cur", ":bare_cur"], client, *month),
            RecordGuard::Oldmonth(Some(month)) => self
                .only_if("oldmonth IN (:old, :full_old, :bare_old)")
                .with_forms([":old", ":full_old", ":bare_old"], client, *month),
            RecordGuard::Oldmonth(None) => self.only_if("attribute_not_exists(oldmonth)"),
        }
    }

    /// Adds a condition with the names of the bridges.
    pub(crate) fn of_bridge(self, condition: &str) -> Self {
        let names = [":fcm", ":apns"].into_iter().zip(BridgeName::ALL);
        let update = self.only_if(condition);
        names.fold(update, |update, (name, bridge)| update.with(name, text(bridge.as_str())))
    }

    /// The forms of a month in a record.
    pub(crate) fn with_forms(self, names: [&str; 3], client: &DynamoClient, month: Month) -> Self {
        let forms = names.into_iter().zip(client.names.record_forms(month));
        forms.fold(self, |update, (name, form)| update.with(name, text(form)))
    }

    /// An expression in place of those of [`RecordUpdate::set`] and [`RecordUpdate::remove`].
    pub(crate) fn expression(self, expression: &str) -> Self {
        Self { expression: expression.to_owned(), ..self }
    }

    /// Sets an attribute to a value that has its name.
    pub(crate) fn set(self, attribute: &str, value: AttributeValue) -> Self {
        let name = format!(":{attribute}");
        self.set_to(attribute, &name).with(&name, value)
    }

    pub(crate) fn set_to(mut self, attribute: &str, operand: &str) -> Self {
        let clause = if self.expression.is_empty() { "SET" } else { "," };
        self.expression += &format!("{clause} {attribute} = {operand}");
        self
    }

    /// Removes one attribute, after those that are set.
    pub(crate) fn remove(mut self, attribute: &str) -> Self {
        self.expression += &format!(" REMOVE {attribute}");
        self
    }

    /// All conditions that are added must hold. One with an `OR` has parentheses.
    pub(crate) fn only_if(self, condition: &str) -> Self {
        let condition = match self.condition {
            Some(others) => format!("{others} AND {condition}"),
            None => condition.to_owned(),
        };
        Self { condition: Some(condition), ..self }
    }

    pub(crate) fn with(mut self, name: &str, value: AttributeValue) -> Self {
        self.values.insert(name.to_owned(), value);
        self
    }

    /// Returns the item before the update, without attributes if there was none.
    pub(crate) async fn send(self, client: &DynamoClient) -> Result<Item, CallError> {
        let table = &client.names.router;
        let request = client
            .sdk
            .update_item()
            .table_name(table)
            .key(UAID, text(self.key))
            .update_expression(self.expression)
            .set_condition_expression(self.condition)
            .set_expression_attribute_values(Some(self.values))
            .return_values(ReturnValue::AllOld)
            .return_values_on_condition_check_failure(OnFailure::AllOld);
        let changed = client.call(UPDATE, table, request.send()).await?;
        Ok(changed.attributes.unwrap_or_default())
    }

    /// As [`RecordUpdate::send`], and returns the present item if the condition does not hold.
    pub(crate) async fn try_send(self, client: &DynamoClient) -> Result<Updated, CallError> {
        let key = Item::from([(UAID.to_owned(), text(&self.key))]);
        let error = match self.send(client).await {
            Ok(before) => return Ok(Updated::Done(before)),
            Err(error) if error.is_condition_failed() => error,
            Err(error) => return Err(error),
        };
        let indeterminate = error.is_indeterminate();
        let item = match error.into_item() {
            Some(item) => Some(item),
            None => client.get(&client.names.router, key).await?,
        };
        Ok(Updated::Refused { item, indeterminate })
    }
}
