//! Settings. One table defines the struct, its defaults, the flags of `serve`, the environment
//! variables, `docs/settings.md` and the sample `docs/kalends.toml`.
//!
//! A setting has one name, such as `listen`: the flag is `--listen`, the variable `KALENDS_LISTEN`,
//! the line of a TOML file `listen = "..."`. A flag overrides the environment, the environment the
//! file, and the file the default. An unknown name is an error in all three places.
//!
//! - [`table`]: the settings; [`setting`]: what is known of one.
//! - [`value`]: the types of their values.
//! - [`sources`]: reads flags, environment and file; [`flags`]: the flags for clap.
//! - [`role`]: the settings that each role needs.
//! - [`mod@reference`]: the documentation.

pub mod flags;
pub mod keys;
pub mod reference;
pub mod renamed;
pub mod role;
pub mod setting;
pub mod sources;
pub mod store;
pub mod table;
pub mod value;

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub use flags::Flags;
pub use role::{Role, RoleProblem};
pub use sources::{Problem, SettingsError};
pub use table::Settings;
pub use value::{
    AccessMode, AddressOrOff, AllowedOrigins, AllowedVapidKeys, BillingMode, DirectoryUrl,
    DomainName, Email, NamePart, PublicUrl, StoreKind,
};

use sources::RawSettings;
use storage::{WaitingBound, WaitingLimits};

use crate::system::tls::certificate::CertificateFiles;

/// Body size in bytes that is always accepted in the old `aesgcm` encoding.
///
/// It is the limit of Mozilla's service for a body in either encoding, derived from the base64 form of an encrypted
/// message of 4096 bytes. Application servers that use the old encoding were written for it. RFC 8030 §7.2 requires
/// 4096 bytes.
pub const AESGCM_BYTES_MIN: usize = 5630;

/// Body size in bytes that fits into an item of DynamoDB (400 KiB) beside the other attributes.
const DYNAMODB_PAYLOAD_BYTES_MAX: usize = 380_000;
/// Number of channels, 37 bytes each, that fit into the item that lists them.
const DYNAMODB_CHANNELS_MAX: usize = 10_000;

impl Settings {
    /// Reads settings from the flags, from `environment` and from the file that these two may name.
    /// Variables without the prefix `KALENDS_` are ignored.
    pub fn load(
        flags: &Flags,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, SettingsError> {
        let mut given = RawSettings::gather(flags, environment)?;
        given.add_defaults_of_domain();
        Self::read(given)?.checked()
    }

    /// Checks limits that depend on the store or on another limit.
    fn checked(self) -> Result<Self, SettingsError> {
        let mut problems = Vec::new();
        for (name, value, max) in [
            ("payload_bytes_max", self.payload_bytes_max, DYNAMODB_PAYLOAD_BYTES_MAX),
            ("channels_max", self.channels_max, DYNAMODB_CHANNELS_MAX),
        ] {
            if self.store == StoreKind::DynamoDb && value > max {
                problems.push(Problem::TooLarge { name, value, max });
            }
        }
        let (value, max) = (self.bridge_backoff_ms, self.bridge_backoff_max_ms);
        if value > max {
            let (name, max_name) = ("bridge_backoff_ms", "bridge_backoff_max_ms");
            problems.push(Problem::Above { name, value, max_name, max });
        }
        let (certificate, key) = ("tls_certificate", "tls_key");
        match (&self.tls_certificate, &self.tls_key) {
            (Some(_), None) => problems.push(Problem::Alone { name: certificate, missing: key }),
            (None, Some(_)) => problems.push(Problem::Alone { name: key, missing: certificate }),
            _ => {}
        }
        if problems.is_empty() { Ok(self) } else { Err(SettingsError(problems)) }
    }

    /// The origin of endpoint URLs, which VAPID tokens must name. `bound` is the address of the
    /// public port.
    pub fn public_origin(&self, bound: SocketAddr) -> String {
        match &self.public_url {
            Some(url) => url.as_str().to_owned(),
            None => format!(
                "{}://{}",
                self.scheme(),
                SocketAddr::new(reachable(bound.ip()), bound.port())
            ),
        }
    }

    /// The scheme of the public port.
    pub fn scheme(&self) -> &'static str {
        let has_tls = self.certificate_files().is_some() || self.acme_domain().is_some();
        if has_tls { "https" } else { "http" }
    }

    /// The domain for which the server orders certificates.
    pub fn acme_domain(&self) -> Option<&str> {
        self.domain.as_ref().filter(|_| self.tls_certificate.is_none()).map(DomainName::as_str)
    }

    /// The files of the certificate of the public port, if it speaks TLS.
    pub fn certificate_files(&self) -> Option<CertificateFiles> {
        let (certificate, key) = self.tls_certificate.clone().zip(self.tls_key.clone())?;
        Some(CertificateFiles { certificate, key })
    }

    /// Number of worker threads to start.
    pub fn worker_threads(&self) -> usize {
        match self.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            workers => workers,
        }
    }

    /// The connections of the public port that each worker accepts.
    pub fn worker_connections_max(&self) -> usize {
        self.connections_max.div_ceil(self.worker_threads())
    }

    /// The bounds of messages that wait for a user agent.
    pub fn waiting_limits(&self) -> WaitingLimits {
        let bound = |messages_max, bytes_max| WaitingBound { messages_max, bytes_max };
        WaitingLimits {
            user: bound(self.user_messages_max, self.user_bytes_max),
            channel: bound(self.channel_messages_max, self.channel_bytes_max),
            when_full: self.when_full,
        }
    }

    /// Size in bytes of the largest body in the old `aesgcm` encoding.
    pub fn aesgcm_bytes_max(&self) -> usize {
        self.payload_bytes_max.max(AESGCM_BYTES_MIN)
    }
}

/// No client can connect to the unspecified address; to this machine it can.
fn reachable(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::fuzz;
    use crate::settings::value::Value;
    use crate::system::telemetry::LogFormat;
    use std::io::Write;

    /// Loads flags and variables, each `(name, value)`, and the text of a file.
    fn load(flags: &[(&str, &str)], env: &[(&str, &str)], file: &str) -> Result<Settings, String> {
        let mut on_disk = tempfile::NamedTempFile::new().unwrap();
        on_disk.write_all(file.as_bytes()).unwrap();
        let flags = Flags {
            config: Some(on_disk.path().to_owned()),
            given: flags.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
        };
        let env = env.iter().map(|(n, v)| (OsString::from(n), OsString::from(v)));
        Settings::load(&flags, env).map_err(|error| {
            error.to_string().replace(&on_disk.path().display().to_string(), "kalends.toml")
        })
    }

    #[test]
    fn a_limit_too_large_for_an_item_of_dynamodb_is_refused_with_the_largest_one() {
        let large = [("payload_bytes_max", "1000000"), ("channels_max", "20000")];
        assert!(load(&large, &[], "").is_ok());
        let error = load(&large, &[], "store = \"dynamodb\"").unwrap_err();
        let lines: Vec<_> = error.lines().collect();
        assert!(lines[0].starts_with("payload_bytes_max = 1000000") && lines[0].contains("380000"));
        assert!(lines[1].starts_with("channels_max = 20000") && lines[1].contains("10000"));
        assert!(load(&[], &[], "store = \"dynamodb\"").is_ok());
    }

    #[test]
    fn a_domain_changes_defaults_and_each_of_them_can_be_set() {
        let public = load(&[("domain", "Push.example.net")], &[], "").unwrap();
        assert_eq!(public.listen.to_string(), "[::]:443");
        assert_eq!(public.http_listen.0.unwrap().to_string(), "[::]:80");
        assert_eq!(public.public_url.as_ref().unwrap().as_str(), "https://push.example.net");
        assert_eq!((public.acme_domain(), public.scheme()), (Some("push.example.net"), "https"));
        let file = "domain = \"a.net\"\nlisten = \"127.0.0.1:1\"\nhttp_listen = \"off\"\n\
                    public_url = \"https://b.net\"\ntls_certificate = \"c\"\ntls_key = \"k\"\n";
        let chosen = load(&[], &[], file).unwrap();
        assert_eq!(chosen.listen.to_string(), "127.0.0.1:1");
        assert_eq!(chosen.http_listen.0, None);
        assert_eq!(chosen.public_url.as_ref().unwrap().as_str(), "https://b.net");
        assert_eq!((chosen.acme_domain(), chosen.scheme()), (None, "https"));
    }

    #[test]
    fn a_backoff_above_its_maximum_is_refused() {
        let error = load(&[], &[], "bridge_backoff_ms = 60001").unwrap_err();
        let expected = "bridge_backoff_ms = 60001: at most bridge_backoff_max_ms, which is 60000";
        assert_eq!(error, expected);
        assert!(load(&[], &[], "bridge_backoff_ms = 60000").is_ok());
    }

    #[test]
    fn without_any_configuration_the_defaults_hold() {
        let settings = Settings::load(&Flags::default(), []).unwrap();
        assert_eq!(settings, Settings::default());
        assert_eq!(settings.listen.to_string(), "127.0.0.1:8080");
        assert_eq!(settings.hello_timeout_ms, 5000);
    }

    #[test]
    fn a_flag_wins_over_the_environment_and_that_over_the_file() {
        let flags = [("workers", "3")];
        let env = [("KALENDS_WORKERS", "2"), ("KALENDS_TTL_MAX_S", "20"), ("PATH", "/bin")];
        let file = "workers = 1\nttl_max_s = 10\nchannels_max = 5\n";
        let settings = load(&flags, &env, file).unwrap();
        assert_eq!((settings.workers, settings.ttl_max_s, settings.channels_max), (3, 20, 5));
        assert_eq!(settings.unacked_max, Settings::default().unacked_max);
    }

    #[test]
    fn every_kind_of_value_is_read_from_a_file() {
        let file = r#"
            data_dir = "/var/lib/kalends"
            listen = "[::1]:0"
            public_url = "https://push.example.net/"
            log_level = "warning"
            log_format = "json"
            rotation = false
            frame_bytes_max = 131_072
        "#;
        let settings = load(&[], &[], file).unwrap();
        assert_eq!(settings.data_dir.to_str(), Some("/var/lib/kalends"));
        assert_eq!(settings.listen.to_string(), "[::1]:0");
        assert_eq!(settings.public_url.unwrap().as_str(), "https://push.example.net");
        assert_eq!(settings.log_level, slog::Level::Warning);
        assert_eq!(settings.log_format, LogFormat::Json);
        assert!(!settings.rotation);
        assert_eq!(settings.frame_bytes_max, 131_072);
    }

    #[test]
    fn an_unknown_name_is_refused_in_every_place_with_the_nearest_setting() {
        let error = load(&[], &[("KALENDS_LISTN", "x")], "chanels_max = 3\n").unwrap_err();
        assert_eq!(
            error,
            "`KALENDS_LISTN` is not a setting (environment variable): \
             did you mean `KALENDS_LISTEN`? docs/settings.md and `kalends serve --help` \
             list all settings\n\
             `chanels_max` is not a setting (kalends.toml line 1): \
             did you mean `channels_max`? docs/settings.md and `kalends serve --help` \
             list all settings"
        );
    }

    #[test]
    fn a_former_name_is_refused_in_every_place_with_its_new_name() {
        for (former, now) in renamed::SETTINGS {
            assert!(
                setting::Setting::find(now).is_some() && setting::Setting::find(former).is_none()
            );
            let variable = sources::env_name(former);
            let error = load(&[], &[(&variable, "1")], &format!("{former} = 1\n")).unwrap_err();
            assert_eq!(
                error,
                format!(
                    "`{variable}` is not a setting (environment variable): it is `{}` now\n\
                     `{former}` is not a setting (kalends.toml line 1): it is `{now}` now",
                    sources::env_name(now)
                )
            );
        }
    }

    #[test]
    fn a_name_unlike_any_setting_is_refused_without_a_suggestion() {
        let error = load(&[], &[("KALENDS_DATABASE_URL", "x")], "pem_file = 3\n").unwrap_err();
        assert_eq!(
            error,
            "`KALENDS_DATABASE_URL` is not a setting (environment variable): \
             docs/settings.md and `kalends serve --help` list all settings\n\
             `pem_file` is not a setting (kalends.toml line 1): \
             docs/settings.md and `kalends serve --help` list all settings"
        );
    }

    #[test]
    fn a_name_with_a_different_case_or_dashes_is_unknown_too() {
        let error = load(&[], &[("KALENDS_listen", "x")], "data-dir = \"x\"\n").unwrap_err();
        assert!(error.contains("`KALENDS_listen` is not a setting"), "{error}");
        assert!(error.contains("did you mean `KALENDS_LISTEN`?"), "{error}");
        assert!(error.contains("did you mean `data_dir`?"), "{error}");
    }

    #[test]
    fn the_variables_of_a_kubernetes_service_are_refused_with_advice() {
        let error = load(&[], &[("KALENDS_SERVICE_HOST", "10.0.0.1")], "").unwrap_err();
        assert!(error.contains("enableServiceLinks: false"), "{error}");
    }

    #[test]
    fn the_error_of_a_value_of_another_type_gives_an_example() {
        let number = "expected a whole number without quotes, unit or fraction";
        let list = "expected a text in quotes, with commas between its parts";
        for (file, value, expected, example) in [
            ("disk_free_min = \"64MiB\"", "64MiB", number, "disk_free_min = 67108864"),
            ("workers = 1.5", "1.5", number, "workers = 0"),
            ("trusted_proxies = [\"::1\"]", "[...]", list, "trusted_proxies = \"...\""),
        ] {
            let error = load(&[], &[], file).unwrap_err();
            let says = format!("`{value}` (kalends.toml line 1): {expected}: {example}");
            assert!(error.ends_with(&says), "{error}");
        }
        let error = load(&[("workers", "-5")], &[], "").unwrap_err();
        assert_eq!(
            error,
            "workers = `-5` (flag --workers): expected a whole number from 0 to 1024, such as 0"
        );
    }

    #[test]
    fn the_error_of_a_bad_value_has_setting_value_place_and_remedy() {
        for (flags, env, file, expected) in [
            (
                [("listen", "localhost:80")].as_slice(),
                [].as_slice(),
                "",
                "listen = `localhost:80` (flag --listen): \
                 expected ADDRESS:PORT, such as 127.0.0.1:8080 or [::1]:8080",
            ),
            (
                &[],
                &[("KALENDS_PAYLOAD_BYTES_MAX", "4095")],
                "",
                "payload_bytes_max = `4095` (environment variable KALENDS_PAYLOAD_BYTES_MAX): \
                 expected a whole number from 4096 to 1048576, such as 4096",
            ),
            (
                &[],
                &[],
                "\nhello_timeout_ms = \"5000\"\n",
                "hello_timeout_ms = `5000` (kalends.toml line 2): \
                 expected a whole number without quotes, unit or fraction: hello_timeout_ms = 5000",
            ),
            (
                &[],
                &[],
                "rotation = 1\n",
                "rotation = `1` (kalends.toml line 1): expected true or false, without quotes: \
                 rotation = true",
            ),
            (
                &[],
                &[],
                "data_dir = 5\n",
                "data_dir = `5` (kalends.toml line 1): expected a text in quotes: \
                 data_dir = \"./kalends-data\"",
            ),
            (
                &[],
                &[],
                "data_dir = [\"x\"]\n",
                "data_dir = `[...]` (kalends.toml line 1): expected a text in quotes: \
                 data_dir = \"./kalends-data\"",
            ),
            (
                &[],
                &[("KALENDS_PUBLIC_URL", "https://push.example.net/push")],
                "",
                "public_url = `https://push.example.net/push` (environment variable \
                 KALENDS_PUBLIC_URL): expected an origin and nothing behind it, such as \
                 https://push.example.net",
            ),
        ] {
            assert_eq!(load(flags, env, file).unwrap_err(), expected);
        }
    }

    #[test]
    fn a_bad_value_is_refused_even_if_a_higher_place_overrides_it() {
        let error = load(&[("workers", "1")], &[], "workers = -1\n").unwrap_err();
        assert!(error.starts_with("workers = `-1` (kalends.toml line 1)"), "{error}");
    }

    #[test]
    fn a_file_that_is_not_toml_is_refused_with_the_line() {
        let error = load(&[], &[], "listen = \nworkers = 1").unwrap_err();
        assert!(error.starts_with("kalends.toml is not TOML: "), "{error}");
        assert!(error.contains("line 1"), "{error}");
    }

    #[test]
    fn a_missing_file_is_refused() {
        let flags = Flags { config: Some("/nowhere/kalends.toml".into()), given: Vec::new() };
        let error = Settings::load(&flags, []).unwrap_err().to_string();
        assert!(error.starts_with("cannot read /nowhere/kalends.toml: "), "{error}");
    }

    #[test]
    fn the_environment_can_name_the_file() {
        let env = [(OsString::from("KALENDS_CONFIG"), OsString::from("/nowhere/at/all"))];
        let error = Settings::load(&Flags::default(), env).unwrap_err().to_string();
        assert!(error.starts_with("cannot read /nowhere/at/all: "), "{error}");
    }

    #[test]
    fn the_public_origin_is_public_url_or_the_bound_address() {
        let mut settings = Settings::default();
        let origin = |settings: &Settings, bound: &str| {
            settings.public_origin(bound.parse().expect("an address"))
        };
        assert_eq!(origin(&settings, "127.0.0.1:4321"), "http://127.0.0.1:4321");
        assert_eq!(origin(&settings, "0.0.0.0:80"), "http://127.0.0.1:80");
        assert_eq!(origin(&settings, "[::]:80"), "http://[::1]:80");
        settings.public_url = Some(PublicUrl::parse("https://p.example").unwrap());
        assert_eq!(origin(&settings, "0.0.0.0:80"), "https://p.example");
    }

    #[test]
    fn the_old_encoding_keeps_its_allowance_and_grows_with_the_limit() {
        let mut settings = Settings::default();
        assert_eq!(settings.aesgcm_bytes_max(), 5630);
        settings.payload_bytes_max = 10_000;
        assert_eq!(settings.aesgcm_bytes_max(), 10_000);
    }

    #[test]
    fn no_hostile_file_of_settings_makes_the_start_panic() {
        // The sample, in which every setting has its default behind a `#`.
        let sample = include_str!("../../docs/kalends.toml").lines();
        let sample: Vec<_> = sample.filter(|line| line.contains(" = ")).collect();
        let samples: Vec<_> =
            sample.chunks(8).map(|lines| lines.join("\n").replace("# ", "")).collect();
        fuzz("settings_files", &samples, |bytes| {
            let mut given = RawSettings::default();
            let added = given.add_text("kalends.toml".as_ref(), &String::from_utf8_lossy(bytes));
            let read = added.map(|()| Settings::read(given).map_err(|error| error.to_string()));
            let _ = read.map_err(|problem| problem.to_string());
        });
    }
}
