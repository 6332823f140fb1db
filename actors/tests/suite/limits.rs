//! What a client does when a limit by who asks refuses its hello, its record or its channel.

use std::cell::RefCell;
use std::rc::Rc;

use actors::Admission;
use serde_json::{Value, json};
use state_machine::connection::{CloseReason, ConnectionSeed};
use state_machine::{Month, Span, Uaid};
use tokio::sync::mpsc;

use crate::clockwork;
use crate::node::{Bounds, CHANNEL, Ground, Node, UserAgent};
use crate::traces;
use crate::wire::Wire;

const OTHER: &str = "0b0b0b0b-0b0b-0b0b-0b0b-0b0b0b0b0b0b";

/// Refuses what a test sets, and records what was charged.
#[derive(Clone, Default)]
struct Charged(Rc<RefCell<Script>>);

#[derive(Default)]
struct Script {
    hello: Option<CloseReason>,
    refuses_agents: bool,
    refuses_registers: bool,
    charged: Vec<String>,
}

impl Admission for Charged {
    fn hello(&self, uaid: Option<Uaid>) -> Result<(), CloseReason> {
        let mut script = self.0.borrow_mut();
        script.charged.push(format!("hello {}", uaid.is_some()));
        script.hello.map_or(Ok(()), Err)
    }

    fn new_agent(&self) -> bool {
        let mut script = self.0.borrow_mut();
        script.charged.push("new agent".to_owned());
        !script.refuses_agents
    }

    fn register(&self, _: Uaid) -> bool {
        let mut script = self.0.borrow_mut();
        script.charged.push("register".to_owned());
        !script.refuses_registers
    }
}

impl Charged {
    fn connect(&self, node: &Node, uaid: Uaid) -> UserAgent {
        let (send, sent) = mpsc::unbounded_channel();
        let seed = ConnectionSeed { fresh_uaid: uaid, jitter: 0 };
        let line = traces::opened(&node.clients.config);
        let admission = Box::new(self.clone());
        let client = Wire::start_limited(line, &node.clients, seed, admission, move |frame| {
            drop(send.send(frame));
        });
        UserAgent { uaid, client, line, sent }
    }

    fn set(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.0.borrow_mut());
    }

    fn take_charged(&self) -> Vec<String> {
        std::mem::take(&mut self.0.borrow_mut().charged)
    }
}

fn register(chid: &str) -> Value {
    json!({"messageType": "register", "channelID": chid})
}

/// A refusal after which the agent may retry: it has no `pushEndpoint`.
fn refusal(chid: &str, reason: &str) -> Value {
    json!({"messageType": "register", "channelID": chid, "status": 429, "reason": reason})
}

#[clockwork::test]
async fn a_hello_over_a_limit_is_closed_before_the_store_is_asked() {
    let node = Node::start().await;
    let known = UserAgent::new(&node, 1).await.hangs_up().await;
    for reason in [CloseReason::TooManyHellos, CloseReason::TooManyConnects] {
        let charged = Charged::default();
        charged.set(|script| script.hello = Some(reason));
        let mut agent = charged.connect(&node, known);
        agent.says_hello();
        assert_eq!(agent.is_closed().await, reason);
        assert_eq!(charged.take_charged(), ["hello true"]);
    }
    UserAgent::back(&node, known).await;
}

#[clockwork::test]
async fn the_first_register_of_a_new_agent_is_refused_and_a_later_one_accepted() {
    let (node, charged) = (Node::start().await, Charged::default());
    charged.set(|script| script.refuses_agents = true);
    let mut agent = charged.connect(&node, Uaid([1; 16]));
    agent.says(&json!({"messageType": "hello"}));
    agent.hears().await;
    let chid = CHANNEL.to_string();
    for _ in 0..2 {
        agent.says(&register(&chid));
        let reason = "too many new user agents of this address, try again later";
        assert_eq!(agent.hears().await, refusal(&chid, reason));
    }
    assert_eq!(charged.take_charged(), ["hello false", "new agent", "new agent"]);
    charged.set(|script| script.refuses_agents = false);
    agent.says(&register(&chid));
    assert_eq!(agent.hears().await["status"], 200);
    assert_eq!(charged.take_charged(), ["new agent", "register"]);
    charged.set(|script| script.refuses_agents = true);
    agent.says(&register(OTHER));
    assert_eq!(agent.hears().await["status"], 200, "the agent is no longer new");
}

#[clockwork::test]
async fn an_agent_with_an_unknown_uaid_is_a_new_agent_too() {
    let (node, charged) = (Node::start().await, Charged::default());
    charged.set(|script| script.refuses_agents = true);
    let mut agent = charged.connect(&node, Uaid([1; 16]));
    agent.says(&json!({"messageType": "hello", "uaid": Uaid([9; 16]).to_string()}));
    agent.says(&register(OTHER));
    assert_eq!(agent.hears().await["uaid"], Uaid([1; 16]).to_string());
    assert_eq!(agent.hears().await["status"], 429);
}

#[clockwork::test]
async fn a_register_over_a_limit_is_refused_and_the_session_continues() {
    let (node, charged) = (Node::start().await, Charged::default());
    let known = UserAgent::new(&node, 1).await.hangs_up().await;
    charged.set(|script| script.refuses_registers = true);
    let mut agent = charged.connect(&node, known);
    agent.says_hello();
    agent.hears().await;
    // Both wait for each other's answer in turn, and a channel that it has already costs nothing.
    agent.says(&register(OTHER));
    agent.says(&register(&CHANNEL.to_string()));
    assert_eq!(agent.hears().await, refusal(OTHER, "too many registers, try again later"));
    assert_eq!(agent.hears().await["status"], 200);
    assert_eq!(charged.take_charged(), ["hello true", "register"]);
    charged.set(|script| script.refuses_registers = false);
    agent.says(&register(OTHER));
    assert_eq!(agent.hears().await["status"], 200);
}

#[clockwork::test]
async fn a_store_with_little_space_refuses_new_agents_and_channels_which_cost_them_no_limit() {
    let (node, charged) = (Node::start().await, Charged::default());
    let known = UserAgent::new(&node, 1).await.hangs_up().await;
    node.orders.refuse_subscriptions();
    let mut new = charged.connect(&node, Uaid([2; 16]));
    new.says(&json!({"messageType": "hello"}));
    new.hears().await;
    new.says(&register(OTHER));
    assert_eq!(new.hears().await["status"], 503);
    let mut agent = charged.connect(&node, known);
    agent.says_hello();
    agent.hears().await;
    agent.says(&register(OTHER));
    assert_eq!(agent.hears().await["status"], 503);
    agent.says(&register(&CHANNEL.to_string()));
    assert_eq!(agent.hears().await["status"], 200, "the agent has this channel");
    agent.says(&json!({"messageType": "unregister", "channelID": CHANNEL.to_string()}));
    assert_eq!(agent.hears().await["status"], 200);
    assert_eq!(charged.take_charged(), ["hello false", "hello true"]);
}

#[clockwork::test]
async fn a_store_with_little_space_lets_a_known_agent_move_to_the_next_month() {
    let ground = Ground::on_disk().await;
    let node = Node::on(&ground, &Bounds::default());
    let known = UserAgent::new(&node, 1).await.hangs_up().await;
    let now = node.clients.clock.now() + Span::from_secs(31 * 24 * 3600);
    node.store.ensure_month(Month::of(now)).await.unwrap();
    let later = Node::on(&ground, &Bounds { now, ..Bounds::default() });
    later.orders.refuse_subscriptions();
    let agent = UserAgent::back(&later, known).await;
    let months = async || {
        let record = later.store.record(known).await.unwrap().unwrap();
        (record.curmonth, record.oldmonth)
    };
    clockwork::until("months", months, |months| *months == (Month::of(now), None)).await;
    agent.hangs_up().await;
}
