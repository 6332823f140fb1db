//! Why an order fails.

use std::io;
use std::time::Duration;

use instant_acme::Error;

use crate::system::https_client::ClientError;
use crate::system::tls::certificate::TlsError;

/// Maximum time of an order.
pub(super) const ORDER_TIME: Duration = Duration::from_secs(300);

/// Why there is no new certificate.
#[derive(Debug, thiserror::Error)]
pub(super) enum AcmeError {
    #[error(transparent)]
    Authority(#[from] Error),
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

impl AcmeError {
    /// Whether the authority answered with this type of problem (RFC 8555 §6.7).
    pub(super) fn is(&self, problem: &str) -> bool {
        let Self::Authority(Error::Api(answer)) = self else { return false };
        let name = answer.r#type.as_deref().unwrap_or_default();
        name.strip_prefix("urn:ietf:params:acme:error:") == Some(problem)
    }
}
