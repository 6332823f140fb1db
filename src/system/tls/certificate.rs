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
use time::{Date, Month};

use crate::system::regular_file;

/// Size of the largest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Time before the end of a certificate from which the log and the doctor warn.
pub const WARN_BEFORE: Span = Span::from_secs(14 * 24 * 60 * 60);

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
    /// The begin of its validity.
    pub begins: Time,
    /// The end of its validity.
    pub expires: Time,
}

impl CertificateFiles {
    /// Reads the pair. A certificate that has ended is refused.
    pub fn read(&self, now: Time) -> Result<Certificate, TlsError> {
        let chain = CertificateDer::pem_slice_iter(&read(&self.certificate)?)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| TlsError::NoCertificate(self.certificate.clone()))?;
        let first =
            chain.first().ok_or_else(|| TlsError::NoCertificate(self.certificate.clone()))?;
        let (begins, expires) =
            validity(first).ok_or_else(|| TlsError::Malformed(self.certificate.clone()))?;
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key)?)
            .map_err(|_| TlsError::NoKey(self.key.clone()))?;
        let key = CertifiedKey::from_der(chain, key, &default_provider());
        let key = key.map_err(|why| TlsError::Mismatch {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            why,
        })?;
        if expires <= now {
            return Err(TlsError::Expired(self.certificate.clone()));
        }
        Ok(Certificate { key: Arc::new(key), begins, expires })
    }

    /// When the files were changed last. None for one that is missing.
    pub fn changed(&self) -> [Option<SystemTime>; 2] {
        [&self.certificate, &self.key].map(|path| path.metadata().ok()?.modified().ok())
    }
}

impl Certificate {
    /// The days that are left, if they are few.
    pub fn last_days(&self, now: Time) -> Option<u64> {
        let is_near = self.expires <= now + WARN_BEFORE;
        is_near.then(|| self.expires.as_secs().saturating_sub(now.as_secs()) / (24 * 60 * 60))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let mut bytes = Vec::new();
    let read =
        regular_file::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
    read.map_err(|source| TlsError::Unreadable { path: path.to_owned(), source })?;
    Ok(bytes)
}

/// The begin and the end of the validity of a certificate (RFC 5280 §4.1), in DER. None if it is malformed.
pub fn validity(certificate: &[u8]) -> Option<(Time, Time)> {
    const SEQUENCE: u8 = 0x30;
    const VERSION: u8 = 0xa0;
    let (_, certificate, _) = value(certificate)?;
    let (_, mut fields, _) = value(certificate)?;
    if fields.first() == Some(&VERSION) {
        fields = value(fields)?.2;
    }
    // The serial number, the algorithm of the signature and the issuer come before it.
    for _ in 0..3 {
        fields = value(fields)?.2;
    }
    let (tag, validity, _) = value(fields)?;
    let (begin_tag, not_before, not_after) = value(validity).filter(|_| tag == SEQUENCE)?;
    let (end_tag, not_after, _) = value(not_after)?;
    let read = |tag, bytes| time(tag, std::str::from_utf8(bytes).ok()?);
    Some((read(begin_tag, not_before)?, read(end_tag, not_after)?))
}

/// A value of DER: its tag, its contents, and what follows it.
fn value(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, length], rest) = der.split_first_chunk()?;
    let (length, rest) = match length {
        0x80.. => {
            let (bytes, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            let add = |sum: usize, byte: &u8| sum.checked_mul(256)?.checked_add(usize::from(*byte));
            (bytes.iter().try_fold(0, add)?, rest)
        }
        _ => (usize::from(length), rest),
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((tag, contents, rest))
}

/// `YYMMDDHHMMSSZ` of a UTCTime, which is of 1950 to 2049, or `YYYYMMDDHHMMSSZ` of a GeneralizedTime.
fn time(tag: u8, text: &str) -> Option<Time> {
    const UTC_TIME: u8 = 0x17;
    let text = match tag {
        UTC_TIME if text.get(..2)? < "50" => format!("20{text}"),
        UTC_TIME => format!("19{text}"),
        _ => text.to_owned(),
    };
    let number = |at: usize, digits: usize| text.get(at..at + digits)?.parse::<u8>().ok();
    let year = text.get(..4)?.parse().ok()?;
    let month = Month::try_from(number(4, 2)?).ok()?;
    let date = Date::from_calendar_date(year, month, number(6, 2)?).ok()?;
    let time = date.with_hms(number(8, 2)?, number(10, 2)?, number(12, 2)?).ok()?;
    // A validity may begin before the epoch.
    let seconds = u64::try_from(time.assume_utc().unix_timestamp()).unwrap_or_default();
    Some(Time(0) + Span::from_secs(seconds))
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
            assert_eq!(pair.expires.as_secs(), expires);
            assert_eq!(pair.last_days(NOW), (year == 2026).then_some(8));
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
