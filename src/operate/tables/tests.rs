//! The jobs on tables and users, on a real store.

use state_machine::Chid;
use storage::StoreOp;
use storage::maintenance::Throughput;
use tokio::sync::watch;
use tokio::time::Instant;

use super::copy::Copy;
use super::create::Create;
use super::drop::Drop;
use super::drop_old::DropOld;
use super::status::{GetStatus, Status};
use crate::command::fixture::{Fixture, NOW, in_month, month, note, uaid};
use crate::command::{Completion, Output, Report, Servers};
use crate::operate::exclusive::SERVERS_UNKNOWN;
use crate::operate::preflight::Preflight;
use crate::operate::users::drop::DropUser;
use crate::operate::users::drop_inactive::DropInactive;

const DROP_OLD: DropOld = DropOld { keep: 1, dry_run: false, force: false };
const DROP_INACTIVE: DropInactive =
    DropInactive { months: 2, rate: 100, dry_run: false, since: None };

fn drop(text: &str, yes: bool, force: bool) -> Drop {
    Drop { month: month(text), yes, force }
}

fn copy(from: &str, to: &str) -> Copy {
    let (from, to) = (month(from), month(to));
    Copy { from, to, server_stopped: false }
}

#[tokio::test]
async fn a_fresh_store_passes_preflight_and_missing_tables_are_created_once() {
    let fixture = Fixture::with(&[]).await;
    let (checks, end) = fixture.ask(Preflight::default()).await;
    assert_eq!(end, Completion::Done);
    assert!(matches!(&checks[..], [Output::Report(check), ..] if check.0.outcome.is_ok()));

    let ensure = Create::default();
    let made = ["2026_10 is made", "2026_11 is made", "2026_12 is made"];
    assert_eq!(fixture.notes(ensure.clone()).await, made);
    let there = ["2026_10 was there", "2026_11 was there", "2026_12 was there"];
    assert_eq!(fixture.notes(ensure).await, there);
    assert_eq!(fixture.months().await, ["2026_10", "2026_11", "2026_12"]);
}

#[tokio::test]
async fn tables_without_throughput_have_none_to_lower() {
    let fixture = Fixture::with(&["2026_10", "2026_11", "2026_12"]).await;
    let lower_prior = Some(Throughput { read: 1, write: 1 });
    let notes = fixture.notes(Create { lower_prior, print: false }).await;
    assert_eq!(notes[3..], ["2026_10 has no throughput that could be lowered"]);
}

#[tokio::test]
async fn with_rotation_off_no_newer_table_is_created() {
    let mut fixture = Fixture::with(&["2026_05", "2026_12"]).await;
    fixture.channel_of(1, "2026_05").await;
    fixture.change_settings(|settings| settings.rotation = false);
    let create = Create::default();
    let notes = fixture.notes(create.clone()).await;
    assert_eq!(notes, ["rotation is off: 2026_05 stays in use, no other is needed"]);
    assert_eq!(fixture.months().await, ["2026_05", "2026_12"]);

    let mut empty = Fixture::with(&[]).await;
    empty.change_settings(|settings| settings.rotation = false);
    assert_eq!(empty.notes(create).await, ["2026_11 is made"]);
}

#[tokio::test]
async fn old_tables_without_agents_are_dropped_and_the_others_kept() {
    let fixture = Fixture::with(&["2026_07", "2026_08", "2026_10", "2026_11"]).await;
    fixture.users_of(0..3, in_month("2026_08")).await;
    let dry = DropOld { dry_run: true, ..DROP_OLD };
    let notes = fixture.notes(dry).await;
    assert_eq!(notes[0], "would drop 2026_07, which no agent is on");
    assert!(notes[1].starts_with("kept 2026_08: 3 agents are still on it"), "{notes:?}");
    assert_eq!(fixture.months().await.len(), 4);

    let notes = fixture.notes(DROP_OLD).await;
    assert_eq!(notes[0], "dropped 2026_07, which no agent is on");
    assert_eq!(fixture.months().await, ["2026_08", "2026_10", "2026_11"]);
    let forced = DropOld { force: true, ..DROP_OLD };
    let notes = fixture.notes(forced.clone()).await;
    assert!(notes[0].starts_with("dropped 2026_08 with 3 agents on it"), "{notes:?}");
    let notes = fixture.notes(forced).await;
    assert_eq!(notes, ["no table is older than 2026_10: nothing to drop"]);
    assert_eq!(fixture.months().await, ["2026_10", "2026_11"]);
}

#[tokio::test]
async fn with_rotation_off_no_table_is_old() {
    let mut fixture = Fixture::with(&["2026_03", "2026_05"]).await;
    fixture.channel_of(1, "2026_05").await;
    fixture.change_settings(|settings| settings.rotation = false);
    let forced = DropOld { force: true, ..DROP_OLD };
    let notes = fixture.notes(forced).await;
    assert!(notes[0].starts_with("rotation is off and 2026_05 stays in use"), "{notes:?}");
    assert_eq!(fixture.months().await, ["2026_03", "2026_05"]);
}

#[tokio::test]
async fn one_table_is_dropped_if_it_is_unused_and_confirmed() {
    let mut fixture = Fixture::with(&["2026_03", "2026_05", "2026_10", "2026_11"]).await;
    fixture.users_of(0..1, in_month("2026_05")).await;
    for in_use in ["2026_10", "2026_11"] {
        let why = format!("{in_use} stays: nodes use the tables of last, this and next month");
        fixture.refused(drop(in_use, true, true), &why).await;
    }
    let why = "this would drop 2026_03, which no agent is on; add --yes";
    fixture.refused(drop("2026_03", false, false), why).await;
    let why = "kept 2026_05: 1 agent is still on it";
    fixture.refused(drop("2026_05", true, false), why).await;
    assert_eq!(fixture.months().await.len(), 4);

    let dropped = fixture.notes(drop("2026_03", true, false)).await;
    assert_eq!(dropped, ["dropped 2026_03, which no agent is on"]);
    let gone = fixture.notes(drop("2026_03", true, false)).await;
    assert_eq!(gone, ["there is no table of 2026_03: nothing to drop"]);
    let forced = fixture.notes(drop("2026_05", true, true)).await;
    assert!(forced[0].starts_with("dropped 2026_05 with 1 agent on it"), "{forced:?}");

    fixture.change_settings(|settings| settings.rotation = false);
    fixture.channel_of(1, "2026_10").await;
    let why = "2026_10 stays: rotation is off, and this table is the one in use";
    fixture.refused(drop("2026_10", true, true), why).await;
    assert_eq!(fixture.notes(drop("2026_11", true, false)).await.len(), 1);
    assert_eq!(fixture.months().await, ["2026_10"]);
}

#[tokio::test]
async fn a_copy_that_would_lose_messages_is_refused() {
    let mut fixture = Fixture::with(&["2026_05", "2026_11"]).await;
    for (from, to, expected) in [
        ("2026_05", "2026_05", "2026_05 is not later than"),
        ("2026_11", "2026_05", "2026_05 is not later than"),
        ("2026_05", "2026_12", "2026_12 has not begun"),
        ("2026_04", "2026_11", "there is no table of 2026_04"),
    ] {
        fixture.refused(copy(from, to), expected).await;
    }
    fixture.context.servers = Servers::ThisOne;
    let why = "a server is running on this store: stop it first";
    fixture.refused(copy("2026_05", "2026_11"), why).await;
    fixture.context.servers = Servers::Unknown;
    fixture.refused(copy("2026_05", "2026_11"), SERVERS_UNKNOWN).await;
    let confirmed = Copy { server_stopped: true, ..copy("2026_05", "2026_11") };
    assert_eq!(fixture.ask(confirmed).await.1, Completion::Done);
}

#[tokio::test]
async fn a_copied_table_has_all_records_and_the_next_steps_are_noted() {
    let fixture = Fixture::with(&["2025_05"]).await;
    fixture.users_of(0..3, in_month("2025_05")).await;
    let (store, channel) = (&fixture.context.store, Chid([1; 16]));
    fixture.channel_of(1, "2025_05").await;

    let notes = fixture.notes(copy("2025_05", "2026_11")).await;
    assert_eq!(
        notes[1..],
        [
            "moved from 2025_05 to 2026_11: 3 records",
            "next: `kalends tables drop 2025_05 --yes`, then start the server",
            "from now on: `kalends users drop-inactive --since 2025_05`, since the default is the month of the \
             oldest table, and three months at least",
        ]
    );
    assert_eq!(store.record(uaid(1)).await.unwrap().unwrap().curmonth, month("2026_11"));
    let channels = store.channels(uaid(1), month("2026_11")).await.unwrap();
    assert_eq!(channels, Some([channel].into()));
}

#[tokio::test]
async fn a_table_that_all_agents_left_is_not_copied_again() {
    let fixture = Fixture::with(&["2026_05"]).await;
    fixture.users_of(0..3, in_month("2026_05")).await;
    fixture.channel_of(1, "2026_05").await;
    fixture.notes(copy("2026_05", "2026_11")).await;
    let (store, months) = (&fixture.context.store, vec![month("2026_11")]);
    let op = StoreOp::RemoveChannel { uaid: uaid(1), months, chid: Chid([1; 16]) };
    store.execute(op).await.unwrap();

    let done = "no agent is on 2026_05 and 3 agents are on 2026_11";
    let why = fixture.refused(copy("2026_05", "2026_11"), done).await;
    assert!(why.ends_with("next is `kalends tables drop 2026_05 --yes`"), "{why}");
    let channels = store.channels(uaid(1), month("2026_11")).await.unwrap();
    assert_eq!(channels, Some([].into()));
    assert_eq!(fixture.notes(drop("2026_05", true, false)).await.len(), 1);
    let why = fixture.refused(copy("2026_05", "2026_11"), done).await;
    assert!(why.ends_with("and there is no table of 2026_05 any more"), "{why}");
}

#[tokio::test]
async fn a_copy_that_broke_off_is_resumed() {
    let fixture = Fixture::with(&["2026_05", "2026_11"]).await;
    fixture.users_of(0..2, in_month("2026_05")).await;
    // As if the record of this one had been moved.
    fixture.users_of(2..3, NOW).await;
    let notes = fixture.notes(copy("2026_05", "2026_11")).await;
    assert_eq!(notes[1], "moved from 2026_05 to 2026_11: 2 records");
}

#[tokio::test(start_paused = true)]
async fn inactive_users_are_counted_and_then_dropped_at_the_rate() {
    let fixture = Fixture::with(&["2026_08", "2026_11"]).await;
    fixture.users_of(0..60, in_month("2026_08")).await;
    fixture.users_of(60..62, in_month("2026_10")).await;
    // They connected again.
    fixture.users_of(0..10, NOW).await;

    let dry = DropInactive { dry_run: true, ..DROP_INACTIVE };
    let found = "found 50 users last seen from 2026_07 to 2026_09";
    assert_eq!(fixture.notes(dry).await, [found]);
    assert_eq!(fixture.users().await, 62);

    let began = Instant::now();
    let slowly = DropInactive { rate: 10, ..DROP_INACTIVE };
    let dropped = "dropped 50 users; 0 connected meanwhile and were kept";
    assert_eq!(fixture.notes(slowly.clone()).await, [found, dropped]);
    assert!(began.elapsed().as_secs_f64() >= 5.0, "{:?}", began.elapsed());
    assert_eq!(fixture.users().await, 12);
    let none = ["found 0 users last seen from 2026_07 to 2026_09"];
    assert_eq!(fixture.notes(slowly).await, none);
}

#[tokio::test(start_paused = true)]
async fn dropping_stops_between_two_batches_and_reports_what_is_left() {
    let fixture = Fixture::with(&["2026_08"]).await;
    fixture.users_of(0..60, in_month("2026_08")).await;
    let (stop, stopped) = watch::channel(false);
    let request = DropInactive { rate: 1, ..DROP_INACTIVE };
    let after_one_batch = async {
        tokio::time::sleep(std::time::Duration::from_secs(40)).await;
        stop.send_replace(true);
    };
    let ((lines, end), ()) = tokio::join!(fixture.ask_until(request, stopped), after_one_batch);
    assert_eq!(end, Completion::Stopped);
    let notes: Vec<_> = lines.into_iter().map(note).collect();
    assert_eq!(notes[1], "dropped 25 users, 35 are left");
    assert_eq!(fixture.users().await, 35);
}

/// The interrupted one is marked and has rows.
#[tokio::test]
async fn a_user_is_dropped_with_its_rows_also_after_an_interruption() {
    for is_interrupted in [false, true] {
        let fixture = Fixture::with(&["2026_05", "2026_11"]).await;
        fixture.users_of(1..3, NOW).await;
        for (number, name) in [(1, "2026_05"), (1, "2026_11"), (2, "2026_11")] {
            fixture.channel_of(number, name).await;
        }
        let store = &fixture.context.store;
        if is_interrupted {
            store.mark_dropped(uaid(1), None).await.unwrap().unwrap();
        }
        let request = DropUser { uaid: uaid(1) };
        let dropped = format!("dropped {} with its channels and messages", uaid(1));
        assert_eq!(fixture.notes(request.clone()).await, [dropped]);
        for name in ["2026_05", "2026_11"] {
            assert_eq!(store.channels(uaid(1), month(name)).await, Ok(None), "{name}");
        }
        assert_eq!(fixture.users().await, 1);
        assert!(store.channels(uaid(2), month("2026_11")).await.unwrap().is_some());

        fixture.refused(request.clone(), &format!("there is no user {}", uaid(1))).await;
        // A connection of another process wrote it after the drop.
        fixture.channel_of(1, "2026_11").await;
        let left = format!("{} has no record: dropped its channels and messages", uaid(1));
        assert_eq!(fixture.notes(request).await, [left]);
    }
}

#[tokio::test]
async fn users_of_this_month_cannot_be_dropped() {
    let fixture = Fixture::with(&["2026_11"]).await;
    let since = Some(month("2026_10"));
    let why = "--since 2026_10 is too late: with --months 2, users seen after 2026_09 are not inactive; give 2026_09 or \
               an earlier month";
    assert_eq!(fixture.refused(DropInactive { since, ..DROP_INACTIVE }, "").await, why);
}

#[tokio::test]
async fn the_status_counts_every_agent_and_advises() {
    let fixture = Fixture::with(&["2026_09", "2026_10", "2026_11", "2026_12"]).await;
    fixture.users_of(0..3, in_month("2026_09")).await;
    fixture.users_of(3..5, NOW).await;
    let (lines, end) = fixture.ask(GetStatus::default()).await;
    assert_eq!(end, Completion::Done);
    let [Output::Report(status)] = &lines[..] else { panic!("{lines:?}") };
    let agents: Vec<_> = status.agents.iter().map(|(month, count)| (*month, *count)).collect();
    assert_eq!(agents, [(month("2026_09"), 3), (month("2026_11"), 2)]);
    assert_eq!(status.this_month, month("2026_11"));
    assert_eq!((status.tables.len(), status.droppable.len()), (6, 0));
    assert!(status.advice[0].starts_with("3 agents are still on 2026_09"), "{status:?}");

    fixture.notes(DROP_INACTIVE).await;
    let (lines, _) = fixture.ask(GetStatus::default()).await;
    let [Output::Report(status)] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(status.droppable, [month("2026_09")]);

    let empty = Fixture::with(&["2026_11"]).await;
    let (lines, _) = empty.ask(GetStatus::default()).await;
    let [Output::Report(without)] = &lines[..] else { panic!("{lines:?}") };
    let says = |status: &Status| status.text(true).contains("There are no agents");
    assert_eq!([says(without), says(status)], [true, false]);
}
