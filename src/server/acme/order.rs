//! One order of a certificate (RFC 8555), from the account to the chain.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

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
use tokio::task::spawn_blocking;

use super::{AcmeError, Orderer};
use crate::system::https_client::{http_client, why_unanswered};
use crate::system::tls::certificate::{Certificate, TlsError};

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    /// A file on port 80, http-01 (RFC 8555 §8.3).
    Http,
    /// A certificate on port 443, tls-alpn-01 (RFC 8737).
    Tls,
}

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

impl Proof {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Http => "http-01",
            Self::Tls => "tls-alpn-01",
        }
    }

    fn challenge(self) -> ChallengeType {
        match self {
            Self::Http => ChallengeType::Http01,
            Self::Tls => ChallengeType::TlsAlpn01,
        }
    }
}

impl AcmeError {
    /// Whether the authority answered with this type of problem (RFC 8555 §6.7).
    fn is(&self, problem: &str) -> bool {
        let Self::Authority(Error::Api(answer)) = self else { return false };
        let name = answer.r#type.as_deref().unwrap_or_default();
        name.strip_prefix("urn:ietf:params:acme:error:") == Some(problem)
    }
}

impl Orderer {
    /// Orders a certificate and stores it.
    pub(super) async fn order(&self, proof: Proof) -> Result<Certificate, AcmeError> {
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
    async fn prove(&self, order: &mut Order, proof: Proof) -> Result<(), AcmeError> {
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            if authorization.status == AuthorizationStatus::Valid {
                continue;
            }
            let challenge = authorization.challenge(proof.challenge());
            let mut challenge = challenge.ok_or(AcmeError::NotOffered(proof.name()))?;
            let answer = challenge.key_authorization();
            match proof {
                Proof::Http => self.answers.set(&challenge.token, answer.as_str()),
                Proof::Tls => {
                    let certificate = proving_certificate(&self.domain, answer.digest().as_ref())?;
                    self.certificates.set_proof(Some(Arc::new(certificate)));
                }
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
