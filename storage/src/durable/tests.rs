use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use super::*;

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

fn names(dir: &Path) -> Vec<String> {
    let names = dir.read_dir().unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_file_is_replaced_whole_and_only_its_owner_reads_it() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("file");
    fs::write(&path, "a longer text").unwrap();
    replace(&path, "one").unwrap();
    assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("one", 0o600));
    replace_with_mode(&path, 0o640, "two").unwrap();
    assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("two", 0o640));
    assert_eq!(names(home.path()), ["file"]);
}

#[test]
fn a_file_that_is_there_is_not_created_again() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("file");
    create(&path, "one").unwrap();
    assert_eq!(create(&path, "two").unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("one", 0o600));
    assert_eq!(names(home.path()), ["file"]);
}

#[test]
fn a_lock_is_a_regular_file_and_no_link_is_followed() {
    let home = tempfile::tempdir().unwrap();
    let [lock, link, pipe, target] =
        ["lock", "link", "pipe", "target"].map(|name| home.path().join(name));
    lock_file(&lock).unwrap().try_lock().unwrap();
    lock_existing_file(&lock).unwrap();
    symlink("target", &link).unwrap();
    let refused = |path| lock_file(path).unwrap_err().to_string();
    assert_eq!(refused(&link), "this is a link, and a lock is a regular file: remove it");
    assert!(!target.exists());
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
    let expected = "this is a pipe or a device, and a lock is a regular file: remove it";
    assert_eq!(refused(&pipe), expected);
}

#[test]
fn an_error_names_its_path_once() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("missing").join("file");
    let error = create(&path, "one").unwrap_err();
    assert_eq!(cannot_write(&path, &error), error.to_string());
    let error = io::Error::from(ErrorKind::StorageFull);
    let expected = format!("cannot write {}: {error}", path.display());
    assert_eq!(cannot_write(&path, &error), expected);
}

#[test]
fn the_target_of_a_link_is_replaced_and_the_link_stays() {
    let home = tempfile::tempdir().unwrap();
    let (path, link) = (home.path().join("file"), home.path().join("link"));
    fs::write(&path, "one").unwrap();
    symlink("file", &link).unwrap();
    replace(&link, "two").unwrap();
    assert!(link.is_symlink());
    assert_eq!(fs::read_to_string(&path).unwrap(), "two");
    symlink("nowhere", home.path().join("dangling")).unwrap();
    let error = replace(&home.path().join("dangling"), "two").unwrap_err().to_string();
    assert!(error.starts_with("cannot follow the link /"), "{error}");
}

#[test]
fn what_is_no_regular_file_is_not_replaced() {
    let home = tempfile::tempdir().unwrap();
    let (socket, dir) = (home.path().join("socket"), home.path().join("dir"));
    let _listener = UnixListener::bind(&socket).unwrap();
    fs::create_dir(&dir).unwrap();
    for path in [socket, dir] {
        let error = replace(&path, "one").unwrap_err().to_string();
        assert_eq!(error, format!("{} is not a regular file", path.display()));
    }
    assert_eq!(names(home.path()), ["dir", "socket"]);
}

#[test]
fn a_file_that_was_not_finished_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("file");
    let mut file = NewFile::new(&path).unwrap();
    file.write_all(b"half").unwrap();
    assert_eq!((names(home.path()).len(), mode(file.temporary())), (1, 0o600));
    drop(file);
    assert!(names(home.path()).is_empty());
}

#[test]
fn what_killed_writers_of_a_file_left_is_removed_and_nothing_else() {
    let home = tempfile::tempdir().unwrap();
    let [path, other] = ["file", "file.2"].map(|name| home.path().join(name));
    for left in [&path, &path, &other] {
        let file = NewFile::new(left).unwrap();
        file.file.keep().unwrap();
    }
    fs::write(home.path().join(".file.swp"), "of an editor").unwrap();
    remove_leftovers(&path).unwrap();
    let left = names(home.path());
    assert!(
        left.len() == 2 && left[0].starts_with(".file.2.") && left[1] == ".file.swp",
        "{left:?}"
    );
}

#[test]
fn a_directory_is_made_with_its_parents_and_their_mode() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("one/two/three");
    create_dir_all(&path, 0o700).unwrap();
    for dir in ["one", "one/two", "one/two/three"] {
        assert_eq!(mode(&home.path().join(dir)), 0o700, "{dir}");
    }
    create_dir_all(&path, 0o700).unwrap();
    create_dir_all(&home.path().join("new/../other"), 0o700).unwrap();
    assert_eq!(names(home.path()), ["new", "one", "other"]);
    fs::write(home.path().join("file"), "").unwrap();
    let error = create_dir_all(&home.path().join("file/dir"), 0o700).unwrap_err().to_string();
    assert!(error.starts_with("cannot create the directory /"), "{error}");
}

#[test]
fn a_relative_path_is_in_the_working_directory() {
    assert_eq!(parent(Path::new("file")), Path::new("."));
    assert_eq!(parent(Path::new("dir/")), Path::new("."));
    assert_eq!(parent(Path::new("./dir/file")), Path::new("./dir"));
    assert_eq!(parent(Path::new("/")), Path::new("/"));
    create_dir_all(Path::new("."), 0o700).unwrap();
    sync_dir(parent(Path::new("file"))).unwrap();
}

#[test]
fn a_rename_and_a_removal_change_names_only() {
    let home = tempfile::tempdir().unwrap();
    let [one, two, dir] = ["one", "two", "dir"].map(|name| home.path().join(name));
    fs::write(&one, "one").unwrap();
    fs::create_dir(&dir).unwrap();
    rename(&one, &two).unwrap();
    rename(&two, &dir.join("three")).unwrap();
    remove(&dir.join("three")).unwrap();
    remove(&dir.join("three")).unwrap();
    remove(&home.path().join("nowhere/file")).unwrap();
    assert_eq!((names(home.path()), names(&dir).len()), (vec!["dir".to_owned()], 0));
}

#[test]
fn an_error_names_the_path_and_what_failed() {
    let missing = Path::new("/nowhere/at/all");
    let text = |failed: io::Result<()>| failed.unwrap_err().to_string();
    let end = "No such file or directory (os error 2)";
    let file = text(replace(missing, ""));
    assert!(file.starts_with("cannot create a file in /nowhere/at: "), "{file}");
    let renamed = text(rename(missing, Path::new("/nowhere/else")));
    assert_eq!(renamed, format!("cannot rename /nowhere/at/all to /nowhere/else: {end}"));
    assert_eq!(text(sync_file(missing)), format!("cannot sync /nowhere/at/all: {end}"));
    let dir = text(sync_dir(missing));
    assert_eq!(dir, format!("cannot sync the directory /nowhere/at/all: {end}"));
    assert_eq!(text(remove(Path::new("/"))), "cannot remove /: Is a directory (os error 21)");
}

#[test]
fn a_sync_that_is_not_supported_is_done_only_if_the_operator_accepts_it() {
    let judged =
        |errno: Errno, is_tolerated| judge(Err(errno.into()), SyncedKind::Directory, is_tolerated);
    for errno in [Errno::INVAL, Errno::OPNOTSUPP, Errno::NOTSUP] {
        assert_eq!(
            judged(errno, false).unwrap_err().to_string(),
            "its file system cannot sync directories"
        );
        judged(errno, true).unwrap();
    }
    for errno in [Errno::IO, Errno::NOSPC, Errno::ROFS, Errno::BADF] {
        assert_eq!(judged(errno, true).unwrap_err().raw_os_error(), Some(errno.raw_os_error()));
    }
}

/// The kernel of `/proc` answers EINVAL to every sync.
#[test]
fn a_file_system_that_cannot_sync_is_named() {
    let error = sync_file(Path::new("/proc/self/status")).unwrap_err().to_string();
    assert_eq!(error, "cannot sync /proc/self/status: its file system cannot sync files");
    let error = sync_dir(Path::new("/proc/self")).unwrap_err().to_string();
    assert_eq!(
        error,
        "cannot sync the directory /proc/self: its file system cannot sync directories"
    );
}
