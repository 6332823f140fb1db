//! Why a store cannot be opened, whatever its engine.

use storage::data_dir::DirError;

/// Why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenStoreError {
    #[error(transparent)]
    Dir(#[from] DirError),
    #[cfg(feature = "sqlite")]
    #[error(transparent)]
    Sqlite(storage_sqlite::OpenError),
    #[cfg(feature = "dynamodb")]
    #[error("{0}")]
    DynamoDb(String),
    #[cfg(feature = "postgresql")]
    #[error("{text}")]
    PostgreSql { text: String, is_final: bool },
    #[error(
        "this kalends was built without {0}: use one that has it, or build it with `cargo build --release`, which has all"
    )]
    NotBuilt(&'static str),
}

/// What makes the tables that are missing, for an error. A server makes them with `create_tables`.
#[cfg(any(feature = "dynamodb", feature = "postgresql"))]
pub(super) fn maker_of_tables(create_tables: bool) -> &'static str {
    match create_tables {
        true => "`kalends tables create` makes them, and so does the first start of a server",
        false => "`kalends tables create` makes them, or a server with create_tables = true",
    }
}
