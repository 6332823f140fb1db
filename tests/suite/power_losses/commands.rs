//! Every command, and what it leaves on a disk. A command that writes must be in [`WRITING`].

use std::collections::BTreeSet;
use std::fs;

use power::Disk;
use tempfile::TempDir;

use super::left::Left;
use crate::harness::{child, kalends, run};

/// What is on the disk before the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Start {
    /// The directory `home`, without a store.
    Empty,
    /// A store that was last used months ago, in `home/data`.
    Old,
    /// The same store, used now, and an archive of it.
    Used,
    /// That store, with the file of its records as an earlier version left it.
    Earlier,
    /// Keys without a store.
    Keys,
    /// The keys of an autopush-rs without a store.
    Autopush,
}

/// What an answered command has left. In all texts, the names of [`Facts`](super::sweep::Facts) stand for what they are.
#[derive(Debug, Clone, Copy)]
pub(super) enum Effect {
    /// Only what was there before.
    Nothing,
    /// A file with this text in it, which is whole or as before at any time.
    File(&'static str, &'static str),
    /// An archive that `kalends restore` accepts, which is whole or as before at any time.
    Archive(&'static str),
    NoFile(&'static str),
    /// A row with all of these.
    Row(&'static [&'static str]),
    NoRow(&'static [&'static str]),
    /// The rows with all of these are others than before.
    Changed(&'static [&'static str]),
    /// All rows of the store in `home/data` of a used disk, in this directory.
    Store(&'static str),
}

/// A command that writes.
#[derive(Debug)]
pub(super) struct Writing {
    pub(super) name: &'static str,
    pub(super) words: &'static str,
    pub(super) start: Start,
    pub(super) effect: Effect,
    /// Parts of rows that it changes or removes.
    pub(super) changes: &'static [&'static str],
    /// What it says where all was done before, in place of an exit code of 0.
    pub(super) again: &'static str,
}

const fn on(
    start: Start,
    name: &'static str,
    words: &'static str,
    effect: Effect,
    changes: &'static [&'static str],
) -> Writing {
    Writing { name, words, start, effect, changes, again: "" }
}

impl Writing {
    const fn or_says(self, again: &'static str) -> Self {
        Self { again, ..self }
    }
}

const DATA: &str = "--data-dir HOME/data";

use Effect::{Archive, Changed, File, NoFile, NoRow, Nothing, Row, Store};
use Start::{Autopush, Earlier, Empty, Keys, Old, Used};

/// [`DATA`] follows the words, unless they name a file or directory themselves.
pub(super) const WRITING: &[Writing] = &[
    // The slowest one.
    on(Empty, "dev view", VIEWED, File("view.html", "</html>"), &[]),
    on(
        Empty,
        "serve",
        "--data-dir HOME/parent/data",
        File("parent/data/keys.toml", "crypto_keys"),
        &[],
    ),
    on(Used, "serve", "", Nothing, &[]),
    on(Earlier, "serve", "", Nothing, &[]),
    on(Old, "serve", "", Row(&["router/months|THIS"]), &[]),
    on(Empty, "subscribe", "SERVER --state HOME/state.json", File("state.json", "uaid"), &[]),
    on(Empty, "init", "--yes HOME/kalends.toml", File("kalends.toml", "kalends serve"), &[])
        .or_says("exists"),
    on(Empty, "keys vapid", "HOME/vapid.pem", File("vapid.pem", "PRIVATE KEY"), &[]),
    on(Empty, "keys cluster", "", File("data/keys.toml", "cluster_keys"), &[]),
    on(Used, "keys cluster", "", File("data/keys.toml", "\ncluster_keys"), &[]),
    on(Used, "keys auth", "", File("data/keys.toml", "\nauth_keys"), &[]),
    on(Used, "access add", "alice", Row(&["feed_keys", "alice"]), &[])
        .or_says("there is an access token with the name alice"),
    on(Used, "access rotate", "bob", Changed(&["feed_keys", "bob"]), &["bob"]),
    on(Used, "access revoke", "bob", Changed(&["feed_keys", "bob"]), &["bob"])
        .or_says("is revoked already"),
    on(Used, "backup", "HOME/new.tar", Archive("new.tar"), &[]).or_says("exists"),
    on(Used, "backup", "--force HOME/backup.tar", Archive("backup.tar"), &[]),
    on(
        Used,
        "restore",
        "HOME/backup.tar --data-dir HOME/restored/data",
        Store("restored/data"),
        &[],
    )
    .or_says("not empty"),
    on(Old, "tables create", "", Row(&["router/months|NEXT"]), &[]),
    on(
        Old,
        "tables copy",
        "OLD THIS",
        Row(&["messages_THIS/channels", "OLD_AGENT"]),
        &["router/router"],
    )
    .or_says("there is nothing to copy"),
    on(Used, "tables drop", "OLD --yes --force", NoFile("data/messages_OLD.db"), &["OLD"]),
    on(
        Used,
        "tables drop-old",
        "--force",
        NoFile("data/messages_OLD.db"),
        &["OLD", "messages_", "router/months"],
    ),
    on(Used, "users drop", "THE_AGENT", NoRow(&["router/router", "THE_AGENT"]), &["THE_AGENT"])
        .or_says("there is no user"),
    on(
        Used,
        "users drop-inactive",
        "--months 2",
        NoRow(&["router/router", "OLD_AGENT"]),
        &["OLD_AGENT"],
    ),
    on(Used, "users repair", "", Nothing, &[]),
    on(Used, "feed put", "prices usd 2", Row(&["feed_keys|prices|usd"]), &[]),
    on(Used, "feed delete", "prices eur", Changed(&["feed_keys|prices|eur"]), &["prices|eur"])
        .or_says("eur"),
    on(Used, "feed republish", "prices eur", Changed(&["feed_keys|prices|eur"]), &["prices|eur"]),
    on(Used, "broadcast put", "news/front 17", Row(&["feed_keys|broadcasts|news/front"]), &[]),
    on(Used, "feed tail", "prices --once --cursor-file HOME/cursor", File("cursor", "prices"), &[]),
    on(Used, "nodes", "", Nothing, &[]),
    on(Used, "preflight", "", Nothing, &[]),
    on(Used, "tables list", "", Nothing, &[]),
    on(Used, "tables status", "", Nothing, &[]),
    on(Used, "inspect", "THE_AGENT", Nothing, &[]),
    on(Used, "access list", "", Nothing, &[]),
    on(Used, "feed list", "", Nothing, &[]),
    on(Used, "broadcast list", "", Nothing, &[]),
    on(Used, "store repair", "", Nothing, &[]),
    on(Keys, "store copy", "--to embedded --server-stopped DYNAMO", Store("data"), &[])
        .or_says("is not empty and is no unfinished copy"),
    on(Autopush, "import autopush-redis", "REDIS", Row(&["router/router", "IMPORTED"]), &[]),
    on(Autopush, "import autopush-postgresql", "POSTGRESQL", Row(&["router/router", "MOVED"]), &[]),
];

const VIEWED: &str = "fixtures/deliveries/busy_node.delivery --output HOME/view.html";

/// Commands that are not here, and why.
const OTHERS: [(&str, &str); 13] = [
    ("push", "makes a VAPID key as `keys vapid` does, and writes nothing else"),
    ("keys generate", "prints"),
    ("access operator", "prints"),
    ("feed token", "prints"),
    ("completions", "prints"),
    ("dev replay", "prints"),
    ("dev states", "prints"),
    ("dev man", "writes pages for a package, which a repeated build makes anew"),
    ("health", "asks a server"),
    ("refusals", "asks a server"),
    ("status", "asks a server"),
    ("check-config", "reads"),
    ("doctor", "reads, and asks servers"),
];

impl Writing {
    pub(super) fn line(&self) -> String {
        let data = match self.name {
            "init" | "keys vapid" | "subscribe" | "dev view" => "",
            _ if self.words.contains("--data-dir") => "",
            _ => DATA,
        };
        format!("{} {} {data}", self.name, self.words)
    }
}

impl Effect {
    /// What the command has not done of its work.
    pub(super) fn missing(
        self,
        left: &Left,
        before: &Left,
        used: &Left,
        name: &dyn Fn(&str) -> String,
    ) -> Option<String> {
        let parts = |parts: &[&str]| parts.iter().map(|part| name(part)).collect::<Vec<_>>();
        let is_done = match self {
            Nothing => true,
            File(file, text) => has(&left.file(file), text),
            Archive(file) => return unsound(left, file),
            NoFile(file) => !left.has_file(&name(file)),
            Row(row) => left.has_row(&parts(row)),
            NoRow(row) => !left.has_row(&parts(row)),
            Changed(row) => {
                let of = |left: &Left| -> BTreeSet<String> {
                    let parts = parts(row);
                    let rows =
                        left.rows.iter().filter(|row| parts.iter().all(|part| row.contains(part)));
                    rows.cloned().collect()
                };
                !of(before).is_subset(&of(left))
            }
            Store(_) if left.has_file("data/copying") => false,
            Store(dir) => {
                let rows = used.rows.iter().filter_map(|row| row.strip_prefix("data/"));
                let rows = rows.filter(|row| !super::sweep::is_of_each_start(row));
                let missing = rows.map(|row| format!("{dir}/{row}"));
                // A copy has no nodes.
                let shown = |row: &String| row.replace("|webpush|local|", "|webpush||");
                let there: BTreeSet<_> = left.rows.iter().map(shown).collect();
                let row = { missing }.find(|row| !there.contains(&shown(row)))?;
                // The table, and the start of the key.
                let start = row.split('|').take(2).collect::<Vec<_>>().join("|");
                let found: Vec<_> =
                    left.rows.iter().filter(|row| row.starts_with(&start)).collect();
                return Some(format!("{row} in place of {found:?}"));
            }
        };
        (!is_done).then(|| format!("{self:?}"))
    }

    /// All contents that a run with power gave its file.
    pub(super) fn wholes(self, moments: &[Disk]) -> Vec<Vec<u8>> {
        let (file, moments) = match self {
            File(file, _) => (file, moments),
            // It is written once, in parts.
            Archive(file) => (file, moments.last_chunk::<1>().map_or(&[][..], |last| last)),
            Nothing | NoFile(_) | Row(_) | NoRow(_) | Changed(_) | Store(_) => return Vec::new(),
        };
        let path = format!("home/{file}");
        let seen = moments.iter().filter_map(|disk| disk.contents(&path));
        let mut seen: Vec<_> =
            seen.filter(|contents| !contents.is_empty()).map(<[u8]>::to_vec).collect();
        seen.dedup();
        seen
    }

    /// What is there in part: neither as before, nor as in a run with power, nor marked as begun.
    pub(super) fn torn(
        self,
        left: &Left,
        before: &Left,
        wholes: Option<&[Vec<u8>]>,
        missing: impl Fn() -> Option<String>,
    ) -> Option<String> {
        match self {
            File(file, _) | Archive(file) => {
                let now = left.file(file);
                let is_before = !left.has_file(file) || now == before.file(file);
                match wholes {
                    _ if is_before => None,
                    Some(wholes) => (!wholes.contains(&now)).then(|| file.to_owned()),
                    None => missing(),
                }
            }
            Store(dir) => {
                let is_begun = left.rows.iter().any(|row| row.starts_with(dir));
                let is_marked = left.has_file("data/copying");
                if is_begun && !is_marked { missing() } else { None }
            }
            Nothing | NoFile(_) | Row(_) | NoRow(_) | Changed(_) => None,
        }
    }
}

/// Why an archive is refused.
fn unsound(left: &Left, file: &str) -> Option<String> {
    let mut check = child(kalends::<&str>(&[]).as_std().get_program());
    check.args(["restore", "--check"]).arg(left.path(file));
    let checked = check.output().expect("kalends can be started");
    let why = String::from_utf8_lossy(&checked.stderr).into_owned();
    (!checked.status.success()).then_some(why)
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

/// The manual pages are made from the list of commands.
#[actix_web::test]
async fn each_command_is_in_the_sweep_of_power_losses_or_writes_nothing() {
    let dir = TempDir::new().expect("a temporary directory can be made");
    run(&["dev", "man", dir.path().to_str().expect("the path is text")]).await.succeeded();
    let pages = fs::read_dir(dir.path()).expect("it was made").map(|page| page.unwrap().path());
    let is_command = |page: &String| !page.contains("SUBCOMMANDS");
    let pages = pages.map(|page| (page.clone(), fs::read_to_string(page).unwrap()));
    let commands: BTreeSet<_> = pages
        .filter(|(_, text)| is_command(text))
        .map(|(page, _)| page.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    let known = WRITING.iter().map(|row| row.name).chain(OTHERS.map(|(name, _)| name));
    let known: BTreeSet<_> =
        known.map(|name| format!("kalends-{}", name.replace(' ', "-"))).collect();
    assert_eq!(known, commands);
}
