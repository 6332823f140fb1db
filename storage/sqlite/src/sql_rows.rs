//! The statements and rows that both SQL engines have (`storage::sql`).

use rusqlite::types::{ToSqlOutput, Type, Value as Owned, ValueRef};
use rusqlite::{Connection, Params, Row, params_from_iter};
use storage::sql::rows::SqlRow;
use storage::sql::values::Value;

use crate::columns::corrupt;

/// The values of a statement.
pub(crate) fn bound<'a>(values: &'a [Value<'_>]) -> impl Params + use<'a> {
    params_from_iter(values.iter().map(|value| {
        ToSqlOutput::Borrowed(match value {
            Value::Id(Some(id)) => ValueRef::Blob(id),
            Value::Small(Some(number)) => ValueRef::Integer((*number).into()),
            Value::Medium(number) => ValueRef::Integer((*number).into()),
            Value::Integer(Some(number)) => ValueRef::Integer(*number),
            Value::Flag(flag) => ValueRef::Integer((*flag).into()),
            Value::Text(Some(text)) => ValueRef::Text(text.as_bytes()),
            Value::AnyText(Some(text)) => ValueRef::Text(text.as_bytes()),
            Value::Bytes(Some(bytes)) => ValueRef::Blob(bytes),
            _ => ValueRef::Null,
        })
    }))
}

/// Runs a statement to its end. Returns the rows that it returns.
pub(crate) fn query(
    conn: &Connection,
    statement: &str,
    values: &[Value<'_>],
) -> rusqlite::Result<Vec<OwnedRow>> {
    query_while(conn, statement, values, |_row| true)
}

/// Runs a statement until a row is the last one that is wanted.
pub(crate) fn query_while(
    conn: &Connection,
    statement: &str,
    values: &[Value<'_>],
    mut is_followed: impl FnMut(&OwnedRow) -> bool,
) -> rusqlite::Result<Vec<OwnedRow>> {
    let mut statement = conn.prepare_cached(statement)?;
    let columns = statement.column_count();
    let mut rows = statement.query(bound(values))?;
    let mut read = Vec::new();
    while let Some(row) = rows.next()? {
        let row = (0..columns).map(|at| row.get(at)).collect::<rusqlite::Result<_>>()?;
        read.push(Columns(OwnedColumns(row)));
        if !read.last().is_some_and(&mut is_followed) {
            break;
        }
    }
    Ok(read)
}

/// A row that is read, or one that is under the cursor of a statement.
pub(crate) struct Columns<C>(pub(crate) C);

pub(crate) type OwnedRow = Columns<OwnedColumns>;

pub(crate) struct OwnedColumns(Vec<Owned>);

pub(crate) trait Get {
    fn get(&self, at: usize) -> rusqlite::Result<ValueRef<'_>>;
}

impl Get for OwnedColumns {
    fn get(&self, at: usize) -> rusqlite::Result<ValueRef<'_>> {
        self.0.get(at).map(ValueRef::from).ok_or(rusqlite::Error::InvalidColumnIndex(at))
    }
}

impl Get for &Row<'_> {
    fn get(&self, at: usize) -> rusqlite::Result<ValueRef<'_>> {
        self.get_ref(at)
    }
}

impl<C: Get> SqlRow for Columns<C> {
    type Error = rusqlite::Error;

    fn integer(&self, at: usize) -> rusqlite::Result<Option<i64>> {
        Ok(self.0.get(at)?.as_i64_or_null()?)
    }

    fn text(&self, at: usize) -> rusqlite::Result<Option<&str>> {
        Ok(self.0.get(at)?.as_str_or_null()?)
    }

    fn any_text(&self, at: usize) -> rusqlite::Result<Option<&str>> {
        self.text(at)
    }

    fn bytes(&self, at: usize) -> rusqlite::Result<Option<&[u8]>> {
        Ok(self.0.get(at)?.as_blob_or_null()?)
    }

    fn id(&self, at: usize) -> rusqlite::Result<[u8; 16]> {
        let id = self.0.get(at)?.as_blob()?.try_into();
        id.map_err(|_| corrupt(at, Type::Blob, "an id has not 16 bytes"))
    }

    fn corrupt(&self, at: usize, what: &str) -> rusqlite::Error {
        let of = self.0.get(at).map_or(Type::Null, |value| value.data_type());
        corrupt(at, of, what)
    }
}
