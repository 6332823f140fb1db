//! Orders the certificates of a domain: when one is due, and each order (RFC 8555), from the account to the chain.

use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use actix_web::rt::spawn;
use actors::Clock;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{Method, Request};
use instant_acme::{
    Account, AuthorizationStatus, BodyWrapper, BytesResponse, ChallengeType, Error, HttpClient,
    Identifier, NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use slog::{Logger, info, o, warn};
use state_machine::{Span, Time};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use url::Url;

use super::error::{AcmeError, ORDER_TIME};
use super::files::AcmeFiles;
use super::port::Answers;
use super::schedule::{self, Failures};
use crate::settings::Settings;
use crate::system::https_client::{http_client, why_unanswered};
use crate::system::tls::certificate::{Certificate, TlsError, Validity};
use crate::system::tls::certificates::Certificates;

/// Interval at which the clock is read while an order is not due: the machine's clock may be set.
const LOOK_EVERY: Span = Span::from_secs(60);

/// When the state of an order is asked for, and for how long.
const POLLS: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .backoff(1.5)
    .timeout(Duration::from_secs(120));

/// Repetitions of a request whose nonce the authority refuses, beside those of the library.
const NONCES_MAX: u32 = 6;

/// Size of the largest answer of the authority that is read.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// How the authority is shown that the domain is this server's.
struct Proof {
    name: &'static str,
    challenge: ChallengeType,
}

/// A file on port 80 (RFC 8555 §8.3).
const HTTP: Proof = Proof { name: "http-01", challenge: ChallengeType::Http01 };

/// A certificate on port 443 (RFC 8737).
const TLS: Proof = Proof { name: "tls-alpn-01", challenge: ChallengeType::TlsAlpn01 };

/// Makes a request again if its nonce was refused.
macro_rules! with_nonce {
    ($request:expr) => {{
        let mut left = NONCES_MAX;
        loop {
            match $request.map_err(AcmeError::from) {
                Err(error) if error.is("badNonce") && left > 0 => left -= 1,
                answer => break answer,
            }
        }
    }};
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
            let last_day = certificate.last_day();
            info!(log, "the stored certificate is used"; "domain" => domain, "last_day" => last_day);
            certificates.replace(certificate);
        }
        Err(why) => {
            info!(log, "there is no certificate yet, TLS handshakes fail until it was ordered";
                "domain" => domain, "why" => %why);
            *certificates.awaited.lock() = Some("the first order is under way".to_owned());
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
        let mut failures = self.files.failures().at_start(self.clock.now());
        self.warn_of_delay(failures);
        loop {
            self.until_due(failures, &mut hangup).await;
            // After a failure the other way is tried: a firewall may have closed one of the two ports.
            let is_http = self.has_http && failures.number.is_multiple_of(2);
            let proof = if is_http { HTTP } else { TLS };
            info!(self.log, "a certificate is ordered"; "domain" => &self.domain, "challenge" => proof.name);
            let begun = failures.and_one_at(self.clock.now());
            let ordered = timeout(ORDER_TIME, Box::pin(self.counted_order(begun, &proof))).await;
            self.answers.set(None);
            self.certificates.set_proof(None);
            failures = match ordered.unwrap_or(Err(AcmeError::TooLong)) {
                Ok(certificate) => {
                    self.certificates.orders_succeeded.fetch_add(1, Ordering::Relaxed);
                    info!(self.log, "a new certificate is used"; "domain" => &self.domain,
                        "last_day" => certificate.last_day());
                    self.certificates.replace(certificate);
                    Failures::default()
                }
                Err(why) => self.failed(begun, &proof, &why),
            };
        }
    }

    /// Waits until an order is due. SIGHUP ends the wait after a failure.
    async fn until_due(&self, failures: Failures, hangup: &mut Signal) {
        let due = self.order_at(failures);
        while self.clock.now() < due {
            let wait = due.since(self.clock.now()).min(LOOK_EVERY);
            tokio::select! {
                () = sleep(Duration::from_millis(wait.0)) => {}
                Some(()) = hangup.recv() => if failures.number > 0 { return },
            }
        }
    }

    /// Makes an order. It is stored as failed while it runs, for a server that ends meanwhile.
    async fn counted_order(
        &self,
        begun: Failures,
        proof: &Proof,
    ) -> Result<Certificate, AcmeError> {
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
        let (now, due) = (self.clock.now(), self.order_at(failures));
        if due > now && self.order_at(Failures::default()) <= now {
            warn!(self.log, "orders of a certificate failed before this start, the next one waits";
                "domain" => &self.domain, "failures" => failures.number, "retry_in_s" => due.since(now).0 / 1000);
        }
    }

    fn failed(&self, begun: Failures, proof: &Proof, why: &AcmeError) -> Failures {
        self.certificates.orders_failed.fetch_add(1, Ordering::Relaxed);
        let now = self.clock.now();
        let failures = Failures { last_ms: now.0, ..begun };
        let retry_in_s = self.order_at(failures).since(now).0 / 1000;
        let about = o!("domain" => self.domain.clone(), "challenge" => proof.name, "why" => why.to_string(),
            "failures" => failures.number, "retry_in_s" => retry_in_s);
        let log = self.log.new(about);
        match self.validity() {
            Some(valid) => {
                let left = valid.expires.since(now).0 / Span::from_secs(24 * 60 * 60).0;
                warn!(log, "the order of a certificate failed, the one before stays in use"; "days_left" => left);
            }
            None => {
                warn!(
                    log,
                    "the order of the first certificate failed, TLS handshakes fail until one succeeds"
                );
                *self.certificates.awaited.lock() = Some(why.to_string());
            }
        }
        failures
    }

    fn validity(&self) -> Option<Validity> {
        Some(self.certificates.current()?.valid)
    }

    fn order_at(&self, failures: Failures) -> Time {
        schedule::order_at(self.validity(), failures, place(&self.domain))
    }
}

impl Orderer {
    /// Orders a certificate and stores it.
    async fn order(&self, proof: &Proof) -> Result<Certificate, AcmeError> {
        let names = [Identifier::Dns(self.domain.clone())];
        let names = NewOrder::new(&names);
        let account = self.account().await?;
        let mut order = match with_nonce!(account.new_order(&names).await) {
            Err(error) if error.is("accountDoesNotExist") => {
                self.files.forget_account()?;
                let account = self.account().await?;
                with_nonce!(account.new_order(&names).await)?
            }
            order => order?,
        };
        with_nonce!(self.prove(&mut order, proof).await)?;
        match with_nonce!(order.poll_ready(&POLLS).await) {
            Ok(OrderStatus::Ready) => {}
            Ok(_) | Err(AcmeError::Authority(Error::Api(_))) => {
                return Err(AcmeError::NotProved(why_not(&mut order).await));
            }
            Err(error) => return Err(error),
        }
        let key = with_nonce!(order.finalize().await)?;
        let chain = with_nonce!(order.poll_certificate(&POLLS).await)?;
        self.files.save_certificate(&key, &chain, self.clock.now())
    }

    /// The stored account, or a new one.
    async fn account(&self) -> Result<Account, AcmeError> {
        let client = Client(http_client(&self.directory)?);
        let builder = || Account::builder_with_http(Box::new(client.clone()));
        if let Some(account) = self.files.account()? {
            return Ok(builder().from_credentials(account).await?);
        }
        let contact: Vec<&str> = self.contact.iter().map(String::as_str).collect();
        let account = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let directory = || self.directory.to_string();
        let (account, credentials) =
            with_nonce!(builder().create(&account, directory(), None).await)?;
        self.files.save_account(&credentials)?;
        Ok(account)
    }

    /// Answers the challenge of the domain and tells the authority so.
    async fn prove(&self, order: &mut Order, proof: &Proof) -> Result<(), AcmeError> {
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            if authorization.status == AuthorizationStatus::Valid {
                continue;
            }
            let challenge = authorization.challenge(proof.challenge.clone());
            let mut challenge = challenge.ok_or(AcmeError::NotOffered(proof.name))?;
            let answer = challenge.key_authorization();
            if proof.challenge == ChallengeType::Http01 {
                self.answers.set(Some((challenge.token.clone(), answer.as_str().to_owned())));
            } else {
                let certificate = proving_certificate(&self.domain, answer.digest().as_ref())?;
                self.certificates.set_proof(Some(Arc::new(certificate)));
            }
            challenge.set_ready().await?;
        }
        Ok(())
    }
}

/// What the authority found wrong with the answer.
async fn why_not(order: &mut Order) -> String {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let Ok(state) = authorization.refresh().await else { continue };
        if let Some(error) = state.challenges.iter().find_map(|one| one.error.as_ref()) {
            return error.to_string();
        }
    }
    "the authority gives no reason".to_owned()
}

/// A certificate that has the answer in it (RFC 8737 §3). The library of TLS does not know its extension, and would refuse
/// to compare it with its key.
fn proving_certificate(domain: &str, digest: &[u8]) -> Result<CertifiedKey, AcmeError> {
    let mut params = CertificateParams::new([domain.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let key = any_supported_type(&key).map_err(TlsError::Library)?;
    Ok(CertifiedKey::new(vec![certificate.der().clone()], key))
}

/// The client of the other commands, which trusts what the system trusts. It waits on threads for blocking work.
#[derive(Clone)]
struct Client(ureq::Agent);

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let agent = self.0.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let Ok(body) = body.collect().await;
            let body = body.to_bytes();
            let answered = spawn_blocking(move || {
                let answer = match head.method {
                    Method::POST => agent.run(Request::from_parts(head, body.to_vec())),
                    _ => agent.run(Request::from_parts(head, ())),
                };
                let (parts, mut body) = answer?.into_parts();
                let body = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
                Ok(BytesResponse { parts, body: Box::new(Bytes::from(body)) })
            });
            let answered = answered.await.map_err(|panic| Error::Other(Box::new(panic)))?;
            answered
                .map_err(|error| Error::Other(Box::new(io::Error::other(why_unanswered(error)))))
        })
    }
}

/// The same for each start, so that a restart brings no order forward.
fn place(domain: &str) -> u8 {
    let mut hasher = DefaultHasher::new();
    domain.hash(&mut hasher);
    (hasher.finish() % 256) as u8
}
