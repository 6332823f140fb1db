//! Commands on a disk that loses its power before each of its changes, or on which each of them fails once.
//!
//! A seed gives the first change of each row and what a loss keeps. Successive seeds reach every change. `POWER_SEED`
//! selects the first seed, `POWER_SECONDS` goes on with the next ones for so long.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use power::{Disk, Errno, Fault, Loss, Mount, Op};
use state_machine::{Month, Time};
use tempfile::TempDir;
use uuid::Uuid;

use super::commands::{Start, WRITING, Writing};
use super::left::Left;
use super::{keep, repeat, seed};
use crate::harness::{
    Agent, Launch, Program, Sender, Server, WireServer, child, dynamo, kalends, number_from_env,
    signal, unix_now_s,
};
use crate::migration::{Autopush, Database, PostgresDatabase, RedisDatabase, crypto_keys};
use crate::receipts;
use crate::whole_store::upgrade::{ROUTER, set_back};

const TEST: &str =
    "power_losses::sweep::what_a_command_answered_and_what_was_there_before_survive_its_disk";

/// Changes before which a row loses power, and those of them after which its command is repeated, in one run.
const LOSSES: usize = 12;
const REPEATS: usize = 2;

/// The way back from the migration of [`Start::Earlier`].
const COPY: &str = concat!("data/before-", env!("CARGO_PKG_VERSION"), "/router.db");

/// Changes that fail, for each error, in one run.
const FAILURES: usize = 3;

/// A command that takes longer has stopped, unless it also takes long on a good disk of this run.
const COMMAND_MAX: Duration = Duration::from_secs(20);

/// How many times longer it may take than there.
const SLOWER_MAX: u32 = 10;

/// A command that takes longer on a good disk has stopped.
const FLOOR_MAX: Duration = Duration::from_secs(120);

/// Rows that any command on a store may change.
const CHANGED_BY_ALL: [&str; 3] = ["router/id_floor|", "router/health|", "router/sequences|"];

/// What the texts of the table stand for, and the disks that the commands start on.
pub(super) struct Facts {
    names: Vec<(&'static str, String)>,
    disks: BTreeMap<Start, (Disk, Left)>,
    variables: Vec<(&'static str, String)>,
}

struct Ended {
    is_answered: bool,
    code: Option<i32>,
    text: String,
}

impl Display for Ended {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "it ended with {:?}: {}", self.code, self.text)
    }
}

pub(super) fn is_of_each_start(row: &str) -> bool {
    CHANGED_BY_ALL.iter().any(|part| row.contains(part))
}

#[actix_web::test]
async fn what_a_command_answered_and_what_was_there_before_survive_its_disk() {
    let Some(mut mount) = Mount::or_not_run("commands that lose power") else { return };
    let (wire, mut redis, elsewhere) =
        (WireServer::start(), Autopush::start().await, Server::start());
    let facts = Facts::gather(&mut mount, &wire, &mut redis, &elsewhere).await;
    let (first, began) = (seed(), Instant::now());
    let lasts = Duration::from_secs(number_from_env("POWER_SECONDS").unwrap_or(0));
    for seed in first.. {
        println!("{}", repeat(seed, TEST));
        let (next, findings) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let work = || {
            let mut mount = Mount::new(Disk::default()).expect("the first one could be mounted");
            while let Some(row) = WRITING.get(next.fetch_add(1, Ordering::Relaxed)) {
                let began = Instant::now();
                let mut sweep = Sweep {
                    facts: &facts,
                    row,
                    mount: &mut mount,
                    seed,
                    cases: 0,
                    longest: FLOOR_MAX,
                };
                if let Err(finding) = sweep.run() {
                    println!("{}: {finding}", row.line());
                    findings.lock().unwrap().push(format!("{}: {finding}", row.line()));
                }
                let (cases, took) = (sweep.cases, began.elapsed().as_secs_f32());
                println!("{}, {:?}: {cases} cases, {took:.1} s", row.name, row.start);
            }
        };
        thread::scope(|threads| {
            for _worker in 0..2 {
                threads.spawn(work);
            }
        });
        let findings = findings.into_inner().unwrap();
        assert!(findings.is_empty(), "{}\n{}", repeat(seed, TEST), findings.join("\n"));
        if began.elapsed() >= lasts {
            return;
        }
    }
}

impl Facts {
    async fn gather(
        mount: &mut Mount,
        wire: &WireServer,
        redis: &mut Autopush<RedisDatabase>,
        elsewhere: &Server,
    ) -> Self {
        super::used_disk(mount);
        let empty = mount.disk().clone();
        let data = mount.at("home/data");
        let old = Launch { data_dir: Some(data.clone()), ..Launch::default() }
            .with(&["--dev", "--clock-offset-s=-8640000"]);
        let mut server = Server::launch(old);
        let (old_agent, _channel) = Agent::offline(&server).await;
        assert!(server.terminate().success());
        let old = mount.disk().clone();

        server.restart_as(Launch { data_dir: Some(data.clone()), ..Launch::default() });
        let agent = use_it(&mut server).await;
        let archive = mount.at("home/backup.tar").display().to_string();
        server.run(&["backup", &archive]).await.succeeded();
        let used = mount.disk().clone();
        let earlier = set_back_records(mount, &data);
        let launch = copy_to(wire, &data).await;
        let mut postgres = Autopush::<PostgresDatabase<'_>>::start().await;
        postgres.crypto_key.clone_from(&redis.crypto_key);
        let of_redis = redis.user(&[Uuid::new_v4()]);
        let of_postgres = postgres.user(&[Uuid::new_v4()]);
        let own = fs::read_to_string(data.join("keys.toml")).expect("the server has keys");
        let [keys, of_autopush] = [own, crypto_keys(&redis.crypto_key)].map(|keys| {
            super::used_disk(mount);
            crate::harness::put_keys(&data, &keys);
            fs::set_permissions(&data, PermissionsExt::from_mode(0o700)).expect("the disk works");
            mount.disk().clone()
        });
        let [used, earlier] = [(Start::Used, used), (Start::Earlier, earlier)];
        let [keys, autopush] = [(Start::Keys, keys), (Start::Autopush, of_autopush)];
        let starts = [(Start::Empty, empty), (Start::Old, old), used, earlier, keys, autopush];
        let disks = starts.map(|(start, mut disk)| {
            disk.sync_all();
            let disk = disk.lose(Loss::All);
            let left = Left::on(&disk).unwrap_or_else(|wrong| panic!("{start:?}: {wrong}"));
            (start, (disk, left))
        });
        let hex = |uaid: &str| uaid.replace('-', "");
        let this = Month::of(Time(unix_now_s() * 1000));
        let oldest = this.previous().previous().previous();
        let names = vec![
            ("SERVER", elsewhere.socket_url()),
            ("DYNAMO", launch.arguments.join(" ")),
            ("REDIS", redis.database.import()[1..].join(" ")),
            ("POSTGRESQL", postgres.database.import()[1..].join(" ")),
            ("OLD_AGENT", hex(&old_agent)),
            ("THE_AGENT", hex(&agent)),
            ("IMPORTED", of_redis.simple().to_string()),
            ("MOVED", of_postgres.simple().to_string()),
            ("OLD", oldest.to_string()),
            ("THIS", this.to_string()),
            ("NEXT", this.next().to_string()),
        ];
        Self { names, disks: disks.into(), variables: launch.variables }
    }

    fn name(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (name, means)| text.replace(name, means))
    }
}

/// The disk with the file of records as an earlier version left it. The disk itself stays as it was.
///
/// The file is changed elsewhere. SQLite maps its index of the log into memory, and the end of a mapping waits for the disk
/// while it holds a lock of the process. This process serves the disk, and can wait for that lock then.
fn set_back_records(mount: &mut Mount, data: &Path) -> Disk {
    let newest = mount.disk().clone();
    let elsewhere = TempDir::new().expect("a temporary directory can be made");
    let [on_disk, copy] = [data, elsewhere.path()].map(|dir| dir.join("router.db"));
    fs::copy(&on_disk, &copy).expect("the disk works");
    set_back(&copy, &ROUTER[..1], ROUTER.len());
    fs::copy(&copy, &on_disk).expect("the disk works");
    let earlier = mount.disk().clone();
    mount.put(newest);
    earlier
}

/// Fills the store of a server with rows of all kinds, and stops it. Returns an agent with messages.
async fn use_it(server: &mut Server) -> String {
    let (agent, channel) = Agent::offline_with(server, "plain").await;
    Sender::new().push_topic(&channel.endpoint, "topic", "of a topic").await;
    receipts::send(&channel, "with a receipt", None).await;
    let (_other, channel) = Agent::offline_with(server, "of another agent").await;
    let _receipts = receipts::send(&channel, "with another receipt", None).await;
    Agent::returned_to(server, &Agent::offline_with(server, "taken").await.0, "taken").await;
    assert!(server.terminate().success());
    for words in [&["feed", "put", "prices", "eur", "1"][..], &["access", "add", "bob"]] {
        server.run(words).await.succeeded();
    }
    agent
}

/// Fills the tables that a copy is made of. Returns how to reach them.
async fn copy_to(wire: &WireServer, data: &Path) -> Launch {
    let launch = dynamo::launch(&wire.url);
    let mut copy = launch.command(&["store", "copy", "--to", "dynamodb", "--server-stopped"]);
    copy.arg("--data-dir").arg(data);
    Program::run(copy).await.succeeded();
    launch
}

struct Sweep<'a> {
    facts: &'a Facts,
    row: &'static Writing,
    mount: &'a mut Mount,
    seed: u64,
    cases: usize,
    /// A command that takes longer has stopped.
    longest: Duration,
}

impl Sweep<'_> {
    fn run(&mut self) -> Result<(), String> {
        let changes = self.lose_power()?;
        let few = if self.is_slow() { 1 } else { FAILURES };
        let stride = changes.div_ceil(few);
        for (at, errno) in [Errno::EIO, Errno::ENOSPC].into_iter().enumerate() {
            let mut nth = 1 + (self.seed as usize + at * stride / 2) % stride;
            while self
                .fail(nth, errno)
                .map_err(|wrong| format!("{errno} of change {nth}: {wrong}"))?
            {
                nth += stride;
            }
        }
        Ok(())
    }

    /// Whether the command takes long, so that few points are tried in one run.
    fn is_slow(&self) -> bool {
        ["serve", "dev view"].contains(&self.row.name)
    }

    /// The power goes before each `stride`th change. Returns how many there are.
    fn lose_power(&mut self) -> Result<usize, String> {
        self.mount.put(self.start().0.clone());
        self.mount.disk().record();
        let began = Instant::now();
        let ended = self.execute();
        self.longest = COMMAND_MAX.max(began.elapsed() * SLOWER_MAX);
        let mut moments = self.mount.disk().recorded();
        let changes = moments.len();
        if !ended.is_answered {
            return Err(format!("on a good disk, {ended}"));
        }
        moments.push(self.mount.disk().clone());
        let wholes = self.row.effect.wholes(&moments);
        let log = self.mount.disk().log().to_vec();
        let stride = changes.div_ceil(LOSSES);
        let first = 1 + self.seed as usize % stride;
        let tried = (1..).zip(moments).filter(|(before, _)| {
            *before > changes || (*before >= first && (before - first).is_multiple_of(stride))
        });
        let repeated = LOSSES / if self.is_slow() { 1 } else { REPEATS };
        for (at, (before, disk)) in tried.enumerate() {
            let random = Rng::with_seed(self.seed ^ before as u64);
            for (kind, loss) in [Loss::All, Loss::Part(random)].into_iter().enumerate() {
                let what = format!("a loss ({loss:?}) before change {before} of {changes}");
                let left = disk.clone().lose(loss);
                let is_repeated = (at + kind * repeated / 2 + self.seed as usize / stride)
                    .is_multiple_of(repeated);
                self.after_loss(&left, &wholes, before > changes, is_repeated).map_err(
                    |wrong| {
                        let text = format!("{what}: {wrong}");
                        keep(
                            self.seed,
                            self.row.name,
                            &left,
                            &format!("{}\n{text}\n{log:#?}", self.row.line()),
                        );
                        text
                    },
                )?;
            }
        }
        Ok(changes)
    }

    fn after_loss(
        &mut self,
        disk: &Disk,
        wholes: &[Vec<u8>],
        is_answered: bool,
        is_repeated: bool,
    ) -> Result<(), String> {
        self.cases += 1;
        self.check(disk, Some(wholes), is_answered)?;
        if is_repeated {
            self.mount.put(disk.clone());
            let left = self.repeat_and_lose()?;
            let killed = [".kalends-tmp", ".restore-"];
            let temporary =
                left.temporary().filter(|name| !killed.iter().any(|part| name.contains(part)));
            return temporary.map_or(Ok(()), |name| Err(format!("{name} is left")));
        }
        Ok(())
    }

    /// The change with this number fails. Returns false if there is none.
    fn fail(&mut self, nth: usize, errno: Errno) -> Result<bool, String> {
        self.mount.put(self.start().0.clone());
        self.mount.disk().fail(Fault::nth(nth as u64, errno).of(&Op::CHANGES));
        let ended = self.execute();
        if !self.mount.disk().heal() {
            return Ok(false);
        }
        self.cases += 1;
        let failed = self.mount.disk().log().iter().find(|done| done.error.is_some()).cloned();
        let failed = failed.expect("it has struck");
        let checked = self.after_error(&ended, failed.op);
        checked.map(|()| true).map_err(|wrong| {
            let text = format!("{:?} of {}: {wrong}", failed.op, failed.path);
            let disk = self.mount.disk().clone();
            let log = disk.log();
            keep(
                self.seed,
                self.row.name,
                &disk,
                &format!("{}\n{text}\n{ended}\n{log:#?}", self.row.line()),
            );
            text
        })
    }

    fn after_error(&mut self, ended: &Ended, op: Op) -> Result<(), String> {
        if ended.is_answered {
            let disk = self.mount.disk().clone().lose(Loss::All);
            return self.check(&disk, None, true).map(drop);
        }
        let home = self.mount.path().display().to_string();
        // The text on a full disk names no file.
        let named =
            [&home, "router.db", "messages_", "keys.toml", "the disk has too little free space"];
        let is_named = named.iter().any(|name| ended.text.contains(*name));
        // A server counts keys.toml among its settings.
        let is_of_keys = self.row.name == "serve" && ended.text.contains("keys.toml");
        let code = if is_of_keys { 2 } else { 1 };
        if ended.code != Some(code) || ended.text.contains("panicked") || !is_named {
            return Err(ended.to_string());
        }
        let left = self.repeat_and_lose()?;
        // What could not be removed stays.
        let temporary = left.temporary().filter(|_| op != Op::Unlink);
        temporary.map_or(Ok(()), |name| Err(format!("{name} is left")))
    }

    /// Runs the command once more, and takes the power away.
    fn repeat_and_lose(&mut self) -> Result<Left, String> {
        let ended = self.execute();
        let was_done = !self.row.again.is_empty() && ended.text.contains(self.row.again);
        if !ended.is_answered && !was_done {
            return Err(format!("repeated, {ended}"));
        }
        let disk = self.mount.disk().clone().lose(Loss::All);
        let left = self.check(&disk, None, true).map_err(|wrong| format!("repeated: {wrong}"))?;
        match left.unlisted() {
            Some(file) => Err(format!("{file} is not listed")),
            None => Ok(left),
        }
    }

    /// What is on a disk without power. `wholes` are the contents that the same run gave its file with power.
    fn check(
        &self,
        disk: &Disk,
        wholes: Option<&[Vec<u8>]>,
        is_answered: bool,
    ) -> Result<Left, String> {
        let (left, before) = (Left::on(disk)?, &self.start().1);
        let changes: Vec<_> = self.row.changes.iter().map(|part| self.facts.name(part)).collect();
        for row in &before.rows {
            let may_change = is_of_each_start(row) || changes.iter().any(|part| row.contains(part));
            if !may_change && !left.rows.contains(row) {
                return Err(format!("lost {row}"));
            }
        }
        let keys = |left: &Left| String::from_utf8_lossy(&left.file("data/keys.toml")).into_owned();
        let (now, keys) = (keys(&left), keys(before));
        if let Some(lost) = keys.split('"').skip(1).step_by(2).find(|key| !now.contains(key)) {
            return Err(format!("lost the key {lost}"));
        }
        if floor(&left) < floor(before) {
            return Err("the floor of message ids is lower".to_owned());
        }
        let is_migrated = left.rows.iter().any(|row| row.starts_with("data/router/id_floor|"));
        let has_copy = !left.file(COPY).is_empty();
        if self.row.start == Start::Earlier && is_migrated && !has_copy {
            return Err("the records were changed before they were copied".to_owned());
        }
        let (effect, used) = (self.row.effect, &self.facts.disks[&Start::Used].1);
        let missing = || effect.missing(&left, before, used, &|text| self.facts.name(text));
        if let Some(missing) = is_answered.then(missing).flatten() {
            return Err(format!("it answered, and this is not there: {missing}"));
        }
        match effect.torn(&left, before, wholes, missing) {
            Some(torn) => Err(format!("it is neither whole nor absent: {torn}")),
            None => Ok(left),
        }
    }

    fn start(&self) -> &(Disk, Left) {
        &self.facts.disks[&self.row.start]
    }

    /// Runs the command. One that goes on is ended after its first line.
    fn execute(&self) -> Ended {
        let home = self.mount.at("home").display().to_string();
        let line = self.facts.name(&self.row.line()).replace("HOME", &home);
        let goes_on = ["serve", "subscribe"].contains(&self.row.name);
        let listen = if self.row.name == "serve" { "--listen 127.0.0.1:0" } else { "" };
        let mut command = child(kalends::<&str>(&[]).as_std().get_program());
        command
            .args(line.split_whitespace().chain(listen.split_whitespace()))
            .env("KALENDS_METRICS_LISTEN", "off")
            .envs(self.facts.variables.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = command.spawn().expect("kalends can be started");
        let (pid, longest) = (process.id(), self.longest);
        let (running, ended) = mpsc::channel::<()>();
        thread::spawn(move || {
            if ended.recv_timeout(longest) == Err(RecvTimeoutError::Timeout) {
                signal(pid, "KILL");
            }
        });
        let mut output = BufReader::new(process.stdout.take().expect("it is a pipe"));
        let mut text = String::new();
        output.read_line(&mut text).expect("it prints text");
        let has_begun = goes_on && !text.is_empty();
        if has_begun {
            signal(process.id(), "TERM");
        }
        output.read_to_string(&mut text).expect("it prints text");
        let ended = process.wait_with_output().expect("it can be waited for");
        text += &String::from_utf8_lossy(&ended.stderr);
        let code = ended.status.code();
        drop(running);
        // The records of the store name a node, and none runs.
        let is_done = match self.row.name {
            "nodes" => code == Some(1) && text.contains("does not answer: "),
            _ => code == Some(0),
        };
        let is_answered =
            ended.status.signal() != Some(9) && if goes_on { has_begun } else { is_done };
        Ended { is_answered, code, text }
    }
}

fn floor(left: &Left) -> Option<u64> {
    let row = left.rows.iter().find_map(|row| row.strip_prefix("data/router/id_floor|1|"));
    row.and_then(|floor| floor.parse().ok())
}
