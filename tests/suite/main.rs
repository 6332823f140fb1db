//! The product as its users meet it: the real binary in processes of its own, real sockets, a real
//! browser and a well-known sender.

mod admin;
mod bad_frames;
mod bad_requests;
mod browser;
mod bursts;
mod chaos;
mod cluster;
mod drain;
mod durability;
mod dynamo;
mod feeds;
mod harness;
mod importer;
mod proxied;
mod rollover;
mod rules;
mod running;
mod senders;
mod slow_peers;
mod starting;
mod stopping;
mod topics;
mod unfinished;
mod vapid;
mod walk;
