//! The format of an archive: a tar file with `manifest.json` and then the files that it lists, in their order.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use storage::durable::NewFile;
use tar::{Archive, Builder, EntryType, Header};

use super::archive_text::ArchiveText;
use super::meter::Meter;
use super::{BackupError, CLOCK_FILE};
use crate::command::text::hex;
use crate::settings::keys::KeyList;
use crate::settings::keys::{KEYS_FILE, Keys};

/// The newest format that this program reads: an archive of the keys alone, whose tables are elsewhere.
const FORMAT: u32 = 2;

/// The format of an archive with databases, which older versions read too.
const FORMAT_WITH_DATABASES: u32 = 1;

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
    pub(super) kalends: ArchiveText,
    /// Milliseconds since the Unix epoch.
    pub(super) created_at_ms: u64,
    /// The URL of the server, if it is set.
    pub(super) public_url: Option<ArchiveText>,
    /// The database with the tables, if the archive has none.
    pub(super) tables_in: Option<ArchiveText>,
    /// Fingerprints of the keys in `keys.toml`.
    pub(super) key_fingerprints: BTreeSet<ArchiveText>,
    pub(super) files: Vec<ArchivedFile>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ArchivedFile {
    pub(super) name: ArchiveText,
    pub(super) bytes: u64,
    pub(super) sha256: ArchiveText,
}

impl Manifest {
    /// The manifest of these files.
    pub(super) fn of(
        files: &[PathBuf],
        keys: &Keys,
        created_at_ms: u64,
        public_url: Option<&str>,
        tables_in: Option<&str>,
        meter: &mut Meter,
    ) -> Result<Self, BackupError> {
        let files: Result<_, _> = files.iter().map(|file| ArchivedFile::of(file, meter)).collect();
        Ok(Self {
            format: if tables_in.is_some() { FORMAT } else { FORMAT_WITH_DATABASES },
            kalends: ArchiveText::of(&env!("CARGO_PKG_VERSION")),
            created_at_ms,
            public_url: public_url.map(|url| ArchiveText::of(&url)),
            tables_in: tables_in.map(|database| ArchiveText::of(&database)),
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
        let name = path.file_name().expect("a file has a name").to_string_lossy();
        let name = ArchiveText::of(&name);
        Ok(Self { name, bytes, sha256 })
    }
}

fn fingerprints(keys: &Keys) -> BTreeSet<ArchiveText> {
    let all = KeyList::ALL.into_iter().flat_map(|list| list.fingerprints(keys));
    all.map(|print| ArchiveText::of(&print)).collect()
}

/// Writes an archive of the files that the manifest lists, in its order.
pub(super) fn write(to: impl Write, manifest: &Manifest, files: &[PathBuf]) -> io::Result<()> {
    let mut archive = Builder::new(to);
    let text = serde_json::to_vec_pretty(manifest).map_err(io::Error::other)?;
    archive.append_data(&mut header(text.len() as u64), MANIFEST, &text[..])?;
    for (listed, path) in manifest.files.iter().zip(files) {
        let contents = File::open(path)?.take(listed.bytes);
        archive.append_data(&mut header(listed.bytes), listed.name.as_str(), contents)?;
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
        return Err(damaged("it has a file that its manifest does not list"));
    }
    let mut rest = Vec::new();
    archive.into_inner().take(END_BYTES_MAX).read_to_end(&mut rest).map_err(read_error)?;
    if rest.iter().any(|byte| *byte != 0) {
        return Err(damaged("something else follows its end"));
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
    check_regular(&entry, MANIFEST)?;
    let mut text = Vec::new();
    entry.read_to_end(&mut text).map_err(read_error)?;
    let FormatOnly { format } =
        serde_json::from_slice(&text).map_err(|_| BackupError::NoArchive)?;
    if format > FORMAT {
        return Err(BackupError::Newer { found: format, known: FORMAT });
    }
    let manifest: Manifest =
        serde_json::from_slice(&text).map_err(|error| damaged(format!("{MANIFEST}: {error}")))?;
    let mut names = BTreeSet::new();
    for ArchivedFile { name, .. } in &manifest.files {
        let is_database = ![KEYS_FILE, CLOCK_FILE].contains(&name.as_str());
        let is_elsewhere = is_database && manifest.tables_in.is_some();
        if !is_known(name.as_str()) || is_elsewhere || !names.insert(name) {
            return Err(damaged(format!("its manifest lists {:?}", name.as_str())));
        }
    }
    let needed = [KEYS_FILE, ROUTER_FILE];
    for needed in &needed[..if manifest.tables_in.is_some() { 1 } else { 2 }] {
        if !manifest.files.iter().any(|file| file.name.as_str() == *needed) {
            return Err(damaged(format!("its manifest does not list {needed}")));
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
    if entry.path().is_ok_and(|path| path != Path::new(name.as_str())) {
        return Err(damaged(format!("{name} is not where the manifest lists it")));
    }
    check_regular(&entry, name.as_str())?;
    let path = dir.join(name.as_str());
    let unwritable = |error| BackupError::Unwritable { path: path.clone(), error };
    let mut file = NewFile::new(&path).map_err(unwritable)?;
    let (bytes, sha256) = match copy(&mut entry, &mut file) {
        Err(error) if error.kind() == ErrorKind::StorageFull => return Err(unwritable(error)),
        copied => copied.map_err(read_error)?,
    };
    match (bytes == listed.bytes, sha256 == listed.sha256) {
        (false, _) => Err(BackupError::Truncated(io::Error::other(format!(
            "{name} has {bytes} of {} bytes",
            listed.bytes
        )))),
        (true, false) => Err(damaged(format!("{name} has another SHA-256 than the manifest"))),
        (true, true) => file.create().map_err(unwritable),
    }
}

/// A link, a pipe or a device has no contents.
fn check_regular(entry: &tar::Entry<'_, impl Read>, name: &str) -> Result<(), BackupError> {
    match entry.header().entry_type().is_file() {
        true => Ok(()),
        false => Err(damaged(format!("{name} is not a regular file"))),
    }
}

fn damaged(why: impl Display) -> BackupError {
    BackupError::Damaged(ArchiveText::of(&why))
}

fn read_error(error: io::Error) -> BackupError {
    BackupError::Truncated(error)
}

/// Copies everything. Returns the number of bytes and their SHA-256 in hex digits.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<(u64, ArchiveText)> {
    let (mut digest, mut bytes) = (Context::new(&SHA256), 0);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = match from.read(&mut chunk) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read?,
        };
        if read == 0 {
            return Ok((bytes, ArchiveText::of(&hex(digest.finish()))));
        }
        digest.update(&chunk[..read]);
        to.write_all(&chunk[..read])?;
        bytes += read as u64;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// An archive that begins with a manifest, and has one more entry.
    fn extracted(manifest: &Value, kind: EntryType, name: &str) -> String {
        let mut archive = Builder::new(Vec::new());
        let text = manifest.to_string();
        archive.append_data(&mut header(text.len() as u64), MANIFEST, text.as_bytes()).unwrap();
        let mut entry = header(0);
        entry.set_entry_type(kind);
        if kind.is_symlink() || kind.is_hard_link() {
            entry.set_link_name("/etc/passwd").unwrap();
        }
        archive.append_data(&mut entry, name, io::empty()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let bytes = archive.into_inner().unwrap();
        let error = extract(&bytes[..], dir.path()).unwrap_err().to_string();
        assert_eq!(dir.path().read_dir().unwrap().count(), 0, "{error}");
        error
    }

    fn manifest(names: [&str; 2]) -> Value {
        let files = names.map(|name| json!({ "name": name, "bytes": 5, "sha256": "\u{1b}[31m" }));
        json!({
            "format": FORMAT, "kalends": "1", "created_at_ms": 0, "public_url": null,
            "key_fingerprints": [], "files": files,
        })
    }

    #[test]
    fn an_entry_that_is_no_regular_file_is_named_as_that() {
        let manifest = manifest([KEYS_FILE, ROUTER_FILE]);
        for kind in [
            EntryType::Symlink,
            EntryType::Link,
            EntryType::Fifo,
            EntryType::Char,
            EntryType::Block,
            EntryType::Directory,
        ] {
            let error = extracted(&manifest, kind, KEYS_FILE);
            assert_eq!(
                error, "the archive is damaged: keys.toml is not a regular file",
                "{kind:?}"
            );
        }
        let error = extracted(&manifest, EntryType::Regular, KEYS_FILE);
        assert_eq!(error, "the archive is truncated: keys.toml has 0 of 5 bytes");
    }

    #[test]
    fn a_manifest_that_is_no_regular_file_is_refused() {
        let mut archive = Builder::new(Vec::new());
        let mut entry = header(0);
        entry.set_entry_type(EntryType::Symlink);
        entry.set_link_name("/etc/passwd").unwrap();
        archive.append_data(&mut entry, MANIFEST, io::empty()).unwrap();
        let (dir, bytes) = (tempfile::tempdir().unwrap(), archive.into_inner().unwrap());
        let error = extract(&bytes[..], dir.path()).unwrap_err().to_string();
        assert!(error.ends_with(&format!("{MANIFEST} is not a regular file")), "{error}");
    }

    #[test]
    fn no_text_of_an_archive_reaches_the_terminal_unescaped() {
        let text = "\u{1b}]0;title\u{7}\n";
        assert_eq!(ArchiveText::of(&text).to_string(), "\\u{1b}]0;title\\u{7}\\n");
        let good = manifest([KEYS_FILE, ROUTER_FILE]);
        let mut errors = vec![
            extracted(&manifest([KEYS_FILE, text]), EntryType::Regular, KEYS_FILE),
            extracted(&good, EntryType::Regular, text),
        ];
        for field in
            ["format", "kalends", "created_at_ms", "public_url", "key_fingerprints", "files"]
        {
            let mut damaged = good.clone();
            damaged[field] = json!({ text: text });
            errors.push(extracted(&damaged, EntryType::Regular, text));
            damaged[field] = json!(text);
            errors.push(extracted(&damaged, EntryType::Regular, text));
        }
        for error in errors {
            assert!(!error.contains(char::is_control), "{error:?}");
        }
        for error in [
            BackupError::Truncated(io::Error::other(text)),
            BackupError::Damaged(ArchiveText::of(&text)),
        ] {
            assert!(!error.to_string().contains(char::is_control), "{error:?}");
        }
    }
}
