//! The archives in `backup_dir`: one a day, named by its date.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use state_machine::Time;
use storage::durable;
use time::{Date, OffsetDateTime};

use crate::operate::backup::create::write_archive;
use crate::settings::Settings;

const BEGINNING: &str = "kalends-";
const PLAIN: &str = ".tar";
const ENCRYPTED: &str = ".tar.age";

/// Writes the archive of a day, and removes those beyond the number to keep.
pub(super) fn write(settings: &Settings, today: Time) -> Result<(), String> {
    let dir = settings.backup_dir.as_ref().expect("backups are wanted");
    let unwritable = |error| format!("cannot write {}: {error}", dir.display());
    durable::create_dir_all(dir, 0o700).map_err(unwritable)?;
    let recipient = settings.backup_recipient.as_ref().map(|recipient| recipient.as_str());
    let file = dir.join(name(date(today), recipient.is_some()));
    write_archive(file, recipient, settings).map_err(|error| error.to_string())?;
    remove_old(dir, settings.backup_keep).map_err(unwritable)
}

fn name(date: Date, is_encrypted: bool) -> String {
    format!("{BEGINNING}{date}{}", if is_encrypted { ENCRYPTED } else { PLAIN })
}

fn date(time: Time) -> Date {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH).date()
}

/// Removes all but the newest archives. Other files of the directory stay.
fn remove_old(dir: &Path, keep: usize) -> io::Result<()> {
    let mut archives = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        archives.extend(date_in(&path).map(|date| (date, path)));
    }
    archives.sort_unstable();
    let old = archives.len().saturating_sub(keep);
    for (_, path) in &archives[..old] {
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
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
        remove_old(dir.path(), 3).unwrap();
        assert_eq!(in_dir(dir.path()).len(), 7);
        remove_old(dir.path(), 2).unwrap();
        let mut left = [&others[..], &archives[1..]].concat();
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
