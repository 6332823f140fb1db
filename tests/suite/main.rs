//! End-to-end tests: the real binary in its own processes, real sockets, a real browser and a
//! widely used sender library.

mod admin;
mod bad_frames;
mod bad_requests;
mod bench;
mod browser;
mod bursts;
mod chaos;
mod clients;
mod cluster;
mod durability;
mod dynamo;
mod fairness;
mod feeds;
mod folders;
mod full_disk;
mod harness;
mod idle;
mod importer;
mod limits;
mod open_files;
mod proxied;
mod rollover;
mod rules;
mod running;
mod senders;
mod slow_peers;
mod soak;
mod starting;
mod stopping;
mod stored_messages;
mod topics;
mod tutorial;
mod unfinished;
mod vapid;
mod waiting;
