//! The account and the certificates, in `acme/HOST` of the data directory. HOST is that of the authority, so that a change of
//! it is an account and a certificate of another.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use instant_acme::AccountCredentials;
use state_machine::Time;
use tempfile::NamedTempFile;
use url::Url;

use super::AcmeError;
use crate::regular_file;
use crate::tls::certificate::{Certificate, CertificateFiles, TlsError};

/// Size of the largest account file that is read.
const ACCOUNT_BYTES_MAX: u64 = 64 * 1024;

pub(super) struct AcmeFiles {
    dir: PathBuf,
    /// The key and the chain of the domain in one file, so that both are replaced at once.
    certificate: PathBuf,
}

impl AcmeFiles {
    pub(super) fn new(data_dir: &Path, directory: &Url, domain: &str) -> Self {
        let host = directory.host_str().unwrap_or_default();
        let port = directory.port().map(|port| format!("_{port}")).unwrap_or_default();
        let dir = data_dir.join("acme").join(format!("{host}{port}"));
        Self { certificate: dir.join(format!("{domain}.pem")), dir }
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
        let file = self.written(format!("{key}\n{chain}").as_bytes())?;
        let certificate = pair(file.path()).read(now)?;
        persist(file, &self.certificate)?;
        Ok(certificate)
    }

    /// The account, if there is one.
    pub(super) fn account(&self) -> io::Result<Option<AccountCredentials>> {
        let file = match regular_file::open(&self.account_file()) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        Ok(Some(serde_json::from_reader(file.take(ACCOUNT_BYTES_MAX))?))
    }

    pub(super) fn save_account(&self, account: &AccountCredentials) -> io::Result<()> {
        persist(self.written(&serde_json::to_vec(account)?)?, &self.account_file())
    }

    /// Deletes the account, which the authority does not have any more.
    pub(super) fn forget_account(&self) -> io::Result<()> {
        fs::remove_file(self.account_file())
    }

    fn account_file(&self) -> PathBuf {
        self.dir.join("account.json")
    }

    /// A temporary file with these bytes, which its owner alone can read.
    fn written(&self, bytes: &[u8]) -> io::Result<NamedTempFile> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let mut file = NamedTempFile::new_in(&self.dir)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        Ok(file)
    }
}

fn pair(path: &Path) -> CertificateFiles {
    CertificateFiles { certificate: path.to_owned(), key: path.to_owned() }
}

fn persist(file: NamedTempFile, path: &Path) -> io::Result<()> {
    file.persist(path)?;
    Ok(())
}
