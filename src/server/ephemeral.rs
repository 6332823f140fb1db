//! `--ephemeral`: a server for a test. Its directory goes with it, and so does the server with the program that started
//! it.

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process;

use serde_json::json;
use storage::durable;
use storage::owner::OtherOwner;
use tempfile::TempDir;

use super::dev_clock;
use crate::command::text::to_json;
use crate::dev::to_base64url;
use crate::dev::vapid_key::VapidKey;
use crate::settings::{ListenAddress, Settings};

/// The beginning of the names of the directories.
const PREFIX: &str = "kalends-ephemeral-";

/// The file that is locked while the server runs.
const MARKER: &str = "ephemeral";

/// Its contents, which no directory of another program has.
const MARK: &[u8] = b"The directory of a kalends serve --ephemeral, removed by the next one if this file is not locked.\n";

/// The key for the senders of a test.
const VAPID_KEY: &str = "vapid.pem";

/// The directory of a server, which is removed when this is dropped.
pub(super) struct Home {
    dir: TempDir,
    _marker: File,
    vapid_key: String,
}

/// Why there is no directory.
#[derive(Debug, thiserror::Error)]
#[error("cannot make a directory below {}: {source}", parent.display())]
pub(super) struct HomeError {
    parent: PathBuf,
    source: io::Error,
}

impl Home {
    /// Makes one below the temporary directory of the system, and removes those of servers that were killed.
    pub(super) fn make() -> Result<Self, HomeError> {
        durable::tolerate_unsynced();
        let parent = std::env::temp_dir();
        remove_left(&parent);
        Self::below(&parent).map_err(|source| HomeError { parent, source })
    }

    fn below(parent: &Path) -> io::Result<Self> {
        let mut dir = tempfile::Builder::new();
        let dir =
            dir.prefix(PREFIX).permissions(Permissions::from_mode(0o700)).tempdir_in(parent)?;
        // The file is locked before it has its contents. Another start removes only directories whose file has them.
        let mut marker = durable::lock_file(&dir.path().join(MARKER))?;
        marker.lock()?;
        marker.write_all(MARK)?;
        let key = VapidKey::load_or_make(&dir.path().join(VAPID_KEY)).map_err(io::Error::other)?;
        let vapid_key = to_base64url(key.pair.public());
        Ok(Self { dir, _marker: marker, vapid_key })
    }

    /// The values of settings in place of their defaults.
    pub(super) fn defaults(&self) -> [(&'static str, String); 10] {
        let data_dir = self.dir.path().join("data").display().to_string();
        [
            ("data_dir", data_dir),
            ("listen", "127.0.0.1:0".to_owned()),
            ("metrics_listen", "127.0.0.1:0".to_owned()),
            ("log_level", "warn".to_owned()),
            ("payload_header_required", "true".to_owned()),
            // What it does by itself in the night would come at any time of a clock that is moved.
            ("maintenance", "false".to_owned()),
            ("backup_reminder", "false".to_owned()),
            ("allow_unsynced_data_dir", "true".to_owned()),
            ("disk_free_min", "0".to_owned()),
            ("connections_max", "512".to_owned()),
        ]
    }

    /// The line of JSON that the test waits for.
    pub(super) fn line(
        &self,
        settings: &Settings,
        origin: &str,
        (bound, operator): (&ListenAddress, Option<SocketAddr>),
    ) -> String {
        let at_port = |path: &str| operator.map(|address| format!("http://{address}{path}"));
        to_json(&json!({
            "http": origin,
            "ws": format!("{}/", origin.replacen("http", "ws", 1)),
            "clock": format!("{}{}", settings.own_address(bound), dev_clock::PATH),
            "metrics": at_port("/metrics"),
            "admin": at_port("/admin").filter(|_| settings.admin_page),
            "directory": self.dir.path(),
            "data_dir": settings.data_dir,
            "vapid_key_file": self.dir.path().join(VAPID_KEY),
            "vapid_public_key": self.vapid_key,
            "pid": process::id(),
        }))
    }
}

/// Removes the directories of servers of this user that do not run any more. What cannot be removed stays.
fn remove_left(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for dir in entries.flatten().map(|entry| entry.path()) {
        let name = dir.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.starts_with(PREFIX))
            && let Some(_locked) = left(&dir)
        {
            let _ = fs::remove_dir_all(&dir);
        }
    }
}

/// The locked marker of a directory, if it is one of this user that no server holds.
fn left(dir: &Path) -> Option<File> {
    let marker = dir.join(MARKER);
    for (path, is_dir) in [(dir, true), (&marker, false)] {
        // Not that of a symbolic link.
        let found = fs::symlink_metadata(path).ok()?;
        let is_kind = if is_dir { found.is_dir() } else { found.is_file() };
        if !is_kind || OtherOwner::of(&found).is_some() {
            return None;
        }
    }
    let marker = durable::lock_existing_file(&marker).ok()?;
    marker.try_lock().ok()?;
    let mut contents = Vec::new();
    (&marker).take(MARK.len() as u64 + 1).read_to_end(&mut contents).ok()?;
    (contents == MARK).then_some(marker)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_unlocked_directories_with_the_marker_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let running = Home::below(parent.path()).unwrap();
        let killed = Home::below(parent.path()).unwrap();
        let killed_dir = killed.dir.path().to_owned();
        let Home { dir, _marker, .. } = killed;
        let _ = dir.keep();
        drop(_marker);
        let kept = |name: &str| parent.path().join(format!("{PREFIX}{name}"));
        for name in ["without", "other", "empty"] {
            fs::create_dir(kept(name)).unwrap();
        }
        fs::write(kept("other").join(MARKER), "something else").unwrap();
        fs::write(kept("empty").join(MARKER), "").unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join(MARKER), MARK).unwrap();
        symlink(elsewhere.path(), kept("link")).unwrap();
        let named = parent.path().join("another-name");
        fs::create_dir(&named).unwrap();
        fs::write(named.join(MARKER), MARK).unwrap();

        remove_left(parent.path());
        assert!(!killed_dir.exists());
        assert!(running.dir.path().join(MARKER).exists() && named.join(MARKER).exists());
        for name in ["without", "other", "empty", "link"] {
            assert!(kept(name).exists(), "{name}");
        }
        assert!(elsewhere.path().join(MARKER).exists());
    }

    #[test]
    fn the_directory_is_for_its_user_alone_and_goes_with_the_server() {
        let parent = tempfile::tempdir().unwrap();
        let home = Home::below(parent.path()).unwrap();
        let dir = home.dir.path().to_owned();
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
        drop(home);
        assert!(!dir.exists());
    }
}
