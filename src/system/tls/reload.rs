//! Reads the files of the certificate again: when they have changed, and at SIGHUP.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use actix_web::rt::spawn;
use actors::Clock;
use slog::{Logger, info, warn};
use state_machine::{Span, Time};
use tokio::signal::unix::{SignalKind, signal};
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
    let mut hangup = signal(SignalKind::hangup())?;
    spawn(async move {
        let (mut changed, mut warned_at) = (files.changed(), None);
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let now = clock.now();
            let last_days = certificates.current().and_then(|current| current.last_days(now));
            let is_due = warned_at.is_none_or(|at: Time| at + WARN_EVERY <= now);
            if let Some(days) = last_days.filter(|_| is_due) {
                warn!(log, "the certificate ends soon, renew its files: they are read again by themselves";
                    "days_left" => days, "certificate" => %files.certificate.display());
                warned_at = Some(now);
            }
            let is_hangup = tokio::select! {
                _ = looks.tick() => false,
                Some(()) = hangup.recv() => true,
            };
            let before = std::mem::replace(&mut changed, files.changed());
            if !is_hangup && changed == before {
                continue;
            }
            match files.read(clock.now()) {
                Ok(certificate) => {
                    let day = certificate.expires_on_day();
                    certificates.replace(certificate);
                    info!(log, "the certificate was read again"; "expires_on_day" => day);
                }
                Err(error) => {
                    warn!(log, "the new certificate cannot be used, the one before stays in use";
                        "why" => %error);
                }
            }
        }
    });
    Ok(())
}
