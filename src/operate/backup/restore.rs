//! `kalends restore`: an archive is extracted beside the data directory, verified, and renamed.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind, Read, Write, stderr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use storage::durable;
use tempfile::TempDir;

use super::age::{self, Age};
use super::archive::{self, Manifest};
use super::{BackupError, STANDARD, open, parent};
use crate::command::{Command, Commands, Failure, Shown, load, upgrade};
use crate::settings::store::check_restored;
use crate::settings::{Flags, Settings};
use crate::system::clock::date;

#[derive(Debug, Args)]
pub struct Restore {
    /// An archive of `kalends backup`; - is standard input
    pub file: PathBuf,
    /// Verify the archive, and restore nothing
    #[arg(long)]
    pub check: bool,
    /// The identity file for an archive that was encrypted to a recipient of age; without it age asks for a passphrase
    #[arg(long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
    #[command(flatten)]
    pub flags: Flags,
}

impl Command for Restore {
    const NAME: &'static str = "restore";
    const ABOUT: &'static str = "Restore an archive into an empty data directory, or verify it";
    const HELP: &'static str = "\
Verifies everything first: sizes and SHA-256 of all files, the keys, and each database. The data directory must be empty
or missing, and is complete or unchanged afterwards. An archive of the keys alone names the database with the tables.
The exit code is 1 if the archive is refused; standard error has the reason. docs/operations.md describes what agents
and senders see after a restore.

Examples:
  kalends restore /backup/kalends.tar --data-dir /var/lib/kalends
  kalends restore /backup/kalends.tar.age --identity key.txt --data-dir /var/lib/kalends";
    const SETTINGS: Shown = Shown::OfStore(&[]);

    fn run(self, _commands: Commands) -> Result<(), Failure> {
        Ok(restore(&self, &load(&self.flags)?)?)
    }
}

fn restore(args: &Restore, settings: &Settings) -> Result<(), BackupError> {
    let target = &settings.data_dir;
    if !args.check {
        check_empty(target)?;
    }
    let mut archive = open(&args.file)?;
    let beside = match args.check {
        true if args.file.as_os_str() == STANDARD => std::env::temp_dir(),
        true => parent(&args.file).to_owned(),
        false => parent(target).to_owned(),
    };
    let unwritable = |error| BackupError::Unwritable { path: beside.clone(), error };
    if !args.check {
        durable::create_dir_all(&beside, 0o777).map_err(unwritable)?;
    }
    let owner_only = Permissions::from_mode(0o700);
    let mut builder = tempfile::Builder::new();
    let extracted = builder.prefix(".restore-").permissions(owner_only).tempdir_in(&beside);
    let extracted = extracted.map_err(unwritable)?;
    let (beginning, is_encrypted) = age::beginning(&mut archive).map_err(BackupError::Truncated)?;
    let manifest = match is_encrypted {
        true => extract_encrypted(beginning, archive, args.identity.as_deref(), extracted.path())?,
        false => archive::extract((&beginning[..]).chain(archive), extracted.path())?,
    };
    if manifest.tables_in.is_none() {
        upgrade::shown(|watch| check_restored(extracted.path(), watch))
            .map_err(BackupError::Database)?;
    }
    if !args.check {
        give_name(extracted, target)?;
    }
    report(args, &manifest, target);
    Ok(())
}

fn extract_encrypted(
    beginning: Vec<u8>,
    rest: impl Read + Send + 'static,
    identity: Option<&Path>,
    dir: &Path,
) -> Result<Manifest, BackupError> {
    let mut age = Age::decrypt(identity, beginning, rest)?;
    let mut plain = age.output();
    let extracted = archive::extract(&mut plain, dir);
    // `age` verifies the end of the file when it has read it.
    let rest = io::copy(&mut plain, &mut io::sink());
    // What it could not decrypt is no archive: its reason comes first.
    age.finish()?;
    rest.map_err(BackupError::Truncated)?;
    extracted
}

fn check_empty(dir: &Path) -> Result<(), BackupError> {
    let unreadable = |error| BackupError::Unreadable { path: dir.to_owned(), error };
    match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        entries => match entries.map_err(unreadable)?.next() {
            None => Ok(()),
            Some(_) => Err(BackupError::NotEmpty { dir: dir.to_owned() }),
        },
    }
}

/// A rename replaces an empty directory and no other.
fn give_name(extracted: TempDir, target: &Path) -> Result<(), BackupError> {
    let rename = || -> io::Result<()> {
        durable::sync_dir(extracted.path())?;
        durable::rename(extracted.path(), target)
    };
    match rename() {
        Ok(()) => {
            // It has another name now.
            let _ = extracted.keep();
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {
            Err(BackupError::NotEmpty { dir: target.to_owned() })
        }
        Err(error) => Err(BackupError::Unwritable { path: target.to_owned(), error }),
    }
}

fn report(args: &Restore, manifest: &Manifest, target: &Path) {
    let bytes: u64 = manifest.files.iter().map(|file| file.bytes).sum();
    let done = match args.check {
        true => "the archive is sound".to_owned(),
        false => format!("restored {}", target.display()),
    };
    let (files, at) = (manifest.files.len(), date(manifest.created_at_ms / 1000));
    // Standard error may be closed.
    let _ = writeln!(
        stderr(),
        "{done}: {files} files, {bytes} bytes, of kalends {}, created on {at}",
        manifest.kalends
    );
    if let Some(database) = &manifest.tables_in {
        let _ = writeln!(
            stderr(),
            "the archive has the keys alone: the tables are in {database}, restore them from its own backup"
        );
    }
}
