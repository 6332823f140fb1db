//! VAPID keys in files: PEM as `openssl` and py-vapid write it, or the bare private key in
//! base64url as the `web-push` package for Node.js writes it.

use std::path::Path;

use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;

use super::base64url::from_base64url;
use super::files::{FileError, create_private, read};
use super::keypair::KeyPair;

#[derive(Debug)]
pub struct VapidKey {
    pub pair: KeyPair,
    /// Whether the file was missing and has been written.
    pub is_new: bool,
}

impl VapidKey {
    /// Reads the key in a file; makes one if there is no file.
    pub fn load_or_make(path: &Path) -> Result<Self, FileError> {
        if !path.exists() {
            let pair = KeyPair::generate();
            create_private(path, &to_pem(&pair))?;
            return Ok(Self { pair, is_new: true });
        }
        Ok(Self { pair: load(path)?, is_new: false })
    }
}

/// Reads the key in a file.
pub fn load(path: &Path) -> Result<KeyPair, FileError> {
    parse(&read(path)?).ok_or_else(|| FileError::Malformed {
        path: path.to_owned(),
        what: "a VAPID key",
        why: "expected a P-256 private key, as PEM or as 32 bytes in base64url".into(),
    })
}

fn parse(text: &str) -> Option<KeyPair> {
    if text.contains("-----BEGIN") {
        let der = PrivateKeyDer::from_pem_slice(text.as_bytes()).ok()?;
        KeyPair::from_der(der.secret_der())
    } else {
        KeyPair::from_bytes(&from_base64url(text)?)
    }
}

/// PKCS#8 as PEM (RFC 7468).
fn to_pem(pair: &KeyPair) -> String {
    let der = pair.signing().to_pkcs8v1().expect("a P-256 key can be written as PKCS#8");
    rcgen::KeyPair::try_from(der.as_ref()).expect("it was just written").serialize_pem()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dev::base64url::to_base64url;

    /// A key as `openssl ecparam -genkey -name prime256v1 -noout` writes it.
    const SEC1: &str = "\
-----BEGIN EC PRIVATE KEY-----
MHcCAQEEIJGdUuuHPHI/Z0BOVnEVJHX33iyYdLR9X1TZyrNisgfpoAoGCCqGSM49
AwEHoUQDQgAE1znUlX7b8BVpxlr08GdEqh453tPegrmS5qIeKyh7hfOl9q+E4k/A
0xXyitGCXDKCoi/ZI25MiHjp0iSsfFQQdQ==
-----END EC PRIVATE KEY-----
";
    /// The same key after `openssl pkcs8 -topk8 -nocrypt`.
    const PKCS8: &str = "\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgkZ1S64c8cj9nQE5W
cRUkdffeLJh0tH1fVNnKs2KyB+mhRANCAATXOdSVftvwFWnGWvTwZ0SqHjne096C
uZLmoh4rKHuF86X2r4TiT8DTFfKK0YJcMoKiL9kjbkyIeOnSJKx8VBB1
-----END PRIVATE KEY-----
";

    #[test]
    fn a_device_without_an_end_is_refused() {
        let refused = VapidKey::load_or_make(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(
            refused.contains("/dev/zero") && refused.contains("larger than 1 MiB"),
            "{refused}"
        );
    }

    #[test]
    fn a_key_is_made_once_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vapid.pem");
        let made = VapidKey::load_or_make(&path).unwrap();
        let kept = VapidKey::load_or_make(&path).unwrap();
        assert!(made.is_new && !kept.is_new);
        assert_eq!(to_pem(&parse(PKCS8).unwrap()), PKCS8);
        assert_eq!(made.pair.public(), kept.pair.public());
    }

    #[test]
    fn keys_of_openssl_are_read() {
        let sec1 = parse(SEC1).unwrap();
        let pkcs8 = parse(PKCS8).unwrap();
        assert_eq!(sec1.public(), pkcs8.public());
    }

    #[test]
    fn a_bare_private_key_is_read() {
        let pair = KeyPair::generate();
        let text = to_base64url(&pair.private_bytes()) + "\n";
        assert_eq!(parse(&text).unwrap().public(), pair.public());
    }

    #[test]
    fn anything_else_is_refused_with_the_file_and_what_was_expected() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for text in ["", "hello", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
        {
            std::fs::write(file.path(), text).unwrap();
            let error = VapidKey::load_or_make(file.path()).unwrap_err().to_string();
            assert!(error.contains("is not a VAPID key: expected a P-256"), "{error}");
        }
    }
}
