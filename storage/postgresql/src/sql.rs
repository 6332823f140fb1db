//! Statements with their parameters, the names in them, and the columns of rows.

use std::borrow::Cow;
use std::collections::BTreeSet;

use bytes::BytesMut;

use state_machine::{Chid, MessageId, Month, Time, Uaid};
use storage::Cursor;
use storage::sql::rows::SqlRow;
use storage::sql::values::Value;
use tokio_postgres::Column;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use uuid::Uuid;

use crate::error::{Result, SqlError};

/// A statement and its parameters.
pub(crate) struct Query {
    pub(crate) text: String,
    pub(crate) params: Vec<Param>,
    /// Its tables may be missing.
    pub(crate) month: Option<Month>,
    /// Parameters that are the columns of a row, which the statement takes as arrays: the rows of several queries are written
    /// by one of them. The others are the same in all. 0 of a statement that takes none.
    pub(crate) columns: usize,
}

/// A parameter, and its type for servers that keep no prepared statement.
#[derive(Debug)]
pub(crate) struct Param {
    value: Box<dyn ToSql + Sync + Send>,
    of: Type,
}

impl ToSql for Param {
    fn to_sql(&self, of: &Type, to: &mut BytesMut) -> EncodedParam {
        self.value.to_sql_checked(of, to)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

type EncodedParam = std::result::Result<IsNull, Box<dyn std::error::Error + Sync + Send>>;

/// A parameter as it is sent.
pub(crate) type Sent<'a> = Box<dyn ToSql + Sync + Send + 'a>;

impl Query {
    /// The first parameters are the columns of a row.
    pub(crate) fn with_row_of(mut self, columns: usize) -> Self {
        self.columns = columns;
        self
    }

    /// Whether one statement writes the rows of both.
    pub(crate) fn joins(&self, other: &Self) -> bool {
        self.columns > 0 && self.text == other.text
    }

    pub(crate) fn types(&self) -> Vec<Type> {
        let of = |(at, param): (usize, &Param)| match at < self.columns {
            true => array_of(&param.of),
            false => param.of.clone(),
        };
        self.params.iter().enumerate().map(of).collect()
    }

    /// The parameters of queries that one statement executes.
    pub(crate) fn sent<'a>(queries: &[&'a Self]) -> Vec<Sent<'a>> {
        let first = queries[0];
        let column = |at| queries.iter().map(|query| &query.params[at]).collect::<Vec<_>>();
        let sent = |at| match at < first.columns {
            true => Box::new(column(at)) as Sent,
            false => Box::new(&first.params[at]),
        };
        (0..first.params.len()).map(sent).collect()
    }
}

/// The array types that columns have.
fn array_of(of: &Type) -> Type {
    match *of {
        Type::UUID => Type::UUID_ARRAY,
        Type::INT2 => Type::INT2_ARRAY,
        Type::INT4 => Type::INT4_ARRAY,
        Type::INT8 => Type::INT8_ARRAY,
        Type::BYTEA => Type::BYTEA_ARRAY,
        _ => Type::TEXT_ARRAY,
    }
}

/// The parameters of a statement, in order.
macro_rules! params {
    ($($value:expr),* $(,)?) => { vec![$($crate::sql::Param::from($value)),*] };
}
pub(crate) use params;

/// The parameters of a statement without any.
pub(crate) const NONE: Vec<Param> = Vec::new();

impl Param {
    fn new(of: Type, value: impl ToSql + Sync + Send + 'static) -> Self {
        Self { value: Box::new(value), of }
    }
}

impl From<Value<'_>> for Param {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::Id(id) => Self::new(Type::UUID, id.map(Uuid::from_bytes)),
            Value::Small(number) => Self::new(Type::INT2, number),
            Value::Medium(number) => Self::new(Type::INT4, number),
            Value::Integer(number) => Self::new(Type::INT8, number),
            Value::Flag(flag) => Self::new(Type::BOOL, flag),
            Value::Text(text) => Self::new(Type::TEXT, text.map(Cow::into_owned)),
            Value::AnyText(text) => Self::new(Type::BYTEA, text.map(|it| it.as_bytes().to_vec())),
            Value::Bytes(bytes) => Self::new(Type::BYTEA, bytes.map(Cow::into_owned)),
        }
    }
}

macro_rules! params_of {
    ($($rust:ty),*) => {$(
        impl From<$rust> for Param {
            fn from(value: $rust) -> Self {
                Value::from(value).into()
            }
        }
    )*};
}

params_of! {
    Uaid, Option<Uaid>, Chid, Option<Chid>, MessageId, Option<MessageId>, Time, Option<Time>, u64,
    bool, &str, Option<&str>, String, Option<String>
}

macro_rules! arrays_of_ids {
    ($($rust:ty => $bytes:expr),*) => {$(
        impl From<$rust> for Param {
            fn from(ids: $rust) -> Self {
                let ids = ids.into_iter().map($bytes).map(Uuid::from_bytes);
                Self::new(Type::UUID_ARRAY, ids.collect::<Vec<_>>())
            }
        }
    )*};
}

arrays_of_ids! {
    Vec<Uaid> => |it| it.0, Vec<Chid> => |it| it.0, BTreeSet<Chid> => |it| it.0,
    Vec<MessageId> => MessageId::to_bytes
}

impl From<Vec<String>> for Param {
    fn from(texts: Vec<String>) -> Self {
        Self::new(Type::TEXT_ARRAY, texts)
    }
}

/// Where the tables are.
pub(crate) struct Names {
    pub(crate) schema: String,
}

impl Names {
    /// A statement on the tables of a month, or on the others.
    pub(crate) fn query<P: Into<Param>>(
        &self,
        month: Option<Month>,
        template: &str,
        params: Vec<P>,
    ) -> Query {
        let params = params.into_iter().map(Into::into).collect();
        Query { text: self.text(month, template), params, month, columns: 0 }
    }

    /// `{s}` in a statement stands for the schema and `{m}` for the month. One that SQLite has too names the schema `main`,
    /// and has `?` before the number of a parameter.
    pub(crate) fn text(&self, month: Option<Month>, template: &str) -> String {
        let template = match template.contains("main.") {
            true => Cow::Owned(template.replace("main.", "{s}.").replace('?', "$")),
            false => Cow::Borrowed(template),
        };
        let text = template.replace("{s}", &self.schema);
        match month {
            Some(month) => text.replace("{m}", &month.to_string()),
            None => text,
        }
    }
}

pub(crate) struct Row(pub(crate) tokio_postgres::Row);

impl Row {
    pub(crate) fn column<'a, T: FromSql<'a>>(&'a self, at: usize) -> Result<T> {
        self.0.try_get(at).map_err(SqlError::from)
    }
}

impl SqlRow for Row {
    type Error = SqlError;

    fn integer(&self, at: usize) -> Result<Option<i64>> {
        match self.0.columns().get(at).map(Column::type_) {
            Some(&Type::INT2) => Ok(self.column::<Option<i16>>(at)?.map(i64::from)),
            Some(&Type::INT4) => Ok(self.column::<Option<i32>>(at)?.map(i64::from)),
            _ => self.column(at),
        }
    }

    fn text(&self, at: usize) -> Result<Option<&str>> {
        self.column(at)
    }

    fn any_text(&self, at: usize) -> Result<Option<&str>> {
        let text = self.bytes(at)?.map(std::str::from_utf8).transpose();
        text.map_err(|error| self.corrupt(at, &error.to_string()))
    }

    fn bytes(&self, at: usize) -> Result<Option<&[u8]>> {
        self.column(at)
    }

    fn id(&self, at: usize) -> Result<[u8; 16]> {
        self.column::<Uuid>(at).map(Uuid::into_bytes)
    }

    fn corrupt(&self, _at: usize, what: &str) -> SqlError {
        SqlError::corrupt(what)
    }
}

/// The first number of the first row; 0 without rows.
pub(crate) fn count(rows: &[Row]) -> Result<u64> {
    rows.first().map_or(Ok(0), |row| row.number(0))
}

/// The first column of the first row; false without rows.
pub(crate) fn holds(rows: &[Row]) -> Result<bool> {
    rows.first().map_or(Ok(false), |row| row.column(0))
}

/// The row after which a page begins.
pub(crate) fn position<T>(
    after: Option<&Cursor>,
    parse: impl FnOnce(&Cursor) -> Option<T>,
) -> Result<Option<T>> {
    let of = |after| parse(after).ok_or_else(|| SqlError::corrupt("the position of a page"));
    after.map(of).transpose()
}
