//! Start-up: an impossible configuration is rejected with a clear error, and no existing file is
//! overwritten.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tempfile::TempDir;
use tokio::process::Command;

use crate::harness::{Agent, Bystander, Program, Sender, Server, child, kalends, run};

#[actix_web::test]
async fn a_second_server_on_a_data_directory_is_rejected() {
    let server = Server::start();
    let mut bystander = Bystander::connect(&server).await;
    fs::remove_file(server.data_dir().join("lock")).unwrap();
    let second = Program::run(serve(&server.data_dir())).await;
    let data_dir = server.data_dir();
    second.refused_start(1, &["is in use by another process", path_text(&data_dir)]);
    bystander.is_unaffected().await;
}

#[actix_web::test]
async fn the_data_directory_of_a_killed_server_is_not_locked() {
    let mut server = Server::start();
    server.crash();
    Bystander::connect(&server).await.is_unaffected().await;
}

#[actix_web::test]
async fn a_damaged_database_is_rejected_and_not_changed() {
    for (what, damage) in [
        ("overwritten", overwrite as fn(&Path) -> io::Result<()>),
        ("another file", replace),
        ("emptied", empty),
        ("cut off", cut_off),
    ] {
        let mut server = Server::start();
        Bystander::connect(&server).await.is_unaffected().await;
        assert!(server.terminate().success());
        for file in databases(&server.data_dir()) {
            let good = fs::read(&file).unwrap();
            damage(&file).unwrap();
            let bad = fs::read(&file).unwrap();
            println!("{what}");
            let ended = Program::run(serve(&server.data_dir())).await;
            ended.refused_start(2, &[path_text(&file), "restore"]);
            assert_eq!(fs::read(&file).unwrap(), bad, "{what}: {} was changed", file.display());
            fs::write(&file, good).unwrap();
        }
        server.restart();
        Bystander::connect(&server).await.is_unaffected().await;
    }
}

fn overwrite(file: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).open(file)?.write_all_at(&[0x5a; 64], 0)
}

fn replace(file: &Path) -> io::Result<()> {
    fs::write(file, "a text of another program\n".repeat(500))
}

fn empty(file: &Path) -> io::Result<()> {
    fs::write(file, "")
}

fn cut_off(file: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).open(file)?.set_len(5000)
}

#[actix_web::test]
async fn a_missing_router_table_beside_others_is_rejected() {
    let mut server = Server::start();
    assert!(server.terminate().success());
    let router = server.data_dir().join("router.db");
    let aside = server.data_dir().join("aside");
    fs::rename(&router, &aside).unwrap();
    let ended = Program::run(serve(&server.data_dir())).await;
    ended.refused_start(2, &["is missing but other tables are"]);
    assert!(!router.exists());
    fs::rename(&aside, &router).unwrap();
    server.restart();
}

#[actix_web::test]
async fn a_port_in_use_is_rejected_and_leaves_no_data_directory() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let home = TempDir::new().unwrap();
    let data = home.path().join("data");
    let ended = run(&args(&data, &["--listen", &address])).await;
    ended.refused_start(1, &[&format!("cannot listen on {address}")]);
    assert!(!data.exists());
}

#[actix_web::test]
async fn unknown_settings_are_rejected_in_every_source() {
    let home = TempDir::new().unwrap();
    let data = home.path().join("data");
    let file = home.path().join("kalends.toml");
    fs::write(&file, "# a comment\nack_wait = 5\n").unwrap();

    let flag = run(&args(&data, &["--ack-wait", "5"])).await;
    let mut variable = serve(&data);
    variable.env("KALENDS_ACK_WAIT", "5");
    let variable = Program::run(variable).await;
    let line = run(&args(&data, &["--config", path_text(&file)])).await;
    for (ended, name, place) in [
        (flag, "--ack-wait", ""),
        (variable, "KALENDS_ACK_WAIT", "environment variable"),
        (line, "ack_wait", "line 2"),
    ] {
        ended.failed(2, name);
        assert!(ended.stderr.contains(place) && ended.stdout.is_empty(), "{ended:?}");
    }
    assert!(!data.exists());
}

#[actix_web::test]
async fn all_invalid_values_are_reported_together() {
    let home = TempDir::new().unwrap();
    let data = home.path().join("data");
    let wrong = ["--ack-wait-ms", "0", "--log-level", "loud", "--public-url", "ftp://a"];
    let ended = run(&args(&data, &wrong)).await;
    for name in ["ack_wait_ms", "log_level", "public_url"] {
        ended.failed(2, name);
    }
    assert!(!data.exists());
}

#[actix_web::test]
async fn keys_are_generated_once_with_mode_0600_and_kept() {
    let mut server = Server::start();
    let file = server.data_dir().join("keys.toml");
    let keys = fs::read(&file).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
    for entry in fs::read_dir(server.data_dir()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{} is open to others", entry.path().display());
    }
    let (uaid, channel) = Agent::offline(&server).await;
    assert!(server.terminate().success());
    server.restart();
    server.crash();
    assert_eq!(fs::read(&file).unwrap(), keys);

    Sender::new().push(&channel.endpoint, "to the old endpoint").await;
    let _agent = Agent::returned_to(&server, &uaid, "to the old endpoint").await;
}

#[actix_web::test]
async fn readable_or_damaged_keys_are_rejected_and_not_changed() {
    let mut server = Server::start();
    assert!(server.terminate().success());
    let file = server.data_dir().join("keys.toml");
    let good = fs::read(&file).unwrap();

    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    Program::run(serve(&server.data_dir())).await.refused_start(2, &["chmod 600"]);
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    for bad in ["", "crypto_keys = []\n", "crypto_keys = [\"short\"]\n", "nonsense"] {
        fs::write(&file, bad).unwrap();
        Program::run(serve(&server.data_dir())).await.refused_start(2, &["keys.toml"]);
        assert_eq!(fs::read_to_string(&file).unwrap(), bad);
    }
    fs::write(&file, good).unwrap();
    server.restart();
}

#[actix_web::test]
async fn a_data_directory_that_other_users_can_change_or_read_is_rejected() {
    let mut server = Server::start();
    assert!(server.terminate().success());
    let dir = server.data_dir();
    let router = dir.join("router.db");
    let set_mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
    for (path, mode, safe) in [
        (&dir, 0o777, 0o700),
        (&dir, 0o775, 0o700),
        (&router, 0o644, 0o600),
        (&router, 0o620, 0o600),
    ] {
        set_mode(path, mode).unwrap();
        let ended = Program::run(serve(&dir)).await;
        ended.refused_start(2, &[&format!("run `chmod {safe:o} {}`", path_text(path))]);
        set_mode(path, safe).unwrap();
    }
    let keys = dir.join("keys.toml");
    let all = [(&dir, 0o777, 0o700), (&router, 0o644, 0o600), (&keys, 0o640, 0o600)];
    all.iter().for_each(|(path, mode, _)| set_mode(path, *mode).unwrap());
    let ended = Program::run(serve(&dir)).await;
    for (path, _, safe) in all {
        ended.failed(2, &format!("run `chmod {safe:o} {}`", path_text(path)));
        set_mode(path, safe).unwrap();
    }
    let own = dir.join("own");
    fs::rename(&router, &own).unwrap();
    symlink(&own, &router).unwrap();
    server.restart();
    assert!(server.terminate().success());
    // Only root can give a file away, and for others /etc/passwd is the file of another user.
    let foreign =
        if chown(&own, Some(65_534), None).is_ok() { &own } else { Path::new("/etc/passwd") };
    fs::remove_file(&router).unwrap();
    symlink(foreign, &router).unwrap();
    Program::run(serve(&dir)).await.refused_start(2, &["router.db belongs to uid "]);
}

#[actix_web::test]
async fn a_read_only_data_directory_is_rejected_and_not_changed() {
    let mut server = Server::start();
    assert!(server.terminate().success());
    let dir = server.data_dir();
    let contents = || {
        let mut files: Vec<_> = fs::read_dir(&dir).unwrap().map(|it| it.unwrap().path()).collect();
        files.sort();
        let bytes = files.iter().map(|file| fs::read(file).unwrap()).collect::<Vec<_>>();
        (files, bytes)
    };
    let before = contents();
    for dir in [dir.clone(), dir.join("new")] {
        let mount = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec \"$@\"";
        let mut command = child("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", mount]).arg(server.data_dir());
        command.arg(env!("CARGO_BIN_EXE_kalends")).args(args(&dir, &["--listen", "127.0.0.1:0"]));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let ended = Program::run(command.into()).await;
        ended.refused_start(2, &[path_text(&dir), "is read-only, so mount it writable"]);
        assert!(before == contents(), "{} was changed", dir.display());
    }
}

#[actix_web::test]
async fn a_fifo_as_a_file_of_secrets_is_rejected_at_once() {
    let home = TempDir::new().unwrap();
    let fifo = home.path().join("keys.toml");
    assert!(
        Command::from(child("mkfifo"))
            .args(["-m", "600"])
            .arg(&fifo)
            .status()
            .await
            .unwrap()
            .success()
    );
    let ended = Program::run(serve(home.path())).await;
    let reason = format!("cannot read {}: it is not a regular file", path_text(&fifo));
    ended.refused_start(2, &[&reason]);
    let import = [
        "--listen=127.0.0.1:0",
        "--broadcast-source-url=http://127.0.0.1:1",
        &format!("--broadcast-source-token-file={}", path_text(&fifo)),
    ];
    let ended = run(&args(&home.path().join("data"), &import)).await;
    ended.refused_start(1, &["it is not a regular file"]);
}

/// `kalends serve` in this directory, on any free port.
fn serve(data_dir: &Path) -> Command {
    kalends(&args(data_dir, &["--listen", "127.0.0.1:0"]))
}

fn args(data_dir: &Path, more: &[&str]) -> Vec<String> {
    let first = ["serve", "--data-dir", path_text(data_dir)];
    first.iter().chain(more).map(|&argument| argument.to_owned()).collect()
}

fn databases(data_dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(data_dir).expect("there is a data directory");
    let paths = entries.map(|entry| entry.expect("a directory can be read").path());
    let files: Vec<_> = paths.filter(|path| path.extension() == Some(OsStr::new("db"))).collect();
    assert!(files.len() > 1, "{files:?}");
    files
}

fn path_text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are text")
}
