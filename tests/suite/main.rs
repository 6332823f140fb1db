//! End-to-end tests: the real binary in its own processes, real sockets, a real browser and
//! widely used sender libraries.

#![expect(clippy::disallowed_methods, reason = "tests write files that no power loss meets")]

mod acme;
mod admin;
mod backup;
mod bad_fields;
mod bad_frames;
mod bad_requests;
mod bench;
mod bridges;
mod browser;
mod bursts;
mod chaos;
mod clients;
mod cluster;
mod crowds;
mod durability;
mod dynamo;
mod error_answers;
mod every_limit;
mod failing_disk;
mod fairness;
mod feeds;
mod folders;
mod full_disk;
mod harness;
mod how_often;
mod http2_floods;
mod idle;
mod importer;
mod killed_tests;
mod limits;
mod lost_log;
mod maintenance;
mod matrix;
mod metrics;
mod migration;
mod open_files;
mod openapi;
mod packages;
mod postgresql;
mod power_losses;
mod proxied;
mod readers_of_pages;
mod receipts;
mod request_ids;
mod resumption;
mod rollover;
mod rules;
mod running;
mod senders;
mod service;
#[expect(dead_code, reason = "each load tool uses a part")]
#[path = "../load/shared/mod.rs"]
mod shared;
mod simplepush;
mod slow_peers;
mod small_commands;
mod soak;
mod stability;
mod standards;
mod starting;
mod stopping;
mod store_copy;
mod stored_messages;
mod tls;
mod topics;
mod tutorial;
mod unfinished;
mod unifiedpush;
mod unread_answers;
mod vapid;
mod waiting;
mod web_page;
mod whole_store;
