//! The files and limits of this machine.

use std::io;

use rustix::fs::statvfs;
use rustix::process::{Resource, getrlimit};
use storage::embedded::check_dir;

use super::Findings;
use crate::keys::Keys;
use crate::node_address::Networks;
use crate::settings::{PublicUrl, Settings, StoreKind};

/// Open files beside the connections, about as many as a server reserves.
const FILES_RESERVED: u64 = 512;

pub(super) fn check(settings: &Settings, findings: &mut Findings) -> io::Result<()> {
    let dir = &settings.data_dir;
    if !dir.exists() {
        findings.fail(
            "data directory",
            format!("there is no {}", dir.display()),
            "start the server once, or name its directory with --data-dir or --config",
        )?;
        return Ok(());
    }
    match check_dir(dir) {
        Ok(()) => findings.ok("data directory", format!("{} is private", dir.display()))?,
        Err(error) => {
            findings.fail(
                "data directory",
                error.to_string(),
                "correct it: a server does not start",
            )?;
        }
    }
    match Keys::load(dir) {
        Ok(_) => findings.ok("keys", "keys.toml can be used")?,
        Err(error) => {
            findings.fail(
                "keys",
                error.to_string(),
                "restore keys.toml from a backup: without it no endpoint works",
            )?;
        }
    }
    if settings.store == StoreKind::Embedded {
        disk(settings, findings)?;
    }
    open_files(settings, findings)?;
    proxy(settings, findings)
}

fn disk(settings: &Settings, findings: &mut Findings) -> io::Result<()> {
    let (dir, min) = (&settings.data_dir, settings.disk_free_min);
    let free = match statvfs(dir) {
        Ok(disk) => disk.f_bavail.saturating_mul(disk.f_frsize),
        Err(error) => {
            return findings.warn(
                "disk",
                format!("its space is unknown: {error}"),
                "check it with df",
            );
        }
    };
    let mib = free >> 20;
    match free {
        _ if free < min => findings.fail(
            "disk",
            format!("{mib} MiB are free, and messages are refused below {} MiB", min >> 20),
            "free some space, or lower disk_free_min",
        ),
        _ if free < min.saturating_mul(4) => findings.warn(
            "disk",
            format!("{mib} MiB are free, and messages are refused below {} MiB", min >> 20),
            "free some space soon",
        ),
        _ => findings.ok("disk", format!("{mib} MiB are free")),
    }
}

fn open_files(settings: &Settings, findings: &mut Findings) -> io::Result<()> {
    let wanted = settings.connections_max as u64 + FILES_RESERVED;
    match getrlimit(Resource::Nofile).maximum {
        Some(limit) if limit < wanted => findings.warn(
            "open files",
            format!(
                "this user may open {limit}, and connections_max = {} needs {wanted}",
                settings.connections_max
            ),
            "raise LimitNOFILE of the unit or ulimit -n, or lower connections_max",
        ),
        Some(limit) => findings.ok("open files", format!("{limit} are allowed")),
        None => findings.ok("open files", "there is no limit"),
    }
}

/// A proxy whose address is unknown is limited as a single sender.
fn proxy(settings: &Settings, findings: &mut Findings) -> io::Result<()> {
    let url = settings.public_url.as_ref().map(PublicUrl::as_str).unwrap_or_default();
    let has_proxy = url.starts_with("https:") && settings.scheme() == "http";
    if has_proxy && settings.trusted_proxies == Networks::default() {
        return findings.warn(
            "limits by address",
            "public_url is https, the server speaks http, and trusted_proxies is empty",
            "name the proxy in trusted_proxies and let it set X-Forwarded-For: otherwise all users together have the \
             limits of one address",
        );
    }
    findings.ok("limits by address", "trusted_proxies fits public_url")
}
