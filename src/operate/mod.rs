//! What an operator does: one folder for each capability.

pub mod admin;
pub mod backup;
pub mod doctor;
pub mod health;
pub mod import;
pub mod init;
pub mod shell;
