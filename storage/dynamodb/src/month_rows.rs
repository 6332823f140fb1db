//! The rows of one user agent in the table of a month.

use aws_sdk_dynamodb::operation::delete_item::builders::DeleteItemFluentBuilder;
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::operation::update_item::UpdateItemOutput;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use state_machine::{MessageKey, Month, Time, Uaid};
use storage::store::StoreError;

use crate::attributes::{UAID, number, text, text_of};
use crate::client::DynamoClient;
use crate::error::{CallError, Item, applied_once};
use crate::message_items::{EXPIRY_MAX_S, SORT_KEY, UPDATE_ID, WAITING_KEY, sort_key, sort_key_of};
use crate::month_table::{required, with_table};

#[derive(Debug)]
pub(crate) struct MonthRows<'a> {
    pub(crate) client: &'a DynamoClient,
    pub(crate) uaid: Uaid,
    pub(crate) month: Month,
    pub(crate) table: String,
}

/// A row, and which message is in it.
#[derive(Debug)]
pub(crate) struct RowIdentity {
    pub(crate) sort_key: String,
    pub(crate) update_id: Option<String>,
}

/// A part of the rows, in the order of their sort keys.
#[derive(Debug, Default)]
pub(crate) struct ItemPage {
    pub(crate) items: Vec<Item>,
    /// The sort key after which there may be more rows.
    pub(crate) next: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RowFilter {
    /// Rows whose sort key has the prefix.
    Prefix(String),
    /// All rows of messages.
    Messages,
}

impl RowIdentity {
    /// The row of a message that this program stored, computed from its key.
    pub(crate) fn of_ours(message: &MessageKey) -> Self {
        let MessageKey { id, chid, ref topic } = *message;
        Self { sort_key: sort_key(id, chid, topic.as_ref()), update_id: Some(id.to_string()) }
    }

    pub(crate) fn of(item: &Item) -> Self {
        let update_id = text_of(item, UPDATE_ID).map(str::to_owned);
        Self { sort_key: sort_key_of(item).to_owned(), update_id }
    }
}

impl<'a> MonthRows<'a> {
    pub(crate) fn new(client: &'a DynamoClient, uaid: Uaid, month: Month) -> Self {
        Self { client, uaid, month, table: client.names.messages(month) }
    }

    /// Runs an operation on the rows. None if the month has no table.
    pub(crate) async fn with_table<T, F>(
        &self,
        operation: impl FnMut() -> F,
    ) -> Result<Option<T>, CallError>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        with_table(self.client, &self.table, operation).await
    }

    /// The same if the month must have a table.
    pub(crate) async fn required<T, F>(&self, operation: impl FnMut() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        required(self.month, self.with_table(operation).await)
    }

    pub(crate) async fn get(&self, sort_key: &str) -> Result<Option<Item>, CallError> {
        self.client.get(&self.table, self.key(sort_key)).await
    }

    /// A request that changes a row, for [`MonthRows::update`].
    pub(crate) fn update_request(&self, sort_key: &str) -> UpdateItemFluentBuilder {
        let request = self.client.sdk.update_item().table_name(&self.table);
        request.key(UAID, text(self.uaid.to_string())).key(SORT_KEY, text(sort_key))
    }

    pub(crate) async fn update(
        &self,
        request: UpdateItemFluentBuilder,
    ) -> Result<UpdateItemOutput, CallError> {
        self.client.call("UpdateItem", &self.table, request.send()).await
    }

    /// Deletes a row, whatever it holds.
    pub(crate) async fn remove(&self, sort_key: &str) -> Result<(), CallError> {
        let request = self.remove_request(sort_key);
        self.client.call("DeleteItem", &self.table, request.send()).await.map(drop)
    }

    /// Deletes a row if it still holds the same message. Returns whether it did.
    pub(crate) async fn delete(&self, row: &RowIdentity) -> Result<bool, CallError> {
        let request = self.delete_request(row);
        applied_once(self.client.call("DeleteItem", &self.table, request.send()).await)
    }

    pub(crate) fn delete_request(&self, row: &RowIdentity) -> DeleteItemFluentBuilder {
        let request = self.remove_request(&row.sort_key);
        match &row.update_id {
            Some(id) => request
                .condition_expression("updateid = :id")
                .expression_attribute_values(":id", text(id)),
            None => request
                .condition_expression("attribute_exists(uaid) AND attribute_not_exists(updateid)"),
        }
    }

    fn remove_request(&self, sort_key: &str) -> DeleteItemFluentBuilder {
        let request = self.client.sdk.delete_item().table_name(&self.table);
        request.key(UAID, text(self.uaid.to_string())).key(SORT_KEY, text(sort_key))
    }

    /// At most `limit` rows after a sort key. With `now`, most of the expired ones are left out.
    pub(crate) async fn after(
        &self,
        sort_key: &str,
        limit: i32,
        now: Option<Time>,
    ) -> Result<ItemPage, CallError> {
        let request = self
            .query_request()
            .key_condition_expression("uaid = :uaid AND chidmessageid > :after")
            .expression_attribute_values(":after", text(sort_key))
            .limit(limit);
        // `expiry` is rounded up and at most the limit: no live row is left out.
        let request = match now {
            Some(now) => request
                .filter_expression("attribute_not_exists(expiry) OR expiry > :now")
                .expression_attribute_values(":now", number(now.as_secs().min(EXPIRY_MAX_S - 1))),
            None => request,
        };
        self.query(request).await
    }

    /// The sort keys of at most `limit` rows, the channels first.
    pub(crate) async fn first_keys(&self, limit: i32) -> Result<Vec<String>, CallError> {
        let request = self
            .query_request()
            .projection_expression("uaid, chidmessageid")
            .key_condition_expression("uaid = :uaid")
            .limit(limit);
        let page = self.query(request).await?;
        Ok(page.items.iter().map(|item| sort_key_of(item).to_owned()).collect())
    }

    /// Passes rows, with only their sort keys and `updateid`s, to `is_done` until it returns true, in
    /// at most `pages_max` requests of 1 MB of rows each.
    pub(crate) async fn look_through(
        &self,
        filter: &RowFilter,
        pages_max: u32,
        mut is_done: impl FnMut(&Item) -> bool,
    ) -> Result<(), CallError> {
        let mut start = None;
        for _page in 0..pages_max {
            let request = self
                .query_request()
                .projection_expression("uaid, chidmessageid, updateid")
                .set_exclusive_start_key(start);
            let page = self.query(only(request, filter)).await?;
            let done = page.items.iter().any(&mut is_done);
            let Some(next) = page.next.filter(|_| !done) else { break };
            start = Some(self.key(&next));
        }
        Ok(())
    }

    fn query_request(&self) -> QueryFluentBuilder {
        let request = self.client.sdk.query().table_name(&self.table).consistent_read(true);
        request.expression_attribute_values(":uaid", text(self.uaid.to_string()))
    }

    async fn query(&self, request: QueryFluentBuilder) -> Result<ItemPage, CallError> {
        let read = self.client.call("Query", &self.table, request.send()).await?;
        let next = read.last_evaluated_key.as_ref();
        Ok(ItemPage {
            next: next.and_then(|key| text_of(key, SORT_KEY)).map(str::to_owned),
            items: read.items.unwrap_or_default(),
        })
    }

    fn key(&self, sort_key: &str) -> Item {
        let key = [(UAID, self.uaid.to_string()), (SORT_KEY, sort_key.to_owned())];
        key.map(|(name, value)| (name.to_owned(), text(value))).into()
    }
}

fn only(request: QueryFluentBuilder, filter: &RowFilter) -> QueryFluentBuilder {
    match filter {
        RowFilter::Prefix(prefix) => request
            .key_condition_expression("uaid = :uaid AND begins_with(chidmessageid, :prefix)")
            .expression_attribute_values(":prefix", text(prefix)),
        RowFilter::Messages => request
            .key_condition_expression("uaid = :uaid AND chidmessageid > :channels")
            .expression_attribute_values(":channels", text(WAITING_KEY)),
    }
}
