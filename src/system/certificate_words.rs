//! Why a certificate of a server is refused, in words.

use rustls::CertificateError;

use super::clock::date;
use super::printable::printable;

/// Names of a certificate that are printed.
const NAMES_MAX: usize = 5;

/// What is wrong with the certificate, as a sentence about it, and the remedy.
pub(crate) fn explained(error: &CertificateError) -> (String, &'static str) {
    use CertificateError as E;
    let renew = "renew it; if it is renewed, let the server read it again";
    let clock = "compare the clock of this machine with another";
    let name = "get a certificate with that name, or use the URL that the certificate is for";
    match error {
        E::ExpiredContext { not_after, .. } => {
            (format!("it ended on {}", date(not_after.as_secs())), renew)
        }
        E::Expired => ("it has ended".to_owned(), renew),
        E::NotValidYetContext { not_before, .. } => {
            (format!("it begins only on {}", date(not_before.as_secs())), clock)
        }
        E::NotValidYet => ("it is not valid yet".to_owned(), clock),
        E::NotValidForNameContext { expected, presented } => {
            let names: Vec<_> = presented.iter().take(NAMES_MAX).map(|it| bare(it)).collect();
            let names = if names.is_empty() { "no name".to_owned() } else { names.join(", ") };
            (format!("it is for {names} and not for {}", expected.to_str()), name)
        }
        E::NotValidForName => ("it is for another name".to_owned(), name),
        // The signature is wrong if an authority of the same name is trusted.
        E::UnknownIssuer | E::BadSignature => (
            "no authority that this machine trusts has issued it".to_owned(),
            "let the server send those of its issuers too (fullchain.pem); if you trust who signed it, name a file \
             with that one in SSL_CERT_FILE",
        ),
        // rustls has no variant of its own for it.
        E::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => (
            "it is that of an authority (CA), as many self-signed ones are, and not of a server"
                .to_owned(),
            "issue one for the server, signed by that authority, or get one of a public authority",
        ),
        other => (
            format!("it cannot be used ({other})"),
            "look at it with `openssl s_client`, and get another one",
        ),
    }
}

/// The name in `DnsName("push.example.net")`, as rustls writes it.
fn bare(name: &str) -> String {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    printable(inner.unwrap_or(name).trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;
    use std::time::Duration;

    use rustls::OtherError;
    use rustls::pki_types::{ServerName, UnixTime};

    use super::*;

    #[test]
    fn each_fault_of_a_certificate_has_a_sentence_and_a_remedy() {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let expected = ServerName::try_from("push.example.net").unwrap();
        let presented =
            ["DnsName(\"other.example\")", "IpAddress(10.0.0.1)", "DnsName(\"\u{1b}\")"];
        let presented = presented.map(str::to_owned).to_vec();
        let authority = OtherError(Arc::new(io::Error::other("CaUsedAsEndEntity")));
        for (error, sentence, remedy) in [
            (
                CertificateError::ExpiredContext { time: at(9), not_after: at(0) },
                "it ended on Thu, 01 Jan 1970 00:00:00 GMT",
                "renew it",
            ),
            (
                CertificateError::NotValidYetContext { time: at(0), not_before: at(9) },
                "it begins only on Thu, 01 Jan 1970 00:00:09 GMT",
                "the clock of this machine",
            ),
            (
                CertificateError::NotValidForNameContext { expected, presented },
                "it is for other.example, 10.0.0.1, \\u{1b} and not for push.example.net",
                "a certificate with that name",
            ),
            (
                CertificateError::UnknownIssuer,
                "no authority that this machine trusts",
                "SSL_CERT_FILE",
            ),
            (CertificateError::Other(authority), "it is that of an authority (CA)", "issue one"),
            (CertificateError::Revoked, "it cannot be used (", "openssl"),
        ] {
            let (found, advice) = explained(&error);
            assert!(found.starts_with(sentence), "{found}");
            assert!(advice.contains(remedy), "{advice}");
        }
    }
}
