//! A certificate chain with its key, and the files it is read from.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use state_machine::{Span, Time};
use x509_parser::parse_x509_certificate;
use x509_parser::time::ASN1Time;

use crate::system::clock::day;
use crate::system::regular_file;

/// Size of the largest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A certificate ends soon in its last days, or in the last part of a short life.
const ENDS_SOON: Span = Span::from_secs(14 * 24 * 60 * 60);
const ENDS_SOON_PART: u64 = 6;

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {}: {source}", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} has no certificate: it is a PEM file with the certificate of the server first, and then those of \
        its issuers", .0.display())]
    NoCertificate(PathBuf),
    #[error("{} has a certificate that is none", .0.display())]
    Malformed(PathBuf),
    #[error("{} has no private key: it is a PEM file with the key of the certificate", .0.display())]
    NoKey(PathBuf),
    #[error("the certificate in {} does not fit the key in {}: {why}", .certificate.display(), .key.display())]
    Mismatch { certificate: PathBuf, key: PathBuf, why: rustls::Error },
    #[error("the certificate in {} has expired: renew it, and start again", .0.display())]
    Expired(PathBuf),
    #[error("TLS cannot be used: {0}")]
    Library(rustls::Error),
}

/// The files of the settings `tls_certificate` and `tls_key`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// A chain with its key.
#[derive(Debug, Clone)]
pub struct Certificate {
    pub key: Arc<CertifiedKey>,
    pub valid: Validity,
}

/// The times between which a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    pub begins: Time,
    pub expires: Time,
}

impl Validity {
    /// The time that is left, if that is little; zero after the end.
    pub fn ends_soon(self, now: Time) -> Option<Span> {
        let (life, left) = (self.expires.since(self.begins), self.expires.since(now));
        (left <= ENDS_SOON.min(Span(life.0 / ENDS_SOON_PART))).then_some(left)
    }
}

impl CertificateFiles {
    /// Reads the pair. A certificate that has ended is refused.
    pub fn read(&self, now: Time) -> Result<Certificate, TlsError> {
        let chain = CertificateDer::pem_slice_iter(&read(&self.certificate)?)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| TlsError::NoCertificate(self.certificate.clone()))?;
        let first =
            chain.first().ok_or_else(|| TlsError::NoCertificate(self.certificate.clone()))?;
        let valid = validity(first).ok_or_else(|| TlsError::Malformed(self.certificate.clone()))?;
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key)?)
            .map_err(|_| TlsError::NoKey(self.key.clone()))?;
        let key = CertifiedKey::from_der(chain, key, &default_provider());
        let key = key.map_err(|why| TlsError::Mismatch {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            why,
        })?;
        if valid.expires <= now {
            return Err(TlsError::Expired(self.certificate.clone()));
        }
        Ok(Certificate { key: Arc::new(key), valid })
    }

    /// When the files were changed last. None for one that is missing.
    pub fn changed(&self) -> [Option<SystemTime>; 2] {
        [&self.certificate, &self.key].map(|path| path.metadata().ok()?.modified().ok())
    }
}

impl Certificate {
    /// The day that it ends on, such as `14 Nov 2023`.
    pub fn last_day(&self) -> String {
        day(self.valid.expires.as_secs())
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let mut bytes = Vec::new();
    let read =
        regular_file::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
    read.map_err(|source| TlsError::Unreadable { path: path.to_owned(), source })?;
    Ok(bytes)
}

/// The validity of a certificate in DER. None if it is malformed.
pub fn validity(certificate: &[u8]) -> Option<Validity> {
    let (_, certificate) = parse_x509_certificate(certificate).ok()?;
    // A validity may begin before the epoch.
    let time = |at: ASN1Time| Time(0) + Span::from_secs(at.timestamp().try_into().unwrap_or(0));
    let validity = certificate.validity();
    Some(Validity { begins: time(validity.not_before), expires: time(validity.not_after) })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};
    use tempfile::TempDir;

    use super::*;

    const NOW: Time = Time(1_795_392_000_000);

    fn params(last_year: i32) -> CertificateParams {
        let mut params = CertificateParams::new(["push.example.net".to_owned()]).unwrap();
        params.not_after = date_time_ymd(last_year, 12, 1);
        params
    }

    fn files(dir: &TempDir, certificate: &str, key: &str) -> CertificateFiles {
        let [certificate, key] =
            [("certificate", certificate), ("key", key)].map(|(name, text)| {
                let path = dir.path().join(name);
                fs::write(&path, text).unwrap();
                path
            });
        CertificateFiles { certificate, key }
    }

    #[test]
    fn a_pair_is_read_with_its_end_in_either_form_of_a_date() {
        let (dir, key) = (TempDir::new().unwrap(), KeyPair::generate().unwrap());
        for (year, expires) in [(2026, 1_796_083_200), (2049, 2_521_929_600), (2050, 2_553_465_600)]
        {
            let certificate = params(year).self_signed(&key).unwrap();
            let pair = files(&dir, &certificate.pem(), &key.serialize_pem()).read(NOW).unwrap();
            assert_eq!(pair.valid.expires.as_secs(), expires);
        }
    }

    #[test]
    fn a_certificate_ends_soon_in_its_last_days_or_the_last_part_of_a_short_life() {
        let day = |days: u64| Time(days * 24 * 60 * 60 * 1000);
        for (life, soon) in [(90, 14), (84, 14), (60, 10), (6, 1)] {
            let valid = Validity { begins: day(1000), expires: day(1000 + life) };
            let near = valid.expires - day(soon).since(Time(0));
            let left = |now| valid.ends_soon(now).map(|left| left.0);
            let found = [Time(near.0 - 1), near, valid.expires, day(2000)].map(left);
            assert_eq!(found, [None, Some(day(soon).0), Some(0), Some(0)], "{life} days");
        }
    }

    #[test]
    fn a_pair_that_cannot_be_used_is_refused_with_the_reason() {
        let (dir, key) = (TempDir::new().unwrap(), KeyPair::generate().unwrap());
        let pem = params(2030).self_signed(&key).unwrap().pem();
        let expired = params(2025).self_signed(&key).unwrap().pem();
        let (key, other) = (key.serialize_pem(), KeyPair::generate().unwrap().serialize_pem());
        let half = format!("{}\n-----END CERTIFICATE-----\n", &pem[..pem.len() / 2 / 4 * 4]);
        for (certificate, key, reason) in [
            ("", key.as_str(), "has no certificate"),
            (&key, &key, "has no certificate"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", &key, "is none"),
            (&half, &key, "certificate"),
            (&pem, "", "has no private key"),
            (&pem, &pem, "has no private key"),
            (&pem, &other, "does not fit the key"),
            (&expired, &key, "has expired"),
        ] {
            let error = files(&dir, certificate, key).read(NOW).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        let missing = CertificateFiles { certificate: "/nowhere".into(), key: "/nowhere".into() };
        assert!(missing.read(NOW).unwrap_err().to_string().starts_with("cannot read /nowhere"));
    }

    #[test]
    fn no_part_of_a_certificate_makes_its_reader_panic() {
        let key = KeyPair::generate().unwrap();
        let der = params(2030).self_signed(&key).unwrap().der().to_vec();
        for end in 0..der.len() {
            assert!(validity(&der[..end]).is_none(), "{end}");
            let mut changed = der.clone();
            changed[end] = 0xff;
            let _ = validity(&changed);
        }
    }
}
