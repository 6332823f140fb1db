//! Reads the files of the certificate again: when they have changed, and at SIGHUP.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use actix_web::rt::spawn;
use actors::Clock;
use slog::{Logger, info, warn};
use state_machine::log_limiter::LogLimiter;
use state_machine::{Span, Time};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use super::certificate::{Certificate, CertificateFiles};
use super::certificates::Certificates;
use crate::system::clock::day;

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
        let (mut changed, mut warnings) = (files.changed(), LogLimiter::new(WARN_EVERY));
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let now = clock.now();
            if let Some(current) = certificates.current() {
                warn_of(&current, &files, now, &mut warnings, &log);
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
                    let last_day = certificate.last_day();
                    certificates.replace(certificate);
                    info!(log, "the certificate was read again"; "last_day" => last_day);
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

/// Warns of a certificate that begins later or ends soon, once a day.
fn warn_of(
    current: &Certificate,
    files: &CertificateFiles,
    now: Time,
    warnings: &mut LogLimiter,
    log: &Logger,
) {
    let (valid, file) = (current.valid, files.certificate.display());
    let (is_early, left) = (now < valid.begins, valid.ends_soon(now));
    if (left.is_none() && !is_early) || warnings.allow(now).is_none() {
        return;
    }
    if is_early {
        warn!(log, "the certificate is not valid yet, compare the clock of this machine with another";
            "begins" => day(valid.begins.as_secs()), "certificate" => %file);
    } else if let Some(left) = left {
        warn!(log, "the certificate ends soon, renew its files: they are read again by themselves";
            "days_left" => left.0 / (24 * 60 * 60 * 1000), "certificate" => %file);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};
    use tempfile::TempDir;
    use tokio::task::{LocalSet, yield_now};
    use tokio::time::advance;

    use super::*;
    use crate::system::telemetry::fixture::Log;

    /// Five days before the end of the certificate.
    const NOW: Time = Time(1_795_651_200_000);
    const HOUR: Duration = Duration::from_secs(60 * 60);

    async fn pass_days(days: usize) {
        for _ in 0..days * 24 {
            advance(HOUR).await;
            for _ in 0..10 {
                yield_now().await;
            }
        }
    }

    #[test]
    fn a_certificate_that_begins_later_is_logged_once_a_day() {
        let (dir, key) = (TempDir::new().unwrap(), KeyPair::generate().unwrap());
        let mut params = CertificateParams::new(["push.example.net".to_owned()]).unwrap();
        (params.not_before, params.not_after) =
            (date_time_ymd(2026, 12, 1), date_time_ymd(2030, 12, 1));
        let [certificate, key_file] = ["certificate", "key"].map(|name| dir.path().join(name));
        fs::write(&certificate, params.self_signed(&key).unwrap().pem()).unwrap();
        fs::write(&key_file, key.serialize_pem()).unwrap();
        let files = CertificateFiles { certificate, key: key_file };
        let (current, mut warnings) = (files.read(NOW).unwrap(), LogLimiter::new(WARN_EVERY));
        let (logger, mut log) = Log::new();
        for now in [NOW, NOW + Span(1), current.valid.begins] {
            warn_of(&current, &files, now, &mut warnings, &logger);
        }
        let said = log.said();
        assert!(said.len() == 1 && said[0].contains("not valid yet"), "{said:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_certificate_is_logged_once_a_day_and_its_files_are_read_when_they_change()
    {
        let (dir, key) = (TempDir::new().unwrap(), KeyPair::generate().unwrap());
        let mut params = CertificateParams::new(["push.example.net".to_owned()]).unwrap();
        params.not_after = date_time_ymd(2026, 12, 1);
        let [certificate, key_file] = ["certificate", "key"].map(|name| dir.path().join(name));
        fs::write(&certificate, params.self_signed(&key).unwrap().pem()).unwrap();
        fs::write(&key_file, key.serialize_pem()).unwrap();
        let files = CertificateFiles { certificate: certificate.clone(), key: key_file };
        let (certificates, clock) = (Arc::<Certificates>::default(), Clock::starting_at(NOW));
        certificates.replace(files.read(NOW).unwrap());
        let (logger, mut log) = Log::new();
        let local = LocalSet::new();
        let watched = local.run_until(async {
            start(files, certificates, clock.clone(), logger).unwrap();
            pass_days(3).await;
            let said = log.said();
            assert!((3..=4).contains(&said.len()), "{said:?}");
            assert!(said.iter().all(|line| line.contains("ends soon")), "{said:?}");
            // It is logged at once after the clock was set back, and not each minute.
            clock.set(NOW);
            pass_days(1).await;
            let said = log.said();
            assert!((1..=2).contains(&said.len()), "{said:?}");
            params.not_after = date_time_ymd(2030, 12, 1);
            fs::write(&certificate, params.self_signed(&key).unwrap().pem()).unwrap();
            pass_days(2).await;
            let said = log.said();
            assert!(said.len() == 1 && said[0].contains("read again"), "{said:?}");
        });
        watched.await;
    }
}
