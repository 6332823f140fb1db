//! `kalends keys cluster`: a fresh cluster key in front of those in `keys.toml`.
//!
//! What else is in the file stays as it is, comments too: the new key is put into the text, and the
//! text takes the file's place only if it reads as the same keys and one more.

use std::fmt;
use std::fs::{self, DirBuilder};
use std::io::{self, Write, stdout};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use serde::Deserialize;
use storage::Embedded;
use toml::Spanned;
use zeroize::Zeroizing;

use super::file::{self, KeysError};
use super::{CLUSTER_KEYS, CryptoKey, KEYS_FILE, KEYS_MAX, Keys, generate};
use crate::admin::locked_file::{LockError, LockedFile};
use crate::settings::Settings;

const HEAD: &str = "\
# What the nodes of a cluster sign with whatever they say to each other. The first key signs, all of
# them verify. Every node needs this same file: copy it, with mode 0600. Whoever can read it can hand
# messages to the nodes. `kalends keys cluster` puts a new one in front.
";

/// What was done.
#[derive(Debug, PartialEq, Eq)]
pub struct Added {
    /// The file.
    pub path: PathBuf,
    /// Whether it was made.
    pub is_new: bool,
    /// How many cluster keys it has now.
    pub count: usize,
}

/// Why no cluster key was added. Never quotes the file.
#[derive(Debug, thiserror::Error)]
pub enum AddError {
    /// The keys that are there are not right.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// The directory could not be made.
    #[error("cannot make the data directory {}: {error}", dir.display())]
    DataDir {
        /// The directory.
        dir: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The server that reads the file could not read a new one.
    #[error(
        "{path} belongs to uid {owner}, and this runs as uid {own}: run it as that user \
         (sudo -u '#{owner}' kalends keys cluster ...)"
    )]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who this is.
        own: u32,
    },
    /// Another key would be one too many.
    #[error(
        "{path} has {KEYS_MAX} cluster_keys, and more are not allowed: take out the last ones, which no \
         node signs with any more"
    )]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// It is being changed right now.
    #[error("another process is changing {path}: try again")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The changed text is not what it should be.
    #[error(
        "{path} is written in a way that no key can be put in: put the output of `kalends keys \
         generate` into cluster_keys by hand"
    )]
    NotEditable {
        /// The file.
        path: PathBuf,
    },
}

/// Adds a key where the settings say, and says what is to be done next.
pub fn run(settings: &Settings) -> Result<(), AddError> {
    let added = add(&settings.data_dir)?;
    // Where standard output is closed there is nobody to tell, and it is done.
    let _ = writeln!(stdout(), "{added}");
    Ok(())
}

impl fmt::Display for Added {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match (self.is_new, self.count) {
            (true, _) => writeln!(
                f,
                "{path} was made, with a key for endpoints and a cluster key.\n\
                 If a server has run on the same tables before, its keys.toml is needed instead: put it here \
                 and run this again."
            )?,
            (false, 1) => writeln!(f, "{path} has a cluster key now.")?,
            (false, count) => {
                writeln!(f, "{path} has {count} cluster keys now, the new one first.")?;
            }
        }
        f.write_str(
            "Copy it into the data directory of every node: mode 0600, owned by the user that the node \
             runs as.",
        )?;
        match self.count {
            1 => f.write_str("\nThen start the nodes."),
            _ => f.write_str(
                "\nThen restart the connection nodes, and after them the endpoint nodes. When all run with it, the \
                 keys behind the first can go.",
            ),
        }
    }
}

/// Adds a fresh cluster key to the keys of the data directory `dir`. Where it has none, makes them
/// first, unless there is a database that had others.
pub fn add(dir: &Path) -> Result<Added, AddError> {
    make_dir(dir)?;
    let path = dir.join(KEYS_FILE);
    let is_new = make_if_missing(dir, &path)?;
    is_ours(&path)?;
    let unwritable = |error| KeysError::Unwritable { path: path.clone(), error };
    let mut file = LockedFile::open(&path).map_err(|error| match error {
        LockError::InUse => AddError::InUse { path: path.clone() },
        LockError::NotAFile(path) => KeysError::NotAFile { path }.into(),
        LockError::Io(error) => unwritable(error).into(),
    })?;
    // Read again, now that nobody else changes it.
    let before = file::read(&path)?;
    let (after, count) = with_key(&path, &before, &generate())?;
    file.replace(after.as_bytes()).map_err(unwritable)?;
    Ok(Added { path, is_new, count })
}

/// Answers whether it made the file. Keys that were lost are not made up for: a database needs its own.
fn make_if_missing(dir: &Path, path: &Path) -> Result<bool, KeysError> {
    match file::read(path) {
        Err(KeysError::Missing { .. }) if !Embedded::exists(dir) => {
            file::create(dir, path, &generate()).map(|()| true)
        }
        read => read.map(|_text| false),
    }
}

fn make_dir(dir: &Path) -> Result<(), AddError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| AddError::DataDir { dir: dir.to_owned(), error })
}

/// The file that takes its place belongs to whoever makes it.
fn is_ours(path: &Path) -> Result<(), AddError> {
    let found = fs::metadata(path);
    let found = found.map_err(|error| KeysError::Unreadable { path: path.into(), error })?;
    compare(path, found.uid(), geteuid().as_raw())
}

fn compare(path: &Path, owner: u32, own: u32) -> Result<(), AddError> {
    match owner == own {
        true => Ok(()),
        false => Err(AddError::NotOurs { path: path.into(), owner, own }),
    }
}

/// The text with `key` in front of the cluster keys, and how many these are then.
fn with_key(path: &Path, before: &str, key: &str) -> Result<(Zeroizing<String>, usize), AddError> {
    let there = file::parse(path, before)?;
    if there.cluster_keys().len() >= KEYS_MAX {
        return Err(AddError::Full { path: path.into() });
    }
    let not_editable = || AddError::NotEditable { path: path.into() };
    let after = put_in(before, key).ok_or_else(not_editable)?;
    let now = file::parse(path, &after)?;
    match is_one_more(&there, &now, key) {
        true => Ok((after, now.cluster_keys().len())),
        false => Err(not_editable()),
    }
}

/// None where the list is not where the parser says it is.
fn put_in(text: &str, key: &str) -> Option<Zeroizing<String>> {
    let Some(list) = list_in(text)? else {
        let gap = if text.ends_with('\n') { "" } else { "\n" };
        let list = format!("{gap}\n{HEAD}{CLUSTER_KEYS} = [\n    \"{key}\",\n]\n");
        return Some(Zeroizing::new(format!("{text}{list}")));
    };
    let (head, tail) = text.split_at_checked(list)?;
    let head = head.strip_suffix('[').map(|_bracket| head)?;
    let is_on_lines = tail.trim_start_matches([' ', '\t', '\r']).starts_with(['\n', '#']);
    let new = if is_on_lines { format!("\n    \"{key}\",") } else { format!("\"{key}\", ") };
    Some(Zeroizing::new(format!("{head}{new}{tail}")))
}

/// Where the first of the cluster keys would be, behind the bracket; None inside where there is no
/// such list.
fn list_in(text: &str) -> Option<Option<usize>> {
    #[derive(Deserialize)]
    struct Places {
        cluster_keys: Option<Spanned<Vec<Zeroizing<String>>>>,
    }
    let places: Places = toml::from_str(text).ok()?;
    Some(places.cluster_keys.map(|list| list.span().start + 1))
}

fn is_one_more(there: &Keys, now: &Keys, key: &str) -> bool {
    let Some((first, others)) = now.cluster_keys().split_first() else { return false };
    are_equal(now.crypto_keys(), there.crypto_keys())
        && are_equal(others, there.cluster_keys())
        && first.to_text().as_str() == key
}

fn are_equal(some: &[CryptoKey], others: &[CryptoKey]) -> bool {
    some.iter().map(CryptoKey::as_bytes).eq(others.iter().map(CryptoKey::as_bytes))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::thread;

    use tempfile::TempDir;

    use super::*;

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
        with_key(Path::new(KEYS_FILE), before, NEW).map(|(after, count)| (after.to_string(), count))
    }

    fn texts(keys: &[CryptoKey]) -> Vec<String> {
        keys.iter().map(|key| key.to_text().to_string()).collect()
    }

    #[test]
    fn where_there_is_no_file_it_is_made_with_a_key_of_each_kind() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("new/data");
        let path = dir.join(KEYS_FILE);
        let expected = Added { path: path.clone(), is_new: true, count: 1 };
        assert_eq!(add(&dir).unwrap(), expected);
        assert!(expected.to_string().contains("its keys.toml is needed instead"), "{expected}");
        let keys = Keys::load(&dir).unwrap();
        assert_eq!((keys.crypto_keys().len(), keys.cluster_keys().len()), (1, 1));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o7777, 0o700);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "something was left behind");
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.contains("KEEP THIS FILE") && text.contains("Every node needs this same file")
        );
    }

    #[test]
    fn another_key_goes_in_front_and_the_others_stay() {
        let (home, path) = home_with(&format!("# mine\ncrypto_keys = [\"{KEY}\"] # keep\n"));
        for count in 1..=KEYS_MAX {
            let before = Keys::load(home.path()).unwrap();
            let added = add(home.path()).unwrap();
            assert_eq!(added, Added { path: path.clone(), is_new: false, count });
            let after = Keys::load(home.path()).unwrap();
            assert_eq!(texts(after.crypto_keys()), [KEY]);
            assert_eq!(texts(&after.cluster_keys()[1..]), texts(before.cluster_keys()));
            assert_eq!(added.to_string().contains("restart the connection nodes"), count > 1);
        }
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with(&format!("# mine\ncrypto_keys = [\"{KEY}\"] # keep\n")));
        assert_eq!(text.matches("# What the nodes").count(), 1);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        let full = add(home.path()).unwrap_err().to_string();
        assert!(full.contains("has 16 cluster_keys"), "{full}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1, "something was left behind");
    }

    #[test]
    fn a_list_keeps_its_shape() {
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
    fn a_file_without_a_last_line_end_gets_the_list_on_lines_of_its_own() {
        let crypto = format!("crypto_keys = [\"{KEY}\"]");
        for (end, expected) in
            [("", "\n\n# What"), ("\n", "\n\n# What"), (" # end", " # end\n\n# What")]
        {
            let (after, count) = put(&format!("{crypto}{end}")).unwrap();
            assert!(after.starts_with(&format!("{crypto}{expected}")), "{after}");
            assert_eq!(count, 1);
        }
    }

    #[test]
    fn keys_that_are_not_right_stay_as_they_are_and_are_not_told() {
        for wrong in [
            "".to_owned(),
            "crypto_keys = [\"SECRET\"]".to_owned(),
            format!("crypto_keys = [\"{KEY}\"]\ncluster_keys = []"),
            format!("crypto_keys = [\"{KEY}\"]\ncluster_keys = [\"SECRET\"]"),
            format!("crypto_keys = [\"{KEY}\"]\nother = [\"SECRET\"]"),
            format!("crypto_keys = [\"{KEY}\"]\n#{}", "x".repeat(65_200)),
        ] {
            let (home, path) = home_with(&wrong);
            let told = add(home.path()).unwrap_err().to_string();
            assert!(told.starts_with(path.to_str().unwrap()) && !told.contains("SECRET"), "{told}");
            assert_eq!(fs::read_to_string(&path).unwrap(), wrong);
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let (home, path) = home_with(&format!("crypto_keys = [\"{KEY}\"]"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(add(home.path()).unwrap_err().to_string().contains("chmod 600"));
    }

    #[test]
    fn keys_that_were_lost_beside_a_database_are_not_made_up_for() {
        let home = tempfile::tempdir().unwrap();
        drop(Embedded::open(home.path(), &storage::EmbeddedOptions::default()).unwrap());
        let told = add(home.path()).unwrap_err().to_string();
        assert!(told.contains("restore it from a backup"), "{told}");
        assert!(!home.path().join(KEYS_FILE).exists());
    }

    #[test]
    fn a_link_stays_a_link() {
        let (home, path) = home_with(&format!("crypto_keys = [\"{KEY}\"]"));
        let data = home.path().join("data");
        fs::create_dir(&data).unwrap();
        symlink(&path, data.join(KEYS_FILE)).unwrap();
        add(&data).unwrap();
        assert!(data.join(KEYS_FILE).is_symlink());
        assert_eq!(Keys::load(home.path()).unwrap().cluster_keys().len(), 1);
    }

    #[test]
    fn of_several_at_once_each_adds_a_key_or_says_that_another_does() {
        let (home, _) = home_with(&format!("crypto_keys = [\"{KEY}\"]"));
        let added = thread::scope(|scope| {
            let tasks: Vec<_> = (0..8).map(|_| scope.spawn(|| add(home.path()))).collect();
            tasks.into_iter().map(|task| task.join().unwrap()).collect::<Vec<_>>()
        });
        let done = added.iter().filter(|added| added.is_ok()).count();
        let keys = Keys::load(home.path()).unwrap();
        assert_eq!(
            (texts(keys.crypto_keys()), keys.cluster_keys().len()),
            (vec![KEY.to_owned()], done)
        );
        for refused in added.iter().filter_map(|added| added.as_ref().err()) {
            assert!(matches!(refused, AddError::InUse { .. }), "{refused}");
        }
    }

    #[test]
    fn the_file_of_another_user_is_left_to_that_user() {
        let told = compare(Path::new("/srv/keys.toml"), 7, 0).unwrap_err().to_string();
        assert!(told.contains("/srv/keys.toml belongs to uid 7, and this runs as uid 0"), "{told}");
        assert!(told.contains("sudo -u '#7' kalends keys cluster"), "{told}");
    }
}
