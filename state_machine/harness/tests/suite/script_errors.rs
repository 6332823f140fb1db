//! What delivery and agent scripts explain: lines that cannot be read, and inputs that are impossible.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use harness::scripts::{Language, Script};

const DELIVERY: &str = "# A push.\nat 2026-11-03T10:00:00Z\n";
const PUSHED: &str =
    "# A push.\nat 2026-11-03T10:00:00Z\npush> U1 M1 C1 ttl=60s\nstore< record U1\n";
const AGENT: &str = "# An agent.\nat 2026-11-03T10:00:00Z\nrecord U1 at=-1h curmonth=2026_11\n";

/// Lines behind the beginning of a script that cannot be read, and the beginning of their errors.
pub(crate) fn explained(language: Language, begin: &str, cases: &[(&str, &str)]) {
    for (lines, expected) in cases {
        let error = Script::parse(language, &format!("{begin}{lines}\n")).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{lines}\n{error}");
    }
}

/// As above, for inputs that are impossible when they happen.
fn impossible(language: Language, begin: &str, cases: &[(&str, &str)]) {
    for (lines, expected) in cases {
        let script = Script::parse(language, &format!("{begin}{lines}\n")).unwrap();
        let error = script.replay(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{lines}\n{error}");
    }
}

#[test]
fn what_is_wrong_with_a_line_of_a_delivery_is_explained() {
    explained(
        Language::Delivery,
        DELIVERY,
        &[
            ("", "1: the delivery has no input"),
            ("store< record U1", "3: an effect before the first input"),
            ("agent> {}", "3: expected push>, store>, node>, bridge>, an effect with <,"),
            ("limits ack_wait=1s", "3: expected push>, store>, node>, bridge>,"),
            (
                "push> U1 M1 C1 ttl=1s\nagent< {}",
                "4: expected store<, node<, bridge< or push<, got `agent<`",
            ),
            ("push> U1 M1 C1 ttl=1s\nfrozen 2026_10", "4: expected push>, store>, node>, bridge>,"),
            ("push> U1 M1 C1", "3: ttl= is missing: a span such as"),
            ("push> 7 M1 C1 ttl=1s", "3: expected a user agent such as U1, got `7`"),
            ("store> rebooted", "3: expected record, other_protocol, channels, stored,"),
            ("store> record curmonth=2026_11", "3: at= is missing: a time from the start"),
            (
                "store> record at=-1s curmonth=2026_11 bridge=fcm",
                "3: app= is missing: an application",
            ),
            (
                "store> record at=-1s curmonth=2026_11 bridge=sms",
                "3: expected bridge= and fcm or apns, got `sms`",
            ),
            ("store> full house", "3: expected one of user, channel, got `house`"),
            ("store> stored twice", "3: nothing may follow here, got `twice`"),
            (
                "node> asleep",
                "3: expected one of accepted, unconfirmed, busy, not_here, no_such_channel,",
            ),
            ("bridge> too_large", "3: max= is missing: a number of bytes"),
            ("bridge> accepted retry=1s", "3: unknown field retry=; known here: "),
        ],
    );
    explained(
        Language::Delivery,
        "# A push.\n",
        &[("push> U1 M1 C1 ttl=1s", "2: the head needs an `at` line")],
    );
}

#[test]
fn an_answer_that_a_delivery_does_not_wait_for_is_explained() {
    impossible(
        Language::Delivery,
        DELIVERY,
        &[("store> stored", "3: nothing was pushed: write `push> U1 M1 C1 ttl=60s` first")],
    );
    impossible(
        Language::Delivery,
        PUSHED,
        &[
            ("push> U1 M2 C1 ttl=60s", "5: a script has one push"),
            ("store> stored", "5: the delivery waits for another answer, to `store< record U1`"),
            ("node> accepted", "5: the delivery waits for another answer, to `store< record U1`"),
            ("store> failed\npush< unavailable\nstore> stored", "7: the delivery has ended"),
            (
                "store> record none\npush< stored",
                "5: after `store> record none`\n   6 - push< stored",
            ),
        ],
    );
}

#[test]
fn what_is_wrong_with_a_line_of_an_agent_script_is_explained() {
    explained(
        Language::Agent,
        AGENT,
        &[
            ("", "1: the script has no input"),
            ("clock nowhere -5s", "4: expected here or there, got `nowhere`"),
            (
                "clock there 5s",
                "4: expected a time from the start such as +1500ms or -5s, got `5s`",
            ),
            ("channels U1 november [C1]", "4: expected a month such as 2026_11, got `november`"),
            ("jitter 5", "4: expected here.agent>, here.store>, there.node>, endpoint>, wait"),
            ("agent> {}", "4: expected here.agent>,"),
            ("elsewhere.agent> {}", "4: expected here.agent>,"),
            ("here.store> 0 deleted", "4: expected executed, failed or answer_lost, got `deleted`"),
            ("here.store> zero executed", "4: expected the number of the operation, got `zero`"),
            ("here.node> connected_elsewhere at=+5s", "4: write `notified`: the other node orders"),
            (
                "here.table> x",
                "4: expected agent>, push>, node> or store> of the node, got `table>`",
            ),
            ("here.agent> {\"uaid\":\"{U1x}\"}", "4: {U1x} names nothing"),
            ("endpoint> pushes U1", "4: expected `stores`, got `pushes`"),
            ("wait 5", "4: expected a span such as 1500ms"),
            ("wait 1s\nclock there -5s", "5: expected here.agent>,"),
            (
                "wait 1s\nover.agent< {}",
                "5: expected table<, node<, here.agent< or such, got `over.agent<`",
            ),
            ("wait 1s\nhere.agent< nothing", "5: expected JSON or <ping>: "),
        ],
    );
}

#[test]
fn an_input_that_the_nodes_do_not_wait_for_is_explained() {
    impossible(
        Language::Agent,
        AGENT,
        &[
            ("here.agent> {}", "4: here has no connection: write `here.agent> <connects>` first"),
            ("there.node> notified", "4: no notification is on its way to there"),
            (
                "here.agent> <connects>\nhere.store> 0 executed",
                "5: no operation 0 of here waits for an answer",
            ),
            (
                "here.agent> <connects>\nhere.agent> <connects>",
                "5: here has a connection: write `here.agent> <closes>`",
            ),
            (
                "there.agent> <connects>\nwait 6s",
                "5: there: this waits until +6s, over a deadline (hello timeout",
            ),
            (
                "endpoint> stores U2 M1 C1 ttl=1s",
                "4: after `endpoint> stores U2 M1 C1 ttl=1s`\n     + table< no_such_user",
            ),
            (
                "endpoint> stores U1 M1 C1 ttl=1s",
                "4: after `endpoint> stores U1 M1 C1 ttl=1s`\n     + table< no_such_channel",
            ),
        ],
    );
}

/// Of two nodes, each counts its deadlines by its own clock; a trace counts them from the start of the script.
#[test]
fn a_clock_that_is_behind_moves_no_deadline_of_a_trace() {
    let text = format!(
        "{AGENT}clock there -5s\nwait 1s\nthere.agent> <connects>\nhere.agent> <connects>\n"
    );
    let mut last = None;
    Script::parse(Language::Agent, &text).unwrap().replay(|step| last = Some(step)).unwrap();
    let last = last.unwrap();
    let due: Vec<i64> = last.machines.iter().map(|machine| machine.deadlines[0].at_ms).collect();
    assert_eq!((last.at_ms, due), (1000, vec![6000, 6000]));
    assert_eq!(last.facts, ["record U1 at=-1h curmonth=2026_11"]);
}
