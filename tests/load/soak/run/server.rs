//! The server under attack.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustix::fs::statvfs;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

use super::Plan;
use crate::shared::process::Process;

/// Maximum time of an answer, and of an end.
const WAIT: Duration = Duration::from_secs(60);

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    own: Option<Own>,
}

/// What a server of ours has less of than the machine.
#[derive(Clone, Copy)]
pub(crate) enum Room {
    Plenty,
    /// This many open files.
    Files(u32),
    /// A disk of this size in MiB, mounted for the server alone.
    Disk(u32),
}

/// A process of ours, which is killed when this is dropped, and its data.
struct Own {
    process: Process,
    dir: TempDir,
    /// The data directory as the server sees it.
    data: PathBuf,
}

impl Server {
    /// The one that runs already, or one with an empty data directory.
    pub(crate) async fn start(plan: &Plan, arguments: &[String], room: Room) -> Self {
        let dir = || TempDir::new().expect("a folder can be made");
        match plan.running {
            Some(address) => Self { address, own: None },
            None => Self::spawn(plan, dir(), arguments, room).await,
        }
    }

    async fn spawn(plan: &Plan, dir: TempDir, arguments: &[String], room: Room) -> Self {
        let data = dir.path().join("data");
        let mut command = command(room, &data);
        command.arg(&plan.kalends).args(["serve", "--listen=127.0.0.1:0"]);
        command.arg("--data-dir").arg(&data);
        command.args(arguments).args(&plan.arguments);
        let process = Process::start(command, &dir.path().join("log")).await;
        let process = process.unwrap_or_else(|error| panic!("{error}"));
        let data = match room {
            Room::Disk(_) => {
                let root = format!("/proc/{}/root", process.pid());
                Path::new(&root).join(data.strip_prefix("/").expect("a temporary path is absolute"))
            }
            Room::Plenty | Room::Files(_) => data,
        };
        Self { address: process.address, own: Some(Own { process, dir, data }) }
    }

    /// Stops a server of ours, and starts it again on its data with other arguments.
    pub(crate) async fn restart(self, plan: &Plan, arguments: &[String]) -> Self {
        let Own { mut process, dir, .. } = self.own.expect("the server is ours");
        process.signal(Signal::TERM);
        process.ended_within(WAIT).await.expect("it ends soon");
        Self::spawn(plan, dir, arguments, Room::Plenty).await
    }

    /// Fills the disk of a server of ours until only so much is free.
    pub(crate) fn fill_disk(&self, free_bytes: u64) {
        let data = &self.own.as_ref().expect("the server is ours").data;
        let space = statvfs(data).expect("the disk is mounted");
        let taken = (space.f_bavail * space.f_frsize).saturating_sub(free_bytes);
        let taken = usize::try_from(taken).expect("the disk is small");
        fs::write(data.join("filler"), vec![1; taken]).expect("the disk has so much space");
    }

    /// The size of all data, unless the server is another's.
    pub(crate) fn disk_bytes(&self) -> Option<u64> {
        let bytes = |dir: &Path| -> u64 {
            let files = fs::read_dir(dir).expect("the server has made it");
            files.filter_map(|file| Some(file.ok()?.metadata().ok()?.len())).sum()
        };
        self.own.as_ref().map(|own| bytes(&own.data))
    }

    /// What `/health` answers; none if it is no JSON within a minute.
    pub(crate) async fn health(&self) -> Option<Value> {
        let client: Client<_, Empty<Bytes>> =
            Client::builder(TokioExecutor::new()).build(HttpConnector::new());
        let url = format!("http://{}/health", self.address).parse().expect("an address is valid");
        let body = async { client.get(url).await.ok()?.into_body().collect().await.ok() };
        serde_json::from_slice(&timeout(WAIT, body).await.ok()??.to_bytes()).ok()
    }
}

/// A shell that executes what is added to it.
fn command(room: Room, data: &Path) -> Command {
    let mut command = Command::new("sh");
    let script = match room {
        Room::Plenty => "exec \"$@\"".to_owned(),
        Room::Files(files) => format!("ulimit -n {files} && exec \"$@\""),
        Room::Disk(mib) => {
            command = Command::new("unshare");
            command.args(["--map-root-user", "--mount", "sh"]);
            format!(
                "mkdir \"$0\" && mount -t tmpfs -o size={mib}m,mode=700 disk \"$0\" && exec \"$@\""
            )
        }
    };
    command.arg("-c").arg(script).arg(data);
    command
}
