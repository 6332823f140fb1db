use clap::{CommandFactory, Parser};

use super::*;

#[derive(Debug, Parser)]
struct Tables {
    #[command(subcommand)]
    action: TablesAction,
}

#[derive(Debug, Parser)]
struct Users {
    #[command(subcommand)]
    action: UsersAction,
}

fn tables(text: &str) -> Result<(Request, Flags), clap::Error> {
    let words = ["tables"].into_iter().chain(text.split(' '));
    Tables::try_parse_from(words).map(|tables| tables.action.into_request())
}

fn users(text: &str) -> Result<(Request, Flags), clap::Error> {
    let words = ["users"].into_iter().chain(text.split(' '));
    Users::try_parse_from(words).map(|users| users.action.into_request())
}

const UAID: Uaid = Uaid([7; 16]);

fn month(text: &str) -> Month {
    text.parse().unwrap()
}

fn key() -> KeyArgs {
    KeyArgs { feed: FeedName::broadcasts(), key: FeedKey::parse("a/b").unwrap() }
}

fn put(value: &str) -> FeedPut {
    FeedPut { of: key(), value: FeedValue::parse(value).unwrap() }
}

#[test]
fn each_command_line_is_read_as_its_request() {
    let (status, flags) = tables("status --json --data-dir /x").unwrap();
    assert_eq!(status, Request::Status(ReadOnlyArgs { json: true }));
    assert!(status.is_json());
    assert_eq!(flags.given, [("data_dir".to_owned(), "/x".to_owned())]);
    let lower_prior = Some(Throughput { read: 7, write: 5 });
    let create = tables("create --lower-prior 7:5").unwrap().0;
    assert_eq!(create, Request::Create(Create { lower_prior }));
    let drop_old = DropOld { keep: 1, dry_run: false, force: false };
    assert_eq!(tables("drop-old").unwrap().0, Request::DropOld(drop_old));
    let (from, to) = (month("2026_09"), month("2026_11"));
    let copy = tables("copy 2026_09 2026_11 --server-stopped").unwrap().0;
    assert_eq!(copy, Request::Copy(Copy { from, to, server_stopped: true }));
    let drop = Drop { month: from, yes: true, force: false };
    assert_eq!(tables("drop 2026_09 --yes").unwrap().0, Request::Drop(drop));
    let inactive = DropInactive { months: 12, rate: 100, dry_run: false, since: None };
    assert_eq!(users("drop-inactive").unwrap().0, Request::DropInactive(inactive));
    let repair = RepairUsers { server_stopped: true, last_connect_shards: 0 };
    assert_eq!(users("repair --server-stopped").unwrap().0, Request::RepairUsers(repair));
    for uaid in [UAID.to_string(), "07070707-0707-0707-0707-070707070707".to_owned()] {
        let drop = users(&format!("drop {uaid}")).unwrap().0;
        assert_eq!(drop, Request::DropUser(DropUser { uaid: UAID }));
    }
}

#[test]
fn invalid_arguments_are_refused() {
    for wrong in [
        "copy 2026_09",
        "copy 2026_09 2026_13",
        "drop 2026-09 --yes",
        "drop-old --keep 0",
        "create --lower-prior 5",
        "create --lower-prior 0:5",
        "create --lower-prior 5:-5",
        "list --jsn",
        "create --json",
    ] {
        assert_eq!(tables(wrong).unwrap_err().exit_code(), 2, "{wrong}");
    }
    for wrong in [
        "drop-inactive --months 1",
        "drop-inactive --rate 0",
        "drop-inactive --since x",
        "drop",
        "drop 0707",
    ] {
        assert_eq!(users(wrong).unwrap_err().exit_code(), 2, "{wrong}");
    }
}

#[test]
fn the_help_shows_the_settings_that_name_the_store_and_accepts_all_others() {
    let mut command = Tables::command().mut_subcommands(with_short_help);
    let create = command.find_subcommand_mut("create").unwrap();
    let (short, long) = (create.render_help().to_string(), create.render_long_help().to_string());
    assert!(short.contains("--data-dir") && short.contains("--lower-prior"), "{short}");
    assert!(!short.contains("--dynamodb") && long.contains("--dynamodb-region"), "{long}");
    assert!(!long.contains("--hello-timeout-ms"), "{long}");
    assert!(tables("create --hello-timeout-ms 5").is_ok());
}

#[test]
fn every_request_is_read_from_the_json_it_was_written_as() {
    let json = ReadOnlyArgs { json: true };
    let units = Throughput { read: 1, write: 2 };
    let (from, to) = (month("2026_09"), month("2026_11"));
    let since = Some(month("2025_12"));
    for request in [
        Request::Preflight,
        Request::List(json.clone()),
        Request::Status(json.clone()),
        Request::Create(Create { lower_prior: Some(units) }),
        Request::DropOld(DropOld { keep: 1, dry_run: true, force: false }),
        Request::Drop(Drop { month: from, yes: true, force: true }),
        Request::Copy(Copy { from, to, server_stopped: true }),
        Request::DropInactive(DropInactive { months: 2, rate: 100, dry_run: false, since }),
        Request::DropUser(DropUser { uaid: UAID }),
        Request::RepairUsers(RepairUsers { server_stopped: true, last_connect_shards: 0 }),
        Request::StoreRepair(StoreRepair { server_stopped: true }),
        Request::FeedPut(put("a\nb")),
        Request::FeedDelete(key()),
        Request::FeedRepublish(key()),
        Request::FeedList(json.clone()),
        Request::FeedTail(FeedTail { feed: key().feed, after: 7, count: Some(1), once: true }),
        Request::BroadcastList(json.clone()),
        Request::AccessAdd(AccessAdd {
            name: "a".into(),
            expires: Some(5),
            agents_max: 7,
            json: true,
        }),
        Request::AccessList(json),
        Request::AccessRotate(AccessRotate { name: "a".into(), expires: Some(5), json: true }),
        Request::AccessRevoke(AccessRevoke { name: "a".into() }),
    ] {
        let text = serde_json::to_string(&request).unwrap();
        assert!(!text.contains('\n'), "it must fit on one line");
        assert!(request.is_within_bounds(), "{text}");
        assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), request);
    }
}

#[test]
fn requests_that_the_command_line_would_refuse_are_refused() {
    for wrong in [
        "null",
        r#""unheard_of""#,
        r#"{"drop": {"month": "2026_13", "yes": true, "force": false}}"#,
        r#"{"drop_old": {"keep": -1, "dry_run": true, "force": false}}"#,
        r#"{"drop_old": {"keep": 1, "dry_run": true, "force": false, "more": 1}}"#,
        r#"{"drop_old": {"keep": 4000000000, "dry_run": true, "force": false}}"#,
        r#"{"drop_inactive": {"months": 0, "rate": 1, "dry_run": true, "since": null}}"#,
        r#"{"drop_inactive": {"months": 2, "rate": 0, "dry_run": true, "since": null}}"#,
        r#"{"drop_user": {"uaid": "0707"}}"#,
        r#"{"access_revoke": {"name": "a b"}}"#,
        r#"{"access_rotate": {"name": "a b", "expires": null, "json": false}}"#,
        r#"{"access_rotate": {"name": "a", "expires": 0, "json": false}}"#,
        r#"{"access_add": {"name": "a", "expires": 0, "agents_max": 0, "json": false}}"#,
        r#"{"access_add": {"name": "", "expires": null, "agents_max": 0, "json": false}}"#,
        r#"{"access_add": {"name": "a", "expires": null, "agents_max": 1000001, "json": false}}"#,
        r#"{"create": {"lower_prior": {"read": 0, "write": 1}}}"#,
        r#"{"feed_delete": {"feed": "A", "key": "k"}}"#,
        r#"{"feed_delete": {"feed": "a", "key": ""}}"#,
        r#"{"feed_tail": {"feed": "a", "after": -1, "count": null, "once": true}}"#,
    ] {
        let request = serde_json::from_str::<Request>(wrong);
        assert!(!request.is_ok_and(|request| request.is_within_bounds()), "{wrong}");
    }
}
