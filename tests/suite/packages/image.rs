//! The container image: its layout, and a server in a root file system that has nothing else.

use std::fs;
use std::path::Path;
use std::process::Command;

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::Value;
use tempfile::TempDir;

use super::{PUBLISHER, Packed, answers, lines, succeeded, unpack};
use crate::harness::child;

/// The unpacked layout of an image for one processor.
struct Layout {
    folder: TempDir,
    blobs: usize,
}

impl Layout {
    fn of(packed: &Packed) -> Self {
        let folder = TempDir::new().expect("a temporary directory can be made");
        unpack(&packed.file("-image.tar"), folder.path());
        Self { folder, blobs: 0 }
    }

    fn json(&self, name: &str) -> Value {
        let text = fs::read(self.folder.path().join(name)).expect("it can be read");
        serde_json::from_slice(&text).expect("it is JSON")
    }

    fn path(descriptor: &Value) -> String {
        let digest = descriptor["digest"].as_str().expect("a descriptor has a digest");
        format!("blobs/{}", digest.replace(':', "/"))
    }

    /// The content that a descriptor leads to.
    fn blob(&mut self, descriptor: &Value) -> Vec<u8> {
        let content = fs::read(self.folder.path().join(Self::path(descriptor)));
        let content = content.expect("the blob is there");
        assert_eq!(descriptor["size"], content.len());
        assert_eq!(descriptor["digest"], hash(&content));
        self.blobs += 1;
        content
    }

    fn json_blob(&mut self, descriptor: &Value) -> Value {
        serde_json::from_slice(&self.blob(descriptor)).expect("it is JSON")
    }

    /// The manifest of the one processor, its configuration, and the descriptor of its one layer.
    fn image(&mut self) -> (Value, Value, Value) {
        let index = self.json("index.json");
        let index = self.json_blob(&index["manifests"][0]);
        let manifest = self.json_blob(&index["manifests"][0]);
        let config = self.json_blob(&manifest["config"]);
        let layer = manifest["layers"][0].clone();
        (index["manifests"][0].clone(), config, layer)
    }
}

fn hash(content: &[u8]) -> String {
    let digest = digest(&SHA256, content);
    let digits = digest.as_ref().iter().map(|byte| format!("{byte:02x}"));
    format!("sha256:{}", digits.collect::<String>())
}

fn words(list: &Value) -> Vec<String> {
    serde_json::from_value(list.clone()).expect("it is a list of texts")
}

#[test]
fn each_blob_of_the_image_has_the_hash_and_the_size_that_lead_to_it() {
    let packed = Packed::shared();
    let mut layout = Layout::of(&packed);
    assert_eq!(layout.json("oci-layout")["imageLayoutVersion"], "1.0.0");
    let (manifest, config, layer) = layout.image();
    let content = layout.blob(&layer);
    assert_eq!(config["rootfs"]["diff_ids"][0], hash(&content), "it is not compressed");
    for part in ["architecture", "os"] {
        assert_eq!(manifest["platform"][part], config[part]);
    }
    let blobs = fs::read_dir(layout.folder.path().join("blobs/sha256")).unwrap();
    assert_eq!(blobs.count(), layout.blobs, "each of them is used");

    // What versions of Docker read that know no such layout.
    let old = layout.json("manifest.json")[0].clone();
    assert_eq!(words(&old["Layers"]), [Layout::path(&layer)]);
    let named = layout.json(old["Config"].as_str().unwrap());
    assert_eq!(named, config);
    assert_eq!(words(&old["RepoTags"]), [format!("kalends:{}", env!("CARGO_PKG_VERSION"))]);
}

/// A command of the image in an unpacked root, as the image's user, with the image's variables.
fn command(root: &Path, config: &Value, arguments: &[String]) -> Command {
    let mut command = child("unshare");
    command.args(["--map-root-user", &format!("--root={}", root.display())]);
    command.arg(format!("--wd={}", config["WorkingDir"].as_str().expect("it has a directory")));
    command.env_clear();
    for variable in words(&config["Env"]) {
        let (name, value) = variable.split_once('=').expect("a variable has a value");
        command.env(name, value);
    }
    command.args(arguments);
    command
}

#[actix_web::test]
async fn the_image_serves_in_a_root_that_has_nothing_else() {
    let packed = Packed::shared();
    let mut layout = Layout::of(&packed);
    let (_, config, layer) = layout.image();
    let config = &config["config"];
    let [(_, maintainer), (_, downloads)] = PUBLISHER;
    let labels = ["authors", "url"]
        .map(|name| &config["Labels"][format!("org.opencontainers.image.{name}")]);
    assert_eq!(labels, [maintainer, downloads]);
    let layer = layout.folder.path().join(Layout::path(&layer));
    let root = TempDir::new().unwrap();
    unpack(&layer, root.path());

    let entry = words(&config["Entrypoint"]);
    let version = [&entry[..], &["--version".to_owned()]].concat();
    let output = succeeded(&mut command(root.path(), config, &version));
    let version = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(version.starts_with(&format!("kalends {} ", env!("CARGO_PKG_VERSION"))), "{version}");

    let port = exposed_port(config);
    assert!(config["ExposedPorts"][format!("{port}/tcp")].is_object(), "{config}");
    let serve = [&entry[..], &words(&config["Cmd"])].concat();
    let mut server = command(root.path(), config, &serve);
    server.env("KALENDS_LISTEN", "127.0.0.1:0").env("KALENDS_METRICS_LISTEN", "off");
    let health = words(&config["Healthcheck"]["Test"]);
    assert_eq!(health, ["CMD", "kalends", "health"]);
    answers(server, Some(command(root.path(), config, &health[1..2]))).await;
    assert!(root.path().join("var/lib/kalends/keys.toml").exists());
}

/// The port at which other containers reach the server.
fn exposed_port(config: &Value) -> String {
    let variables = words(&config["Env"]);
    let mut addresses = variables.iter().filter_map(|word| word.strip_prefix("KALENDS_LISTEN="));
    let port = addresses.next().and_then(|address| address.strip_prefix("0.0.0.0:"));
    port.expect("it listens on all addresses").to_owned()
}

#[test]
fn the_image_has_a_user_who_owns_its_data_and_nothing_else() {
    let packed = Packed::shared();
    let mut layout = Layout::of(&packed);
    let (_, config, layer) = layout.image();
    let user = config["config"]["User"].as_str().unwrap().replace(':', "/");
    let layer = layout.folder.path().join(Layout::path(&layer));
    let listed = lines(child("tar").args(["--numeric-owner", "-tvf"]).arg(layer));
    let own = listed.iter().filter(|line| line.contains(&format!(" {user} ")));
    let own: Vec<_> = own.map(|line| line.split(' ').next_back().unwrap()).collect();
    assert_eq!(own, ["var/lib/kalends/"], "{listed:#?}");
    assert!(listed.iter().any(|line| line.starts_with("drwx------") && line.ends_with(own[0])));
    let writable = listed.iter().filter(|line| line.chars().nth(8) == Some('w'));
    let writable: Vec<_> = writable.filter(|line| !line.ends_with(" tmp/")).collect();
    assert!(writable.is_empty(), "{writable:?}");
}
