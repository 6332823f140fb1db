//! Certificates of an authority that speaks ACME (RFC 8555), such as Let's Encrypt
//! ([decision 41](../../docs/decisions/0041-certificates-by-acme.md)).
//!
//! - [`schedule`]: when a certificate is ordered; [`order`]: one order.
//! - [`files`]: the account and the certificates on the disk.
//! - [`port`]: the port of http-01, which sends all other requests to https.

mod files;
mod order;
pub mod port;
pub mod schedule;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix_web::rt::spawn;
use actors::Clock;
use slog::{Logger, info, warn};
use state_machine::{Span, Time};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{sleep, timeout};
use url::Url;

use crate::settings::Settings;
use crate::system::https_client::ClientError;
use crate::system::tls::certificate::{Certificate, TlsError};
use crate::system::tls::certificates::Certificates;
use files::AcmeFiles;
use order::Proof;
use port::Answers;
use schedule::{Failures, Validity, order_at};

/// Maximum time of an order.
const ORDER_TIME: Duration = Duration::from_secs(300);

/// Interval at which the clock is read while an order is not due: the machine's clock may be set.
const LOOK_EVERY: Span = Span::from_secs(60);

/// Why there is no new certificate.
#[derive(Debug, thiserror::Error)]
enum AcmeError {
    #[error(transparent)]
    Authority(#[from] instant_acme::Error),
    #[error("the authority could not verify the domain: {0}")]
    NotProved(String),
    #[error("the authority does not offer {0}")]
    NotOffered(&'static str),
    #[error("it took longer than {} s", ORDER_TIME.as_secs())]
    TooLong,
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("cannot use the files in the directory acme of data_dir: {0}")]
    Files(#[from] io::Error),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("cannot make a certificate: {0}")]
    Generation(#[from] rcgen::Error),
}

/// Orders the certificates of `domain`, one after the other.
struct Orderer {
    domain: String,
    directory: Url,
    /// `mailto:` URLs; one or none.
    contact: Vec<String>,
    has_http: bool,
    files: AcmeFiles,
    certificates: Arc<Certificates>,
    answers: Arc<Answers>,
    clock: Clock,
    log: Logger,
}

/// Uses the stored certificate if it is good, and starts the task that orders the next one. Nothing happens without a
/// domain.
pub fn start(
    settings: &Settings,
    certificates: Arc<Certificates>,
    answers: Arc<Answers>,
    clock: Clock,
    log: Logger,
) -> io::Result<()> {
    let Some(domain) = settings.acme_domain() else { return Ok(()) };
    let hangup = signal(SignalKind::hangup())?;
    let directory = settings.acme_directory_url.url().clone();
    let files = AcmeFiles::new(&settings.data_dir, &directory, domain);
    match files.certificate(clock.now()) {
        Ok(certificate) => {
            let expires_on_day = day(&certificate);
            info!(log, "the stored certificate is used"; "domain" => domain, "expires_on_day" => expires_on_day);
            certificates.replace(certificate);
        }
        Err(why) => {
            info!(log, "there is no certificate yet, TLS handshakes fail until it was ordered";
                "domain" => domain, "why" => %why);
        }
    }
    let orderer = Orderer {
        domain: domain.to_owned(),
        directory,
        contact: settings
            .acme_contact
            .iter()
            .map(|email| format!("mailto:{}", email.as_str()))
            .collect(),
        has_http: settings.http_listen.0.is_some(),
        files,
        certificates,
        answers,
        clock,
        log,
    };
    spawn(orderer.run(hangup));
    Ok(())
}

impl Orderer {
    async fn run(self, mut hangup: Signal) {
        let none = Failures { number: 0, last: Time(0), place: place(&self.domain) };
        let mut failures = self.files.failures(none).at_start(self.clock.now());
        self.warn_of_delay(failures);
        loop {
            self.until_due(failures, &mut hangup).await;
            // After a failure the other way is tried: a firewall may have closed one of the two ports.
            let is_http = self.has_http && failures.number.is_multiple_of(2);
            let proof = if is_http { Proof::Http } else { Proof::Tls };
            info!(self.log, "a certificate is ordered"; "domain" => &self.domain, "challenge" => proof.name());
            let begun = failures.and_one_at(self.clock.now());
            let ordered = timeout(ORDER_TIME, Box::pin(self.counted_order(begun, proof))).await;
            self.answers.clear();
            self.certificates.set_proof(None);
            failures = match ordered.unwrap_or(Err(AcmeError::TooLong)) {
                Ok(certificate) => {
                    self.certificates.orders_succeeded.fetch_add(1, Ordering::Relaxed);
                    info!(self.log, "a new certificate is used"; "domain" => &self.domain,
                        "expires_on_day" => day(&certificate));
                    self.certificates.replace(certificate);
                    none
                }
                Err(why) => self.failed(begun, proof, &why),
            };
        }
    }

    /// Waits until an order is due. SIGHUP ends the wait after a failure.
    async fn until_due(&self, failures: Failures, hangup: &mut Signal) {
        let due = order_at(self.validity(), failures);
        while self.clock.now() < due {
            let wait = due.since(self.clock.now()).min(LOOK_EVERY);
            tokio::select! {
                () = sleep(Duration::from_millis(wait.0)) => {}
                Some(()) = hangup.recv() => if failures.number > 0 { return },
            }
        }
    }

    /// Makes an order. It is stored as failed while it runs, for a server that ends meanwhile.
    async fn counted_order(&self, begun: Failures, proof: Proof) -> Result<Certificate, AcmeError> {
        self.files.save_failures(begun)?;
        let certificate = self.order(proof).await?;
        if let Err(why) = self.files.forget_failures() {
            // The certificate is good, and what stays can only delay an order after a restart.
            warn!(self.log, "the failures of orders cannot be deleted"; "domain" => &self.domain, "why" => %why);
        }
        Ok(certificate)
    }

    /// Warns if failures before this start delay an order that is due.
    fn warn_of_delay(&self, failures: Failures) {
        let (now, current) = (self.clock.now(), self.validity());
        let due = order_at(current, failures);
        if due > now && order_at(current, Failures { number: 0, ..failures }) <= now {
            warn!(self.log, "orders of a certificate failed before this start, the next one waits";
                "domain" => &self.domain, "failures" => failures.number, "retry_in_s" => due.since(now).0 / 1000);
        }
    }

    fn failed(&self, begun: Failures, proof: Proof, why: &AcmeError) -> Failures {
        self.certificates.orders_failed.fetch_add(1, Ordering::Relaxed);
        let now = self.clock.now();
        let failures = Failures { last: now, ..begun };
        let current = self.validity();
        let retry_in_s = order_at(current, failures).since(now).0 / 1000;
        let left = current.map_or(Span::ZERO, |valid| valid.expires.since(now));
        warn!(self.log, "the order of a certificate failed, the one before stays in use"; "domain" => &self.domain,
            "challenge" => proof.name(), "why" => %why, "failures" => failures.number, "retry_in_s" => retry_in_s,
            "days_left" => left.0 / Span::from_secs(24 * 60 * 60).0);
        failures
    }

    fn validity(&self) -> Option<Validity> {
        let Certificate { begins, expires, .. } = self.certificates.current()?;
        Some(Validity { begins, expires })
    }
}

fn day(certificate: &Certificate) -> u64 {
    certificate.expires.as_secs() / (24 * 60 * 60)
}

/// The same for each start, so that a restart brings no order forward.
fn place(domain: &str) -> u8 {
    let mut hasher = DefaultHasher::new();
    domain.hash(&mut hasher);
    (hasher.finish() % 256) as u8
}
