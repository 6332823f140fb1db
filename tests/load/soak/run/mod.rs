//! One attack beside an honest client.

#[path = "../../cluster_load/agent.rs"]
mod agent;
mod attack;
mod honest;
#[path = "../../cluster_load/sender.rs"]
mod sender;
mod server;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::oneshot;

pub(crate) use attack::Attack;
use attack::Prepared;
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
    attack: Attack,
    pub(crate) report: Report,
    /// What the attacker did, in its own units.
    pub(crate) done: u64,
    /// Growth of the data directory, unless the server is another's.
    grown_bytes: Option<u64>,
}

impl Plan {
    /// Whether there is a server for the attack.
    pub(crate) fn allows(&self, attack: Attack) -> bool {
        self.running.is_none() || !attack.owns_server()
    }
}

impl Row {
    /// The times are p50 / p99 / the longest, in ms.
    pub(crate) const HEAD: &'static str = "\
| attack | done | direct push, ms | refused | stored push, ms | refused | connect, ms | refused | lost | disk, MB |
|---|---|---|---|---|---|---|---|---|---|";
}

/// Runs the attack on one thread and the honest client on the caller's.
pub(crate) async fn measure(plan: &Plan, attack: Attack) -> Row {
    assert!(plan.allows(attack), "{attack} needs a server that was started for it");
    let (server, prepared) = Prepared::make(plan, attack).await;
    let honest = Honest::enter(server.address).await;
    let before = server.disk_bytes();
    let (stop, stopped) = oneshot::channel::<()>();
    let attacker = thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime can be made").block_on(prepared.attack_until(stopped))
    });
    let report = honest.live(plan.duration).await;
    let grown_bytes =
        server.disk_bytes().zip(before).map(|(after, before)| after.saturating_sub(before));
    // The attacker ends with the sender, too.
    drop(stop);
    let done = attacker.join().expect("an attacker does not panic");
    Row { attack, report, done, grown_bytes }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Report { direct, stored, connect, lost }, done) = (&self.report, self.done);
        let grown =
            self.grown_bytes.map_or("-".to_owned(), |bytes| format!("{:.1}", bytes as f64 / 1e6));
        write!(
            f,
            "| {} | {done} | {direct} | {stored} | {connect} | {lost} | {grown} |",
            self.attack
        )
    }
}
