//! Where the server is: a URL as libpq's, completed by the `PG*` variables, and TLS.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore,
    SignatureScheme,
};
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::{Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Why an address cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    #[error(
        "the URL of PostgreSQL is not valid: {0} (postgresql://USER@HOST:PORT/DATABASE?sslmode=verify-full)"
    )]
    Url(String),
    #[error(
        "sslmode={0} is not known: `disable`, `require` (encrypted, the server may be any), `verify-ca` (its name may be any) or \
         `verify-full`"
    )]
    SslMode(String),
    #[error("cannot read the certificates of {}: {reason}", file.display())]
    Certificates { file: PathBuf, reason: String },
}

pub struct Address {
    config: Config,
    /// Not used if the mode is none of TLS.
    tls: MakeRustlsConnect,
    /// Hosts and ports, for errors.
    pub shown: String,
}

/// What `sslmode` may be.
const SSL_MODES: [&str; 4] = ["disable", "require", "verify-ca", "verify-full"];

/// What does not end a part of a URL only if it is percent-encoded.
const ENCODED: &str = "write `@` as %40, `?` as %3F and `/` as %2F in a user, a password and a name: behind \
                       USER:PASSWORD@ is HOST";

const OPTION: &str = "it has an option that is not known: write `&` in a password as %26";

/// After this time without an answer of the machine of the server, a connection ends.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Where Debian and others have the socket of a local server.
const SOCKET_DIR: &str = "/var/run/postgresql";

impl Address {
    /// Completes a URL, which may be empty.
    pub fn parse(url: &str, password: Option<&str>) -> Result<Self, AddressError> {
        let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        Self::complete(url, password, variable)
    }

    fn complete(
        url: &str,
        password: Option<&str>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, AddressError> {
        let (mut config, ssl_mode, root_certificates) = parse(url)?;
        if config.get_hosts().is_empty() {
            let local = if Path::new(SOCKET_DIR).exists() { SOCKET_DIR } else { "localhost" };
            config.host(variable("PGHOST").unwrap_or_else(|| local.to_owned()));
        }
        if config.get_ports().is_empty()
            && let Some(port) = variable("PGPORT")
        {
            let number = port.parse().map_err(|_| AddressError::Url(format!("port {port}")))?;
            config.port(number);
        }
        type Set = fn(&mut Config, String) -> &mut Config;
        for (name, is_missing, set) in [
            ("PGUSER", config.get_user().is_none(), Config::user as Set),
            ("PGDATABASE", config.get_dbname().is_none(), Config::dbname),
        ] {
            if let Some(value) = variable(name).filter(|_| is_missing) {
                set(&mut config, value);
            }
        }
        if config.get_password().is_none()
            && let Some(password) = password.map(str::to_owned).or_else(|| variable("PGPASSWORD"))
        {
            config.password(password);
        }
        config.application_name("kalends").target_session_attrs(TargetSessionAttrs::ReadWrite);
        config.keepalives_idle(KEEPALIVE).tcp_user_timeout(KEEPALIVE);
        let ssl_mode = ssl_mode.or_else(|| variable("PGSSLMODE"));
        let roots = root_certificates.or_else(|| variable("PGSSLROOTCERT").map(PathBuf::from));
        let tls = tls(ssl_mode.as_deref(), roots.as_deref(), &mut config)?;
        let shown = shown(&config);
        Ok(Self { config, tls, shown })
    }

    /// The server and its database, for people.
    pub fn place(&self) -> String {
        let database = self.config.get_dbname().or_else(|| self.config.get_user());
        let database = database.map(|name| format!(", database {name}")).unwrap_or_default();
        format!("PostgreSQL at {}{database}", self.shown)
    }

    /// The same for a connection that only reads: the server may also be a standby.
    pub fn read_only(mut self) -> Self {
        self.config.target_session_attrs(TargetSessionAttrs::Any);
        self
    }

    /// Opens a session. What it answers is read by a task of its own, until it ends.
    pub async fn connect(&self) -> Result<Client, tokio_postgres::Error> {
        let (client, connection) = self.config.connect(self.tls.clone()).await?;
        // An error that ends the connection is that of each statement on it.
        drop(tokio::spawn(connection));
        Ok(client)
    }
}

/// Whether a URL can be read. What it leaves out, and its files, are not looked at. The error has no part of a password.
pub fn check_url(url: &str) -> Result<(), AddressError> {
    parse(url).map(|_| ())
}

/// Reads a URL. What the driver does not read in one is `sslmode` and `sslrootcert`.
fn parse(url: &str) -> Result<(Config, Option<String>, Option<PathBuf>), AddressError> {
    let (mut ssl_mode, mut root_certificates) = (None, None);
    if url.is_empty() {
        return Ok((Config::new(), ssl_mode, root_certificates));
    }
    if !["postgresql://", "postgres://"].iter().any(|scheme| url.starts_with(scheme)) {
        return Err(AddressError::Url("it begins with postgresql://".to_owned()));
    }
    let (base, options) = url.split_once('?').unwrap_or((url, ""));
    // The driver takes what is behind the first `@` of a password for the host, and errors show the host.
    if base.matches('@').count() > 1 || options.contains('@') {
        return Err(AddressError::Url(ENCODED.to_owned()));
    }
    let mut others = Vec::new();
    for option in options.split('&').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            Some(("sslmode", mode)) => ssl_mode = Some(mode.to_owned()),
            Some(("sslrootcert", file)) => root_certificates = Some(PathBuf::from(file)),
            _ => others.push(option),
        }
    }
    if let Some(mode) = ssl_mode.as_deref().filter(|mode| !SSL_MODES.contains(mode)) {
        return Err(AddressError::SslMode(mode.to_owned()));
    }
    let rest = match others.is_empty() {
        true => base.to_owned(),
        false => format!("{base}?{}", others.join("&")),
    };
    let config = rest.parse::<Config>().map_err(|error| match reason(&error) {
        // The driver shows its name, which may be a part of a password.
        why if why.starts_with("unknown option") => AddressError::Url(OPTION.to_owned()),
        why => AddressError::Url(why),
    })?;
    Ok((config, ssl_mode, root_certificates))
}

pub fn reason(error: &tokio_postgres::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// Hosts and ports. A host with an `@` may be a part of a password.
fn shown(config: &Config) -> String {
    let ports = config.get_ports();
    let hosts = config.get_hosts().iter().enumerate().map(|(at, host)| {
        let port = ports.get(at).or(ports.first()).copied().unwrap_or(5432);
        match host {
            Host::Tcp(name) if name.contains('@') => "its server".to_owned(),
            Host::Tcp(name) => format!("{name}:{port}"),
            Host::Unix(dir) => format!("{}:{port}", dir.display()),
        }
    });
    hosts.collect::<Vec<_>>().join(",")
}

/// TLS with the server's name and certificate, unless the mode is another one, or no packet leaves this machine.
fn tls(
    mode: Option<&str>,
    roots: Option<&Path>,
    config: &mut Config,
) -> Result<MakeRustlsConnect, AddressError> {
    let is_local = |host: &Host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        }
    };
    let mode = mode.unwrap_or(match config.get_hosts().iter().all(is_local) {
        true => "disable",
        false => "verify-full",
    });
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().expect("the provider has TLS 1.3");
    config.ssl_mode(if mode == "disable" { SslMode::Disable } else { SslMode::Require });
    let config = match mode {
        "disable" => builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth(),
        "require" | "verify-ca" => {
            // As with libpq, a file of authorities makes `require` check the certificate.
            let is_checked = mode == "verify-ca" || roots.is_some();
            let authorities =
                if is_checked { Some(chain_verifier(roots, &provider)?) } else { None };
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyName { provider, authorities }))
                .with_no_client_auth()
        }
        "verify-full" => builder.with_root_certificates(root_store(roots)?).with_no_client_auth(),
        other => return Err(AddressError::SslMode(other.to_owned())),
    };
    Ok(MakeRustlsConnect::new(config))
}

/// The certificates of the file, or those of this machine.
fn root_store(file: Option<&Path>) -> Result<RootCertStore, AddressError> {
    let mut store = RootCertStore::empty();
    let Some(file) = file else {
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(store);
    };
    let unreadable = |reason: String| AddressError::Certificates { file: file.to_owned(), reason };
    let pem = fs::read(file).map_err(|error| unreadable(error.to_string()))?;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
        store.add(certificate).map_err(|error| unreadable(error.to_string()))?;
    }
    match store.is_empty() {
        true => Err(unreadable("it has no certificate".to_owned())),
        false => Ok(store),
    }
}

fn chain_verifier(
    roots: Option<&Path>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, AddressError> {
    let file = roots.map(Path::to_owned).unwrap_or_default();
    let store = Arc::new(root_store(roots)?);
    let verifier = WebPkiServerVerifier::builder_with_provider(store, Arc::clone(provider)).build();
    verifier.map_err(|error| AddressError::Certificates { file, reason: error.to_string() })
}

/// `sslmode=require` and `verify-ca`: the name of the server may be any, as with libpq.
#[derive(Debug)]
struct AnyName {
    provider: Arc<CryptoProvider>,
    /// None if the certificate may be any too.
    authorities: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let Some(authorities) = &self.authorities else {
            return Ok(ServerCertVerified::assertion());
        };
        // The name is compared last.
        match authorities.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            Err(error) if is_of_name(&error) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn is_of_name(error: &TlsError) -> bool {
    use CertificateError::{NotValidForName, NotValidForNameContext};
    matches!(error, TlsError::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }))
}

/// Why there is no TLS with the server, and what to do. None if the reason is another one.
pub fn tls_problem(error: &tokio_postgres::Error) -> Option<String> {
    use CertificateError::{BadSignature, UnknownIssuer};
    let source = std::error::Error::source(error)?;
    if source.to_string() == "server does not support TLS" {
        return Some(
            "the server offers no TLS: set `ssl = on` there, or ?sslmode=disable".to_owned(),
        );
    }
    let inner = source.downcast_ref::<std::io::Error>()?.get_ref()?;
    Some(match inner.downcast_ref::<TlsError>()? {
        // The second, if an authority with the same name made another one's certificate.
        TlsError::InvalidCertificate(UnknownIssuer | BadSignature) => {
            "the certificate of the server is of an unknown authority: name its file with ?sslrootcert=FILE"
                .to_owned()
        }
        error if is_of_name(error) => {
            "the certificate of the server has another name than the host in the URL: correct one of them".to_owned()
        }
        error => format!("TLS with the server fails: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str, variables: &[(&str, &str)]) -> Result<Address, AddressError> {
        Address::complete(url, None, |name| {
            let found = variables.iter().find(|(of, _)| *of == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn a_url_is_completed_by_the_variables_of_libpq() {
        let variables =
            [("PGHOST", "db"), ("PGPORT", "6432"), ("PGUSER", "u"), ("PGDATABASE", "d")];
        let of_variables = parsed("", &variables).unwrap();
        assert_eq!(of_variables.shown, "db:6432");
        assert_eq!(of_variables.config.get_user(), Some("u"));
        assert_eq!(of_variables.config.get_dbname(), Some("d"));
        let of_url = parsed("postgresql://v@a:1,b:2/e", &variables).unwrap();
        assert_eq!(of_url.shown, "a:1,b:2");
        assert_eq!(of_url.config.get_user(), Some("v"));
        assert_eq!(of_url.config.get_dbname(), Some("e"));
    }

    #[test]
    fn the_place_has_hosts_and_the_database_and_no_part_of_a_password() {
        for (url, place) in [
            ("postgresql://u:secret@a:1,b:2/e", "PostgreSQL at a:1,b:2, database e"),
            ("postgresql://u:sec/ret@a", "PostgreSQL at a:5432, database u"),
            ("postgresql://u:secret@secret%40a/e", "PostgreSQL at its server, database e"),
            ("postgresql://u@%2Frun/e?password=secret", "PostgreSQL at /run:5432, database e"),
        ] {
            assert_eq!(parsed(url, &[]).unwrap().place(), place);
        }
    }

    #[test]
    fn tls_with_the_servers_name_is_the_default_to_another_machine_only() {
        for (url, is_encrypted) in [
            ("postgresql://u@db.example/d", true),
            ("postgresql://u@127.0.0.1,db.example/d", true),
            ("postgresql://u@db.example/d?sslmode=disable", false),
            ("postgresql://u@127.0.0.1/d", false),
            ("postgresql://u@[::1]/d", false),
            ("postgresql://u@localhost/d?sslmode=require", true),
            ("postgresql://u@%2Frun%2Fpostgresql/d", false),
        ] {
            let mode = parsed(url, &[]).unwrap().config.get_ssl_mode();
            assert_eq!(mode == SslMode::Require, is_encrypted, "{url}");
        }
    }

    #[test]
    fn an_error_names_the_remedy_and_no_password() {
        for (url, part) in [
            ("mysql://u:secret@db", "begins with postgresql://"),
            ("postgresql://u:secret@db?sslmode=prefer", "`verify-full`"),
            ("postgresql://u:secret@db?sslmode=bogus", "sslmode=bogus is not known"),
            ("postgresql://u:secret@db:port/d", "not valid"),
            ("postgresql://u:secret@db:99999/d", "invalid value for option `port`"),
            ("postgresql://u:p@secret@127.0.0.1:1/db", "%40"),
            ("postgresql://u:p@s/secret@127.0.0.1/db", "%40"),
            ("postgresql://u:1?secret=secret@127.0.0.1/db", "%3F"),
            ("postgresql://u:secret@db/d?sslrootcert=/no/such/file", "/no/such/file"),
            ("postgresql://u@db/d?password=a&secret=x", "%26"),
        ] {
            let error = parsed(url, &[]).err().expect(url).to_string();
            assert!(error.contains(part) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
