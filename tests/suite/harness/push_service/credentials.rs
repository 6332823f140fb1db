//! The keys and certificates of a server and its client, and their files.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
    RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey,
};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};

use super::{KEY_ID, PROJECT};

pub(super) struct Credentials {
    /// The private key of the service account, PKCS #8.
    rsa: Vec<u8>,
    rsa_public: Vec<u8>,
    /// The key of the APNs team, PKCS #8.
    p256: Vec<u8>,
    p256_public: Vec<u8>,
    issuer: CertifiedIssuer<'static, rcgen::KeyPair>,
}

impl Credentials {
    pub(super) fn new() -> Self {
        // Making one takes a second, and nothing depends on another.
        static RSA: LazyLock<RsaKeyPair> =
            LazyLock::new(|| RsaKeyPair::generate(KeySize::Rsa2048).expect("a key can be made"));
        let rsa = &*RSA;
        let rsa_pkcs8 = rsa.as_der().expect("a key has a DER form").as_ref().to_vec();
        let p256 =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        let p256 = p256.expect("a key can be made").as_ref().to_vec();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &p256);
        let p256_public = pair.expect("it was just made").public_key().as_ref().to_vec();
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().expect("a key can be made");
        let issuer = CertifiedIssuer::self_signed(ca, key).expect("a certificate can be made");
        let rsa_public = rsa.public_key().as_ref().to_vec();
        Self { rsa: rsa_pkcs8, rsa_public, p256, p256_public, issuer }
    }

    /// Writes the files that the file of bridges names.
    pub(super) fn write(&self, dir: &Path, origin: &str) {
        let account = json!({
            "type": "service_account",
            "project_id": PROJECT,
            "private_key_id": KEY_ID,
            "private_key": pem(&self.rsa),
            "client_email": format!("push@{PROJECT}.example"),
            "token_uri": format!("{origin}/token"),
        });
        let (certificate, key) = self.certificate("client");
        for (name, text) in [
            ("ca.pem", self.issuer.pem()),
            ("service-account.json", account.to_string()),
            ("AuthKey.p8", pem(&self.p256)),
            ("client.pem", certificate.pem()),
            ("client.key", key.serialize_pem()),
        ] {
            let path = dir.join(name);
            fs::write(&path, text).expect("a file can be written");
            let owner_only = Permissions::from_mode(0o600);
            fs::set_permissions(&path, owner_only).expect("its mode can be changed");
        }
    }

    /// TLS with HTTP/2, in which a client may show a certificate.
    pub(super) fn tls(&self) -> ServerConfig {
        let (certificate, key) = self.certificate("localhost");
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("it is a certificate");
        let provider = Arc::new(default_provider());
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let clients = clients.allow_unauthenticated().build().expect("there is a root");
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let mut tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has the default versions")
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![certificate.der().clone()], key)
            .expect("the key is that of the certificate");
        tls.alpn_protocols = vec![b"h2".to_vec()];
        tls
    }

    /// The claims of an assertion of the service account, if it has signed them.
    pub(super) fn verify_rs256(&self, token: &str) -> Option<Value> {
        verify(token, &UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &self.rsa_public))
    }

    /// The claims of a provider token, if the key of the team has signed them.
    pub(super) fn verify_es256(&self, token: &str) -> Option<Value> {
        verify(token, &UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &self.p256_public))
    }

    fn certificate(&self, name: &str) -> (rcgen::Certificate, rcgen::KeyPair) {
        let key = rcgen::KeyPair::generate().expect("a key can be made");
        let params = CertificateParams::new([name.to_owned()]).expect("it is a name");
        (params.signed_by(&key, &self.issuer).expect("a certificate can be made"), key)
    }
}

fn verify(token: &str, key: &UnparsedPublicKey<&Vec<u8>>) -> Option<Value> {
    let (signed, signature) = token.rsplit_once('.')?;
    key.verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).ok()?).ok()?;
    let (header, claims) = signed.split_once('.')?;
    let part = |part: &str| -> Option<Value> {
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
    };
    (part(header)?["kid"] == KEY_ID).then(|| part(claims))?
}

fn pem(pkcs8: &[u8]) -> String {
    let text = STANDARD.encode(pkcs8);
    let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n"))
}
