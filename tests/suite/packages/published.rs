//! The archive, the bill of materials, the sums and their signature, and a second packing.

use std::collections::{HashMap, HashSet};
use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use super::{PUBLISHER, Packed, lines, repository, succeeded, unpack};
use crate::harness::child;

#[test]
fn the_archive_unpacks_to_a_program_that_runs() {
    let (packed, folder) = (Packed::shared(), TempDir::new().unwrap());
    unpack(&packed.file(".tar.gz"), folder.path());
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    let [top] = &names[..] else { panic!("it has one folder: {names:?}") };
    let top = top.as_ref().unwrap().path();
    let version = lines(child(top.join("usr/bin/kalends")).arg("--version")).concat();
    assert!(version.starts_with(&format!("kalends {} ", env!("CARGO_PKG_VERSION"))), "{version}");
    let documents = top.join("usr/share/doc/kalends");
    let licences = lines(child("gzip").arg("-cd").arg(documents.join("licences-of-crates.gz")));
    let of_serde = licences.iter().find(|line| line.starts_with("serde ")).unwrap();
    assert!(of_serde.ends_with("MIT OR Apache-2.0"), "{of_serde}");
    for text in
        ["Permission is hereby granted, free of charge", "Apache License", "Microsoft Corporation"]
    {
        assert!(licences.iter().any(|line| line.contains(text)), "{text}");
    }
}

#[test]
fn the_packages_have_the_files_of_the_archive() {
    let packed = Packed::shared();
    let sorted = |mut paths: Vec<String>| {
        paths.sort();
        paths
    };
    let last = |line: &String| line.rsplit(' ').next().unwrap_or_default().to_owned();
    let is_file = |path: &String| !path.ends_with('/');
    let archive = lines(child("tar").arg("-tf").arg(packed.file(".tar.gz")));
    let archive = archive.into_iter().filter(is_file);
    let archive = sorted(archive.map(|path| path.split_once('/').unwrap().1.to_owned()).collect());
    assert!(archive.contains(&"usr/share/man/man1/kalends-serve.1.gz".to_owned()), "{archive:?}");

    let debian = lines(child("dpkg-deb").arg("--contents").arg(packed.file(".deb")));
    let debian = debian.iter().map(last).filter(is_file);
    // Where zsh of Debian looks.
    let debian = debian.map(|path| path.replace("zsh/vendor-completions", "zsh/site-functions"));
    // The form that Debian asks for.
    let debian = debian.filter(|path| !path.ends_with("/changelog.gz"));
    assert_eq!(sorted(debian.map(|path| path[2..].to_owned()).collect()), archive);

    let modes = "--queryformat=[%{FILEMODES:perms} %{FILENAMES}\n]";
    let rpm = lines(child("rpm").args(["-qp", modes]).arg(packed.file(".rpm")));
    let rpm = rpm.iter().filter(|line| line.starts_with('-')).map(last);
    assert_eq!(sorted(rpm.map(|path| path[1..].to_owned()).collect()), archive);
}

#[test]
fn the_bill_of_materials_names_each_crate_whose_code_is_in_the_program() {
    let packed = Packed::shared();
    let bill = fs::read(packed.file(".cdx.json")).unwrap();
    let bill: Value = serde_json::from_slice(&bill).unwrap();
    assert_eq!((&bill["bomFormat"], &bill["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
    let components = bill["components"].as_array().unwrap();
    let text = |component: &Value, name: &str| component[name].as_str().unwrap().to_owned();
    let name =
        |component: &Value| format!("{}-{}", text(component, "name"), text(component, "version"));
    let named: HashSet<_> = components.iter().map(name).collect();

    // Each location of a panic has the path of its source.
    let mut grep = child("grep");
    grep.env("LC_ALL", "C").args(["-aoE", "/registry/src/[^/]+/[A-Za-z0-9_+.-]+/"]);
    let found = lines(grep.arg(env!("CARGO_BIN_EXE_kalends")));
    let found: HashSet<_> = found.iter().filter_map(|path| path.split('/').nth(4)).collect();
    assert!(found.len() > 50, "{found:?}");
    let missing: Vec<_> = found.iter().filter(|name| !named.contains(**name)).collect();
    assert!(missing.is_empty(), "{missing:?}");

    let in_program = audited(&packed);
    let main: HashSet<_> = [format!("kalends-{}", env!("CARGO_PKG_VERSION"))].into();
    assert_eq!(in_program, named.union(&main).cloned().collect());

    let locked = locked();
    for component in components.iter().filter(|component| component["hashes"].is_array()) {
        assert_eq!(
            locked.get(&name(component)),
            component["hashes"][0]["content"].as_str().map(str::to_owned).as_ref()
        );
        assert_eq!(
            text(component, "purl"),
            format!("pkg:cargo/{}@{}", text(component, "name"), text(component, "version"))
        );
    }
    let hashed = components.iter().filter(|component| component["hashes"].is_array()).count();
    assert!(hashed > 200, "{hashed} of {} crates have a hash", components.len());
}

/// The crates that scanners find in the packed program.
fn audited(packed: &Packed) -> HashSet<String> {
    let folder = TempDir::new().expect("a temporary directory can be made");
    unpack(&packed.file(".tar.gz"), folder.path());
    let mut find = child("find");
    let program = lines(find.arg(folder.path()).args(["-path", "*/usr/bin/kalends"])).concat();
    let section = folder.path().join("section");
    let mut dump = child("objcopy");
    dump.arg(format!("--dump-section=.dep-v0={}", section.display()));
    succeeded(dump.args([&program, "/dev/null"]));
    let mut inflate = child("python3");
    inflate.args([
        "-c",
        "import sys, zlib; print(zlib.decompress(open(sys.argv[1], 'rb').read()).decode())",
    ]);
    let text = lines(inflate.arg(section)).concat();
    let audit: Value = serde_json::from_str(&text).expect("it is JSON");
    let packages = audit["packages"].as_array().expect("it lists packages");
    let name =
        |package: &Value, field: &str| package[field].as_str().unwrap_or_default().to_owned();
    packages
        .iter()
        .map(|package| format!("{}-{}", name(package, "name"), name(package, "version")))
        .collect()
}

/// The hash of each crate of Cargo.lock.
fn locked() -> HashMap<String, String> {
    let text = fs::read_to_string(repository().join("Cargo.lock")).expect("it can be read");
    let value = |block: &str, name: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(&format!("{name} = \"")));
        line.map(|line| line.trim_end_matches('"').to_owned())
    };
    let packages = text.split("[[package]]\n").filter_map(|block| {
        let name = format!("{}-{}", value(block, "name")?, value(block, "version")?);
        Some((name, value(block, "checksum")?))
    });
    packages.collect()
}

#[test]
fn the_sums_cover_all_files_and_are_signed_by_the_named_key() {
    let packed = Packed::shared();
    let folder = packed.folder.path();
    let sums = fs::read_to_string(folder.join("SHA256SUMS")).unwrap();
    let listed: Vec<_> = sums.lines().map(|line| line.split_once("  ").unwrap().1).collect();
    let names = packed.names();
    let others = names.iter().filter(|name| !name.starts_with("SHA256SUMS"));
    assert_eq!(listed, others.collect::<Vec<_>>());
    succeeded(child("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(folder));

    let public = fs::read_to_string(packed.key.path().join("key.pub")).unwrap();
    let signers = packed.key.path().join("signers");
    fs::write(&signers, format!("kalends {public}")).unwrap();
    let verify = |file: &str| {
        let mut command = child("ssh-keygen");
        command.args([
            "-Y",
            "verify",
            "-n",
            "kalends-release",
            "-I",
            "kalends",
            "-s",
            "SHA256SUMS.sig",
            "-f",
        ]);
        command.arg(&signers).stdin(fs::File::open(folder.join(file)).unwrap());
        command.current_dir(folder).output().unwrap().status.success()
    };
    assert!(verify("SHA256SUMS"));
    assert!(!verify(listed[0]), "a signature is of one file");
}

#[test]
fn the_packages_name_who_publishes_them_and_where() {
    let packed = Packed::shared();
    let [(_, maintainer), (_, downloads)] = PUBLISHER;
    let mut debian = child("dpkg-deb");
    debian.arg("--field").arg(packed.file(".deb")).args(["Maintainer", "Homepage"]);
    let expected = [format!("Maintainer: {maintainer}"), format!("Homepage: {downloads}")];
    assert_eq!(lines(&mut debian), expected);
    let mut rpm = child("rpm");
    rpm.args(["-qp", "--queryformat=%{PACKAGER} %{URL}"]).arg(packed.file(".rpm"));
    assert_eq!(lines(&mut rpm), [format!("{maintainer} {downloads}")]);
}

#[test]
fn a_second_packing_has_the_same_bytes() {
    let packed = Packed::shared();
    let key = TempDir::new().unwrap();
    for file in ["key", "key.pub"] {
        fs::copy(packed.key.path().join(file), key.path().join(file)).unwrap();
    }
    let elsewhere = [("TZ", "Pacific/Auckland"), ("LC_ALL", "C"), ("HOSTNAME", "other")];
    let second = Packed::with_key(key, &elsewhere);
    assert_eq!(packed.names(), second.names());
    for name in packed.names() {
        let [first, second] =
            [&*packed, &second].map(|packed| fs::read(packed.folder.path().join(&name)).unwrap());
        assert!(first == second, "{name} differs");
    }
}
