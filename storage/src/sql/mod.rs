//! What the tables of SQLite and PostgreSQL have alike: the columns of their rows, and the statements that both understand.
//!
//! Such a statement names the schema `main`, and has `?1` for its first parameter. PostgreSQL's engine puts its own schema
//! and `$` in their place. A statement that reads a large table by a key of one engine, or that has no equivalent in the other
//! one, is written there.

pub mod copies;
pub mod feeds;
pub mod inactive_users;
pub mod rows;
pub mod statements;
pub mod values;

/// A statement, and the values of its parameters.
pub type Statement<'a> = (&'static str, Vec<values::Value<'a>>);
