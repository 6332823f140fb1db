//! The settings as flags of `kalends serve`, for clap.

use std::path::PathBuf;

use clap::builder::ValueParser;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::renamed::{KEPT, Kept};
use super::setting::Setting;
use super::table::GROUPS;
use super::value::TomlKind;

/// Environment variable with the path of the file.
pub const ENV_CONFIG: &str = "KALENDS_CONFIG";

/// The file of the machine, which is read if neither a flag nor the environment names one.
pub const DEFAULT_CONFIG: &str = "/etc/kalends/kalends.toml";

/// Where packages have the sample of all settings.
const SAMPLE: &str = "/usr/share/doc/kalends/examples/kalends.toml";

/// The settings on a command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flags {
    /// Path of the TOML file.
    pub config: Option<PathBuf>,
    /// Names and values of the settings.
    pub given: Vec<(String, String)>,
}

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .value_parser(ValueParser::path_buf())
            .help(format!(
                "TOML file with settings (packages have {SAMPLE}); otherwise {ENV_CONFIG}, or {DEFAULT_CONFIG} if it is there"
            ));
        let command = GROUPS.iter().fold(command.arg(config), |command, group| {
            group.settings.iter().fold(command, |command, setting| {
                command.arg(flag(setting, setting.name).help_heading(group.title))
            })
        });
        former_flags(command, KEPT)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let value = |name: &str| Some((name.to_owned(), matches.get_one::<String>(name)?.clone()));
        let former = KEPT.iter().map(|(former, _)| *former);
        let names = Setting::all().map(|setting| setting.name).chain(former);
        Ok(Self {
            config: matches.get_one("config").cloned(),
            given: names.filter_map(value).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Adds the flags of former names, which the help does not show.
fn former_flags(command: Command, kept: Kept) -> Command {
    let settings = kept.iter().filter_map(|(former, now)| Some((former, Setting::find(now)?)));
    settings
        .fold(command, |command, (former, setting)| command.arg(flag(setting, former).hide(true)))
}

fn flag(setting: &'static Setting, name: &'static str) -> Arg {
    let arg = Arg::new(name)
        .long(name.replace('_', "-"))
        .value_name(setting.placeholder)
        .help(summary(setting))
        .long_help(setting.doc.trim().to_owned() + "\n\n" + &bounds(setting));
    match setting.toml_kind {
        // `--rotation` alone is `true`. A value needs the equals sign, or the next argument would be
        // read as the value.
        TomlKind::Switch => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
        // Whether a number may be negative is decided where it is read, with the range in the error.
        TomlKind::Number => arg.allow_negative_numbers(true),
        TomlKind::Text => arg,
    }
}

/// The first sentence of the documentation and the default.
fn summary(setting: &Setting) -> String {
    let doc = setting.doc.trim();
    let sentence = doc.split(". ").next().unwrap_or(doc).trim_end_matches('.');
    let default = setting.default().map(|text| format!(" [default: {text}]"));
    sentence.to_owned() + &default.unwrap_or_default()
}

/// Default, unit and range; a setting may have no unit and no range.
pub(super) fn bounds(setting: &Setting) -> String {
    let default = setting.default().unwrap_or_else(|| "not set".to_owned());
    let unit = setting.unit.map(|unit| format!(" {unit}")).unwrap_or_default();
    let range = setting.range.as_ref();
    let range = range.map(|range| format!(", from {} to {}", range.start(), range.end()));
    format!("Default: {default}{unit}{}", range.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Flags, clap::Error> {
        let command = Flags::augment_args(Command::new("serve").no_binary_name(true));
        Flags::from_arg_matches(&command.try_get_matches_from(args)?)
    }

    #[test]
    fn a_flag_is_the_settings_name_with_dashes() {
        let flags = parse(&["--listen", "[::1]:1", "--config=a.toml", "--ttl-max-s", "5"]).unwrap();
        assert_eq!(flags.config, Some(PathBuf::from("a.toml")));
        let given = [("listen", "[::1]:1"), ("ttl_max_s", "5")];
        assert_eq!(flags.given, given.map(|(name, text)| (name.to_owned(), text.to_owned())));
    }

    #[test]
    fn a_switch_needs_no_value_and_takes_one_after_an_equals_sign() {
        let given = |args: &[&str]| parse(args).unwrap().given;
        assert_eq!(given(&["--rotation"]), [("rotation".to_owned(), "true".to_owned())]);
        assert_eq!(given(&["--rotation=false"]), [("rotation".to_owned(), "false".to_owned())]);
        assert!(parse(&["--rotation", "false"]).is_err());
    }

    #[test]
    fn an_unknown_flag_is_refused_and_the_nearest_known_is_named() {
        let error = parse(&["--listn", "x"]).unwrap_err().to_string();
        assert!(error.contains("--listn") && error.contains("'--listen'"), "{error}");
        assert!(parse(&["--ttl_max_s", "5"]).is_err());
    }

    #[test]
    fn a_negative_number_is_the_value_of_its_flag() {
        let given = parse(&["--workers", "-5"]).unwrap().given;
        assert_eq!(given, [("workers".to_owned(), "-5".to_owned())]);
        assert!(parse(&["-5"]).is_err());
    }

    #[test]
    fn a_former_flag_is_read_as_its_setting_and_not_shown() {
        let mut command = former_flags(Command::new("serve"), &[("rotates", "rotation")]);
        assert!(!command.render_long_help().to_string().contains("--rotates"));
        let matches = command.try_get_matches_from(["serve", "--rotates"]).unwrap();
        assert_eq!(matches.get_one::<String>("rotates"), Some(&"true".to_owned()));
    }

    #[test]
    fn a_flag_given_twice_is_refused() {
        assert!(parse(&["--workers", "1", "--workers", "2"]).is_err());
    }
}
