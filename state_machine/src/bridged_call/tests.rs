use super::*;
use crate::bridge::{BridgeName, BridgeRecipient};
use crate::record::RouterType;
use crate::time::Time;

const UAID: Uaid = Uaid([1; 16]);
const CHID: Chid = Chid([2; 16]);

fn month(name: &str) -> Month {
    name.parse().unwrap()
}

fn record(curmonth: &str, oldmonth: Option<&str>) -> RouterRecord {
    let recipient = BridgeRecipient {
        bridge: BridgeName::Fcm,
        app: "app".into(),
        token: "token".into(),
        aps: None,
    };
    RouterRecord {
        uaid: UAID,
        router_type: RouterType::Bridge(Box::new(recipient)),
        node: None,
        connected_at: Time(5),
        last_connect: LastConnect(1),
        curmonth: month(curmonth),
        oldmonth: oldmonth.map(month),
    }
}

fn begin(task: Task) -> BridgedCall {
    let params =
        CallParams { uaid: UAID, this_month: month("2026_11"), last_connect: LastConnect(7), task };
    let (call, first) = BridgedCall::begin(params);
    assert_eq!(first, CallEffect::ReadRecord);
    call
}

fn read(call: &mut BridgedCall, record: &RouterRecord) -> CallEffect {
    call.step(CallEvent::RecordRead(Some(record.clone())))
}

fn answered(call: &mut BridgedCall, answer: StoreAnswer) -> CallEffect {
    call.step(CallEvent::StoreAnswered(answer))
}

fn step() -> MonthStep {
    MonthStep {
        uaid: UAID,
        node: None,
        connected_at: Time(5),
        from: month("2026_10"),
        to: month("2026_11"),
        last_connect: LastConnect(7),
    }
}

const ADD: Task = Task::AddChannel { chid: CHID, channels_max: 2 };

#[test]
fn an_agent_of_an_earlier_month_moves_record_first_and_then_its_channels() {
    let mut call = begin(Task::Move);
    let updated = read(&mut call, &record("2026_10", None));
    assert_eq!(updated, Do::Store(StoreOp::UpdateMonth(step())));
    let read_channels = answered(&mut call, StoreAnswer::MonthUpdated(true));
    let from = StoreOp::ReadChannels { uaid: UAID, month: month("2026_10") };
    assert_eq!(read_channels, Do::Store(from));
    let channels = BTreeSet::from([CHID]);
    let created = answered(&mut call, StoreAnswer::Channels(Some(channels.clone())));
    let to = StoreOp::CreateChannels { uaid: UAID, month: month("2026_11"), channels };
    assert_eq!(created, Do::Store(to));
    let finished = answered(&mut call, StoreAnswer::ChannelsAdded);
    assert_eq!(finished, Do::Store(StoreOp::FinishMove(step())));
    assert_eq!(answered(&mut call, StoreAnswer::MoveFinished(true)), Do::ReadRecord);
    let moved = record("2026_11", None);
    let outcome = CallOutcome::Moved(Box::new(moved.clone()));
    assert_eq!(read(&mut call, &moved), Do::End(Ok(outcome)));
}

#[test]
fn an_unfinished_move_is_resumed_with_the_copy() {
    let mut call = begin(Task::Move);
    let resumed = read(&mut call, &record("2026_11", Some("2026_10")));
    assert_eq!(resumed, Do::Store(StoreOp::ReadChannels { uaid: UAID, month: month("2026_10") }));
}

#[test]
fn an_agent_of_a_later_month_stays_there() {
    let later = record("2026_12", None);
    let outcome = CallOutcome::Moved(Box::new(later.clone()));
    assert_eq!(read(&mut begin(Task::Move), &later), Do::End(Ok(outcome)));
}

#[test]
fn a_channel_is_written_again_in_the_month_that_the_agent_moved_to_meanwhile() {
    let mut call = begin(ADD);
    read(&mut call, &record("2026_11", None));
    let added = |name: &str| {
        let channels = BTreeSet::from([CHID]);
        Do::Store(StoreOp::AddChannels { uaid: UAID, month: month(name), channels })
    };
    assert_eq!(answered(&mut call, StoreAnswer::Channels(None)), added("2026_11"));
    assert_eq!(answered(&mut call, StoreAnswer::ChannelsAdded), Do::ReadRecord);
    assert_eq!(read(&mut call, &record("2026_12", None)), added("2026_12"));
    assert_eq!(answered(&mut call, StoreAnswer::ChannelsAdded), Do::ReadRecord);
    assert_eq!(read(&mut call, &record("2026_12", None)), Do::End(Ok(CallOutcome::Written)));
}

#[test]
fn channels_above_the_limit_and_unknown_channels_are_refused_before_a_write() {
    let others = [3, 4].map(|number| Chid([number; 16])).to_vec();
    let remove = Task::RemoveChannel { chid: CHID };
    for (task, channels, expected) in [
        (ADD, others.clone(), Err(BridgedError::TooManyChannels)),
        (remove, others.clone(), Err(BridgedError::NoSuchChannel)),
        (
            Task::ReadChannels,
            others.clone(),
            Ok(CallOutcome::Channels(others.into_iter().collect())),
        ),
    ] {
        let mut call = begin(task);
        read(&mut call, &record("2026_11", None));
        let channels = StoreAnswer::Channels(Some(channels.into_iter().collect()));
        assert_eq!(answered(&mut call, channels), Do::End(expected), "{task:?}");
    }
    let mut call = begin(ADD);
    read(&mut call, &record("2026_11", None));
    let full = StoreAnswer::Channels(Some([CHID, Chid([3; 16])].into_iter().collect()));
    let again = answered(&mut call, full);
    assert!(matches!(again, Do::Store(StoreOp::AddChannels { .. })), "{again:?}");
}

#[test]
fn a_record_that_changes_each_time_fails_the_call() {
    let mut call = begin(Task::Move);
    for _attempt in 1..LOOKUPS_MAX {
        read(&mut call, &record("2026_10", None));
        assert_eq!(answered(&mut call, StoreAnswer::MonthUpdated(false)), Do::ReadRecord);
    }
    read(&mut call, &record("2026_10", None));
    let ended = answered(&mut call, StoreAnswer::MonthUpdated(false));
    assert_eq!(ended, end(BridgedError::Unavailable));
}

#[test]
fn a_missing_record_one_without_a_bridge_and_a_failing_store_end_the_call() {
    assert_eq!(begin(ADD).step(CallEvent::RecordRead(None)), end(BridgedError::UnknownAgent));
    let websocket = RouterRecord { router_type: RouterType::WebPush, ..record("2026_11", None) };
    assert_eq!(read(&mut begin(ADD), &websocket), end(BridgedError::UnknownAgent));
    assert_eq!(begin(ADD).step(CallEvent::StoreFailed), end(BridgedError::Unavailable));
    let mut call = begin(ADD);
    read(&mut call, &record("2026_11", None));
    assert_eq!(call.step(CallEvent::StoreFailed), end(BridgedError::Unavailable));
    let mut call = begin(ADD);
    read(&mut call, &record("2026_10", None));
    assert_eq!(answered(&mut call, StoreAnswer::NoSpace), end(BridgedError::NoSpace));
}
