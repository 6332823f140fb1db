//! `kalends backup`: a snapshot of the store, then an archive of it.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write, stderr};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use clap::Args;
use indicatif::HumanBytes;
use serde::{Deserialize, Serialize};
use storage::StoreFuture;
use storage::data_dir::has_databases;
use storage::durable::{self, NewFile};
use storage::maintenance::SNAPSHOT_DIR;
use tokio::sync::watch;
use zeroize::Zeroizing;

use super::age::{Age, Errors};
use super::archive::{self, Manifest};
use super::meter::Meter;
use super::{BackupError, CLOCK_FILE, STANDARD, parent};
use crate::command::backend::check_owner;
use crate::command::store_command::collect;
use crate::command::{CommandError, Failure, Job, JobError, NoReport, StoreCommand, run_and_print};
use crate::push::app::AppState;
use crate::settings::keys::{KEYS_FILE, Keys};
use crate::settings::{PublicUrl, Settings, StoreKind};
use crate::system::clock::unix_now;

/// None of its arguments is sent to a server, which makes the snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backup {
    /// The archive to write, with mode 0600; - is standard output
    #[serde(skip)]
    pub file: PathBuf,
    /// Replace FILE if it exists
    #[arg(long)]
    #[serde(skip)]
    pub force: bool,
    /// Encrypt the archive to this recipient of age, such as age1...; repeatable. The program age must be installed
    #[arg(long, value_name = "RECIPIENT")]
    #[serde(skip)]
    pub encrypt_to: Vec<String>,
    /// Encrypt the archive with a passphrase, for which age asks on the terminal
    #[arg(long, conflicts_with = "encrypt_to")]
    #[serde(skip)]
    pub passphrase: bool,
}

impl StoreCommand for Backup {
    const NAME: &'static str = "backup";
    const ABOUT: &'static str =
        "Write an archive of the store and its keys, also while the server runs";
    const HELP: &'static str = "\
Works while the server runs, and when it is stopped. All files of the store are copied as they were at one moment, then
archived with keys.toml and clock. Run it as the user of the server. The archive contains the keys, so its reader
can forge endpoints. The data directory needs free space for a second copy of the store until the command ends.
If the store is in PostgreSQL or DynamoDB, the archive has the keys alone: the database has its own backups.
The exit code is 1 on failure, and FILE is then as it was.

Examples:
  kalends backup /backup/kalends.tar --data-dir /var/lib/kalends
  kalends backup /backup/kalends.tar.age --encrypt-to age1... --data-dir /var/lib/kalends
  kalends restore --check /backup/kalends.tar";
    type Report = NoReport;

    fn main(self, settings: &Settings) -> Result<(), Failure> {
        Ok(backup(&self, settings, true, || Ok(()))?)
    }

    /// Copies the files of the store as they were at one moment to where the command archives them.
    async fn run(self, job: &Job) -> Result<(), JobError> {
        job.check_stopped()?;
        let (steps, mut copied) = watch::channel::<Pages>((0, 0));
        // The send fails when the job has stopped, which ends the copy.
        let on_step = Box::new(move |done, of| steps.send((done, of)).is_ok());
        let copy: StoreFuture<()> = job.context.store.snapshot(on_step);
        let copy = tokio::spawn(copy);
        while job.or_interrupted(copied.changed()).await?.is_ok() {
            let (done, of) = *copied.borrow_and_update();
            job.progress("copying pages", done, Some(of));
        }
        drop(copied);
        copy.await.expect("a copy does not panic")?;
        if let Some(node) = job.context.part::<AppState>() {
            node.common.judge.backed_up(job.context.now());
        }
        Ok(())
    }
}

/// Pages of 4 KiB that are copied, and all of them.
type Pages = (u64, u64);

/// The directory of the snapshot. It is locked while the command runs, and removed at the end.
struct SnapshotDir {
    path: PathBuf,
    _lock: File,
}

/// Writes the archive of a server that runs, in place of one of that name. Shows no progress. `begin` runs while no other
/// backup of the data directory does.
pub fn write_archive(
    file: PathBuf,
    recipient: Option<&str>,
    settings: &Settings,
    begin: impl FnOnce() -> Result<(), BackupError>,
) -> Result<(), BackupError> {
    let encrypt_to = recipient.map(str::to_owned).into_iter().collect();
    let args = Backup { file, force: true, encrypt_to, passphrase: false };
    backup(&args, settings, false, begin)
}

fn backup(
    args: &Backup,
    settings: &Settings,
    is_shown: bool,
    begin: impl FnOnce() -> Result<(), BackupError>,
) -> Result<(), BackupError> {
    let is_standard = args.file.as_os_str() == STANDARD;
    if !is_standard {
        check_file(args, settings)?;
    }
    let is_encrypted = args.passphrase || !args.encrypt_to.is_empty();
    let errors = if is_shown { Errors::Shown } else { Errors::Read };
    if is_encrypted {
        Age::check(&args.encrypt_to, errors)?;
    }
    let data_dir = &settings.data_dir;
    let database = Database::of(settings);
    if database.is_none() && !has_databases(data_dir) {
        return Err(CommandError::NoStore { dir: data_dir.clone() }.into());
    }
    check_owner(data_dir)?;
    let keys = Keys::load(data_dir).map_err(BackupError::Keys)?;
    let snapshot = SnapshotDir::make(data_dir)?;
    begin()?;
    if database.is_none() {
        match is_shown {
            true => run_and_print(args.clone(), settings)?,
            false => drop(collect(args.clone(), settings)?),
        }
    }
    let files = snapshot.add_other_files(data_dir)?;
    let public_url = settings.public_url.as_ref().map(PublicUrl::as_str);
    let mut meter = Meter::new(is_shown && !args.passphrase);
    meter.begin("reading the copy", bytes_of(&files));
    let tables_in = database.as_ref().map(|database| &*database.name);
    let manifest = Manifest::of(&files, &keys, unix_now().0, public_url, tables_in, &mut meter)?;
    meter.begin("writing the archive", manifest.files.iter().map(|file| file.bytes).sum());
    let mut write = |to: Stdio, plain: &mut dyn Write| -> Result<(), WriteError> {
        if !is_encrypted {
            return Ok(archive::write(meter.over(plain), &manifest, &files)?);
        }
        let mut age = Age::encrypt(&args.encrypt_to, to, errors)?;
        let written =
            archive::write(meter.over(io::BufWriter::new(age.input())), &manifest, &files);
        age.finish()?;
        Ok(written?)
    };
    let written = match is_standard {
        true => write(Stdio::inherit(), &mut io::stdout().lock()),
        false => write_file(args, write),
    };
    written.map_err(|error| error.of(&args.file))?;
    if is_shown && !is_standard {
        tell_size(&args.file);
    }
    if let Some(Database { name, backup }) = database {
        // Standard output may be the archive, and standard error may be closed.
        let _ = writeln!(
            stderr(),
            "the archive has the keys alone, the tables are in {name}: {backup}"
        );
    }
    Ok(())
}

/// Refuses a file that the archive must not replace.
fn check_file(args: &Backup, settings: &Settings) -> Result<(), BackupError> {
    if fs::metadata(&args.file).is_ok_and(|found| !found.is_file()) {
        // `--force` would replace a device by a file.
        return Err(BackupError::NotAFile { file: args.file.clone() });
    }
    if !args.force && args.file.exists() {
        return Err(BackupError::Exists { file: args.file.clone() });
    }
    if is_in(&args.file, &settings.data_dir) {
        return Err(BackupError::InDataDir { dir: settings.data_dir.clone() });
    }
    Ok(())
}

fn tell_size(archive: &Path) {
    let bytes = fs::metadata(archive).map_or(0, |file| file.len());
    // Standard error may be closed.
    let _ = writeln!(stderr(), "wrote {}, {}", archive.display(), HumanBytes(bytes));
}

/// A database that servers share, which has backups of its own.
struct Database {
    name: String,
    /// What to do for a backup of the tables.
    backup: String,
}

impl Database {
    /// None if the tables are files of the data directory.
    fn of(settings: &Settings) -> Option<Self> {
        match settings.store {
            StoreKind::Embedded => None,
            StoreKind::PostgreSql => {
                let schema = settings.postgresql_schema.as_str();
                Some(Self {
                    name: format!("PostgreSQL, schema {schema}"),
                    backup: format!(
                        "dump them with `pg_dump --format custom --schema {schema} --file FILE DATABASE`, before \
                         the keys, or use continuous archiving"
                    ),
                })
            }
            StoreKind::DynamoDb => Some(Self {
                name: format!("DynamoDB, prefix \"{}\"", settings.dynamodb_table_prefix.as_str()),
                backup: "use its on-demand backups or its point-in-time recovery".to_owned(),
            }),
        }
    }
}

/// Why an archive was not written.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error(transparent)]
    Age(#[from] BackupError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl WriteError {
    fn of(self, file: &Path) -> BackupError {
        let file = file.to_owned();
        match self {
            Self::Age(error) => error,
            Self::Io(error) if error.kind() == ErrorKind::AlreadyExists => {
                BackupError::Exists { file }
            }
            Self::Io(error) => BackupError::Unwritable { path: file, error },
        }
    }
}

/// Whether the file is in the directory, where it could replace a file of the store.
fn is_in(file: &Path, dir: &Path) -> bool {
    let of_file = parent(file).canonicalize();
    of_file.ok().zip(dir.canonicalize().ok()).is_some_and(|(of_file, dir)| of_file == dir)
}

fn bytes_of(files: &[PathBuf]) -> u64 {
    files.iter().filter_map(|file| fs::metadata(file).ok()).map(|file| file.len()).sum()
}

/// Writes under a temporary name, and renames. `write` gets the file as the output of another program, and as its own.
fn write_file(
    args: &Backup,
    write: impl FnOnce(Stdio, &mut dyn Write) -> Result<(), WriteError>,
) -> Result<(), WriteError> {
    let mut file = NewFile::new(&args.file)?;
    let output = file.as_file().try_clone()?.into();
    let mut plain = io::BufWriter::new(&mut file);
    write(output, &mut plain)?;
    plain.flush()?;
    drop(plain);
    Ok(if args.force { file.replace() } else { file.create() }?)
}

impl SnapshotDir {
    /// Makes the directory empty: a command that was killed may have left one.
    fn make(data_dir: &Path) -> Result<Self, BackupError> {
        let path = data_dir.join(SNAPSHOT_DIR);
        let unwritable = |error| BackupError::Unwritable { path: path.clone(), error };
        durable::create_dir_all(&path, 0o700).map_err(unwritable)?;
        let lock = File::open(&path).map_err(unwritable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(BackupError::Running { dir: data_dir.to_owned() });
            }
            Err(TryLockError::Error(error)) => return Err(unwritable(error)),
        }
        for entry in fs::read_dir(&path).map_err(unwritable)? {
            fs::remove_file(entry.map_err(unwritable)?.path()).map_err(unwritable)?;
        }
        Ok(Self { path, _lock: lock })
    }

    /// Adds what belongs to the store but is not in it. It is read after the snapshot, so that it has every key and the
    /// floor of every message id in the snapshot. Returns the paths of all files, by name.
    fn add_other_files(&self, data_dir: &Path) -> Result<Vec<PathBuf>, BackupError> {
        for name in [KEYS_FILE, CLOCK_FILE] {
            let from = data_dir.join(name);
            let contents = match fs::read(&from) {
                Err(error) if error.kind() == ErrorKind::NotFound && name == CLOCK_FILE => continue,
                read => read.map_err(|error| BackupError::Unreadable { path: from, error })?,
            };
            let path = self.path.join(name);
            let written = durable::create(&path, Zeroizing::new(contents));
            written.map_err(|error| BackupError::Unwritable { path, error })?;
        }
        let unreadable = |error| BackupError::Unreadable { path: self.path.clone(), error };
        let entries = fs::read_dir(&self.path).map_err(unreadable)?;
        let paths = entries.map(|entry| entry.map(|entry| entry.path()));
        let mut paths: Vec<_> = paths.collect::<io::Result<_>>().map_err(unreadable)?;
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        paths.retain(|path| name(path).is_some_and(|name| archive::is_known(&name)));
        paths.sort();
        Ok(paths)
    }
}

impl Drop for SnapshotDir {
    fn drop(&mut self) {
        // The next backup removes what stays.
        let _ = fs::remove_dir_all(&self.path);
    }
}
