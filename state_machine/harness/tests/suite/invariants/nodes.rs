//! The rules about the other nodes of an agent.

use harness::invariants::Invariant;
use state_machine::connection::{CloseReason, Effect, Event, PhaseName};
use state_machine::store::{Registration, StoreOp};
use state_machine::{LastConnect, NodeBinding, NodeId, OpId, RouterType, Time, Uaid};

use super::{Story, breaks, line, uaid};

#[test]
fn only_the_previous_node_is_notified_of_a_connection() {
    let from = |place: &str| {
        let mut story = Story::ready();
        story.step(&Event::PeerActive, &[register(0)]).unwrap();
        (story, line(&format!("store> 0 registered U1 at=+0ms curmonth=1970_01{place}")))
    };
    let (mut right, registered) = from(" before=there@+0ms");
    right.step(&registered, &[notify("there", uaid(), 0)]).unwrap();
    for wrong in [
        vec![],
        vec![notify("yonder", uaid(), 0)],
        vec![notify("there", Uaid([1; 16]), 0)],
        vec![notify("there", uaid(), 1)],
        vec![notify("there", uaid(), 0), notify("there", uaid(), 0)],
    ] {
        let (mut story, registered) = from(" before=there@+0ms");
        breaks(Invariant::PreviousNodeNotified, story.step(&registered, &wrong));
    }
    for (place, node) in [("", "there"), (" before=here@+0ms", "here")] {
        let (mut story, registered) = from(place);
        breaks(
            Invariant::PreviousNodeNotified,
            story.step(&registered, &[notify(node, uaid(), 0)]),
        );
    }
    let (mut unanswered, _) = from("");
    let told = unanswered.step(&Event::PeerActive, &[notify("there", uaid(), 0)]);
    breaks(Invariant::PreviousNodeNotified, told);
    let (mut unasked, _) = from("");
    let answer = line("store> 7 registered U1 at=+0ms curmonth=1970_01 before=there@+0ms");
    breaks(Invariant::PreviousNodeNotified, unasked.step(&answer, &[notify("there", uaid(), 0)]));
}

#[test]
fn a_connection_gives_way_to_a_later_one_and_to_no_other() {
    let (earlier, later) =
        (line("node> connected_elsewhere at=+5ms"), line("node> connected_elsewhere at=+6ms"));
    let story = || {
        let mut story = Story::ready();
        story.step(&Event::PeerActive, &[register(5)]).unwrap();
        story
    };
    story().step(&earlier, &[]).unwrap();
    story().ends_with(&later, CloseReason::Replaced).unwrap();
    breaks(Invariant::LaterConnectionStays, story().step(&later, &[]));
    let gone = story().ends_with(&earlier, CloseReason::Replaced);
    breaks(Invariant::LaterConnectionStays, gone);
}

#[test]
fn a_connection_that_registers_gives_way_when_that_is_answered() {
    let (earlier, later) =
        (line("node> connected_elsewhere at=+5ms"), line("node> connected_elsewhere at=+6ms"));
    let registered = line("store> 0 registered U1 at=+5ms curmonth=1970_01");
    let story = |told: &Event| {
        let mut story = Story::ready();
        story.phase = PhaseName::Identified;
        story.step(&Event::PeerActive, &[register(5)]).unwrap();
        story.step(told, &[]).unwrap();
        story
    };
    story(&earlier).step(&registered, &[]).unwrap();
    story(&later).ends_with(&registered, CloseReason::Replaced).unwrap();
    for result in [
        story(&later).step(&registered, &[]),
        story(&earlier).ends_with(&registered, CloseReason::Replaced),
        story(&earlier).ends_with(&later, CloseReason::Replaced),
    ] {
        breaks(Invariant::LaterConnectionStays, result);
    }
}

#[test]
fn a_node_that_shuts_down_clears_its_own_place_once_and_no_other_end_does() {
    let story = || {
        let mut story = Story::ready();
        story.step(&Event::PeerActive, &[register(5)]).unwrap();
        story
    };
    let shuts_down = |mut story: Story, clears: &[Effect]| {
        let end = Story::end(CloseReason::Shutdown);
        story.goes_on(PhaseName::Closed, &Event::ShutdownBegan, &[clears, &end].concat())
    };
    shuts_down(story(), &[clear(1, "here", 5)]).unwrap();
    shuts_down(Story::ready(), &[]).unwrap();
    let hung_up =
        [vec![clear(1, "here", 5)], Story::end(CloseReason::SocketClosed).to_vec()].concat();
    for result in [
        shuts_down(story(), &[]),
        shuts_down(story(), &[clear(1, "there", 5)]),
        shuts_down(story(), &[clear(1, "here", 4)]),
        shuts_down(story(), &[clear(1, "here", 5), clear(2, "here", 5)]),
        shuts_down(Story::ready(), &[clear(1, "here", 0)]),
        story().closes(&hung_up),
        story().step(&Event::ShutdownBegan, &[clear(1, "here", 5)]),
    ] {
        breaks(Invariant::NodeClearedAtShutdown, result);
    }
}

/// The agent's record is written with this `connected_at`.
fn register(connected_at: u64) -> Effect {
    let registration = Registration {
        uaid: uaid(),
        router_type: RouterType::WebPush,
        node: NodeId::new("here"),
        connected_at: Time(connected_at),
        last_connect: LastConnect(0),
        create_in: None,
    };
    Effect::SubmitStoreOp { op: OpId(0), operation: StoreOp::Register(registration) }
}

fn notify(node: &str, uaid: Uaid, connected_at: u64) -> Effect {
    Effect::NotifyPreviousNode { node: NodeId::new(node), uaid, connected_at: Time(connected_at) }
}

fn clear(op: u32, node: &str, connected_at: u64) -> Effect {
    let place = NodeBinding { node: NodeId::new(node), connected_at: Time(connected_at) };
    Effect::SubmitStoreOp {
        op: OpId(op),
        operation: StoreOp::ClearNode { uaid: uaid(), binding: place },
    }
}
