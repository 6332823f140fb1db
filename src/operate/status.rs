//! `kalends status`: a running server on one screen.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::stdout;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use indicatif::HumanDuration;
use serde::{Deserialize, Serialize};
use state_machine::{Month, Span, Time};
use time::OffsetDateTime;
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::command::printer::Printer;
use crate::command::store_command::{collect, collect_from, succeed};
use crate::command::{
    Backend, CommandError, Completion, Failure, Job as AnyJob, JobError, Output, Report,
    StoreCommand, backend,
};
use crate::push::app::AppState;
use crate::push::judge::disk::free;
use crate::push::judge::{Check, Finding, Severity};
use crate::push::push_counters::OUTCOMES;
use crate::settings::{Role, Settings};
use crate::system::build::Build;
use crate::system::printable::{count, time_left};

/// Maximum time of the store to list its months.
const STORE_WAIT: Duration = Duration::from_secs(2);

/// Maximum time of a server to show itself to another command.
const SCREEN_WAIT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// Print JSON: one object, or one on each line for feeds and broadcasts
    #[arg(long)]
    pub json: bool,
}

/// A server. What its role does not have is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Screen {
    pub at_ms: u64,
    /// Its name among the nodes, and its role. None of a server of before December 2026.
    pub node: Option<String>,
    pub role: Option<String>,
    pub version: String,
    pub origin: Option<String>,
    /// Where programs on its machine reach it, if its settings have the port: an origin, or `unix:` and a path.
    pub own_origin: Option<String>,
    /// The address of the operator's page.
    pub operator_page: Option<SocketAddr>,
    pub started_ms: u64,
    pub user_agents: Option<usize>,
    /// Since the start, by outcome.
    pub pushes: Option<BTreeMap<String, u64>>,
    /// Since the start, to endpoints of `former_urls`. None without such a URL.
    pub former_url_pushes: Option<u64>,
    /// As the setting `store` names it.
    pub store: String,
    pub disk_free_bytes: Option<u64>,
    pub waiting_messages: Option<u64>,
    /// None if the store does not answer.
    pub months: Option<Vec<String>>,
    /// The user agents on each month, when the server counted them last. None if it did not.
    pub agents_by_month: Option<BTreeMap<Month, u64>>,
    pub agents_counted_ms: Option<u64>,
    pub certificate_expires_ms: Option<u64>,
    /// The last one that the server knows of.
    pub backup_ms: Option<u64>,
    /// What is wrong, the worst first.
    pub findings: Vec<Finding>,
}

type Job = AnyJob<Screen>;

/// What the server on the data directory shows, if one runs and answers in time.
pub fn of_running_server(settings: &Settings) -> Option<Screen> {
    let runtime = Builder::new_current_thread().enable_all().build().ok()?;
    let screens = async {
        let stream = backend::connect(&settings.data_dir).await.ok()??;
        collect_from(Backend::Server(stream), Status::default()).await.ok()
    };
    // A time begins in the runtime.
    runtime.block_on(async { timeout(SCREEN_WAIT, screens).await }).ok()??.pop()
}

/// Without a `public_url` the endpoints have it. With one, port 0 is not known here.
pub fn own_origin(settings: &Settings, origin: Option<&str>) -> Option<String> {
    match settings.public_url {
        None => origin.map(str::to_owned),
        Some(_) if settings.listen.tcp().is_some_and(|address| address.port() == 0) => None,
        Some(_) => Some(settings.own_address(&settings.listen)),
    }
}

impl StoreCommand for Status {
    const NAME: &'static str = "status";
    const ABOUT: &'static str =
        "Show how a running server is, and what to do if something is wrong";
    const HELP: &'static str = "\
Shows the server on the data directory on one screen: whether it works, its version, user agents, pushes, store,
certificate and last backup, and for everything that is wrong since when, what it does to people, and what to
do. Each node of a cluster has its own. The exit code is 1 if /health of the server is 503, or if no server
runs; a warning leaves it 0.

Examples:
  kalends status --config /etc/kalends/kalends.toml
  kalends status --json --data-dir /var/lib/kalends";
    const ONLY_READS: bool = true;
    type Report = Screen;

    fn is_json(&self) -> bool {
        self.json
    }

    async fn reach(&self, settings: &Settings) -> Result<Backend, CommandError> {
        backend::reach_connections(settings).await
    }

    fn main(self, settings: &Settings) -> Result<(), Failure> {
        let mut printer = Printer::new(stdout().lock(), self.json);
        let mut end = Completion::Done;
        for screen in collect(self, settings)? {
            if screen.findings.iter().any(|finding| finding.severity == Severity::Outage) {
                end = Completion::Unwell;
            }
            printer.print(Output::Report(screen))?;
        }
        Ok(succeed(end)?)
    }

    async fn run(self, job: &Job) -> Result<(), JobError> {
        let context = &job.context;
        let node = context.part::<AppState>().ok_or_else(|| {
            JobError::refused(
                "no server runs on this data directory: start it with `kalends serve`",
            )
        })?;
        let common = &node.common;
        let months = timeout(STORE_WAIT, context.store.months()).await;
        let judgement = node.judge().await;
        let (agents_counted_ms, agents_by_month) = common
            .records
            .lock()
            .as_ref()
            .map(|(at, records)| (at.0, records.curmonth.clone()))
            .unzip();
        let waiting_messages = common.waiting.lock().as_ref().map(|waiting| waiting.messages);
        let pushes = node.endpoints.as_ref().map(|role| {
            let names = OUTCOMES.into_iter().map(str::to_owned);
            names.zip(role.counters.outcomes.counts()).collect()
        });
        job.report(Screen {
            at_ms: context.now().0,
            node: Some(common.name.clone()),
            role: Some(node.role().name().to_owned()),
            version: Build::TEXT.to_owned(),
            origin: context.origin.clone(),
            own_origin: own_origin(&context.settings, context.origin.as_deref()),
            operator_page: common.judge.operator_page.get().copied(),
            started_ms: common.judge.started.0,
            user_agents: judgement.connections,
            pushes,
            former_url_pushes: node
                .endpoints
                .as_ref()
                .filter(|_| !context.settings.former_urls.urls().is_empty())
                .map(|role| role.origins.former_pushes()),
            store: context.settings.store.name(),
            disk_free_bytes: common.store.state().disk.map(|disk| disk.free_bytes),
            waiting_messages,
            months: months
                .ok()
                .and_then(Result::ok)
                .map(|months| months.iter().map(Month::to_string).collect()),
            agents_by_month,
            agents_counted_ms,
            certificate_expires_ms: common.certificates.current().map(|it| it.valid.expires.0),
            backup_ms: common.judge.last_backup().map(|at| at.0),
            findings: judgement.findings,
        })
        .await
    }
}

impl Report for Screen {
    fn text(&self, _is_first: bool) -> String {
        let mut text = self.verdict() + "\n\n";
        for (name, value) in self.lines() {
            writeln!(text, "{name:<13}{value}").expect("a text takes everything");
        }
        for finding in &self.findings {
            text += &self.explained(finding);
        }
        text
    }
}

impl Screen {
    fn verdict(&self) -> String {
        let is_outage = |finding: &&Finding| finding.severity == Severity::Outage;
        let outages = self.findings.iter().filter(is_outage).count();
        match (outages, self.findings.len()) {
            (0, 0) => "Everything works.".to_owned(),
            (0, 1) => "The server works, with a warning.".to_owned(),
            (0, warnings) => format!("The server works, with {warnings} warnings."),
            _ => "The server is unhealthy.".to_owned(),
        }
    }

    fn lines(&self) -> Vec<(&'static str, String)> {
        let now = Time(self.at_ms);
        let ago = |at_ms| format!("{} ago", human(now.since(Time(at_ms))));
        let mut lines = Vec::new();
        let role = self.role.as_deref().filter(|role| *role != Role::All.name());
        if let Some((node, role)) = self.node.as_ref().zip(role) {
            lines.push(("node", format!("{node} ({role} node)")));
        }
        lines.push(("version", self.version.clone()));
        lines.extend(self.origin.clone().map(|origin| ("address", origin)));
        lines
            .extend(self.operator_page.map(|page| {
                ("page", format!("http://{page}/admin, by `kalends access operator`"))
            }));
        lines.push(("started", ago(self.started_ms)));
        lines.extend(self.user_agents.map(|agents| ("user agents", format!("{agents} connected"))));
        if let Some(pushes) = &self.pushes {
            let of = |outcome| pushes.get(outcome).copied().unwrap_or(0);
            let (delivered, stored) = (of("delivered"), of("stored"));
            let other = pushes.values().sum::<u64>() - delivered - stored;
            let counts =
                format!("{delivered} delivered, {stored} stored, {other} refused or dropped");
            lines.push(("pushes", counts + " since the start"));
        }
        lines.extend(
            self.former_url_pushes
                .map(|pushes| ("former URLs", count(pushes, "push") + " since the start")),
        );
        lines.extend(self.waiting_messages.map(|waiting| ("waiting", count(waiting, "message"))));
        let space = self.disk_free_bytes.map(|bytes| format!(", {} on its disk", free(bytes)));
        lines.push(("store", self.store.clone() + &space.unwrap_or_default()));
        lines.extend(self.months.as_ref().map(|months| ("months", months.join(" "))));
        if let Some((agents, at)) = self.agents_by_month.as_ref().zip(self.agents_counted_ms) {
            // The newest first: most user agents are on it.
            let each: String = agents
                .iter()
                .rev()
                .map(|(month, agents)| format!("{} on {month}, ", count(*agents, "user agent")))
                .collect();
            lines.push(("by month", format!("{each}counted {}", ago(at))));
        }
        let is_awaited = self.findings.iter().any(|finding| finding.check == Check::Certificate);
        let ends = self.certificate_expires_ms.map(|expires| match Time(expires).since(now) {
            Span(0) => format!("ended {}", ago(expires)),
            left => format!("ends in {}", time_left(left)),
        });
        let certificate = ends.or(is_awaited.then(|| "none yet".to_owned()));
        lines.extend(certificate.map(|certificate| ("certificate", certificate)));
        if self.disk_free_bytes.is_some() {
            lines.push(("backup", self.backup_ms.map_or("none is known".to_owned(), ago)));
        }
        lines
    }

    fn began(&self, at: Time) -> String {
        let now = Time(self.at_ms);
        let age = human(now.since(at));
        match at == Time(self.started_ms) {
            true => format!("at least since the start ({age})"),
            false => format!("since {} ({age})", clock(at, now)),
        }
    }

    fn explained(&self, finding: &Finding) -> String {
        let Finding { check, severity, found, why, effect, remedy, since_ms } = finding;
        let level = match severity {
            Severity::Outage => "OUTAGE",
            Severity::Warning => "warning",
        };
        let since = self.began(Time(*since_ms));
        let why = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        format!("\n{level} {}, {since}: {found}{why}.\n  {effect}\n  {remedy}\n", check.name())
    }
}

/// In UTC. With the day, if it is another one than that of `now`.
fn clock(at: Time, now: Time) -> String {
    let utc = |time: Time| {
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
    };
    let (at, now) = (utc(at), utc(now));
    let day = if at.date() == now.date() { String::new() } else { format!("{} ", at.date()) };
    format!("{day}{:02}:{:02} UTC", at.hour(), at.minute())
}

fn human(span: Span) -> HumanDuration {
    HumanDuration(Duration::from_millis(span.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(node: &str, role: &str) -> Screen {
        let month: Month = "2026_11".parse().expect("it is a month");
        Screen {
            at_ms: 60_000,
            node: Some(node.to_owned()),
            role: Some(role.to_owned()),
            version: "1".to_owned(),
            origin: None,
            own_origin: None,
            operator_page: None,
            started_ms: 0,
            user_agents: Some(1),
            pushes: None,
            former_url_pushes: Some(1),
            store: "embedded".to_owned(),
            disk_free_bytes: None,
            waiting_messages: Some(1),
            months: None,
            agents_by_month: Some([(month.previous(), 1), (month, 2)].into()),
            agents_counted_ms: Some(0),
            certificate_expires_ms: None,
            backup_ms: None,
            findings: Vec::new(),
        }
    }

    #[test]
    fn the_time_of_a_finding_is_a_clock_time_or_the_start() {
        const DAY: u64 = 24 * 60 * 60 * 1000;
        let screen =
            Screen { at_ms: 20_772 * DAY + 90_000, started_ms: 1, ..screen("local", "all") };
        let began = |before| screen.began(Time(screen.at_ms - before));
        assert_eq!(began(3_000), "since 00:01 UTC (3 seconds)");
        assert_eq!(began(3 * 60 * 60 * 1000), "since 2026-11-14 21:01 UTC (3 hours)");
        assert!(screen.began(Time(1)).starts_with("at least since the start ("));
    }

    #[test]
    fn a_node_of_a_cluster_is_named_and_numbers_have_the_right_words() {
        let text = screen("http://a:8081", "connection").text(true);
        for line in [
            "\nnode         http://a:8081 (connection node)\n",
            "\nformer URLs  1 push since the start\n",
            "\nwaiting      1 message\n",
            "\nby month     2 user agents on 2026_11, 1 user agent on 2026_10, counted ",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(!screen("local", "all").text(true).contains("\nnode "), "it is the only one");
    }
}
