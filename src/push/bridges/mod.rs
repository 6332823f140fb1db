//! Bridges to the push services of platforms: FCM and APNs. A message and its recipient enter. One HTTP/2 request
//! leaves, and the outcome is what its answer means.
//!
//! - [`config`]: the file of applications.
//! - [`platform`]: what a bridge has to define, and one exchange with it.
//! - [`fcm`], [`apns`]: the two bridges.
//! - [`guard`]: breaker, bound and counters of an application.
//! - [`http_client`]: HTTP/2 with bounds; [`message_data`]: a message in the clients' names.
//!
//! A further bridge is a file with a `Platform`, and its line in `open`.

mod apns;
mod config;
mod fcm;
mod guard;
mod http_client;
mod message_data;
mod platform;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use actors::{Bridge, Clock, SharedLogLimiter};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use slog::{Logger, info, o, warn};
use state_machine::{BridgeName, BridgeOutcome, BridgeRecipient, Message};
use tokio::runtime::Handle;
use tokio::time::timeout;

pub use config::BridgesError;
use config::{Opening, Section};
use guard::{Guard, GuardLimits, LOG_EVERY, Permit};
pub use guard::{GuardState, OutcomeCounts};
use http_client::HttpRequest;
use platform::{Platform, Verdict, exchange};

use crate::settings::Settings;

/// The applications that the file of bridges names, each with its connection.
pub struct Bridges {
    applications: BTreeMap<(BridgeName, Box<str>), Arc<Application>>,
    limits: GuardLimits,
    clock: Clock,
    /// The runtime of all exchanges: one connection to a bridge serves all threads.
    runtime: Handle,
    log: Logger,
    /// Of pushes for applications that the file does not name.
    unknown_limiter: SharedLogLimiter,
}

/// An application at a bridge.
struct Application {
    platform: Box<dyn Platform>,
    guard: Arc<Guard>,
}

impl Bridges {
    /// Reads `bridges_file` and what it names. Without that setting there are no applications.
    ///
    /// Must be called in a runtime that outlives this value: messages are sent from there.
    pub fn load(
        settings: &Settings,
        clock: Clock,
        log: &Logger,
    ) -> Result<Arc<Self>, BridgesError> {
        let limits = GuardLimits::from(settings);
        let platforms = match &settings.bridges_file {
            Some(path) => config::load(path, limits.timeout, &clock, open)?,
            None => Vec::new(),
        };
        let applications = platforms.into_iter().map(|(bridge, app, platform)| {
            let log = log.new(o!("bridge" => bridge.as_str(), "app" => app.to_string()));
            let guard = Arc::new(Guard::new(limits, log));
            ((bridge, app), Arc::new(Application { platform, guard }))
        });
        let applications: BTreeMap<_, _> = applications.collect();
        let runtime = Handle::current();
        let (log, unknown_limiter) = (log.clone(), SharedLogLimiter::new(LOG_EVERY));
        let bridges = Self { applications, limits, clock, runtime, log, unknown_limiter };
        if !bridges.is_empty() {
            info!(bridges.log, "bridges_file is read"; "applications" => bridges.names());
        }
        Ok(Arc::new(bridges))
    }

    /// The applications of the file of bridges.
    pub fn apps(&self) -> BTreeSet<(BridgeName, Box<str>)> {
        self.applications.keys().cloned().collect()
    }

    /// The applications as the headings of the file name them: `fcm.fenix, apns.firefox`.
    pub fn names(&self) -> String {
        let name = |(bridge, app): &(BridgeName, Box<str>)| format!("{}.{app}", bridge.as_str());
        self.applications.keys().map(name).collect::<Vec<_>>().join(", ")
    }

    /// Whether this server has no bridges.
    pub fn is_empty(&self) -> bool {
        self.applications.is_empty()
    }

    /// The state of each application.
    pub fn observe(&self) -> impl Iterator<Item = (BridgeName, &str, GuardState)> {
        let applications = self.applications.iter();
        applications
            .map(|((bridge, app), application)| (*bridge, &**app, application.guard.observe()))
    }

    /// Begins a message, or returns the outcome if it is not sent.
    fn begin(
        &self,
        recipient: &BridgeRecipient,
        message: &Message,
    ) -> Result<(Arc<Application>, HttpRequest, Permit), BridgeOutcome> {
        let key = (recipient.bridge, recipient.app.clone());
        let Some(application) = self.applications.get(&key) else {
            if let Some(pushes) = self.unknown_limiter.count(self.clock.now()) {
                warn!(self.log, "a push for an application that bridges_file does not have";
                    "bridge" => recipient.bridge.as_str(), "app" => &*recipient.app, "more" => pushes - 1);
            }
            return Err(BridgeOutcome::UnknownApp);
        };
        // Before the guard: a message that is refused here shows nothing of the bridge.
        let request = application.platform.request(recipient, message)?;
        let permit = application.guard.enter(self.clock.now())?;
        Ok((Arc::clone(application), request, permit))
    }
}

fn open(bridge: BridgeName, section: &Section<'_>) -> Opening {
    match bridge {
        BridgeName::Fcm => fcm::open(section),
        BridgeName::Apns => apns::open(section),
    }
}

impl Bridge for Bridges {
    fn send(
        &self,
        recipient: &BridgeRecipient,
        message: &Message,
    ) -> BoxFuture<'static, BridgeOutcome> {
        let (application, request, permit) = match self.begin(recipient, message) {
            Ok(begun) => begun,
            Err(refused) => return ready(refused).boxed(),
        };
        let (wait, clock) = (self.limits.timeout, self.clock.clone());
        let sending = self.runtime.spawn(async move {
            let exchange = exchange(&*application.platform, request);
            let verdict =
                timeout(wait, exchange).await.unwrap_or_else(|_| Verdict::timed_out(wait));
            let outcome = verdict.outcome;
            permit.finish(&verdict, clock.now());
            outcome
        });
        // It fails only at the end of the runtime: then the bridge may have the message.
        sending.map(|outcome| outcome.unwrap_or(BridgeOutcome::TimedOut)).boxed()
    }
}

impl fmt::Debug for Bridges {
    /// The applications, without their keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.applications.keys()).finish()
    }
}
