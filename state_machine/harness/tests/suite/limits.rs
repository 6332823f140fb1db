//! Sessions whose hello, record or channel is over a limit by who asks.

use crate::sessions::keeps_every_rule;

const REFUSED_REGISTERS: &str = r#"# A new agent is refused its record, then a channel, and gets both later.
at 2026-11-03T10:00:00Z
fresh U9

agent> {"messageType":"hello","use_webpush":true}
registry< register U9
agent< {"messageType":"hello","uaid":"{U9}","status":200,"use_webpush":true,"urgency":true,"broadcasts":{}}
agent> {"messageType":"register","channelID":"{C1}"}
store< 0 register U9 at=+0ms create=2026_11
agent> {"messageType":"register","channelID":"{C2}"}
store> 0 over_limit
agent< {"messageType":"register","channelID":"{C1}","status":429,"reason":"too many new user agents of this address, try again later"}
store< 1 register U9 at=+0ms create=2026_11
store> 1 registered U9 at=+0ms curmonth=2026_11
store< 2 add_channels U9 2026_11 [C2]
store> 2 over_limit
agent< {"messageType":"register","channelID":"{C2}","status":429,"reason":"too many registers, try again later"}
agent> {"messageType":"register","channelID":"{C2}"}
store< 3 add_channels U9 2026_11 [C2]
store> 3 channels_added
agent< {"messageType":"register","channelID":"{C2}","status":200,"pushEndpoint":"{endpoint U9 C2}"}
"#;

const REFUSED_HELLO: &str = "# A hello over a limit ends the connection before the store is asked.
at 2026-11-03T10:00:00Z

node> hello_over_limit this user agent connects too often, connect again later
close< 4429 this user agent connects too often, connect again later
";

#[test]
fn refused_registers_are_answered_in_their_order_and_may_be_repeated() {
    keeps_every_rule("limits", REFUSED_REGISTERS);
}

#[test]
fn a_hello_over_a_limit_closes_the_connection() {
    keeps_every_rule("limits", REFUSED_HELLO);
    let other = "too many user agents connect now, connect again later";
    let before = "this user agent connects too often, connect again later";
    keeps_every_rule("limits", &REFUSED_HELLO.replace(before, other).replace("4429", "1013"));
}
