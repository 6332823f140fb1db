use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use storage::owner::OtherOwner;
use tempfile::TempDir;

use super::*;
use crate::fuzz::fuzz;

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

fn dir() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Puts a `keys.toml` with this text and mode into a fresh directory.
fn with_file(text: &str, mode: u32) -> (TempDir, PathBuf) {
    let dir = dir();
    let path = dir.path().join(KEYS_FILE);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    (dir, path)
}

fn texts(keys: &Keys) -> Vec<String> {
    to_texts(keys.crypto_keys())
}

fn cluster_texts(keys: &Keys) -> Vec<String> {
    to_texts(keys.cluster_keys())
}

fn to_texts(keys: &[Key]) -> Vec<String> {
    keys.iter().map(|key| key.to_text().to_string()).collect()
}

#[test]
fn the_first_start_creates_keys_with_mode_0600_and_later_starts_keep_them() {
    let dir = dir();
    let first = Keys::load_or_generate(dir.path()).unwrap();
    let path = dir.path().join(KEYS_FILE);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    let written = fs::read(&path).unwrap();

    let second = Keys::load_or_generate(dir.path()).unwrap();
    assert_eq!(texts(&first), texts(&second));
    assert_eq!(fs::read(&path).unwrap(), written);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "a temporary file was left behind");
}

#[test]
fn a_new_file_begins_with_an_explanation() {
    let dir = dir();
    let keys = Keys::load_or_generate(dir.path()).unwrap();
    let text = fs::read_to_string(dir.path().join(KEYS_FILE)).unwrap();
    assert!(text.starts_with("# The keys of this Kalends installation"));
    assert!(text.contains(keys.crypto_keys()[0].to_text().as_str()));
}

#[test]
fn concurrent_starts_agree_on_the_keys() {
    let dir = dir();
    let starts: Vec<Vec<String>> = std::thread::scope(|scope| {
        let start = || texts(&Keys::load_or_generate(dir.path()).unwrap());
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(start)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(starts.iter().all(|keys| *keys == starts[0]), "{starts:?}");
}

#[test]
fn an_invalid_file_is_an_error_and_stays_as_it_is() {
    let seventeen = format!("crypto_keys = [{}]", format!("\"{KEY}\",").repeat(17));
    let good = format!("crypto_keys = [\"{KEY}\"]\n");
    let cluster = |list: &str| format!("{good}cluster_keys = {list}");
    let auth = |list: &str| format!("{good}auth_keys = {list}");
    let cluster_of_seventeen =
        format!("{good}cluster_{seventeen}").replace("cluster_crypto", "cluster");
    let huge = "#".repeat(70_000);
    let cases: &[(&str, &str)] = &[
        ("", "is empty: restore it"),
        ("\n \n", "is empty: restore it"),
        ("crypto_keys = [", "line 1: expected only crypto_keys"),
        ("# nothing here\n", "expected only crypto_keys"),
        ("crypto_keys = []", "crypto_keys is empty; mend it"),
        ("# a\n\ncrypto_keys = \"SECRET\"", "line 3: expected only crypto_keys"),
        ("crypto_keys = [\"SECRET\"]", "key 1 of crypto_keys is not 32 bytes"),
        ("crypto_keys = [7]", "line 1: expected only crypto_keys"),
        ("crypto_keys = []\nother = \"SECRET\"", "line 2: expected only crypto_keys"),
        (&seventeen, "crypto_keys has 17 keys, at most 16 are allowed"),
        (&cluster_of_seventeen, "cluster_keys has 17 keys, at most 16 are allowed"),
        (&cluster("[]"), "cluster_keys is empty; mend it"),
        (&cluster("\"SECRET\""), "line 2: expected only crypto_keys = [\"...\"] and, for several"),
        (&cluster("[\"SECRET\"]"), "key 1 of cluster_keys is not 32 bytes"),
        ("cluster_keys = [\"SECRET\"]", "line 1: expected only crypto_keys"),
        (&auth("[]"), "auth_keys is empty; mend it"),
        (&auth("[\"a sixteen SECRET\"]"), "key 1 of auth_keys is not 16 to 256 ASCII characters"),
        (&auth("7"), "line 2: expected only crypto_keys"),
        (
            &format!("{}\nauth_keys = []", auth("\"a-key-of-sixteen-characters\"")),
            "line 3: auth_keys is there twice: make it one list",
        ),
        (&huge, "is larger than 65536 bytes"),
    ];
    for (text, says) in cases {
        let (dir, path) = with_file(text, 0o600);
        let error = Keys::load_or_generate(dir.path()).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        assert!(error.starts_with(path.to_str().unwrap()), "{error}");
        assert!(!error.contains("SECRET"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), *text);
    }
}

#[test]
fn a_file_that_is_not_text_is_unreadable() {
    let (dir, path) = with_file("", 0o600);
    fs::write(&path, [0xff, 0xfe]).unwrap();
    let error = Keys::load_or_generate(dir.path()).unwrap_err();
    assert!(matches!(error, KeysError::Unreadable { .. }), "{error}");
}

#[test]
fn a_file_that_other_users_can_access_is_refused() {
    let good = format!("crypto_keys = [\"{KEY}\"]");
    for mode in [0o640, 0o604, 0o620, 0o602, 0o644, 0o610, 0o601] {
        let (dir, _) = with_file(&good, mode);
        let error = Keys::load_or_generate(dir.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("has mode {mode:04o}")), "{error}");
        assert!(error.contains("chmod 600"), "{error}");
    }
    let (dir, _) = with_file(&good, 0o400);
    assert_eq!(texts(&Keys::load_or_generate(dir.path()).unwrap()), [KEY]);
}

#[test]
fn the_file_of_another_user_is_refused() {
    let (dir, path) = with_file(&format!("crypto_keys = [\"{KEY}\"]"), 0o600);
    // Only root can give a file away.
    let is_given_away = chown(&path, Some(65_534), None).is_ok();
    assert_eq!(Keys::load(dir.path()).is_err(), is_given_away);
    let other = OtherOwner { owner: 54_321, own: 0 };
    let error = KeysError::OtherOwner { path: "/srv/keys.toml".into(), other }.to_string();
    assert!(
        error.contains("/srv/keys.toml belongs to uid 54321, and this runs as uid 0"),
        "{error}"
    );
    assert!(
        error.contains("setpriv --reuid=54321 --clear-groups kalends")
            && error.contains("chown 0 /srv"),
        "{error}"
    );
}

#[test]
fn a_directory_in_place_of_the_file_is_an_error() {
    let dir = dir();
    fs::create_dir(dir.path().join(KEYS_FILE)).unwrap();
    let error = Keys::load_or_generate(dir.path()).unwrap_err();
    assert!(error.to_string().ends_with("keys.toml: it is not a regular file"), "{error}");
}

#[test]
fn a_missing_directory_is_an_error() {
    let dir = dir();
    let error = Keys::load_or_generate(&dir.path().join("nowhere")).unwrap_err();
    assert!(matches!(error, KeysError::Unwritable { .. }), "{error}");
}

#[test]
fn loading_creates_no_file() {
    let dir = dir();
    let error = Keys::load(dir.path()).unwrap_err();
    assert!(matches!(error, KeysError::Missing { .. }), "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn keys_are_parsed_with_and_without_padding_and_with_stray_bits() {
    let example = format!("{}B=", "A".repeat(42));
    let keys = Keys::from_texts(&[KEY, KEY.trim_end_matches('='), &example]).unwrap();
    assert_eq!(texts(&keys), [KEY, KEY, &format!("{}=", "A".repeat(43))]);
}

#[test]
fn cluster_keys_are_optional() {
    let other = format!("{}=", "B".repeat(42) + "A");
    let lists = format!("cluster_keys = [\"{other}\", \"{KEY}\"]\ncrypto_keys = [\"{KEY}\"]");
    let (dir, _) = with_file(&lists, 0o600);
    let keys = Keys::load(dir.path()).unwrap();
    assert_eq!((texts(&keys), cluster_texts(&keys)), (vec![KEY.into()], vec![other, KEY.into()]));
    let (dir, _) = with_file(&format!("crypto_keys = [\"{KEY}\"]"), 0o600);
    assert!(Keys::load(dir.path()).unwrap().cluster_keys().is_empty());
}

#[test]
fn an_auth_key_is_any_text_of_16_to_256_characters() {
    let (shortest, longest) = ("x".repeat(16), "~".repeat(256));
    let lists = format!(
        "crypto_keys = [\"{KEY}\"]\nauth_keys = [\"{KEY}\", \"{shortest}\", \"{longest}\"]"
    );
    let (dir, _) = with_file(&lists, 0o600);
    let keys = Keys::load(dir.path()).unwrap();
    let bytes: Vec<_> = keys.auth_keys().iter().map(Key::as_bytes).collect();
    assert_eq!(bytes, [KEY.as_bytes(), shortest.as_bytes(), longest.as_bytes()]);
    for wrong in ["", &shortest[1..], &"x".repeat(257), "fifteen of these ", "ключключключключ"]
    {
        let error = Keys::from_texts(&[KEY]).unwrap().with_auth_texts(&[KEY, wrong]).unwrap_err();
        assert_eq!(error, KeyListError::NotAKey { list: KeyList::Auth, place: 2 }, "{wrong}");
    }
}

#[test]
fn an_invalid_key_is_named_by_its_place() {
    let standard = format!("{}+/A=", "A".repeat(40));
    for wrong in ["", "AAAA", &KEY[1..], &KEY.repeat(2), &standard, "ключ"] {
        let error = Keys::from_texts(&[KEY, wrong]).unwrap_err();
        let expected = |list| KeyListError::NotAKey { list, place: 2 };
        assert_eq!(error, expected(KeyList::Crypto), "{wrong}");
        let keys = Keys::from_texts(&[KEY]).unwrap();
        let error = keys.with_cluster_texts(&[KEY, wrong]).unwrap_err();
        assert_eq!(error, expected(KeyList::Cluster), "{wrong}");
    }
}

#[test]
fn generated_keys_are_valid_and_differ() {
    let (one, other) = (generate(), generate());
    assert_ne!(one, other);
    assert_eq!(texts(&Keys::from_texts(&[&one]).unwrap()), [one.as_str()]);
}

#[test]
fn keys_are_never_printed() {
    let keys = Keys::from_texts(&[KEY]).unwrap();
    assert_eq!(
        format!("{keys:?}"),
        "Keys { crypto_keys: [Key(redacted)], cluster_keys: [], auth_keys: [] }"
    );
    let keys = keys.with_cluster_texts(&[KEY]).unwrap().with_auth_texts(&[KEY]).unwrap();
    let others = "cluster_keys: [Key(redacted)], auth_keys: [Key(redacted)] }";
    assert!(format!("{keys:?}").ends_with(others));
}

#[test]
fn a_sealed_text_opens_only_for_its_purpose_and_binding() {
    let keys = Keys::from_texts(&[KEY]).unwrap();
    let (ours, other) = (
        SealKeys::derive(&keys, Purpose::Endpoint),
        SealKeys::derive(&keys, Purpose::RestrictedEndpoint),
    );
    let mut sealed = *b"text____tag_____________";
    ours.seal(b"binding", &mut sealed);
    let mut plain = [0; 8];
    assert!(ours.open(b"binding", &sealed, &mut plain));
    assert_eq!(&plain, b"text____");
    assert!(!other.open(b"binding", &sealed, &mut plain));
    assert!(!ours.open(b"", &sealed, &mut plain));
    assert!(!ours.open(b"binding", &sealed[..15], &mut plain));
    sealed[0] ^= 1;
    assert!(!ours.open(b"binding", &sealed, &mut plain));
}

#[test]
fn the_first_key_seals_and_all_open() {
    let old = generate();
    let (before, after) = (Keys::from_texts(&[old.as_str()]), Keys::from_texts(&[KEY, &old]));
    let before = SealKeys::derive(&before.unwrap(), Purpose::Endpoint);
    let after = SealKeys::derive(&after.unwrap(), Purpose::Endpoint);
    let (mut with_old, mut with_new) = ([7; 24], [7; 24]);
    before.seal(b"", &mut with_old);
    after.seal(b"", &mut with_new);
    let mut plain = [0; 8];
    assert!(after.open(b"", &with_old, &mut plain));
    assert!(after.open(b"", &with_new, &mut plain));
    assert!(!before.open(b"", &with_new, &mut plain));
}

#[test]
fn no_hostile_file_of_keys_panics_or_is_quoted() {
    let samples = [
        format!("crypto_keys = [\"{KEY}\"]\n"),
        format!("# Keys.\ncrypto_keys = [\n    \"{KEY}\",\n]\ncluster_keys = [\"{KEY}\"]\n"),
        format!("crypto_keys = [\"{KEY}\"]\nauth_keys = [\"{KEY}\"]\n"),
    ];
    fuzz("key_files", &samples, |bytes| {
        let parsed = file::parse(Path::new("keys.toml"), &String::from_utf8_lossy(bytes));
        if let Err(error) = parsed {
            assert!(!error.to_string().contains(&KEY[..8]), "{error}");
        }
    });
}
