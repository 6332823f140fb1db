//! The file of bridges: the applications, and the files of their credentials.

use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use actors::Clock;
use hyper::Uri;
use rustls::client::WantsClientCert;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use serde::de::DeserializeOwned;
use state_machine::BridgeName;
use toml::{Table, Value};
use url::Url;
use zeroize::Zeroizing;

use super::platform::Platform;
use crate::system::https_client;
use crate::system::regular_file;

/// Maximum size of the file of bridges, and of each file that it names.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Maximum length of the name of an application, which is part of URLs.
const APP_CHARS_MAX: usize = 128;

/// Maximum length of a URL: with the path of a request it is still one.
const URL_CHARS_MAX: usize = 1024;

/// Why there are no bridges. The texts name file and field, and never quote a credential.
#[derive(Debug, thiserror::Error)]
pub enum BridgesError {
    #[error("cannot read {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{}, line {line}: {why}", path.display())]
    NotToml { path: PathBuf, line: usize, why: String },
    /// `field` is a path of keys, such as `apns.example.key`.
    #[error("{} has no [fcm.APP] and no [apns.APP]", path.display())]
    Empty { path: PathBuf },
    #[error("{}: {field}: {why}", path.display())]
    Field { path: PathBuf, field: String, why: String },
}

/// The platform of a section, or what is wrong with the section.
pub(super) type Opening = Result<Box<dyn Platform>, BridgesError>;

/// An application that is ready to send.
pub(super) type Opened = (BridgeName, Box<str>, Box<dyn Platform>);

/// The table of one application, with what it needs to become a [`Platform`].
pub(super) struct Section<'a> {
    /// The file of bridges.
    path: &'a Path,
    /// Its heading, such as `apns.example`.
    heading: String,
    table: Table,
    roots: &'a Arc<RootCertStore>,
    pub(super) wait: Duration,
    pub(super) clock: &'a Clock,
}

/// The path of a file, and its text.
pub(super) type SecretFile = (PathBuf, Zeroizing<String>);

/// Opens every application of the file.
pub(super) fn load(
    path: &Path,
    wait: Duration,
    clock: &Clock,
    open: fn(BridgeName, &Section<'_>) -> Opening,
) -> Result<Vec<Opened>, BridgesError> {
    let mut file = parse(path)?;
    let roots = Arc::new(roots(path, file.remove("ca_file"))?);
    let mut opened = Vec::new();
    for (name, applications) in file {
        let bridge = BridgeName::parse(&name);
        let (Some(bridge), Value::Table(applications)) = (bridge, applications) else {
            let why = "expected ca_file = \"FILE\", [fcm.APP] and [apns.APP]";
            return Err(field(path, &name, why));
        };
        for (app, table) in applications {
            let heading = format!("{name}.{app}");
            let Value::Table(table) = table else {
                return Err(field(path, &heading, format!("expected a table, [{heading}]")));
            };
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
            if !(1..=APP_CHARS_MAX).contains(&app.len()) || !app.bytes().all(allowed) {
                let why = format!(
                    "the name of an application has 1 to {APP_CHARS_MAX} characters of A-Z a-z 0-9 . _ : -"
                );
                return Err(field(path, &heading, why));
            }
            check_quotes(path, &heading, &table)?;
            let section = Section { path, heading, table, roots: &roots, wait, clock };
            opened.push((bridge, app.into(), open(bridge, &section)?));
        }
    }
    match opened.is_empty() {
        true => Err(BridgesError::Empty { path: path.to_owned() }),
        false => Ok(opened),
    }
}

fn parse(path: &Path) -> Result<Table, BridgesError> {
    let text = read(path, false)?;
    toml::from_str(&text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        let line = text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1;
        // The error's whole text quotes the line.
        let why = error.message().lines().collect::<Vec<_>>().join(", ");
        BridgesError::NotToml { path: path.to_owned(), line, why }
    })
}

/// The certificates of the system, and those of `ca_file`.
fn roots(path: &Path, ca_file: Option<Value>) -> Result<RootCertStore, BridgesError> {
    let system = https_client::trusted();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(system.iter().flatten().cloned());
    match ca_file {
        Some(Value::String(file)) => {
            let file = beside(path, &file);
            let read = certificates(&file).map_err(|error| named(path, "ca_file", error))?;
            for certificate in read {
                let added = roots.add(certificate);
                added.map_err(|error| field(&file, "certificate", error.to_string()))?;
            }
        }
        Some(_) => {
            return Err(field(path, "ca_file", "expected the path of a file of certificates"));
        }
        None => {
            system.map_err(|error| field(path, "ca_file", error.to_string()))?;
        }
    }
    Ok(roots)
}

/// Without quotes, TOML reads a name with dots as tables in tables.
fn check_quotes(path: &Path, heading: &str, table: &Table) -> Result<(), BridgesError> {
    let (mut whole, mut table) = (heading.to_owned(), table);
    while let Some((name, Value::Table(inner))) = table.iter().next() {
        (whole, table) = (format!("{whole}.{name}"), inner);
    }
    match whole.split_once('.') {
        Some((bridge, app)) if whole != heading => {
            let why = format!("quote a name with a dot: [{bridge}.\"{app}\"]");
            Err(field(path, heading, why))
        }
        _ => Ok(()),
    }
}

/// An error of a file that the key `key` of the file of bridges names.
fn named(path: &Path, key: &str, error: BridgesError) -> BridgesError {
    match error {
        BridgesError::Unreadable { error, .. }
            if error.kind() == ErrorKind::InvalidData && !key.ends_with("service_account") =>
        {
            field(path, key, "it is not PEM: convert a .p12 with openssl (docs/bridges.md)")
        }
        BridgesError::Unreadable { .. } => field(path, key, error.to_string()),
        other => other,
    }
}

impl Section<'_> {
    /// Its keys as a struct whose unknown keys are refused.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, BridgesError> {
        let read = self.table.clone().try_into();
        read.map_err(|error: toml::de::Error| field(self.path, &self.heading, error.message()))
    }

    /// A wrong value of a key.
    pub(super) fn wrong(&self, key: &str, why: impl Into<String>) -> BridgesError {
        field(self.path, &format!("{}.{key}", self.heading), why)
    }

    /// The file `name` of a key, which holds a secret: its path and its text.
    pub(super) fn secret(&self, key: &str, name: &str) -> Result<SecretFile, BridgesError> {
        let path = beside(self.path, name);
        let text = read(&path, true).map_err(|error| self.named(key, error))?;
        Ok((path, text))
    }

    /// The certificates in the file `name` of a key.
    pub(super) fn certificates(
        &self,
        key: &str,
        name: &str,
    ) -> Result<Vec<CertificateDer<'static>>, BridgesError> {
        certificates(&beside(self.path, name)).map_err(|error| self.named(key, error))
    }

    fn named(&self, key: &str, error: BridgesError) -> BridgesError {
        named(self.path, &format!("{}.{key}", self.heading), error)
    }

    /// The origin of the bridge: `base_url`, or its `default`.
    pub(super) fn base_url(
        &self,
        given: Option<&str>,
        default: &str,
    ) -> Result<String, BridgesError> {
        let Some(text) = given else { return Ok(default.to_owned()) };
        let url = secure_url(text).map_err(|why| self.wrong("base_url", why))?;
        if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
            return Err(self.wrong(
                "base_url",
                format!("expected an origin and nothing behind it, such as {default}"),
            ));
        }
        Ok(url.origin().ascii_serialization())
    }

    /// TLS that trusts what the file of bridges trusts.
    pub(super) fn tls(&self) -> ConfigBuilder<ClientConfig, WantsClientCert> {
        ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has the default versions")
            .with_root_certificates(Arc::clone(self.roots))
    }
}

/// A URL with https, or with http to this machine: credentials are sent there.
pub(super) fn secure_url(text: &str) -> Result<Url, &'static str> {
    let url = Url::parse(text).ok().filter(|url| url.as_str().len() <= URL_CHARS_MAX);
    let url = url.ok_or("expected a URL that begins with https://")?;
    // A browser accepts some hosts that no request can name.
    if url.as_str().parse::<Uri>().is_err() {
        return Err("expected a URL with the name of a host");
    }
    let is_anonymous = url.username().is_empty() && url.password().is_none();
    match url.scheme() {
        _ if !is_anonymous => Err("expected a URL without user and password"),
        "https" | "http" if https_client::is_private(&url) => Ok(url),
        _ => Err("expected https: credentials are sent there"),
    }
}

/// The text of a file. Only its owner may be able to read a secret.
fn read(path: &Path, is_secret: bool) -> Result<Zeroizing<String>, BridgesError> {
    let read = || {
        let file = regular_file::open(path)?;
        if let Some(mode) = regular_file::exposed_mode(&file.metadata()?).filter(|_| is_secret) {
            let why =
                format!("it has mode {mode:04o}, so other users can read it: run `chmod 600`");
            return Err(io::Error::other(why));
        }
        let mut text = Zeroizing::new(String::new());
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
        match text.len() as u64 > FILE_BYTES_MAX {
            true => Err(io::Error::other(format!("it is larger than {FILE_BYTES_MAX} bytes"))),
            false => Ok(text),
        }
    };
    read().map_err(|error| BridgesError::Unreadable { path: path.to_owned(), error })
}

/// The certificates of a PEM file; at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, BridgesError> {
    let text = read(path, false)?;
    let certificates =
        CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>();
    certificates
        .ok()
        .filter(|certificates| !certificates.is_empty())
        .ok_or_else(|| field(path, "certificate", "expected certificates in PEM"))
}

/// A wrong field of a file.
pub(super) fn field(path: &Path, field: &str, why: impl Into<String>) -> BridgesError {
    BridgesError::Field { path: path.to_owned(), field: field.to_owned(), why: why.into() }
}

/// The file `name`, relative to the folder of `path`.
fn beside(path: &Path, name: &str) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).join(name)
}
