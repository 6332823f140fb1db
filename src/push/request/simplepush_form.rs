//! The form of a PUT of SimplePush: a version of a channel (docs/sources.md#simplepush).

use actix_web::http::header::{CONTENT_TYPE, HeaderMap};
use percent_encoding::percent_decode;
use url::form_urlencoded;

/// Why the form of a PUT is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    #[error("version must be a whole number from 0 to 18446744073709551615")]
    Version,
    #[error("data is larger than {max_bytes} bytes")]
    DataTooLarge { max_bytes: usize },
    #[error("data must be UTF-8, and so must the rest of the form")]
    DataNotText,
    #[error(
        "the body has no version, and its Content-Type is not application/x-www-form-urlencoded"
    )]
    ContentType,
}

/// Refuses a body that is labelled as no form and has no version: its fields would be lost.
pub(crate) fn check(headers: &HeaderMap, body: &[u8]) -> Result<(), FormError> {
    let is_labelled = headers.get(CONTENT_TYPE).is_none_or(|kind| {
        let form = b"application/x-www-form-urlencoded";
        kind.as_bytes().get(..form.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(form))
    });
    let has_version = || form_urlencoded::parse(body).any(|(field, _)| field == "version");
    if body.is_empty() || is_labelled || has_version() {
        Ok(())
    } else {
        Err(FormError::ContentType)
    }
}

/// Each byte of the data takes up to three bytes, and the names and the version less than 64 together.
pub(crate) const fn form_bytes_max(data_bytes_max: usize) -> usize {
    data_bytes_max.saturating_mul(3).saturating_add(64)
}

/// The fields of a PUT, in its body or, without a body, in the query of its URL.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Form {
    /// None if the server is to choose it: the field is missing, empty or 0.
    pub(crate) version: Option<u64>,
    /// None if it is missing or empty.
    pub(crate) data: Option<String>,
}

impl Form {
    /// Of a field that is present twice, the first counts. Other fields are ignored.
    pub(crate) fn read(form: &[u8], data_bytes_max: usize) -> Result<Self, FormError> {
        let field = |name| {
            let mut fields = form_urlencoded::parse(form);
            let value =
                fields.find(|(field, _)| field == name).map(|(_, value)| value.into_owned());
            value.filter(|value| !value.is_empty())
        };
        let version: Option<u64> = field("version")
            .map(|version| version.parse().map_err(|_| FormError::Version))
            .transpose()?;
        let data = field("data");
        if data.as_ref().is_some_and(|data| data.len() > data_bytes_max) {
            return Err(FormError::DataTooLarge { max_bytes: data_bytes_max });
        }
        // The form was decoded with replacement characters, and the agent is to receive what was sent.
        percent_decode(form).decode_utf8().map_err(|_| FormError::DataNotText)?;
        Ok(Self { version: version.filter(|version| *version > 0), data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(form: &str) -> Result<Form, FormError> {
        Form::read(form.as_bytes(), 8)
    }

    fn form(version: u64, data: &str) -> Result<Form, FormError> {
        let version = (version > 0).then_some(version);
        Ok(Form { version, data: Some(data.to_owned()).filter(|data| !data.is_empty()) })
    }

    #[test]
    fn a_version_is_a_number_and_the_server_chooses_a_missing_one() {
        assert_eq!(read("version=5"), form(5, ""));
        assert_eq!(read("other=1&version=18446744073709551615&version=6"), form(u64::MAX, ""));
        for chosen in ["", "version=", "version=0", "version", "data=", "Version=5"] {
            assert_eq!(read(chosen), form(0, ""), "{chosen}");
        }
        for wrong in ["five", "-1", "1.5", "5 ", "18446744073709551616", "%FF", "0x5"] {
            let form = format!("version={wrong}");
            assert_eq!(read(&form), Err(FormError::Version), "{wrong}");
        }
    }

    #[test]
    fn a_body_that_is_no_form_is_refused_unless_it_has_a_version() {
        for (kind, body, expected) in [
            ("application/json", r#"{"version":5}"#, Err(FormError::ContentType)),
            ("application/json", "version=5", Ok(())),
            ("application/json", "", Ok(())),
            ("text/plain", "data=x", Err(FormError::ContentType)),
            ("Application/X-WWW-Form-Urlencoded; charset=utf-8", "data=x", Ok(())),
        ] {
            let mut headers = HeaderMap::new();
            assert_eq!(check(&headers, body.as_bytes()), Ok(()));
            headers.insert(CONTENT_TYPE, kind.parse().unwrap());
            assert_eq!(check(&headers, body.as_bytes()), expected, "{kind} {body}");
        }
    }

    #[test]
    fn data_is_a_text_of_bounded_size() {
        assert_eq!(read("version=5&data=a+b%26%C3%A4"), form(5, "a b&\u{e4}"));
        assert_eq!(read("data=12345678"), form(0, "12345678"));
        assert_eq!(read("data=123456789"), Err(FormError::DataTooLarge { max_bytes: 8 }));
        assert_eq!(read("data=%EF%BF%BD"), form(0, "\u{fffd}"));
        for wrong in ["data=%FF", "data=a%C3", "data=a&x=%FF"] {
            assert_eq!(read(wrong), Err(FormError::DataNotText), "{wrong}");
        }
        assert!(form_bytes_max(8) >= "version=18446744073709551615&data=".len() + 3 * 8);
    }
}
