//! One attack beside an honest client.

mod attack;
mod commits;
mod honest;
mod server;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::time::sleep;

pub(crate) use attack::Attack;
use attack::Prepared;
use commits::Commits;
use honest::{Honest, Report};

/// What to measure, and how.
pub(crate) struct Plan {
    pub(crate) kalends: PathBuf,
    /// More arguments for `kalends serve`.
    pub(crate) arguments: Vec<String>,
    /// A server that runs, instead of one of its own.
    pub(crate) running: Option<SocketAddr>,
    pub(crate) duration: Duration,
    /// Messages that wait for the attackers' agents before an attack that needs some.
    pub(crate) messages: usize,
}

/// The result of one attack. It displays as a row of a Markdown table.
pub(crate) struct Row {
    pub(crate) attack: Attack,
    pub(crate) report: Report,
    /// What the attacker did, in its own units, and what the server refused it.
    pub(crate) done: u64,
    pub(crate) refused: u64,
    pub(crate) commits: Option<Commits>,
    /// The size of the data directory in the middle and at the end, unless the server is another's.
    disk_bytes: [Option<u64>; 2],
}

impl Plan {
    /// Whether there is a server for the attack.
    pub(crate) fn allows(&self, attack: Attack) -> bool {
        self.running.is_none() || !attack.owns_server()
    }
}

impl Row {
    /// The times are p50 / p99 / the longest, in ms. Those of commits are bounds of the buckets of `/health`. The
    /// refused ones are the attacker's, and then the client's. The size is that in the middle and at the end.
    pub(crate) const HEAD: &'static str = "\
| attack | done | refused | direct push, ms | refused | stored push, ms | refused | connect, ms | refused | lost \
| commit, ms | data, MB |
|---|---|---|---|---|---|---|---|---|---|---|---|";
}

/// Runs the attack on one thread and the honest client on the caller's.
pub(crate) async fn measure(plan: &Plan, attack: Attack) -> Row {
    assert!(plan.allows(attack), "{attack} needs a server that was started for it");
    let (server, prepared) = Prepared::make(plan, attack).await;
    let honest = Honest::enter(server.address).await;
    let before = server.health().await.as_ref().and_then(Commits::of);
    let (stop, stopped) = oneshot::channel::<()>();
    let attacker = thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime can be made").block_on(prepared.attack_until(stopped))
    });
    let in_the_middle = async {
        sleep(plan.duration / 2).await;
        server.disk_bytes()
    };
    let (report, in_the_middle) = tokio::join!(honest.live(plan.duration), in_the_middle);
    let disk_bytes = [in_the_middle, server.disk_bytes()];
    // The attacker ends with the sender, too.
    drop(stop);
    let (done, refused) = attacker.join().expect("an attacker does not panic");
    let after = server.health().await.as_ref().and_then(Commits::of);
    let commits = after.zip(before).map(|(after, before)| after.since(&before));
    Row { attack, report, done, refused, commits, disk_bytes }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { attack, report, done, refused, commits, disk_bytes } = self;
        let Report { direct, stored, connect, lost } = report;
        let commits = commits.as_ref().map_or("-".to_owned(), Commits::to_string);
        let [middle, end] = disk_bytes.map(|bytes| {
            bytes.map_or("-".to_owned(), |bytes| format!("{:.1}", bytes as f64 / 1e6))
        });
        write!(f, "| {attack} | {done} | {refused} | {direct} | {stored} | {connect} | {lost} | ")?;
        write!(f, "{commits} | {middle} / {end} |")
    }
}
