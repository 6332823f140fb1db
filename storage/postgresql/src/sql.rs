//! Statements with their parameters, the names in them, and the columns of rows.

use std::error::Error;

use state_machine::{Chid, MessageId, Month, Time, Uaid, Urgency};
use storage::Cursor;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql, Type};
use uuid::Uuid;

use crate::error::SqlError;

/// A statement and its parameters.
pub(crate) struct Query {
    pub(crate) text: String,
    pub(crate) params: Vec<Param>,
}

/// A parameter, and its type for servers that keep no prepared statement.
pub(crate) struct Param {
    pub(crate) value: Box<dyn ToSql + Sync + Send>,
    pub(crate) of: Type,
}

/// The parameters of a statement, in order.
macro_rules! params {
    ($($value:expr),* $(,)?) => { vec![$($crate::sql::Param::from($value)),*] };
}
pub(crate) use params;

macro_rules! param_types {
    ($($rust:ty: $of:expr => |$value:ident| $convert:expr;)*) => {$(
        impl From<$rust> for Param {
            fn from($value: $rust) -> Self {
                Self { value: Box::new($convert), of: $of }
            }
        }
    )*};
}

param_types! {
    Uaid: Type::UUID => |uaid| Uuid::from_bytes(uaid.0);
    Chid: Type::UUID => |chid| Uuid::from_bytes(chid.0);
    MessageId: Type::UUID => |id| Uuid::from_bytes(id.to_bytes());
    Option<MessageId>: Type::UUID => |id| id.map(|id| Uuid::from_bytes(id.to_bytes()));
    Vec<Uaid>: Type::UUID_ARRAY => |all| all.iter().map(|it| Uuid::from_bytes(it.0)).collect::<Vec<_>>();
    Vec<Chid>: Type::UUID_ARRAY => |all| all.iter().map(|it| Uuid::from_bytes(it.0)).collect::<Vec<_>>();
    Vec<MessageId>: Type::UUID_ARRAY =>
        |all| all.iter().map(|it| Uuid::from_bytes(it.to_bytes())).collect::<Vec<_>>();
    Vec<String>: Type::TEXT_ARRAY => |texts| texts;
    Time: Type::INT8 => |time| to_i64(time.0);
    u64: Type::INT8 => |number| to_i64(number);
    i64: Type::INT8 => |number| number;
    i32: Type::INT4 => |number| number;
    i16: Type::INT2 => |number| number;
    Option<i16>: Type::INT2 => |number| number;
    Option<i64>: Type::INT8 => |number| number;
    Option<Chid>: Type::UUID => |chid| chid.map(|chid| Uuid::from_bytes(chid.0));
    Option<Uaid>: Type::UUID => |uaid| uaid.map(|uaid| Uuid::from_bytes(uaid.0));
    Option<Time>: Type::INT8 => |time| time.map(|time| to_i64(time.0));
    bool: Type::BOOL => |it| it;
    String: Type::TEXT => |text| text;
    Option<String>: Type::TEXT => |text| text;
    &str: Type::TEXT => |text| text.to_owned();
    Option<&str>: Type::TEXT => |text| text.map(str::to_owned);
    &[u8]: Type::BYTEA => |bytes| bytes.to_vec();
    Option<&[u8]>: Type::BYTEA => |bytes| bytes.map(<[u8]>::to_vec);
}

/// Where the tables are: `{s}` in a statement stands for the schema, `{m}` for a month.
pub(crate) struct Names {
    pub(crate) schema: String,
}

impl Names {
    pub(crate) fn query(&self, template: &str, params: Vec<Param>) -> Query {
        Query { text: self.text(template), params }
    }

    /// A statement on the tables of a month.
    pub(crate) fn of_month(&self, month: Month, template: &str, params: Vec<Param>) -> Query {
        Query { text: self.month_text(month, template), params }
    }

    pub(crate) fn text(&self, template: &str) -> String {
        template.replace("{s}", &self.schema)
    }

    pub(crate) fn month_text(&self, month: Month, template: &str) -> String {
        self.text(template).replace("{m}", &month.to_string())
    }
}

/// Saturates: PostgreSQL's integers are signed.
pub(crate) fn to_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A number that must not be saturated, because it would be assigned twice.
pub(crate) fn exact(number: u64) -> Result<i64, SqlError> {
    i64::try_from(number).map_err(|_| SqlError::corrupt("a number is too large"))
}

/// Reads the columns of a row.
pub(crate) trait Columns {
    fn column<'a, T: FromSql<'a>>(&'a self, at: usize) -> Result<T, SqlError>;

    fn number(&self, at: usize) -> Result<u64, SqlError> {
        Ok(self.column::<i64>(at)?.max(0).unsigned_abs())
    }

    fn number_or_none(&self, at: usize) -> Result<Option<u64>, SqlError> {
        Ok(self.column::<Option<i64>>(at)?.map(|number| number.max(0).unsigned_abs()))
    }

    fn uaid(&self, at: usize) -> Result<Uaid, SqlError> {
        Ok(Uaid(self.column::<Uuid>(at)?.into_bytes()))
    }

    fn chid(&self, at: usize) -> Result<Chid, SqlError> {
        Ok(Chid(self.column::<Uuid>(at)?.into_bytes()))
    }

    fn message_id(&self, at: usize) -> Result<MessageId, SqlError> {
        Ok(MessageId::from_bytes(self.column::<Uuid>(at)?.into_bytes()))
    }

    fn urgency(&self, at: usize) -> Result<Urgency, SqlError> {
        let column: i16 = self.column(at)?;
        let known = Urgency::ALL.into_iter().find(|urgency| urgency_column(*urgency) == column);
        known.ok_or_else(|| SqlError::corrupt("an unknown urgency"))
    }

    /// A text that is parsed.
    fn parsed<T, E: Error>(
        &self,
        at: usize,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, SqlError> {
        parse(self.column(at)?).map_err(|error| SqlError::corrupt(&error.to_string()))
    }

    fn parsed_or_none<T, E: Error>(
        &self,
        at: usize,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, SqlError> {
        let text = self.column::<Option<&str>>(at)?.map(parse).transpose();
        text.map_err(|error| SqlError::corrupt(&error.to_string()))
    }
}

impl Columns for Row {
    fn column<'a, T: FromSql<'a>>(&'a self, at: usize) -> Result<T, SqlError> {
        self.try_get(at).map_err(SqlError::from)
    }
}

/// The first number of the first row; 0 without rows.
pub(crate) fn count(rows: &[Row]) -> Result<u64, SqlError> {
    rows.first().map_or(Ok(0), |row| row.number(0))
}

/// The first column of the first row; false without rows.
pub(crate) fn holds(rows: &[Row]) -> Result<bool, SqlError> {
    rows.first().map_or(Ok(false), |row| row.column(0))
}

/// The row after which a page begins.
pub(crate) fn position<T>(
    after: Option<&Cursor>,
    parse: impl FnOnce(&Cursor) -> Option<T>,
) -> Result<Option<T>, SqlError> {
    let of = |after| parse(after).ok_or_else(|| SqlError::corrupt("the position of a page"));
    after.map(of).transpose()
}

pub(crate) fn urgency_column(urgency: Urgency) -> i16 {
    match urgency {
        Urgency::VeryLow => 0,
        Urgency::Low => 1,
        Urgency::Normal => 2,
        Urgency::High => 3,
    }
}
