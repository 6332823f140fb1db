//! Values of the settings of ACME.

use url::Url;

/// Name of a host in DNS, in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainName(String);

/// URL of an ACME directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryUrl(Url);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Email(String);

impl DomainName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn read(text: &str) -> Result<Self, String> {
        let is_label = |label: &str| {
            let is_fine = |c: char| c.is_ascii_alphanumeric() || c == '-';
            (1..=63).contains(&label.len()) && label.chars().all(is_fine) && !label.starts_with('-')
        };
        // A name whose last label is a number is an IPv4 address.
        let is_number = |label: &str| label.chars().all(|c| c.is_ascii_digit());
        let is_name = text.len() <= 253
            && text.split('.').all(is_label)
            && !text.rsplit('.').next().is_some_and(is_number);
        match is_name {
            true => Ok(Self(text.to_ascii_lowercase())),
            false => Err("expected a host name of DNS in ASCII, such as push.example.net".into()),
        }
    }
}

impl DirectoryUrl {
    pub fn lets_encrypt() -> Self {
        let url = "https://acme-v02.api.letsencrypt.org/directory";
        Self(Url::parse(url).expect("it is a URL"))
    }

    pub fn url(&self) -> &Url {
        &self.0
    }

    pub(super) fn read(text: &str) -> Result<Self, String> {
        let is_secure = |url: &Url| url.scheme() == "https" && url.has_host();
        let url = Url::parse(text).ok().filter(is_secure);
        url.map(Self).ok_or_else(|| "expected the https URL of an ACME directory".into())
    }
}

impl Email {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn read(text: &str) -> Result<Self, String> {
        let is_part = |part: &str| {
            !part.is_empty() && !part.contains(|c: char| !c.is_ascii_graphic() || "@,?".contains(c))
        };
        let parts = text.split_once('@').filter(|(name, host)| is_part(name) && is_part(host));
        match parts.is_some() && text.len() <= 254 {
            true => Ok(Self(text.to_owned())),
            false => Err("expected an email address, such as admin@example.net".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::value::Value;

    #[test]
    fn a_domain_is_a_name_in_lower_case_and_an_address_or_a_url_is_none() {
        for (text, name) in [("Push.Example.NET", "push.example.net"), ("localhost", "localhost")] {
            assert_eq!(DomainName::parse(text).unwrap().as_str(), name);
        }
        // As long as a name and a label may be, and one character more.
        let label = "a".repeat(63);
        let longest = [&*label, &label, &label, &label[..61]].join(".");
        assert!(DomainName::parse(&longest).is_ok());
        let (long, long_label) = (format!("a{longest}"), "a".repeat(64));
        for wrong in [
            "",
            ".",
            "a..b",
            "a.",
            "-a.b",
            "10.0.0.1",
            "::1",
            "a:443",
            "https://a",
            "a/b",
            "é.net",
            &long,
            &long_label,
        ] {
            assert!(DomainName::parse(wrong).is_err(), "{wrong}");
        }
        assert!(DirectoryUrl::parse("http://a/directory").is_err());
        for wrong in ["a", "@a", "a@", "a@b@c", "a@b,c@d", "a @b", "a@b?subject=c"] {
            assert!(Email::parse(wrong).is_err(), "{wrong}");
        }
        let longest = format!("{}@a", "a".repeat(252));
        assert!(Email::parse(&longest).is_ok() && Email::parse(&format!("a{longest}")).is_err());
    }
}
