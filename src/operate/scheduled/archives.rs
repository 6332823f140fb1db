//! The archives in `backup_dir`: one a day, named by its date.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use state_machine::Time;
use time::{Date, OffsetDateTime};
use tokio::sync::oneshot;

use crate::operate::backup::BackupError;
use crate::operate::backup::create::write_archive;
use crate::settings::Settings;

const BEGINNING: &str = "kalends-";
const PLAIN: &str = ".tar";
const ENCRYPTED: &str = ".tar.age";

/// How the name of an archive begins and ends while it is written.
const UNFINISHED: &str = ".kalends-";
const TEMPORARY: &str = ".kalends-tmp";

/// Why there is no new archive, or an old one stays.
#[derive(Debug, thiserror::Error)]
pub(super) enum ArchiveError {
    #[error("backup_dir {} {what}", dir.display())]
    NoDir { dir: PathBuf, what: &'static str },
    #[error("cannot remove old archives of {}: {error}", dir.display())]
    Old { dir: PathBuf, error: io::Error },
    #[error(transparent)]
    Backup(#[from] BackupError),
}

impl ArchiveError {
    /// Another backup is under way, so that this one is not missed.
    pub(super) fn is_another_running(&self) -> bool {
        matches!(self, Self::Backup(BackupError::Running { .. }))
    }
}

/// How an archive ended. Nothing is sent if it panicked.
pub(super) type Written = oneshot::Receiver<Result<(), ArchiveError>>;

/// Begins to write on a thread of its own, for which the end of the process does not wait.
pub(super) fn begin(settings: &Arc<Settings>, today: Time) -> io::Result<Written> {
    let settings = Arc::clone(settings);
    let (ended, written) = oneshot::channel();
    let write = move || drop(ended.send(write(&settings, today)));
    thread::Builder::new().name("backup".to_owned()).spawn(write)?;
    Ok(written)
}

/// Writes the archive of a day, and removes those beyond the number to keep.
fn write(settings: &Settings, today: Time) -> Result<(), ArchiveError> {
    let dir = settings.backup_dir.as_ref().expect("backups are wanted");
    // Not made here: the disk that it is on may not be mounted.
    if !dir.is_dir() {
        let what = if dir.exists() { "is no directory" } else { "does not exist: make it" };
        return Err(ArchiveError::NoDir { dir: dir.clone(), what });
    }
    let recipient = settings.backup_recipient.as_ref().map(|recipient| recipient.as_str());
    let today = date(today);
    let file = dir.join(name(today, recipient.is_some()));
    // Only now: what is unfinished before may be of a backup that is under way.
    let begin = || {
        let unwritable = |error| BackupError::Unwritable { path: dir.clone(), error };
        remove_unfinished(dir).map_err(unwritable)
    };
    write_archive(file, recipient, settings, begin)?;
    let removed = remove_old(dir, &today.to_string(), settings.backup_keep);
    removed.map_err(|error| ArchiveError::Old { dir: dir.clone(), error })
}

/// Whether the directory has no archive: it is a new one, or another than before.
pub(super) fn are_missing(settings: &Settings) -> bool {
    let entries = settings.backup_dir.as_ref().and_then(|dir| fs::read_dir(dir).ok());
    !entries.is_some_and(|entries| entries.flatten().any(|it| date_in(&it.path()).is_some()))
}

fn name(date: Date, is_encrypted: bool) -> String {
    format!("{BEGINNING}{date}{}", if is_encrypted { ENCRYPTED } else { PLAIN })
}

fn date(time: Time) -> Date {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH).date()
}

/// Removes what a backup left that was killed.
fn remove_unfinished(dir: &Path) -> io::Result<()> {
    for path in files(dir)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(UNFINISHED) && name.ends_with(TEMPORARY) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Removes all but the newest archives up to today. Later ones, of a clock that was ahead, and other files stay.
fn remove_old(dir: &Path, today: &str, keep: usize) -> io::Result<()> {
    let dated = files(dir)?.into_iter().filter_map(|path| Some((date_in(&path)?, path)));
    let mut archives: Vec<_> = dated.filter(|(date, _)| date.as_str() <= today).collect();
    archives.sort_unstable();
    let old = archives.len().saturating_sub(keep);
    archives[..old].iter().try_for_each(|(_, path)| match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    })
}

fn files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            files.push(entry.path());
        }
    }
    Ok(files)
}

/// The date in the name of an archive, as text: it orders as the date does.
fn date_in(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?.strip_prefix(BEGINNING)?;
    let date = name.strip_suffix(ENCRYPTED).or_else(|| name.strip_suffix(PLAIN))?;
    let is_digit = |(place, c): (usize, char)| match place {
        4 | 7 => c == '-',
        _ => c.is_ascii_digit(),
    };
    (date.len() == 10 && date.chars().enumerate().all(is_digit)).then(|| date.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_dir(dir: &Path) -> Vec<String> {
        let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_newest_archives_are_kept_and_other_files_stay() {
        let dir = tempfile::tempdir().unwrap();
        let others =
            ["kalends-2026-1-01.tar", "kalends-2026-01-01.zip", "kalends-2026x01-01.tar", "notes"];
        let archives =
            ["kalends-2025-12-31.tar", "kalends-2026-01-01.tar.age", "kalends-2026-01-02.tar"];
        for name in others.iter().chain(&archives) {
            fs::write(dir.path().join(name), "").unwrap();
        }
        fs::create_dir(dir.path().join("kalends-2025-01-01.tar")).unwrap();
        fs::write(dir.path().join(".kalends-2025-12-30.tar.x.kalends-tmp"), "").unwrap();
        remove_unfinished(dir.path()).unwrap();
        remove_old(dir.path(), "2026-01-01", 2).unwrap();
        assert_eq!(in_dir(dir.path()).len(), 8);
        remove_old(dir.path(), "2026-01-02", 2).unwrap();
        let mut left = [&others[..], &archives[1..], &["kalends-2025-01-01.tar"]].concat();
        left.sort_unstable();
        assert_eq!(in_dir(dir.path()), left);
    }

    #[test]
    fn an_archive_is_named_by_its_day_in_utc() {
        let last = Time(20_772 * 24 * 60 * 60 * 1000 - 1);
        assert_eq!(name(date(last), false), "kalends-2026-11-14.tar");
        assert_eq!(name(date(last + state_machine::Span(1)), true), "kalends-2026-11-15.tar.age");
        assert_eq!(date_in(Path::new("a/kalends-2026-11-15.tar.age")).unwrap(), "2026-11-15");
    }
}
