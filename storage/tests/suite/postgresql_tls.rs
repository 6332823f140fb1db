//! TLS between the engine and a PostgreSQL server: which certificates are accepted, and why others are not.

use std::fs;

use postgres_server::PostgresServer;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use storage_postgresql::PostgresOptions;
use tempfile::TempDir;

use crate::engines::fresh_schema;

/// The name in the certificate of the server. DNS does not know it: the URL has its address beside it.
const NAME: &str = "db.example.net";

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "authority of a test");
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// The certificate of the server and its key, as PEM.
fn pair(authority: &Authority) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new([NAME.to_owned()]).unwrap();
    (params.signed_by(&key, authority).unwrap().pem(), key.serialize_pem())
}

/// Opens a store at this address, under a name and with options of the URL.
async fn opened(address: &str, name: &str, options: &str) -> Result<(), String> {
    let url = format!("postgresql://kalends@{name}/postgres?hostaddr={address}{options}");
    let options = PostgresOptions { url, ..fresh_schema() };
    let opened = tokio::task::spawn_blocking(move || storage_postgresql::open(&options).map(drop));
    opened.await.unwrap().map_err(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_accepted_with_the_name_and_the_authority_that_the_mode_asks_for() {
    let (home, server, known) = (TempDir::new().unwrap(), PostgresServer::start(), authority());
    let file = |name: &str, authority: &Authority| {
        let path = home.path().join(name);
        fs::write(&path, authority.pem()).unwrap();
        format!("&sslrootcert={}", path.display())
    };
    let (right, wrong) = (file("known.pem", &known), file("other.pem", &authority()));
    let (certificate, key) = pair(&known);
    let of_authority = Some("unknown authority: name its file with ?sslrootcert=FILE");
    let of_name = Some("another name than the host in the URL");
    let no_tls = Some("the server offers no TLS: set `ssl = on` there, or ?sslmode=disable");
    let encrypted = server.listen(Some((&certificate, &key)));
    for (name, mode, roots, refusal) in [
        (NAME, "", &*right, None),
        (NAME, "", "", of_authority),
        (NAME, "", &wrong, of_authority),
        ("other.example.net", "", &right, of_name),
        (NAME, "&sslmode=verify-full", &right, None),
        ("other.example.net", "&sslmode=verify-full", &right, of_name),
        ("other.example.net", "&sslmode=verify-ca", &right, None),
        (NAME, "&sslmode=verify-ca", &wrong, of_authority),
        ("other.example.net", "&sslmode=require", "", None),
        ("other.example.net", "&sslmode=require", &right, None),
        (NAME, "&sslmode=require", &wrong, of_authority),
        (NAME, "&sslmode=disable", "", None),
    ] {
        check(&encrypted, name, &format!("{mode}{roots}"), refusal).await;
    }
    let plain = server.listen(None);
    for (mode, refusal) in [
        ("", no_tls),
        ("&sslmode=require", no_tls),
        ("&sslmode=verify-ca", no_tls),
        ("&sslmode=disable", None),
    ] {
        check(&plain, NAME, &format!("{mode}{right}"), refusal).await;
    }
}

async fn check(address: &str, name: &str, options: &str, refusal: Option<&str>) {
    let opened = opened(address, name, options).await;
    match (&opened, refusal) {
        (Ok(()), None) => {}
        (Err(why), Some(part)) if why.contains(part) => {}
        _ => panic!("{name} {options}: {opened:?}, and not {refusal:?}"),
    }
}
