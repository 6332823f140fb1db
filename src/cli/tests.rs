use super::*;

fn parse(args: &[&str]) -> Result<Cli, clap::Error> {
    let words: Vec<_> = ["kalends"].iter().chain(args).map(OsString::from).collect();
    super::parse(&words)
}

fn help(args: &[&str]) -> String {
    parse(args).unwrap_err().to_string()
}

#[test]
fn the_definition_is_sound() {
    command().debug_assert();
}

#[test]
fn without_a_command_it_serves_with_the_flags_of_serve() {
    let cli = parse(&["--listen", "[::1]:1"]).unwrap();
    assert!(cli.action.is_none());
    let Some(Action::Serve(args)) = parse(&["serve", "--listen", "[::1]:1"]).unwrap().action else {
        panic!("expected serve");
    };
    assert_eq!(args.flags, cli.flags);
    assert_eq!(parse(&[]).unwrap().flags, Flags::default());
}

#[test]
fn a_role_is_all_unless_named_and_the_help_of_serve_shows_how_to_start_a_cluster() {
    let role = |args: &[&str]| match parse(args).map(|cli| cli.action) {
        Ok(Some(Action::Serve(args))) => Some(args.role),
        _ => None,
    };
    assert_eq!(role(&["serve"]), Some(Role::All));
    let help = help(&["serve", "--help"]);
    for named in [Role::All, Role::Connection, Role::Endpoint] {
        assert_eq!(role(&["serve", "--role", named.name()]), Some(named));
        assert!(help.contains(&format!("- {}:", named.name())), "{named:?}");
    }
    assert_eq!(role(&["serve", "--role", "connect"]), None);
    for shown in ["--router-listen", "--nodes-allowed", "kalends keys cluster"] {
        assert!(help.contains(shown), "{shown}");
    }
}

#[test]
fn a_former_command_is_refused_with_the_command_of_today_and_that_is_a_command() {
    for (former, now) in renamed::COMMANDS {
        let words: Vec<_> = former.split(' ').collect();
        let error = parse(&words).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let tip = format!("tip: `kalends {former}` is `kalends {now}` now");
        assert!(error.to_string().contains(&tip), "{error}");
        let error = parse(&[&["help"], &words[..]].concat()).unwrap_err();
        assert!(error.to_string().contains(&tip), "{error}");
        let words: Vec<_> = now.split(' ').chain(["--help"]).collect();
        assert_eq!(parse(&words).unwrap_err().exit_code(), 0, "{now}");
    }
}

#[test]
fn the_flag_of_a_former_setting_is_refused_with_that_of_today() {
    for (former, now) in renamed::SETTINGS {
        let (former, now) = (flag_name(former), flag_name(now));
        for args in [["serve", &former, "1"], ["serve", &format!("{former}=1"), "--rotation"]] {
            let error = parse(&args).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            let tip = format!("tip: `{former}` is `{now}` now");
            assert!(error.to_string().contains(&tip), "{error}");
        }
        assert!(parse(&["serve", &now, "1"]).is_ok());
    }
}

#[test]
fn flags_before_a_command_are_refused() {
    assert!(parse(&["--listen", "[::1]:1", "serve"]).is_err());
}

#[test]
fn a_shifted_clock_is_for_developers_who_say_so() {
    let dev = |args: &[&str]| match parse(args).map(|cli| cli.action) {
        Ok(Some(Action::Serve(args))) => Some(args.dev),
        _ => None,
    };
    let shifted = DevArgs { dev: true, clock_offset_s: -86_400 };
    assert_eq!(dev(&["serve", "--dev", "--clock-offset-s", "-86400"]), Some(shifted));
    assert_eq!(dev(&["serve"]), Some(DevArgs::default()));
    let error = parse(&["serve", "--clock-offset-s", "5"]).unwrap_err();
    assert!(error.exit_code() == 2 && error.to_string().contains("--dev"), "{error}");
    assert!(parse(&["--dev", "--clock-offset-s", "5"]).is_err());
    assert!(!help(&["serve", "--help"]).contains("--clock-offset-s"));
}

#[test]
fn each_command_is_understood() {
    assert!(matches!(
        parse(&["dev", "replay", "a.session", "--trace"]).unwrap().action,
        Some(Action::Dev(DevAction::Replay { trace: true, .. }))
    ));
    assert!(matches!(
        parse(&["dev", "states", "--format", "dot"]).unwrap().action,
        Some(Action::Dev(DevAction::States { format: StatesFormat::Dot }))
    ));
    assert!(matches!(
        parse(&["keys", "generate"]).unwrap().action,
        Some(Action::Keys(KeysAction::Generate))
    ));
    assert!(matches!(
        parse(&["keys", "cluster", "--data-dir", "x", "--store", "dynamodb"]).unwrap().action,
        Some(Action::Keys(KeysAction::Cluster { .. }))
    ));
    let action = parse(&["subscribe", "https://a", "--json"]).unwrap().action;
    let Some(Action::Subscribe(args)) = action else { panic!("expected subscribe") };
    assert_eq!((args.url.as_str(), args.json), ("wss://a/", true));
}

#[test]
fn a_push_needs_a_place_to_go_and_both_keys_or_none() {
    for wrong in [
        ["push", "--message", "x"].as_slice(),
        &["push", "http://a", "--subscription", "s"],
        &["push", "http://a", "--p256dh", "x"],
        &["push", "http://a", "--auth", "x"],
        &["push", "http://a", "--message", "x", "--file", "x"],
        &["push", "http://a", "--no-vapid", "--vapid-key", "x"],
        &["push", "http://a", "--urgency", "soon"],
        &["push", "nowhere"],
    ] {
        assert!(parse(wrong).is_err(), "{wrong:?}");
    }
    assert!(parse(&["push", "http://a", "--p256dh=-x", "--auth", "-y", "-m", "-"]).is_ok());
    assert!(parse(&["push", "--subscription", "s", "--urgency", "very-low"]).is_ok());
}

#[test]
fn subscribe_refuses_a_url_without_a_server_and_a_malformed_key() {
    for wrong in [
        ["subscribe", "ftp://a"].as_slice(),
        &["subscribe", "127.0.0.1:8080"],
        &["subscribe", "--vapid-public-key", "BCVx"],
        &["subscribe", "--count", "0"],
        &["subscribe", "--broadcast", ""],
    ] {
        assert!(parse(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn the_first_help_is_short_and_that_of_serve_has_every_setting() {
    let (first, serve) = (help(&["-h"]), help(&["serve", "-h"]));
    assert!(first.contains("--listen") && !first.contains("--ttl-max-s"), "{first}");
    assert!(first.contains("kalends push --subscription sub.json"));
    for setting in Setting::all() {
        let flag = flag_name(setting.name);
        assert!(serve.contains(&flag), "{flag}");
    }
    assert!(help(&["serve", "--help"]).contains("Default: 5000 ms, from 1 to 600000"));
}

#[test]
fn the_help_of_a_command_shows_the_settings_that_it_has_to_do_with() {
    let flags = |line: &str| {
        let help = help(&line.split(' ').collect::<Vec<_>>());
        let settings = Setting::all().map(|setting| flag_name(setting.name));
        settings.filter(|flag| help.contains(&format!("{flag} "))).collect::<Vec<_>>()
    };
    for ask in ["-h", "--help"] {
        assert_eq!(flags(&format!("keys cluster {ask}")), ["--data-dir"]);
        let token = flags(&format!("feed token {ask}"));
        assert_eq!(token, ["--data-dir", "--feed-tokens-epoch"]);
        for put in ["feed put", "broadcast put"] {
            let shown = flags(&format!("{put} {ask}"));
            for flag in ["--data-dir", "--store", "--feed-keys-max", "--feed-value-bytes-max"] {
                assert!(shown.iter().any(|shown| shown == flag), "{put} {ask}: {flag}");
            }
        }
        assert!(!flags(&format!("feed list {ask}")).iter().any(|flag| flag.contains("-feed-")));
    }
    let token = parse(&["feed", "token", "f", "--read", "--dynamodb-region", "x"]);
    assert!(token.is_ok(), "what is hidden is taken");
}

/// The help of every command, short and long.
fn helps(mut command: Command) -> String {
    let own = format!("{}\n{}\n", command.render_help(), command.render_long_help());
    command.get_subcommands().cloned().fold(own, |text, command| text + &helps(command))
}

#[test]
fn the_help_of_each_command_that_does_something_has_its_exit_codes() {
    fn check(command: &mut Command) -> usize {
        let help = command.render_long_help().to_string();
        let is_leaf = !command.has_subcommands();
        assert_eq!(help.contains("Exit codes: 0 done; 1 failed"), is_leaf, "{help}");
        // Clap adds `help`.
        let commands = command.get_subcommands_mut().filter(|command| command.get_name() != "help");
        usize::from(is_leaf) + commands.map(check).sum::<usize>()
    }
    assert!(check(&mut command()) > 40, "the commands are where this test looks");
}

#[test]
fn every_file_of_the_repository_that_a_help_names_is_there() {
    let helps = helps(command());
    let files: Vec<_> = helps
        .split_whitespace()
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()))
        .filter(|word| word.starts_with("fixtures/") || word.starts_with("docs/"))
        .collect();
    for expected in ["fixtures/sessions/hello_of_a_new_agent.session", "docs/kalends.toml"] {
        assert!(files.contains(&expected), "{files:?}");
    }
    for file in files {
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(file).exists(), "{file}");
    }
}

#[test]
fn an_example_that_listens_to_the_world_says_where_the_world_finds_it() {
    let examples = help::SERVE.split_once("Examples").unwrap().1.replace("\\\n", "");
    let open: Vec<_> = examples.lines().filter(|line| line.contains("0.0.0.0")).collect();
    assert_eq!(open.len(), 3);
    assert!(open.iter().all(|line| line.contains("--public-url https://")), "{open:?}");
}

#[test]
fn a_number_of_an_update_that_is_none_is_refused_with_an_example() {
    let error = help(&["feed", "tail", "f", "--after", "x"]);
    assert!(error.contains("expected the number of an update, such as 42"), "{error}");
}

#[test]
fn an_unknown_flag_is_answered_with_a_known_one_only_where_they_are_near() {
    assert!(help(&["serve", "--public-uri", "x"]).contains("'--public-url'"));
    let error = help(&["serve", "--tls-cert", "x"]);
    assert!(error.contains("'--tls-cert'") && error.contains("try '--help'"), "{error}");
    assert!(!error.contains("similar") && !error.contains("--tcp"), "{error}");
}

#[test]
fn a_switch_with_its_value_behind_a_space_is_refused_with_how_to_write_it() {
    for args in [["serve", "--rotation", "false"].as_slice(), &["--rotation", "false"]] {
        let error = parse(args).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("tip: write `--rotation=false`"), "{error}");
    }
    let error = help(&["serve", "--rotation", "x"]);
    assert!(!error.contains("write `"), "{error}");
    assert!(error.contains("tip: `--rotation` is true or false"), "{error}");
    let error = help(&["serve", "--rotation", "--nonsense"]);
    assert!(!error.contains("true or false"), "{error}");
}

#[test]
fn a_private_vapid_key_is_printed_only_where_it_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vapid.pem");
    let public = vapid_key(&path, false).unwrap();
    let both = vapid_key(&path, true).unwrap();
    let private = both.strip_prefix(&format!("{public}\n")).unwrap();
    let bare = dir.path().join("bare");
    std::fs::write(&bare, private).unwrap();
    assert_eq!(vapid_key(&bare, false).unwrap(), public);

    let args = ["keys", "vapid", "vapid.pem", "--private"];
    assert!(matches!(
        parse(&args).unwrap().action,
        Some(Action::Keys(KeysAction::Vapid { private: true, .. }))
    ));
}

#[test]
fn wrong_usage_is_told_apart_from_help_by_its_exit_code() {
    assert_eq!(parse(&["--nonsense"]).unwrap_err().exit_code(), 2);
    assert_eq!(parse(&["--help"]).unwrap_err().exit_code(), 0);
    assert_eq!(parse(&["--version"]).unwrap_err().exit_code(), 0);
}
