//! Reads the files of the certificate again: when they have changed, and at SIGHUP.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use actix_web::rt::spawn;
use actors::Clock;
use slog::{Logger, info, warn};
use state_machine::{Span, Time};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use super::certificate::CertificateFiles;
use super::certificates::Certificates;

/// Interval at which the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Minimum time between two warnings of the end of a certificate.
const WARN_EVERY: Span = Span::from_secs(24 * 60 * 60);

/// Starts the task. A pair that cannot be used changes nothing.
pub fn start(
    files: CertificateFiles,
    certificates: Arc<Certificates>,
    clock: Clock,
    log: Logger,
) -> io::Result<()> {
    let hangup = signal(SignalKind::hangup())?;
    spawn(Reloader { files, certificates, clock, log }.run(hangup));
    Ok(())
}

struct Reloader {
    files: CertificateFiles,
    certificates: Arc<Certificates>,
    clock: Clock,
    log: Logger,
}

impl Reloader {
    async fn run(self, mut hangup: Signal) {
        let (mut changed, mut warned_at) = (self.files.changed(), None);
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            warned_at = self.warn_of_end(warned_at);
            let is_hangup = tokio::select! {
                _ = looks.tick() => false,
                Some(()) = hangup.recv() => true,
            };
            let before = std::mem::replace(&mut changed, self.files.changed());
            if is_hangup || changed != before {
                self.reload();
            }
        }
    }

    fn reload(&self) {
        match self.files.read(self.clock.now()) {
            Ok(certificate) => {
                let days = certificate.expires.as_secs() / (24 * 60 * 60);
                self.certificates.replace(certificate);
                info!(self.log, "the certificate was read again"; "expires_on_day" => days);
            }
            Err(error) => {
                warn!(self.log, "the new certificate cannot be used, the one before stays in use"; "why" => %error);
            }
        }
    }

    fn last_days(&self, now: Time) -> Option<u64> {
        self.certificates.current()?.last_days(now)
    }

    /// Warns of the end of the certificate, once a day. Returns when it warned last.
    fn warn_of_end(&self, warned_at: Option<Time>) -> Option<Time> {
        let now = self.clock.now();
        let is_due = warned_at.is_none_or(|at: Time| at + WARN_EVERY <= now);
        let Some(days) = self.last_days(now).filter(|_| is_due) else {
            return warned_at;
        };
        warn!(self.log, "the certificate ends soon, renew its files: they are read again by themselves";
            "days_left" => days, "certificate" => %self.files.certificate.display());
        Some(now)
    }
}
