//! Reads the settings from flags, environment and file.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{self, Path, PathBuf};

use toml::de::DeTable;

use super::flags::{DEFAULT_CONFIG, ENV_CONFIG, Flags};
use super::raw::{Entry, Problem, RawSettings, SettingsError};
use super::renamed;
use super::setting::Setting;
use super::table::Settings;
use super::toml_file::{in_file, not_toml, scalar, warning_of_password};
use super::value::{DomainName, StoreKind, Value};

/// Bytes of a file of settings that are read, which may be a device without an end.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Prefix of the environment variables of settings.
pub const ENV_PREFIX: &str = "KALENDS_";

/// Body size in bytes that fits into an item of DynamoDB (400 KiB) beside the other attributes.
const DYNAMODB_PAYLOAD_BYTES_MAX: usize = 380_000;
/// Number of channels, 37 bytes each, that fit into the item that lists them.
const DYNAMODB_CHANNELS_MAX: usize = 10_000;

/// The file of settings: of the flags, of the environment, or that of the machine if it is there. An empty variable names
/// none.
pub fn config_file(flags: &Flags) -> Option<PathBuf> {
    config_of(flags, std::env::var_os(ENV_CONFIG), Path::new(DEFAULT_CONFIG))
}

fn config_of(flags: &Flags, variable: Option<OsString>, of_machine: &Path) -> Option<PathBuf> {
    match (&flags.config, variable) {
        (Some(path), _) => Some(path.clone()),
        (None, Some(path)) => Some(PathBuf::from(path)).filter(|path| !path.as_os_str().is_empty()),
        // One that cannot be read is an error, and not ignored.
        (None, None) => Some(of_machine.to_owned()).filter(|path| path.exists()),
    }
}

impl Settings {
    /// Reads settings from the flags, from `environment` and from the file that the flags may name.
    /// Variables without the prefix `KALENDS_` are ignored.
    pub fn load(
        flags: &Flags,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, SettingsError> {
        let mut given = RawSettings::gather(flags, environment)?;
        for warning in &given.warnings {
            // A log does not exist before its settings. A closed standard error is no reason to refuse them.
            let _ = writeln!(io::stderr(), "kalends: {warning}");
        }
        given.add_defaults_of_domain();
        Self::read(given)?.checked()
    }

    /// Reads settings from the flags alone. `defaults` are in place of the defaults of the table.
    pub fn load_flags(
        flags: &Flags,
        defaults: &[(&'static str, String)],
    ) -> Result<Self, SettingsError> {
        let mut given = RawSettings::gather(flags, [])?;
        for (name, text) in defaults {
            given.add_default(name, text, "--ephemeral");
        }
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
        if self.backup_dir.is_some() && self.store != StoreKind::Embedded {
            problems.push(Problem::OfSqlite { name: "backup_dir" });
        }
        let data_dir = path::absolute(&self.data_dir);
        if let Some(dir) = &self.backup_dir
            && (dir.is_relative() || data_dir.is_ok_and(|data_dir| dir.starts_with(data_dir)))
        {
            problems.push(Problem::BackupDir { dir: dir.clone() });
        }
        let (certificate, key) = ("tls_certificate", "tls_key");
        match (&self.tls_certificate, &self.tls_key) {
            (Some(_), None) => problems.push(Problem::Alone { name: certificate, missing: key }),
            (None, Some(_)) => problems.push(Problem::Alone { name: key, missing: certificate }),
            _ => {}
        }
        let has_http = self.domain.is_none() && self.http_listen.0.is_some();
        for (name, is_set) in [
            (certificate, self.tls_certificate.is_some()),
            ("domain", self.domain.is_some()),
            ("http_listen", has_http),
        ] {
            if self.listen.is_unix() && is_set {
                problems.push(Problem::BesideSocket { name });
            }
        }
        SettingsError::check(problems, self)
    }
}

impl RawSettings {
    /// Reads all places; fails if the file cannot be read.
    pub(super) fn gather(
        flags: &Flags,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, SettingsError> {
        Self { kept: renamed::KEPT, ..Self::default() }.gathered(flags, environment)
    }

    fn gathered(
        mut self,
        flags: &Flags,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, SettingsError> {
        let given = &mut self;
        for (name, text) in &flags.given {
            let setting = given.find(name, flag_name);
            let setting = setting.expect("clap accepts the flags of settings only");
            given.add(setting, text.clone(), format!("flag {}", flag_name(name)), None);
        }
        given.add_environment(environment);
        if let Some(path) = &flags.config {
            given.add_file(path).map_err(|problem| SettingsError(vec![problem]))?;
        }
        Ok(self)
    }

    /// The setting with a name, or with a former one, of which a warning is noted. `form` writes a name as its place does.
    fn find(&mut self, name: &str, form: fn(&str) -> String) -> Option<&'static Setting> {
        let former = self.kept.iter().find(|(former, _)| *former == name);
        let Some((_, now)) = former else { return Setting::find(name) };
        let (name, now_there) = (form(name), form(now));
        self.warnings.push(format!(
            "warning: `{name}` is `{now_there}` now: change the name, 2.0 does not read the old one"
        ));
        Setting::find(now)
    }

    /// Adds what `domain` changes the defaults of other settings to.
    pub(super) fn add_defaults_of_domain(&mut self) {
        let domain = self.entries.iter().find(|entry| entry.name == "domain");
        let Some(domain) = domain.and_then(|entry| DomainName::parse(&entry.text).ok()) else {
            return;
        };
        let public_url = format!("https://{}", domain.as_str());
        for (name, text) in
            [("listen", "[::]:443"), ("http_listen", "[::]:80"), ("public_url", &public_url)]
        {
            self.add_default(name, text, "domain");
        }
    }

    /// The entries of higher places are before it.
    fn add_default(&mut self, name: &'static str, text: &str, place: &str) {
        self.entries.push(Entry { name, text: text.to_owned(), place: place.to_owned() });
    }

    /// Adds the variables with the prefix.
    fn add_environment(&mut self, environment: impl IntoIterator<Item = (OsString, OsString)>) {
        let mut variables: Vec<_> = environment
            .into_iter()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value))
            .filter(|(name, _)| name.starts_with(ENV_PREFIX))
            .collect();
        variables.sort();
        for (variable, value) in variables {
            let names = Setting::all().map(|setting| setting.name);
            let mut names = names.chain(self.kept.iter().map(|(former, _)| *former));
            let name = names.find(|name| env_name(name) == variable);
            match name.and_then(|name| self.find(name, env_name)) {
                Some(setting) => {
                    let text = value.to_string_lossy().into_owned();
                    let mismatch = value.to_str().is_none().then_some("expected a text in UTF-8");
                    self.add(setting, text, format!("environment variable {variable}"), mismatch);
                }
                None => self.add_unknown(variable, "environment variable".to_owned(), env_name),
            }
        }
    }

    fn add_file(&mut self, path: &Path) -> Result<(), Problem> {
        let read = || {
            let file = File::open(path)?;
            let metadata = file.metadata()?;
            Ok((io::read_to_string(file.take(FILE_BYTES_MAX))?, metadata))
        };
        let (text, metadata) = read().map_err(|error: io::Error| Problem::Unreadable {
            path: path.to_owned(),
            error: error.to_string(),
        })?;
        let of_file = self.entries.len();
        self.add_text(path, &text)?;
        self.warnings.extend(warning_of_password(path, &metadata, &self.entries[of_file..]));
        Ok(())
    }

    /// Adds the settings in `text`; `path` is only named in errors.
    pub(super) fn add_text(&mut self, path: &Path, text: &str) -> Result<(), Problem> {
        let table = DeTable::parse(text).map_err(|error| Problem::NotToml {
            path: path.to_owned(),
            error: not_toml(text, &error),
        })?;
        for (name, value) in table.get_ref() {
            let line = text[..name.span().start].matches('\n').count() + 1;
            let place = format!("{} line {line}", path.display());
            match self.find(name.get_ref(), str::to_owned) {
                Some(setting) => {
                    let (text, kind) = scalar(value.get_ref());
                    let mismatch = (kind != Some(setting.toml_kind)).then(|| in_file(setting));
                    self.add(setting, text, place, mismatch.as_deref());
                }
                None => self.add_unknown(name.get_ref().to_string(), place, str::to_owned),
            }
        }
        Ok(())
    }

    /// Adds a value, or the problem that its place cannot hold a value of this kind.
    fn add(&mut self, setting: &Setting, text: String, place: String, mismatch: Option<&str>) {
        match mismatch.map(str::to_owned) {
            None => self.entries.push(Entry { name: setting.name, text, place }),
            Some(expected) => self.problems.push(Problem::bad(setting, &text, place, expected)),
        }
    }

    /// `form` writes a setting's name as its place does.
    fn add_unknown(&mut self, written: String, place: String, form: fn(&str) -> String) {
        let advice = advice(&written, form);
        self.problems.push(Problem::Unknown { written, place, advice });
    }
}

/// What to write instead of an unknown name: the new name of a renamed setting, or the most similar one.
fn advice(written: &str, form: fn(&str) -> String) -> String {
    if let Some(name) = renamed::setting(&bare(written)) {
        return format!("it is `{}` now", form(name));
    }
    let link = written.strip_prefix(ENV_PREFIX).unwrap_or_default();
    if link.starts_with("SERVICE_") || link.starts_with("PORT_") || link == "PORT" {
        return "Kubernetes adds such variables for a Service named kalends, \
                set `enableServiceLinks: false` in the pod"
            .into();
    }
    let all = "`kalends serve --help` lists all settings";
    let names = Setting::all().map(|setting| setting.name);
    match names.min_by_key(|name| changes(written, name)).filter(|name| is_near(written, name)) {
        Some(nearest) => format!("did you mean `{}`? {all}", form(nearest)),
        None => all.into(),
    }
}

/// Whether `written` may be a misspelling of `known`: at most a third of the name differs.
pub fn is_near(written: &str, known: &str) -> bool {
    changes(written, known) * 3 <= bare(known).len()
}

fn changes(written: &str, known: &str) -> usize {
    strsim::damerau_levenshtein(&bare(written), &bare(known))
}

/// A name without the prefix, dashes and case of its place.
fn bare(name: &str) -> String {
    let name = name.strip_prefix(ENV_PREFIX).unwrap_or(name);
    name.trim_start_matches('-').replace('-', "_").to_ascii_lowercase()
}

/// The flag of a setting.
pub fn flag_name(name: &str) -> String {
    format!("--{}", name.replace('_', "-"))
}

/// The environment variable of a setting.
pub fn env_name(name: &str) -> String {
    format!("{ENV_PREFIX}{}", name.to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::fuzz;
    use crate::settings::value::PublicUrl;
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
        let largest = [("payload_bytes_max", "380000"), ("channels_max", "10000")];
        assert!(load(&largest, &[], "store = \"dynamodb\"").is_ok());
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
    fn a_unix_socket_is_refused_beside_the_settings_of_a_port_with_tls() {
        for (file, name) in [
            ("tls_certificate = \"c\"\ntls_key = \"k\"", "tls_certificate"),
            ("domain = \"a.net\"", "domain"),
            ("http_listen = \"[::]:80\"", "http_listen"),
        ] {
            let error = load(&[("listen", "unix:/run/a.sock")], &[], file).unwrap_err();
            let expected = format!(
                "{name} is set, and listen is a Unix socket, behind which only a proxy is: remove {name}, or set \
                 listen to ADDRESS:PORT"
            );
            assert_eq!(error, expected);
        }
        assert!(load(&[], &[], "listen = \"unix:/run/a.sock\"\nhttp_listen = \"off\"").is_ok());
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
             did you mean `KALENDS_LISTEN`? `kalends serve --help` lists all settings\n\
             `chanels_max` is not a setting (kalends.toml line 1): \
             did you mean `channels_max`? `kalends serve --help` lists all settings"
        );
    }

    #[test]
    fn a_former_name_is_refused_in_every_place_with_its_new_name() {
        for (former, now) in renamed::SETTINGS {
            assert!(Setting::find(now).is_some() && Setting::find(former).is_none());
            let variable = env_name(former);
            let error = load(&[], &[(&variable, "1")], &format!("{former} = 1\n")).unwrap_err();
            assert_eq!(
                error,
                format!(
                    "`{variable}` is not a setting (environment variable): it is `{}` now\n\
                     `{former}` is not a setting (kalends.toml line 1): it is `{now}` now",
                    env_name(now)
                )
            );
        }
    }

    #[test]
    fn a_name_that_is_kept_works_in_every_place_with_a_warning() {
        let kept: renamed::Kept = &[("listen_at", "listen"), ("hello_wait_ms", "hello_timeout_ms")];
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "hello_wait_ms = 7\n").unwrap();
        let given = vec![("listen_at".to_owned(), "[::1]:1".to_owned())];
        let flags = Flags { config: Some(file.path().to_owned()), given };
        let environment = [("KALENDS_LISTEN_AT".into(), "[::1]:2".into())];
        let raw = RawSettings { kept, ..RawSettings::default() };
        let raw = raw.gathered(&flags, environment).unwrap();
        let warning = |former: &str, now: &str| {
            format!(
                "warning: `{former}` is `{now}` now: change the name, 2.0 does not read the old one"
            )
        };
        assert_eq!(
            raw.warnings,
            [
                warning("--listen-at", "--listen"),
                warning("KALENDS_LISTEN_AT", "KALENDS_LISTEN"),
                warning("hello_wait_ms", "hello_timeout_ms"),
            ]
        );
        let settings = Settings::read(raw).unwrap();
        assert_eq!(settings.listen.to_string(), "[::1]:1");
        assert_eq!(settings.hello_timeout_ms, 7);
        assert!(renamed::KEPT.iter().all(|(_, now)| Setting::find(now).is_some()));
    }

    #[test]
    fn a_name_unlike_any_setting_is_refused_without_a_suggestion() {
        let error = load(&[], &[("KALENDS_DATABASE_URL", "x")], "pem_file = 3\n").unwrap_err();
        assert_eq!(
            error,
            "`KALENDS_DATABASE_URL` is not a setting (environment variable): \
             `kalends serve --help` lists all settings\n\
             `pem_file` is not a setting (kalends.toml line 1): \
             `kalends serve --help` lists all settings"
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
                 expected ADDRESS:PORT, such as 127.0.0.1:8080 or [::1]:8080, or unix:PATH",
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
    fn a_value_that_may_have_a_password_is_in_no_error() {
        for (name, bad) in [
            ("postgresql_url", "mysql://u:s3cretpw@h/db"),
            ("postgresql_url", "host=h password=s3cretpw"),
            ("postgresql_url", "postgresql://u:p@s3cretpw@h/db"),
            ("dynamodb_endpoint_url", "http://u:s3cretpw@h"),
        ] {
            let variable = env_name(name);
            for (place, loaded) in [
                ("flag --", load(&[(name, bad)], &[], "")),
                ("environment variable KALENDS_", load(&[], &[(&variable, bad)], "")),
                ("kalends.toml line 1", load(&[], &[], &format!("{name} = {bad:?}"))),
                ("kalends.toml line 1", load(&[], &[], &format!("{name} = [{bad:?}]"))),
            ] {
                let error = loaded.unwrap_err();
                assert!(error.starts_with(&format!("{name} ({place}")), "{error}");
                assert!(!error.contains("s3cretpw"), "{error}");
            }
            for unread in [format!("\n{name} = {bad}"), format!("\n{name} = \"{bad}")] {
                let error = load(&[], &[], &unread).unwrap_err();
                assert!(error.starts_with("kalends.toml is not TOML: line 2: "), "{error}");
                assert!(!error.contains("s3cretpw"), "{error}");
            }
        }
        for setting in Setting::all().filter(|setting| setting.placeholder == "URL") {
            let is_own = ["public_url", "router_url"].contains(&setting.name);
            assert_eq!(setting.is_secret, !is_own, "{}", setting.name);
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
    fn the_file_is_that_of_the_flag_of_the_environment_or_of_the_machine() {
        let of_machine = tempfile::NamedTempFile::new().unwrap();
        let (here, nowhere) = (of_machine.path(), Path::new("/nowhere/kalends.toml"));
        let flag = || Some("a.toml".into());
        for (config, variable, of_machine, expected) in [
            (flag(), Some("b.toml"), here, Some("a.toml")),
            (None, Some("b.toml"), here, Some("b.toml")),
            (None, Some(""), here, None),
            (None, None, here, here.to_str()),
            (None, None, nowhere, None),
        ] {
            let flags = Flags { config, given: Vec::new() };
            let found = config_of(&flags, variable.map(OsString::from), of_machine);
            assert_eq!(found.as_deref(), expected.map(Path::new));
        }
    }

    #[test]
    fn the_public_origin_is_public_url_or_the_bound_address() {
        let mut settings = Settings::default();
        let origin = |settings: &Settings, bound: &str| {
            let origin = settings.public_origin(&bound.parse().expect("an address"));
            origin.map_or_else(String::new, |origin| origin.as_str().to_owned())
        };
        assert_eq!(origin(&settings, "127.0.0.1:4321"), "http://127.0.0.1:4321");
        assert_eq!(origin(&settings, "0.0.0.0:80"), "http://127.0.0.1");
        assert_eq!(origin(&settings, "[::]:80"), "http://[::1]");
        assert_eq!(origin(&settings, "unix:/run/a"), "");
        settings.public_url = Some(PublicUrl::parse("https://p.example").unwrap());
        for bound in ["0.0.0.0:80", "unix:/run/a"] {
            assert_eq!(origin(&settings, bound), "https://p.example");
        }
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
