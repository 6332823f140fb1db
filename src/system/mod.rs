//! What a server needs of its machine: the clock, the log, files with secrets, ports, TLS, HTTP clients, signed
//! tokens, addresses, the numbers of errors, the names of users, and the commit of this program.
//! Limits, paths and addresses enter as values; connections, lines and texts leave. Nothing here knows a setting or a
//! push.

pub mod as_user;
pub mod build;
mod certificate_words;
pub mod clock;
pub mod errno;
pub mod http_port;
pub mod https_client;
pub mod jwt;
pub mod networks;
pub mod node_address;
pub mod parent;
pub mod printable;
pub mod regular_file;
pub mod telemetry;
pub mod tls;
pub mod unix_socket;
pub mod unread_request;
