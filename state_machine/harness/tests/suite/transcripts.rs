//! The transcript format: printed lines can be parsed, and an error explains a line that cannot be
//! parsed.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use harness::scripts::Language;
use harness::transcript::{Bindings, Input, Transcript, run};
use state_machine::Span;
use state_machine::connection::{Event, Limits};

use crate::script_errors::explained;

const HEAD: &str = "# A test.\nat 2026-11-03T10:00:00Z\n";

fn parse(lines: &str) -> Result<Transcript, String> {
    Transcript::parse(&format!("{HEAD}{lines}\n")).map_err(|error| error.to_string())
}

/// Parses an input line and prints its event again.
fn repeated(line: &str) -> String {
    let transcript = parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    let [step] = &transcript.steps[..] else { panic!("{line} is not one step") };
    let now = match step.input {
        Input::Wait(span) => transcript.start + span,
        _ => transcript.start,
    };
    let event = step.input.event(&Bindings::fixed()).unwrap();
    transcript.writer().event(&event, transcript.start, now)
}

#[test]
fn every_line_in_is_written_as_it_is_read() {
    for line in LINES_IN {
        assert_eq!(repeated(line), *line);
    }
}

#[test]
fn frames_with_a_bad_field_are_written_as_frames_with_the_same_fault() {
    for line in [
        r#"agent> {"messageType":"register","channelID":"GARBAGE"}"#,
        r#"agent> {"messageType":"register"}"#,
        r#"agent> {"messageType":"register","channelID":"{C1}","key":"short"}"#,
        r#"agent> {"messageType":"urgency","min":"soon"}"#,
        r#"agent> {"messageType":5}"#,
    ] {
        let event =
            |line: &str| parse(line).unwrap().steps[0].input.event(&Bindings::fixed()).unwrap();
        assert!(matches!(event(line), Event::InvalidFrame(_)), "{line}");
        assert_eq!(event(&repeated(line)), event(line));
    }
}

#[test]
fn every_effect_has_its_recipient() {
    let lines = [
        (r#"agent< {"uaid":"{U1}"}"#, "agent"),
        ("agent< <ping>", "agent"),
        ("store< 12 fetch U1 2026_11", "store"),
        ("push< 7 busy M1 C1", "push"),
        ("registry< register U1", "registry"),
        ("node< notify_previous there U1 at=+0ms", "node"),
        ("broadcasts< subscribe 3", "broadcasts"),
        ("close< socket closed", "close"),
    ];
    for (line, recipient) in lines {
        let transcript = parse(&format!("agent> {{}}\n{line}")).unwrap();
        assert_eq!(transcript.steps[0].effects[0].recipient(), recipient);
        assert_eq!(transcript.steps[0].effects[0].text, line);
    }
}

#[test]
fn the_head_is_written_as_it_is_read() {
    let head = "# A title.\nat 2026-11-03T10:00:00.125Z\nlimits ack_wait=250ms session_max=1d unacked_max=3\n\
        fresh U5\njitter 7\nnode https://node:8081\nfrozen 2026_10\n";
    let transcript = Transcript::parse(&format!("{head}agent> {{}}\n")).unwrap();
    assert_eq!(transcript.head(), head);
    let Limits { ack_wait, unacked_max, drain_wait, .. } = transcript.config.limits;
    assert_eq!((ack_wait, unacked_max), (Span(250), 3));
    assert_eq!(drain_wait, harness::transcript::default_limits().drain_wait);
}

#[test]
fn an_indented_line_continues_the_line_before() {
    let transcript = parse("store> 2 fetched [M1 C1 ttl=1m,\n    M2 C1 ttl=1m]\n").unwrap();
    assert_eq!(transcript.steps[0].text, "store> 2 fetched [M1 C1 ttl=1m, M2 C1 ttl=1m]");
    assert_eq!(transcript.steps[0].line, 3);
}

#[test]
fn what_differs_is_shown_line_by_line() {
    let lines = "agent> {\"messageType\":\"hello\",\"uaid\":\"{U1}\"}\nregistry< register U1\nstore< 0 register U2 at=+0ms\n";
    let mismatch = run(&parse(lines).unwrap()).unwrap_err();
    let expected = "3: after `agent> {\"messageType\":\"hello\",\"uaid\":\"{U1}\"}`\n\
        \x20     registry< register U1\n\
        \x20  5 - store< 0 register U2 at=+0ms\n\
        \x20    + store< 0 register U1 at=+0ms\n\
        \x20    (- expected, + got)";
    assert_eq!(mismatch.to_string(), expected);
    for missing_or_more in ["agent> <pong>\nclose< socket closed", "agent> <closes>"] {
        assert!(run(&parse(missing_or_more).unwrap()).is_err(), "{missing_or_more}");
    }
}

#[test]
fn an_answer_that_answers_no_order_is_a_mismatch() {
    let hello = "agent> {\"messageType\":\"hello\",\"uaid\":\"{U1}\"}\nregistry< register U1\nstore< 0 register U1 at=+0ms\n";
    let mismatch =
        |line: &str| run(&parse(&format!("{hello}{line}")).unwrap()).unwrap_err().to_string();
    assert_eq!(mismatch("store> 1 deleted"), "6: no operation 1 waits for an answer");
    assert_eq!(
        mismatch("store> 0 failed\nstore> 0 failed"),
        "7: no operation 0 waits for an answer"
    );
    let expected = "6: operation 0 is `register U1 at=+0ms`, which has another answer";
    assert_eq!(mismatch("store> 0 deleted"), expected);
}

#[test]
fn a_wait_over_a_deadline_is_a_mismatch() {
    let mismatch = run(&parse("wait 6s").unwrap()).unwrap_err();
    let expected =
        "3: this waits until +6s, over a deadline (hello timeout at +5s): wait until that first";
    assert_eq!(mismatch.to_string(), expected);
}

#[test]
fn what_cannot_be_read_is_explained_with_its_line() {
    explained(Language::Session, HEAD, &EXPLAINED);
}

#[test]
fn a_script_without_a_proper_head_is_explained_too() {
    let error = |text: &str| Transcript::parse(text).unwrap_err().to_string();
    assert_eq!(
        error("at now"),
        "1: the first line must be the title of the session: `# A sentence.`"
    );
    assert_eq!(error("# T.\nat now"), "2: expected 2026-11-03T10:00:00Z after `at`, got `now`");
    let first = "2: the head needs an `at` line with the start first";
    assert_eq!(error("# T.\nagent> {}"), first);
    let alone = "2: an indented line continues the line before, and there is none";
    assert_eq!(error("# T.\n  at now"), alone);
}

/// Lines after the head, and the beginning of their errors.
const LINES_IN: &[&str] = &[
    r#"agent> {"messageType":"hello"}"#,
    r#"agent> {"messageType":"hello","uaid":"{U1}"}"#,
    r#"agent> {"messageType":"register","channelID":"{C1}"}"#,
    r#"agent> {"messageType":"register","channelID":"{C1}","key":"{K1}"}"#,
    r#"agent> {"messageType":"unregister","channelID":"{C1}"}"#,
    r#"agent> {"messageType":"ack","updates":[]}"#,
    r#"agent> {"messageType":"ack","updates":[{"channelID":"{C1}","version":"{M1}"},{"channelID":"{C2}","version":"{M2t}"}]}"#,
    r#"agent> {"messageType":"nack"}"#,
    r#"agent> {"messageType":"broadcast_subscribe"}"#,
    r#"agent> {"messageType":"broadcast_subscribe","broadcasts":{"a":"\"0\"","b/c":""}}"#,
    r#"agent> {"messageType":"hello","broadcasts":{"a":"v"}}"#,
    r#"agent> {"messageType":"hello","uaid":"{U1}","broadcasts":{"a":"v"}}"#,
    "agent> {}",
    r#"agent> {"messageType":"urgency","min":"low"}"#,
    r#"agent> {"messageType":"frobnicate"}"#,
    "agent> not JSON",
    "agent> <binary>",
    "agent> <unreadable>",
    "agent> <pong>",
    "agent> <closes>",
    "wait 1500ms",
    "node> message_stored",
    "node> replaced",
    "node> connected_elsewhere at=+5s",
    "node> connected_elsewhere at=-250ms",
    "node> shutdown",
    "node> broadcasts []",
    "node> broadcasts [] cursor=3",
    "node> broadcasts [1 news v1]",
    r#"node> broadcasts [4 "a, [b]=c" "two words", 2 remote-settings/monitor_changes "\"1\""] cursor=5"#,
    "push> 7 M1 C1 ttl=0ms",
    "push> 7 M1t C1 ttl=1m topic=mail urgency=very-low accepted=-5s data=AQID",
    r#"push> 7 M1 C1 ttl=14d data= encryption=salt crypto_key="dh=a, \"b\" ]""#,
    "push> reply_lost M1 C1",
    "push> reply_lost M1t C1 topic=mail",
    "store> 3 failed",
    "store> 0 registered U1 at=+0ms curmonth=2026_11",
    "store> 0 registered U1 at=-5s curmonth=2026_11 oldmonth=2026_10 node=https://other:8081 last_connect=20261103100003",
    "store> 0 registered U1 at=+0ms curmonth=2026_11 before=there@-5m",
    "store> 0 registered U1 at=+0ms curmonth=2026_11 before=http://10.0.0.7:8081@+0ms",
    r#"store> 0 registered U1 at=+0ms curmonth=2026_11 node="http://[::1]:8081" before="http://[::2]:8081"@-1s"#,
    "store> 0 unknown_agent",
    "store> 0 superseded at=+30s",
    "store> 1 channels none",
    "store> 1 channels []",
    "store> 1 channels [C1, C2]",
    "store> 2 fetched []",
    "store> 2 fetched [M1 C1 ttl=1m, M2t C2 ttl=1h topic=mail data=AQID] next=M2t",
    "store> 2 deleted",
    "store> 2 channels_added",
    "store> 2 channel_removed",
    "store> 2 month_updated yes",
    "store> 2 month_updated no",
    "store> 2 move_finished yes",
    "store> 2 move_finished no",
    "store> 2 moved",
    "store> 2 node_cleared yes",
    "store> 2 node_cleared no",
    "agent> {\"messageType\":\"hello\",\"uaid\":\"0123456789abcdef0123456789abcdef\"}",
];

const EXPLAINED: [(&str, &str); 34] = [
    (
        "agent> {\"uaid\":\"{X1}\"}",
        "3: {X1} names nothing: write {U1}, {C1}, {M1}, {M1t}, {M1r} or {K1}",
    ),
    ("agent> {}\nagent< nonsense", "4: expected JSON or <ping>: "),
    (
        "agent> {}\nstore< fetch",
        "4: expected the number of the operation: `store< 0 fetch U1 2026_11`",
    ),
    (
        "agent> {}\nstorage< 0 fetch",
        "4: expected agent<, store<, push<, registry<, node<, broadcasts< or close<, got `storage<`",
    ),
    ("close< socket closed", "3: an effect before the first input"),
    ("wait 5", "3: expected a span such as 1500ms, 8s, 30m, 1h or 14d, got `5`"),
    (
        "node> reboot",
        "3: expected message_stored, replaced, connected_elsewhere, shutdown, access_ended, hello_over_limit or broadcasts, got `reboot`",
    ),
    (
        "node> connected_elsewhere",
        "3: at= is missing: a time from the start such as +1500ms or -5s",
    ),
    ("node> connected_elsewhere at=soon", "3: expected at= and a time from the start"),
    ("node> connected_elsewhere at=+5s now", "3: nothing may follow here, got `now`"),
    (
        "store> 0 registered U1 at=+0ms curmonth=2026_11 before=there",
        "3: expected before= and a node, @ and an offset, got `there`",
    ),
    ("node> broadcasts 1 a v", "3: expected `[`, got `1`"),
    ("node> broadcasts [a 1 v]", "3: expected the number of the broadcast's last change, got `a`"),
    ("node> broadcasts [1 \"\" v]", "3: expected the broadcast's id, got `\"\"`"),
    ("node> broadcasts [1 a v] cursor=x", "3: expected cursor= and a number, got `x`"),
    ("push> M1", "3: expected the number of the push, or `reply_lost`, got `M1`"),
    ("push> 7 M1 C1", "3: ttl= is missing: a span such as"),
    ("push> 7 M1 X1 ttl=1s", "3: expected a channel such as C1, got `X1`"),
    ("push> 7 M1 C1 ttl=1s topic=mail", "3: a message with topic= is named M1t, one without M1"),
    (
        "push> 7 M1 C1 ttl=1s color=red",
        "3: unknown field color=; known here: topic, urgency, accepted, ttl,",
    ),
    ("push> 7 M1 C1 ttl=1s ttl=2s", "3: `ttl=` is present twice"),
    (
        "push> 7 M1 C1 ttl=1s urgency=soon",
        "3: expected urgency= and very-low, low, normal or high, got `soon`",
    ),
    (
        "push> 7 M1 C1 ttl=1s data=AQID encryption=a",
        "3: encryption= and crypto_key= need each other",
    ),
    ("push> 7 M1 C1 ttl=1s more", "3: nothing may follow here, got `more`"),
    ("store> 1 channels [C1 C2]", "3: expected `,`, got `C2`"),
    ("store> 1 channels [C1", "3: expected `,` after the last word"),
    ("store> 1 rebooted", "3: expected failed, registered, unknown_agent,"),
    ("store> 1 month_updated maybe", "3: expected yes or no, got `maybe`"),
    ("store> 1 registered U1 at=+0ms", "3: curmonth= is missing: a month such as 2026_11"),
    ("limits ack_weight=5s", "3: unknown limit `ack_weight`; known: hello_timeout, ack_wait,"),
    ("limits unacked_max=5s", "3: expected unacked_max= and a number, got `5s`"),
    (
        "colour red",
        "3: expected at, limits, fresh, jitter, node, frozen, simplepush or a first event, got `colour`",
    ),
    (
        "agent> {}\nlimits unacked_max=5",
        "4: expected agent>, node>, push>, store>, wait or an effect with <, got `limits`",
    ),
    ("", "1: the session has no input"),
];
