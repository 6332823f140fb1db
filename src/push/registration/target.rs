//! What the URL of a request names: `/v1/{type}/{app}/registration` and the paths below it.

use percent_encoding::percent_decode_str;
use state_machine::BridgeName;

use super::error::RegistrationError;
use crate::push::error::PushError;

/// The scope of all paths.
pub(super) const SCOPE: &str = "/v1/{type}/{app}/registration";

/// Maximum length of the name of an application.
pub(super) const APP_CHARS_MAX: usize = 128;

/// A path, with or without a slash at its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target<'a> {
    pub(super) bridge: BridgeName,
    pub(super) app: String,
    pub(super) resource: Resource<'a>,
}

/// What is below `/v1/{type}/{app}`, with the ids as the client wrote them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resource<'a> {
    // `registration`
    New,
    // `registration/{uaid}`
    Agent(&'a str),
    // `registration/{uaid}/subscription`
    Channels(&'a str),
    // `registration/{uaid}/subscription/{chid}`
    Channel(&'a str, &'a str),
}

impl<'a> Target<'a> {
    pub(super) fn read(path: &'a str) -> Result<Self, RegistrationError> {
        let path = path.strip_suffix('/').unwrap_or(path);
        let parts: Vec<_> = path.split('/').skip(1).collect();
        let (kind, app, resource) = match parts[..] {
            ["v1", kind, app, "registration"] => (kind, app, Resource::New),
            ["v1", kind, app, "registration", uaid] => (kind, app, Resource::Agent(uaid)),
            ["v1", kind, app, "registration", uaid, "subscription"] => {
                (kind, app, Resource::Channels(uaid))
            }
            ["v1", kind, app, "registration", uaid, "subscription", chid] => {
                (kind, app, Resource::Channel(uaid, chid))
            }
            _ => return Err(PushError::NotFound.into()),
        };
        let bridge = match kind {
            "gcm" => return Err(RegistrationError::Gcm),
            "adm" => return Err(RegistrationError::Adm),
            kind => BridgeName::parse(kind).ok_or(RegistrationError::UnknownType)?,
        };
        let app = percent_decode_str(app).decode_utf8().ok();
        let app = app.filter(|app| (1..=APP_CHARS_MAX).contains(&app.len()));
        let app = app.ok_or(RegistrationError::UnknownApp)?.into_owned();
        Ok(Self { bridge, app, resource })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> Result<Target<'_>, RegistrationError> {
        Target::read(path)
    }

    #[test]
    fn a_path_may_end_with_a_slash() {
        for (path, resource) in [
            ("/v1/fcm/123/registration", Resource::New),
            ("/v1/fcm/123/registration/u", Resource::Agent("u")),
            ("/v1/fcm/123/registration/u/subscription", Resource::Channels("u")),
            ("/v1/fcm/123/registration/u/subscription/c", Resource::Channel("u", "c")),
        ] {
            let target = || {
                let (bridge, app) = (BridgeName::Fcm, "123".to_owned());
                Ok(Target { bridge, app, resource })
            };
            assert_eq!(read(path), target(), "{path}");
            assert_eq!(read(&format!("{path}/")), target(), "{path}");
        }
    }

    #[test]
    fn the_name_of_an_application_is_decoded_and_bounded() {
        let app =
            |app: &str| read(&format!("/v1/apns/{app}/registration")).map(|target| target.app);
        assert_eq!(app("org.mozilla%2Eios"), Ok("org.mozilla.ios".to_owned()));
        assert_eq!(app(&"a".repeat(APP_CHARS_MAX)), Ok("a".repeat(APP_CHARS_MAX)));
        for wrong in ["", "%ff", &"a".repeat(APP_CHARS_MAX + 1)] {
            assert_eq!(app(wrong), Err(RegistrationError::UnknownApp), "{wrong}");
        }
    }

    #[test]
    fn other_types_and_other_paths_are_refused() {
        for (path, error) in [
            ("/v1/gcm/123/registration", RegistrationError::Gcm),
            ("/v1/adm/123/registration/u", RegistrationError::Adm),
            ("/v1/webpush/123/registration", RegistrationError::UnknownType),
            ("/v1/FCM/123/registration", RegistrationError::UnknownType),
            ("/v1/fcm/123/registration//", RegistrationError::Secret),
            ("/v1/fcm/123/registration/u/channels", PushError::NotFound.into()),
            ("/v1/fcm/123/registration/u/subscription/c/d", PushError::NotFound.into()),
        ] {
            let expected = match error {
                RegistrationError::Secret => Ok(Resource::Agent("")),
                error => Err(error),
            };
            assert_eq!(read(path).map(|target| target.resource), expected, "{path}");
        }
    }
}
