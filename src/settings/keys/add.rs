//! `kalends keys cluster` and `kalends keys auth`: add a key in front of a list in `keys.toml`.
//!
//! The rest of the file stays byte for byte, comments and line ends included. So the key is
//! inserted into the text where the parser found the list: `toml_edit` writes a document without
//! its carriage returns. The new text replaces the file only if it has one key more.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write, stdout};
use std::path::{Path, PathBuf};

use storage::data_dir::has_databases;
use storage::durable;
use toml::Spanned;
use zeroize::Zeroizing;

use super::file::{self, KEYS_FILE, KeysError};
use super::list::{KEYS_MAX, KeyList, generate};
use crate::settings::table::Settings;

const CLUSTER_HEAD: &str = "\
# The nodes of a cluster sign their requests to each other with these keys. The first key signs, all
# of them verify. Every node needs this same file: copy it, with mode 0600. Any program that reads it
# can send messages as a node. `kalends keys cluster` adds a new key in front.
";

const AUTH_HEAD: &str = "\
# The secrets of user agents behind bridges are made with these keys. The first key makes, all of them
# verify. KEEP the old ones: an agent whose secret no key verifies is refused for good. To take over the
# registrations of an autopush-rs installation, append its auth_keys.
";

/// The change that [`add`] made.
#[derive(Debug, PartialEq, Eq)]
pub struct Added {
    pub path: PathBuf,
    pub list: KeyList,
    pub is_new: bool,
    /// Keys in the list, the added one included.
    pub count: usize,
}

/// Why no key was added. Never quotes the file.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    #[error(transparent)]
    Keys(#[from] KeysError),
    #[error("cannot create the data directory {dir}: {error}")]
    DataDir { dir: PathBuf, error: io::Error },
    #[error(
        "{path} has {KEYS_MAX} {}, which is the maximum: remove the last ones, which no node uses any more",
        .list.name()
    )]
    Full { path: PathBuf, list: KeyList },
    #[error("another process is changing {path}: try again")]
    InUse { path: PathBuf },
    #[error(
        "the layout of {path} has no place for another key: add the output of `kalends keys generate` to \
         {} by hand", .list.name()
    )]
    NotEditable { path: PathBuf, list: KeyList },
}

/// Adds a key to the file in the data directory of `settings`, and prints the next steps.
pub fn run(settings: &Settings, list: KeyList) -> Result<(), AddError> {
    let added = add(&settings.data_dir, list)?;
    // The key is added whether or not standard output is open.
    let _ = writeln!(stdout(), "{added}");
    Ok(())
}

impl fmt::Display for Added {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, list) = (self.path.display(), self.list.name());
        match (self.is_new, self.count) {
            (true, _) => writeln!(
                f,
                "{path} was created, with a key for endpoints and a key in {list}.\n\
                 If a server has run on the same tables before, its keys.toml is needed instead: put it here \
                 and run this again."
            )?,
            (false, 1) => writeln!(f, "{path} has a key in {list} now.")?,
            (false, count) => {
                writeln!(f, "{path} has {count} keys in {list} now, the new one first.")?;
            }
        }
        f.write_str(
            "Copy it into the data directory of every node: mode 0600, owned by the user that the node \
             runs as.",
        )?;
        f.write_str(match (self.list, self.count) {
            (KeyList::Auth, _) => "\nThen restart the nodes that serve endpoints. Keep the keys behind the first.",
            (_, 1) => "\nThen start the nodes.",
            _ => {
                "\nThen restart the connection nodes, and after them the endpoint nodes. When all nodes run with \
                 the new key, remove the keys behind the first."
            }
        })
    }
}

/// Adds a new key in front of the list in the data directory `dir`, which is not that of the crypto keys. Creates the directory and the
/// keys where they are missing, but no keys beside a database, which needs its own.
pub fn add(dir: &Path, list: KeyList) -> Result<Added, AddError> {
    add_by(dir, list, |path, text| durable::replace(path, text))
}

/// `replace` replaces the file, whose lock is held meanwhile.
fn add_by(
    dir: &Path,
    list: KeyList,
    replace: impl FnOnce(&Path, &str) -> io::Result<()>,
) -> Result<Added, AddError> {
    durable::create_dir_all(dir, 0o700)
        .map_err(|error| AddError::DataDir { dir: dir.to_owned(), error })?;
    let path = dir.join(KEYS_FILE);
    let is_new = match file::read(&path) {
        Err(KeysError::Missing { .. }) if !has_databases(dir) => {
            file::create(&path, &generate())?;
            true
        }
        read => read.map(|_text| false)?,
    };
    let unwritable = |error| KeysError::Unwritable { path: path.clone(), error };
    let lock = file::lock(&path).map_err(unwritable)?;
    let lock = lock.ok_or_else(|| AddError::InUse { path: path.clone() })?;
    let (text, count) = with_key(&path, &file::read(&path)?, list, &generate())?;
    replace(&path, &text).map_err(unwritable)?;
    // Explicit, because a child process that was just forked has the file open too.
    lock.unlock().map_err(unwritable)?;
    Ok(Added { path, list, is_new, count })
}

/// The text with `key` in front of the list, and the number of keys in the list.
fn with_key(
    path: &Path,
    old: &str,
    list: KeyList,
    key: &str,
) -> Result<(Zeroizing<String>, usize), AddError> {
    file::parse(path, old)?;
    let not_editable = || AddError::NotEditable { path: path.into(), list };
    let mut expected = lists(old).ok_or_else(not_editable)?;
    let keys = expected.entry(list.name().to_owned()).or_default();
    if keys.len() >= KEYS_MAX {
        return Err(AddError::Full { path: path.into(), list });
    }
    keys.insert(0, Zeroizing::new(key.to_owned()));
    let count = keys.len();
    let new = insert(old, list, key).ok_or_else(not_editable)?;
    file::parse(path, &new)?;
    if lists(&new) == Some(expected) { Ok((new, count)) } else { Err(not_editable()) }
}

/// The lists of a file by name.
fn lists(text: &str) -> Option<BTreeMap<String, Vec<Zeroizing<String>>>> {
    toml::from_str(text).ok()
}

/// The text with `key` in it; None if it cannot be inserted where the parser found the list.
fn insert(text: &str, list: KeyList, key: &str) -> Option<Zeroizing<String>> {
    let mut places: BTreeMap<String, Spanned<Vec<Zeroizing<String>>>> =
        toml::from_str(text).ok()?;
    let name = list.name();
    let Some(place) = places.remove(name) else {
        let gap = if text.ends_with('\n') { "" } else { "\n" };
        let head = if list == KeyList::Auth { AUTH_HEAD } else { CLUSTER_HEAD };
        let list = format!("{gap}\n{head}{name} = [\n    \"{key}\",\n]\n");
        return Some(Zeroizing::new(format!("{text}{list}")));
    };
    let (head, tail) = text.split_at_checked(place.span().start)?;
    let tail = tail.strip_prefix('[')?;
    let is_on_lines = tail.trim_start_matches([' ', '\t', '\r']).starts_with(['\n', '#']);
    let new = if is_on_lines { format!("\n    \"{key}\",") } else { format!("\"{key}\", ") };
    Some(Zeroizing::new(format!("{head}[{new}{tail}")))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use tempfile::TempDir;

    use super::*;
    use crate::settings::keys::{Key, Keys};

    const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const OTHER: &str = "_v38-_r5-Pf29fTz8vHw7-7t7Ovq6ejn5uXk4-Lh4N8=";
    const NEW: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

    fn home_with(text: &str) -> (TempDir, PathBuf) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(KEYS_FILE);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        (home, path)
    }

    fn put(before: &str) -> Result<(String, usize), AddError> {
        with_key(Path::new(KEYS_FILE), before, KeyList::Cluster, NEW)
            .map(|(after, count)| (after.to_string(), count))
    }

    fn texts(keys: &[Key]) -> Vec<String> {
        keys.iter().map(|key| key.to_text().to_string()).collect()
    }

    #[test]
    fn a_missing_file_is_created_with_a_key_of_each_kind() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("new/data");
        let path = dir.join(KEYS_FILE);
        let expected = Added { path: path.clone(), list: KeyList::Cluster, is_new: true, count: 1 };
        assert_eq!(add(&dir, KeyList::Cluster).unwrap(), expected);
        assert!(expected.to_string().contains("its keys.toml is needed instead"), "{expected}");
        let keys = Keys::load(&dir).unwrap();
        assert_eq!((keys.crypto_keys().len(), keys.cluster_keys().len()), (1, 1));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o7777, 0o700);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "a temporary file was left behind");
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.contains("KEEP THIS FILE") && text.contains("Every node needs this same file")
        );
    }

    #[test]
    fn an_auth_key_is_added_in_front_and_the_other_lists_stay() {
        let old = "auth_keys of autopush=";
        let lists = format!("crypto_keys = [\"{KEY}\"]\ncluster_keys = [\"{OTHER}\"]\n");
        let (home, path) = home_with(&lists);
        assert_eq!(add(home.path(), KeyList::Auth).unwrap().count, 1);
        let added = add(home.path(), KeyList::Auth).unwrap();
        assert_eq!(added.count, 2);
        assert!(added.to_string().contains("has 2 keys in auth_keys now"), "{added}");
        let keys = Keys::load(home.path()).unwrap();
        assert_eq!(texts(keys.crypto_keys()), [KEY]);
        assert_eq!(texts(keys.cluster_keys()), [OTHER]);
        let text = fs::read_to_string(path).unwrap();
        assert!(text.starts_with(&format!("{lists}\n{AUTH_HEAD}auth_keys = [\n")), "{text}");
        let with_old = format!("{lists}auth_keys = ['{}']", old.replace(' ', "_"));
        let (after, count) = with_key(Path::new(KEYS_FILE), &with_old, KeyList::Auth, NEW).unwrap();
        assert_eq!(count, 2);
        assert!(after.ends_with(&format!("[\"{NEW}\", 'auth_keys_of_autopush=']")), "{}", *after);
    }

    #[test]
    fn a_new_key_is_added_in_front_of_the_old_ones() {
        let (home, path) = home_with(&format!("# mine\ncrypto_keys = [\"{KEY}\"] # keep\n"));
        for count in 1..=KEYS_MAX {
            let before = Keys::load(home.path()).unwrap();
            let added = add(home.path(), KeyList::Cluster).unwrap();
            assert_eq!(
                added,
                Added { path: path.clone(), list: KeyList::Cluster, is_new: false, count }
            );
            let after = Keys::load(home.path()).unwrap();
            assert_eq!(texts(after.crypto_keys()), [KEY]);
            assert_eq!(texts(&after.cluster_keys()[1..]), texts(before.cluster_keys()));
            assert_eq!(added.to_string().contains("restart the connection nodes"), count > 1);
        }
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with(&format!("# mine\ncrypto_keys = [\"{KEY}\"] # keep\n")));
        assert_eq!(text.matches("# The nodes of a cluster").count(), 1);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        let full = add(home.path(), KeyList::Cluster).unwrap_err().to_string();
        assert!(full.contains("has 16 cluster_keys"), "{full}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert_eq!(
            fs::read_dir(home.path()).unwrap().count(),
            1,
            "a temporary file was left behind"
        );
    }

    #[test]
    fn a_list_keeps_its_layout_and_comments() {
        let crypto = format!("crypto_keys = [\"{KEY}\"]");
        for (before, after) in [
            (format!("[\"{OTHER}\"]"), format!("[\"{NEW}\", \"{OTHER}\"]")),
            (format!("[\n  \"{OTHER}\"\n]"), format!("[\n    \"{NEW}\",\n  \"{OTHER}\"\n]")),
            (
                format!("[ # of May\r\n  '{OTHER}', # of April\r\n]"),
                format!("[\n    \"{NEW}\", # of May\r\n  '{OTHER}', # of April\r\n]"),
            ),
        ] {
            for (head, name, tail) in [
                ("", "cluster_keys =", format!("\n{crypto}")),
                (crypto.as_str(), "\n\"cluster_keys\"=", String::new()),
                (crypto.as_str(), " # cluster_keys = [\n'cluster_keys'  = ", "# end".to_owned()),
            ] {
                let whole = |list: &str| format!("{head}{name}{list}{tail}");
                assert_eq!(put(&whole(&before)).unwrap(), (whole(&after), 2), "{before}");
            }
        }
    }

    #[test]
    fn a_new_list_starts_on_a_line_of_its_own() {
        let crypto = format!("crypto_keys = [\"{KEY}\"]");
        for (end, expected) in [
            ("", "\n\n# The nodes"),
            ("\n", "\n\n# The nodes"),
            (" # end", " # end\n\n# The nodes"),
        ] {
            let (after, count) = put(&format!("{crypto}{end}")).unwrap();
            assert!(after.starts_with(&format!("{crypto}{expected}")), "{after}");
            assert_eq!(count, 1);
        }
    }

    #[test]
    fn an_invalid_file_stays_as_it_is_and_is_not_quoted() {
        for wrong in [
            "".to_owned(),
            "crypto_keys = [\"SECRET\"]".to_owned(),
            format!("crypto_keys = [\"{KEY}\"]\ncluster_keys = []"),
            format!("crypto_keys = [\"{KEY}\"]\ncluster_keys = [\"SECRET\"]"),
            format!("crypto_keys = [\"{KEY}\"]\nother = [\"SECRET\"]"),
            format!("crypto_keys = [\"{KEY}\"]\n#{}", "x".repeat(65_200)),
        ] {
            let (home, path) = home_with(&wrong);
            let error = add(home.path(), KeyList::Cluster).unwrap_err().to_string();
            assert!(
                error.starts_with(path.to_str().unwrap()) && !error.contains("SECRET"),
                "{error}"
            );
            assert_eq!(fs::read_to_string(&path).unwrap(), wrong);
        }
    }

    #[test]
    fn a_file_that_other_users_can_read_is_refused() {
        let (home, path) = home_with(&format!("crypto_keys = [\"{KEY}\"]"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(add(home.path(), KeyList::Cluster).unwrap_err().to_string().contains("chmod 600"));
    }

    #[test]
    fn no_keys_are_created_beside_a_database() {
        let home = tempfile::tempdir().unwrap();
        drop(
            storage_sqlite::Embedded::open(
                home.path(),
                &storage_sqlite::EmbeddedOptions::new(4096),
            )
            .unwrap(),
        );
        let error = add(home.path(), KeyList::Cluster).unwrap_err().to_string();
        assert!(error.contains("restore it from a backup"), "{error}");
        assert!(!home.path().join(KEYS_FILE).exists());
    }

    #[test]
    fn a_symbolic_link_stays_and_its_target_is_replaced() {
        let (home, path) = home_with(&format!("crypto_keys = [\"{KEY}\"]"));
        let data = home.path().join("data");
        fs::create_dir(&data).unwrap();
        symlink(&path, data.join(KEYS_FILE)).unwrap();
        add(&data, KeyList::Cluster).unwrap();
        assert!(data.join(KEYS_FILE).is_symlink());
        assert_eq!(Keys::load(home.path()).unwrap().cluster_keys().len(), 1);
    }

    #[test]
    fn another_process_is_refused_until_the_file_is_replaced_and_then_adds_to_the_new_one() {
        let (home, path) = home_with(&format!("crypto_keys = [\"{KEY}\"]"));
        let opened = durable::lock_existing_file(&path).unwrap();
        let other = || add(home.path(), KeyList::Cluster);
        let added = add_by(home.path(), KeyList::Cluster, |path, text| {
            assert!(matches!(other(), Err(AddError::InUse { .. })));
            durable::replace(path, text)?;
            assert_eq!(other().unwrap().count, 2);
            Ok(())
        });
        assert_eq!(added.unwrap().count, 1);
        assert_eq!(Keys::load(home.path()).unwrap().cluster_keys().len(), 2);
        // The lock of a file that was replaced protects nothing.
        assert!(file::locked(opened, &path).unwrap().is_none());
        assert_eq!(other().unwrap().count, 3);
    }
}
