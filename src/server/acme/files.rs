//! The account and the certificates, in `acme/HOST` of the data directory. HOST is that of the authority, so that a change of
//! it is an account and a certificate of another.

use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use instant_acme::AccountCredentials;
use state_machine::Time;
use storage::durable::{self, NewFile};
use url::Url;

use super::error::AcmeError;
use super::schedule::Failures;
use crate::system::regular_file;
use crate::system::tls::certificate::{Certificate, CertificateFiles, TlsError};

/// Size of the largest JSON file that is read.
const JSON_BYTES_MAX: u64 = 64 * 1024;

pub(super) struct AcmeFiles {
    dir: PathBuf,
    /// The key and the chain of the domain in one file, so that both are replaced at once.
    certificate: PathBuf,
    /// The orders of the domain that failed.
    failures: PathBuf,
}

impl AcmeFiles {
    pub(super) fn new(data_dir: &Path, directory: &Url, domain: &str) -> Self {
        let host = directory.host_str().unwrap_or_default();
        let port = directory.port().map(|port| format!("_{port}")).unwrap_or_default();
        let dir = data_dir.join("acme").join(format!("{host}{port}"));
        Self {
            certificate: dir.join(format!("{domain}.pem")),
            failures: dir.join(format!("{domain}.failures.json")),
            dir,
        }
    }

    /// The stored certificate, if it is good.
    pub(super) fn certificate(&self, now: Time) -> Result<Certificate, TlsError> {
        pair(&self.certificate).read(now)
    }

    /// Stores a pair that can be used. One that cannot changes nothing.
    pub(super) fn save_certificate(
        &self,
        key: &str,
        chain: &str,
        now: Time,
    ) -> Result<Certificate, AcmeError> {
        self.make_dir()?;
        let mut file = NewFile::new(&self.certificate)?;
        write!(file, "{key}\n{chain}")?;
        let certificate = pair(file.temporary()).read(now)?;
        file.replace()?;
        Ok(certificate)
    }

    /// The account, if there is one.
    pub(super) fn account(&self) -> io::Result<Option<AccountCredentials>> {
        let file = match regular_file::open(&self.account_file()) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        Ok(Some(serde_json::from_reader(file.take(JSON_BYTES_MAX))?))
    }

    pub(super) fn save_account(&self, account: &AccountCredentials) -> io::Result<()> {
        self.make_dir()?;
        durable::replace(&self.account_file(), serde_json::to_vec(account)?)
    }

    /// Deletes the account, which the authority does not have any more.
    pub(super) fn forget_account(&self) -> io::Result<()> {
        durable::remove(&self.account_file())
    }

    /// The failures that were stored, if any. A file that cannot be read is replaced by the next order.
    pub(super) fn failures(&self) -> Failures {
        let file = regular_file::open(&self.failures).ok();
        let stored = file.and_then(|file| serde_json::from_reader(file.take(JSON_BYTES_MAX)).ok());
        stored.unwrap_or_default()
    }

    pub(super) fn save_failures(&self, failures: Failures) -> io::Result<()> {
        self.make_dir()?;
        durable::replace(&self.failures, serde_json::to_vec(&failures)?)
    }

    pub(super) fn forget_failures(&self) -> io::Result<()> {
        durable::remove(&self.failures)
    }

    fn account_file(&self) -> PathBuf {
        self.dir.join("account.json")
    }

    fn make_dir(&self) -> io::Result<()> {
        durable::create_dir_all(&self.dir, 0o700)
    }
}

fn pair(path: &Path) -> CertificateFiles {
    CertificateFiles { certificate: path.to_owned(), key: path.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};
    use tempfile::TempDir;

    use super::*;

    const NOW: Time = Time(1_795_392_000_000);

    fn files(dir: &TempDir, host: &str, domain: &str) -> AcmeFiles {
        let url = Url::parse(host).expect("it is a URL");
        AcmeFiles::new(dir.path(), &url, domain)
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().expect("it exists").permissions().mode() & 0o777
    }

    #[test]
    fn a_stored_certificate_is_that_of_its_domain_and_authority_and_its_owner_alone_reads_it() {
        let (dir, key) = (TempDir::new().unwrap(), KeyPair::generate().unwrap());
        let mut params = CertificateParams::new(["push.example.net".to_owned()]).unwrap();
        params.not_after = date_time_ymd(2030, 12, 1);
        let chain = params.self_signed(&key).unwrap().pem();
        let stored = files(&dir, "https://authority:14000/dir", "push.example.net");
        stored.save_certificate(&key.serialize_pem(), &chain, NOW).unwrap();
        assert_eq!((mode(&stored.dir), mode(&stored.certificate)), (0o700, 0o600));
        assert!(stored.certificate(NOW).is_ok());
        let other = KeyPair::generate().unwrap().serialize_pem();
        assert!(stored.save_certificate(&other, &chain, NOW).is_err());
        assert!(stored.certificate(NOW).is_ok(), "a pair that cannot be used changes nothing");
        assert_eq!(stored.dir.read_dir().unwrap().count(), 1);
        let none = Failures::default();
        assert_eq!(stored.failures(), none);
        stored.save_failures(none.and_one_at(NOW)).unwrap();
        assert_eq!(stored.failures(), Failures { number: 1, last_ms: NOW.0 });
        assert_eq!(mode(&stored.failures), 0o600);
        fs::write(&stored.failures, "{").unwrap();
        assert_eq!(stored.failures(), none, "a damaged file stops no order");
        stored.forget_failures().unwrap();
        assert_eq!(stored.failures(), none);
        for (host, domain) in [
            ("https://authority:14000/dir", "other.example.net"),
            ("https://authority/dir", "push.example.net"),
        ] {
            assert!(files(&dir, host, domain).certificate(NOW).is_err(), "{host} {domain}");
        }
    }
}
