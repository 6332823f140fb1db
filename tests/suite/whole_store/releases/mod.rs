//! Stores of each release, which `make golden` made once. Today's version opens all of them: it delivers what waits, keeps
//! each URL and token working, backs up and copies.

mod known;
mod make;
mod stores;

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use self::stores::Release;
use crate::harness::{Launch, Program, Server, WireServer, dynamo, kalends};

/// The releases with a store, in `fixtures/releases`.
fn releases() -> Vec<Release> {
    let entries = fs::read_dir(Release::all()).expect("there are releases");
    let mut dirs: Vec<PathBuf> =
        entries.map(|entry| entry.expect("it can be listed").path()).collect();
    dirs.sort();
    assert!(!dirs.is_empty(), "no release has a store");
    dirs.into_iter().map(Release::at).collect()
}

/// `MAKE_GOLDEN` makes the store of this version first. One that is there is never made again.
#[actix_web::test]
async fn this_version_has_a_store() {
    let release = Release::at(Release::all().join(env!("CARGO_PKG_VERSION")));
    if std::env::var_os("MAKE_GOLDEN").is_some() {
        make::make(&release).await;
    }
    let dir = release.dir.display();
    assert!(release.dir.join("known.json").is_file(), "{dir} is missing: `make golden` makes it");
}

#[actix_web::test]
async fn the_data_directory_of_each_release_is_served_with_all_its_rows() {
    for release in releases() {
        let home = TempDir::new().expect("a temporary directory can be made");
        let (dir, known) = (release.data_in(home.path()), release.known());
        let mut server = Server::launch(known.on(Launch::default(), &dir));
        known.is_served(&server).await;
        assert!(server.terminate().success());
        known.has_kept_its_rows(&dir);
    }
}

#[actix_web::test]
async fn the_archive_of_each_release_is_restored_and_backed_up_again() {
    for release in releases() {
        let home = TempDir::new().expect("a temporary directory can be made");
        let (known, mut archive) = (release.known(), release.archive());
        for name in ["restored", "restored-again"] {
            let dir = home.path().join(name);
            let run = async |words: &[&str]| {
                let mut command = kalends(words);
                command.arg("--data-dir").arg(&dir);
                Program::run(command).await.succeeded();
            };
            run(&["restore", &archive.display().to_string()]).await;
            archive = home.path().join(name).with_extension("tar");
            run(&["backup", &archive.display().to_string()]).await;
        }
        let server =
            Server::launch(known.on(Launch::default(), &home.path().join("restored-again")));
        known.is_served(&server).await;
    }
}

#[actix_web::test]
async fn the_items_of_each_release_in_dynamodb_are_served() {
    for release in releases() {
        let (home, wire) = (TempDir::new().expect("a temporary directory"), WireServer::start());
        let (known, dir) = (release.known(), release.keys_in(home.path()));
        release.fill_dynamodb(&wire).await;
        let server = Server::launch(known.on(dynamo::launch(&wire.url), &dir));
        known.is_served(&server).await;
    }
}

#[actix_web::test]
async fn the_tables_of_each_release_in_postgresql_are_served() {
    for release in releases() {
        let home = TempDir::new().expect("a temporary directory can be made");
        let (known, dir) = (release.known(), release.keys_in(home.path()));
        let server = Server::launch(known.on(release.fill_postgresql(), &dir));
        known.is_served(&server).await;
    }
}

/// `store copy` has the clock of its machine, and leaves out what has expired since the release.
#[actix_web::test]
async fn the_data_directory_of_each_release_is_copied_to_another_engine() {
    for release in releases() {
        let (home, wire) = (TempDir::new().expect("a temporary directory"), WireServer::start());
        let (known, dir) = (release.known(), release.data_in(home.path()));
        let launch = dynamo::launch(&wire.url);
        make::copy(&dir, "dynamodb", launch.clone()).await;
        known.endpoints_work(&Server::launch(stores::today(launch, &dir))).await;
    }
}

/// Ten years later every message has expired. Subscriptions and their URLs have no end.
#[actix_web::test]
async fn endpoints_of_each_release_work_ten_years_later() {
    for release in releases() {
        let home = TempDir::new().expect("a temporary directory can be made");
        let (dir, known) = (release.data_in(home.path()), release.known());
        let later = known.later(10 * 365 * 24 * 60 * 60, Launch::default(), &dir);
        known.endpoints_work(&Server::launch(later)).await;
    }
}
