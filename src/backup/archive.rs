//! The format of an archive: a tar file with `manifest.json` and then the files that it lists, in their order.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use tar::{Archive, Builder, EntryType, Header};

use super::meter::Meter;
use super::{BackupError, CLOCK_FILE};
use crate::keys::fingerprint::KeyList;
use crate::keys::{KEYS_FILE, Keys};

/// The format that this program writes. It reads it and none above it.
const FORMAT: u32 = 1;

const MANIFEST: &str = "manifest.json";

/// Maximum size of a manifest, in bytes. One of ten years of months has 20 KiB.
const MANIFEST_BYTES_MAX: u64 = 1024 * 1024;

/// Bytes behind the end that are read: tar pads with zeros.
const END_BYTES_MAX: u64 = 64 * 1024;

/// Bytes that are read and written at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// The first file of an archive.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) format: u32,
    /// The version of the program that wrote it.
    pub(super) kalends: String,
    /// Milliseconds since the Unix epoch.
    pub(super) created_at_ms: u64,
    /// The URL of the server, if it is set.
    pub(super) public_url: Option<String>,
    /// Fingerprints of the keys in `keys.toml`.
    pub(super) key_fingerprints: BTreeSet<String>,
    pub(super) files: Vec<ArchivedFile>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ArchivedFile {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

impl Manifest {
    /// The manifest of these files.
    pub(super) fn of(
        files: &[PathBuf],
        keys: &Keys,
        created_at_ms: u64,
        public_url: Option<String>,
        meter: &mut Meter,
    ) -> Result<Self, BackupError> {
        let files: Result<_, _> = files.iter().map(|file| ArchivedFile::of(file, meter)).collect();
        Ok(Self {
            format: FORMAT,
            kalends: env!("CARGO_PKG_VERSION").to_owned(),
            created_at_ms,
            public_url,
            key_fingerprints: fingerprints(keys),
            files: files?,
        })
    }
}

impl ArchivedFile {
    fn of(path: &Path, meter: &mut Meter) -> Result<Self, BackupError> {
        let unreadable = |error| BackupError::Unreadable { path: path.to_owned(), error };
        let mut file = File::open(path).map_err(unreadable)?;
        let (bytes, sha256) = copy(&mut file, &mut meter.over(io::sink())).map_err(unreadable)?;
        let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
        Ok(Self { name, bytes, sha256 })
    }
}

fn fingerprints(keys: &Keys) -> BTreeSet<String> {
    KeyList::ALL.into_iter().flat_map(|list| list.fingerprints(keys)).collect()
}

/// Writes an archive of the files that the manifest lists, in its order.
pub(super) fn write(to: impl Write, manifest: &Manifest, files: &[PathBuf]) -> io::Result<()> {
    let mut archive = Builder::new(to);
    let text = serde_json::to_vec_pretty(manifest).map_err(io::Error::other)?;
    archive.append_data(&mut header(text.len() as u64), MANIFEST, &text[..])?;
    for (listed, path) in manifest.files.iter().zip(files) {
        let contents = File::open(path)?.take(listed.bytes);
        archive.append_data(&mut header(listed.bytes), &listed.name, contents)?;
    }
    archive.into_inner()?.flush()
}

fn header(bytes: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_size(bytes);
    header.set_mode(0o600);
    header
}

/// Extracts an archive into an empty directory, and verifies each file and the keys.
pub(super) fn extract(from: impl Read, dir: &Path) -> Result<Manifest, BackupError> {
    let mut archive = Archive::new(from);
    let mut entries = archive.entries().map_err(|_| BackupError::NoArchive)?;
    let first =
        entries.next().ok_or(BackupError::NoArchive)?.map_err(|_| BackupError::NoArchive)?;
    let manifest = read_manifest(first)?;
    for listed in &manifest.files {
        let entry = entries.next().ok_or_else(|| {
            BackupError::Truncated(io::Error::other(format!("{} is missing", listed.name)))
        })?;
        extract_file(entry.map_err(read_error)?, listed, dir)?;
    }
    if entries.next().is_some() {
        return Err(BackupError::Damaged("it has a file that its manifest does not list".into()));
    }
    let mut rest = Vec::new();
    archive.into_inner().take(END_BYTES_MAX).read_to_end(&mut rest).map_err(read_error)?;
    if rest.iter().any(|byte| *byte != 0) {
        return Err(BackupError::Damaged("something else follows its end".into()));
    }
    let keys = Keys::load(dir).map_err(BackupError::Keys)?;
    match fingerprints(&keys) == manifest.key_fingerprints {
        true => Ok(manifest),
        false => Err(BackupError::ForeignKeys),
    }
}

/// The part of a manifest that every format has.
#[derive(Deserialize)]
struct FormatOnly {
    format: u32,
}

fn read_manifest(mut entry: tar::Entry<'_, impl Read>) -> Result<Manifest, BackupError> {
    let is_manifest = entry.path().is_ok_and(|path| path == Path::new(MANIFEST));
    if !is_manifest || entry.size() > MANIFEST_BYTES_MAX {
        return Err(BackupError::NoArchive);
    }
    let mut text = Vec::new();
    entry.read_to_end(&mut text).map_err(read_error)?;
    let FormatOnly { format } =
        serde_json::from_slice(&text).map_err(|_| BackupError::NoArchive)?;
    if format > FORMAT {
        return Err(BackupError::Newer { found: format, known: FORMAT });
    }
    let manifest: Manifest = serde_json::from_slice(&text)
        .map_err(|error| BackupError::Damaged(format!("{MANIFEST}: {error}")))?;
    let mut names = BTreeSet::new();
    for ArchivedFile { name, .. } in &manifest.files {
        if !is_known(name) || !names.insert(name) {
            return Err(BackupError::Damaged(format!("its manifest lists {name:?}")));
        }
    }
    for needed in [KEYS_FILE, ROUTER_FILE] {
        if !manifest.files.iter().any(|file| file.name == needed) {
            return Err(BackupError::Damaged(format!("its manifest does not list {needed}")));
        }
    }
    Ok(manifest)
}

const ROUTER_FILE: &str = "router.db";

/// Whether a backup may have a file of this name. None is a path.
pub(super) fn is_known(name: &str) -> bool {
    let month = name.strip_prefix("messages_").and_then(|rest| rest.strip_suffix(".db"));
    [KEYS_FILE, CLOCK_FILE, ROUTER_FILE].contains(&name)
        || month.is_some_and(|month| month.parse::<state_machine::Month>().is_ok())
}

fn extract_file(
    mut entry: tar::Entry<'_, impl Read>,
    listed: &ArchivedFile,
    dir: &Path,
) -> Result<(), BackupError> {
    let name = &listed.name;
    let damaged = |why: &str| BackupError::Damaged(format!("{name} {why}"));
    if entry.path().is_ok_and(|path| path != Path::new(name)) {
        return Err(damaged("is not where the manifest lists it"));
    }
    let path = dir.join(name);
    let mut options = OpenOptions::new();
    let created = options.write(true).create_new(true).mode(0o600).open(&path);
    let unwritable = |error| BackupError::Unwritable { path: path.clone(), error };
    let mut file = created.map_err(unwritable)?;
    let (bytes, sha256) = match copy(&mut entry, &mut file) {
        Err(error) if error.kind() == ErrorKind::StorageFull => return Err(unwritable(error)),
        copied => copied.map_err(read_error)?,
    };
    file.sync_all().map_err(unwritable)?;
    match (bytes == listed.bytes, sha256 == listed.sha256) {
        (false, _) => Err(BackupError::Truncated(io::Error::other(format!(
            "{name} has {bytes} of {} bytes",
            listed.bytes
        )))),
        (true, false) => Err(damaged("has another SHA-256 than the manifest")),
        (true, true) => Ok(()),
    }
}

fn read_error(error: io::Error) -> BackupError {
    BackupError::Truncated(error)
}

/// Copies everything. Returns the number of bytes and their SHA-256 in hex digits.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<(u64, String)> {
    let (mut digest, mut bytes) = (Context::new(&SHA256), 0);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = match from.read(&mut chunk) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read?,
        };
        if read == 0 {
            let digits =
                digest.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
            return Ok((bytes, digits));
        }
        digest.update(&chunk[..read]);
        to.write_all(&chunk[..read])?;
        bytes += read as u64;
    }
}
