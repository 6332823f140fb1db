use std::collections::BTreeSet;
use std::path::Path;

use state_machine::feed::{FeedKey, FeedName, FeedValue};
use state_machine::{Month, Uaid};
use storage::maintenance::Throughput;

use tokio::sync::watch;

use crate::command::StoreCommand;
use crate::command::fixture::Fixture;
use crate::dev::subscribe::SubscribeArgs;
use crate::server::serve::DevArgs;
use crate::settings::Role;

use super::*;

fn parse(args: &[&str]) -> Result<ArgMatches, clap::Error> {
    let words: Vec<_> = ["kalends"].iter().chain(args).map(OsString::from).collect();
    super::parse(&words)
}

/// The arguments of the command that the words name.
fn args<C: FromArgMatches>(words: &[&str]) -> Result<C, clap::Error> {
    let mut matches = parse(words)?;
    while let Some((_, below)) = matches.remove_subcommand() {
        matches = below;
    }
    C::from_arg_matches(&matches)
}

/// The same for a line of words.
fn parse_line(line: &str) -> Result<ArgMatches, clap::Error> {
    parse(&line.split(' ').collect::<Vec<_>>())
}

fn help(args: &[&str]) -> String {
    parse(args).unwrap_err().to_string()
}

#[test]
fn the_definition_is_sound() {
    grammar().debug_assert();
}

#[test]
fn without_a_command_it_serves_with_the_flags_of_serve() {
    assert!(parse(&["--listen", "[::1]:1"]).unwrap().subcommand().is_none());
    let flags = args::<Flags>(&["--listen", "[::1]:1"]).unwrap();
    assert_eq!(args::<Serve>(&["serve", "--listen", "[::1]:1"]).unwrap().flags, flags);
    assert_eq!(args::<Flags>(&[]).unwrap(), Flags::default());
}

#[test]
fn a_role_is_all_unless_named_and_the_help_of_serve_shows_how_to_start_a_cluster() {
    let role = |words: &[&str]| args::<Serve>(words).ok().map(|serve| serve.role);
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
        let error = parse_line(former).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let tip = format!("tip: `kalends {former}` is `kalends {now}` now");
        assert!(error.to_string().contains(&tip), "{error}");
        let error = parse_line(&format!("help {former}")).unwrap_err();
        assert!(error.to_string().contains(&tip), "{error}");
        assert_eq!(parse_line(&format!("{now} --help")).unwrap_err().exit_code(), 0, "{now}");
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
    let error = help(&["--listen", "[::1]:1", "tables", "list"]);
    assert!(
        error
            .contains("tip: write flags after the command: `kalends tables list --listen [::1]:1`"),
        "{error}"
    );
}

#[test]
fn a_shifted_clock_is_for_developers_who_say_so() {
    let dev = |words: &[&str]| args::<Serve>(words).ok().map(|serve| serve.dev);
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
    for line in [
        "dev replay a.session --trace",
        "dev states --format dot",
        "keys generate",
        "keys cluster --data-dir x --store dynamodb",
        "push http://a --message x",
    ] {
        parse_line(line).unwrap();
    }
    let subscribe = args::<SubscribeArgs>(&["subscribe", "https://a", "--json"]).unwrap();
    assert_eq!((subscribe.url.as_str(), subscribe.json), ("wss://a/", true));
}

/// The line is read as the command. A server that gets it in JSON reads the same one.
fn expect<C: StoreCommand>(lines: &mut BTreeSet<&'static str>, line: &str, expected: &C) {
    let words: Vec<_> = line.split(' ').collect();
    assert!(line.starts_with(C::NAME), "{line}");
    let command = args::<C>(&words).unwrap_or_else(|error| panic!("{line}: {error}"));
    assert_eq!(command, *expected, "{line}");
    assert!(command.is_within_bounds(), "{line}");
    let json = serde_json::to_string(&command).unwrap();
    assert!(!json.contains('\n'), "it must fit on one line");
    assert_eq!(serde_json::from_str::<C>(&json).unwrap(), command, "{line}");
    lines.insert(C::NAME);
}

#[test]
fn each_command_line_is_read_as_its_command_and_carried_to_the_server() {
    const UAID: Uaid = Uaid([7; 16]);
    let month = |text: &str| -> Month { text.parse().unwrap() };
    let mut lines = BTreeSet::new();
    let lines = &mut lines;
    expect(lines, "preflight --data-dir /x", &preflight::Preflight {});
    expect(lines, "tables list --json", &tables::list::List { json: true });
    expect(lines, "tables status --json --data-dir /x", &tables::status::GetStatus { json: true });
    let lower_prior = Some(Throughput { read: 7, write: 5 });
    expect(
        lines,
        "tables create --lower-prior 7:5",
        &tables::create::Create { lower_prior, print: false },
    );
    let drop_old = tables::drop_old::DropOld { keep: 1, dry_run: false, force: false };
    expect(lines, "tables drop-old", &drop_old);
    let (from, to) = (month("2026_09"), month("2026_11"));
    let copy = tables::copy::Copy { from, to, server_stopped: true };
    expect(lines, "tables copy 2026_09 2026_11 --server-stopped", &copy);
    let drop = tables::drop::Drop { month: from, yes: true, force: false };
    expect(lines, "tables drop 2026_09 --yes", &drop);
    let (months, rate, dry_run, since) = (12, 100, false, None);
    let inactive = users::drop_inactive::DropInactive { months, rate, dry_run, since };
    expect(lines, "users drop-inactive", &inactive);
    for uaid in [UAID.to_string(), "07070707-0707-0707-0707-070707070707".to_owned()] {
        expect(lines, &format!("users drop {uaid}"), &users::drop::DropUser { uaid: UAID });
    }
    let server_stopped = true;
    expect(lines, "users repair --server-stopped", &users::repair::Repair { server_stopped });
    let repair = store_copy::repair::StoreRepair { server_stopped };
    expect(lines, "store repair --server-stopped", &repair);
    expect(lines, "nodes --json", &nodes::command::ListNodes { json: true });
    expect(lines, "refusals --json", &refusals::ListRefusals { json: true });
    expect(lines, "status --json", &status::Status { json: true });
    expect_of_tokens_and_feeds(lines);

    // Their arguments are for their own process: what a server gets is without them.
    let apart = [inspect::command::Inspect::NAME, backup::create::Backup::NAME];
    lines.extend(apart);
    let served: BTreeSet<_> = COMMANDS.served().map(|served| served.name).collect();
    assert_eq!(*lines, served, "each command that a server runs has its line");
    let backup = serde_json::to_string(&args::<backup::create::Backup>(&["backup", "x"]).unwrap());
    assert_eq!(backup.unwrap(), "{}");
    let inspect = args::<inspect::command::Inspect>(&["inspect", &UAID.to_string()]).unwrap();
    assert_eq!(serde_json::to_string(&inspect).unwrap(), r#"{"subject":null,"json":false}"#);
}

fn expect_of_tokens_and_feeds(lines: &mut BTreeSet<&'static str>) {
    let (name, expires) = ("a".to_owned(), Some(5));
    let add = access::add::AccessAdd { name: name.clone(), expires, agents_max: 7, json: true };
    expect(lines, "access add a --expires 5s --agents-max 7 --json", &add);
    expect(lines, "access list", &access::list::AccessList { json: false });
    let rotate = access::rotate::AccessRotate { name: name.clone(), expires, json: true };
    expect(lines, "access rotate a --expires 5s --json", &rotate);
    expect(lines, "access revoke a", &access::revoke::AccessRevoke { name });
    let (feed, key) = (FeedName::broadcasts(), FeedKey::parse("a/b").unwrap());
    let of = feeds::key_args::KeyArgs { feed: feed.clone(), key: key.clone(), url: None };
    let value = Some("v".to_owned());
    expect(lines, "feed put broadcasts a/b v", &feeds::put::Put { of: of.clone(), value });
    let delete = feeds::delete::Delete { of: of.clone() };
    expect(lines, "feed delete broadcasts a/b", &delete);
    expect(lines, "feed republish broadcasts a/b", &feeds::republish::Republish { of });
    expect(lines, "feed list --json", &feeds::list::FeedList { json: true });
    let (after, count, once, json) = (7, Some(1), true, false);
    let (cursor_file, url, restart_if_gone) = (None, None, true);
    let tail =
        feeds::tail::FeedTail { feed, after, count, once, restart_if_gone, cursor_file, json, url };
    expect(lines, "feed tail broadcasts --after 7 --count 1 --once --restart-if-gone", &tail);
    let version = FeedValue::parse("\"1\"").unwrap();
    let put = feeds::broadcast_put::BroadcastPut { id: key, version };
    expect(lines, "broadcast put a/b \"1\"", &put);
    expect(lines, "broadcast list", &feeds::broadcast_list::BroadcastList { json: false });
}

#[test]
fn invalid_arguments_are_refused() {
    for wrong in [
        "tables copy 2026_09",
        "tables copy 2026_09 2026_13",
        "tables drop 2026-09 --yes",
        "tables drop-old --keep 0",
        "tables create --lower-prior 5",
        "tables create --lower-prior 0:5",
        "tables create --lower-prior 5:-5",
        "tables list --jsn",
        "tables create --json",
        "users drop-inactive --months 1",
        "users drop-inactive --rate 0",
        "users drop-inactive --since x",
        "users drop",
        "users drop 0707",
        "feed put",
        "feed put f",
        "feed put F k v",
        "feed put f k v more",
        "feed put f k v --url ftp://a",
        "feed put f k v --url https://user:secret@a",
        "feed put f k v --url https://a/?token=x",
        "feed tail f --url https://a/v1/feeds",
        "feed put f k --vale x",
        "feed delete f",
        "feed republish f k v",
        "feed list f",
        "feed tail f --after -1",
        "feed tail f --after x",
        "feed tail f --count 0",
        "feed tail f --token x",
        "feed token f --days 0",
        "feed token f --days 36526",
        "feed token",
        "feed token f",
        "broadcast put a/b",
    ] {
        assert_eq!(parse_line(wrong).unwrap_err().exit_code(), 2, "{wrong}");
    }
    let long = help(&["feed", "put", "f", &"k".repeat(257), "v"]);
    assert!(long.contains("a key is 1 to 256 bytes"), "{long}");
}

#[test]
fn a_value_is_an_argument_or_standard_input() {
    for (line, expected) in [
        ("a/b v --data-dir x", Some("v")),
        ("k --data-dir x", None),
        ("k -", Some("-")),
        ("k -5", Some("-5")),
        ("k -- --data-dir", Some("--data-dir")),
    ] {
        let words: Vec<_> = ["feed", "put", "f"].into_iter().chain(line.split(' ')).collect();
        let put = args::<feeds::put::Put>(&words).unwrap();
        assert_eq!(put.value.as_deref(), expected, "{line}");
    }
}

#[tokio::test]
async fn requests_that_the_command_line_would_refuse_are_refused() {
    let context = Fixture::with(&[]).await.context;
    let (_stop, stopped) = watch::channel(false);
    for (name, json) in [
        ("tables drop", r#"{"month": "2026_13", "yes": true, "force": false}"#),
        ("tables drop-old", r#"{"keep": -1, "dry_run": true, "force": false}"#),
        ("tables drop-old", r#"{"keep": 1, "dry_run": true, "force": false, "more": 1}"#),
        ("tables drop-old", r#"{"keep": 4000000000, "dry_run": true, "force": false}"#),
        ("users drop-inactive", r#"{"months": 0, "rate": 1, "dry_run": true, "since": null}"#),
        ("users drop-inactive", r#"{"months": 2, "rate": 0, "dry_run": true, "since": null}"#),
        ("users drop", r#"{"uaid": "0707"}"#),
        ("inspect", r#"{"subject": null, "json": false}"#),
        ("access revoke", r#"{"name": "a b"}"#),
        ("access rotate", r#"{"name": "a b", "expires": null, "json": false}"#),
        ("access rotate", r#"{"name": "a", "expires": 0, "json": false}"#),
        ("access add", r#"{"name": "a", "expires": 0, "agents_max": 0, "json": false}"#),
        ("access add", r#"{"name": "", "expires": null, "agents_max": 0, "json": false}"#),
        ("access add", r#"{"name": "a", "expires": null, "agents_max": 1000001, "json": false}"#),
        ("tables create", r#"{"lower_prior": {"read": 0, "write": 1}}"#),
        ("feed put", r#"{"of": {"feed": "a", "key": "k"}, "value": null}"#),
        ("feed delete", r#"{"of": {"feed": "A", "key": "k"}}"#),
        ("feed delete", r#"{"of": {"feed": "a", "key": ""}}"#),
        ("feed tail", r#"{"feed": "a", "after": -1, "count": null, "once": true}"#),
    ] {
        let served = COMMANDS.served().find(|served| served.name == name).expect(name);
        let json = serde_json::from_str(json).expect("it is JSON");
        let started = (served.start)(json, context.clone(), stopped.clone());
        assert!(started.is_err(), "{name}");
    }
    let alone = ["store copy", "import autopush-redis", "import autopush-postgresql"];
    assert!(!COMMANDS.served().any(|served| alone.contains(&served.name)));
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
        let help = parse_line(line).unwrap_err().to_string();
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

#[test]
fn the_help_shows_the_settings_that_name_the_store_and_accepts_all_others() {
    let (short, long) = (help(&["tables", "create", "-h"]), help(&["tables", "create", "--help"]));
    assert!(short.contains("--data-dir") && short.contains("--lower-prior"), "{short}");
    assert!(!short.contains("--dynamodb") && long.contains("--dynamodb-region"), "{long}");
    assert!(!long.contains("--hello-timeout-ms"), "{long}");
    assert!(parse(&["tables", "create", "--hello-timeout-ms", "5"]).is_ok());
}

/// The help of every command, short and long.
fn helps(mut command: Grammar) -> String {
    let own = format!("{}\n{}\n", command.render_help(), command.render_long_help());
    command.get_subcommands().cloned().fold(own, |text, command| text + &helps(command))
}

#[test]
fn the_help_of_each_command_that_does_something_has_its_exit_codes() {
    fn check(command: &mut Grammar) -> usize {
        let help = command.render_long_help().to_string();
        let is_leaf = !command.has_subcommands();
        assert_eq!(help.contains("Exit codes: 0 done; 1 failed"), is_leaf, "{help}");
        // Clap adds `help`.
        let commands = command.get_subcommands_mut().filter(|command| command.get_name() != "help");
        usize::from(is_leaf) + commands.map(check).sum::<usize>()
    }
    assert!(check(&mut grammar()) > 40, "the commands are where this test looks");
}

#[test]
fn every_file_of_the_repository_that_a_help_names_is_there() {
    let helps = helps(grammar());
    let files: Vec<_> = helps
        .split_whitespace()
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()))
        .filter(|word| word.starts_with("fixtures/") || word.starts_with("docs/"))
        .collect();
    assert!(files.contains(&"fixtures/sessions/hello_of_a_new_agent.session"), "{files:?}");
    for file in files {
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(file).exists(), "{file}");
    }
}

#[test]
fn an_example_that_listens_to_the_world_says_where_the_world_finds_it() {
    let examples = Serve::HELP.split_once("Examples").unwrap().1.replace("\\\n", "");
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
fn wrong_usage_is_told_apart_from_help_by_its_exit_code() {
    assert_eq!(parse(&["--nonsense"]).unwrap_err().exit_code(), 2);
    assert_eq!(parse(&["--help"]).unwrap_err().exit_code(), 0);
    assert_eq!(parse(&["--version"]).unwrap_err().exit_code(), 0);
}
