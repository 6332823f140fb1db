//! The end of an access token closes the connections of its user agents, and no others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use actors::access::{Access, AccessRefusal, WithAccess};
use actors::{Admission, Feeds, access};
use slog::{Drain, Logger, Never, OwnedKVList, Record, o};
use state_machine::access::{AccessGrant, AccessId};
use state_machine::connection::CloseReason;
use state_machine::feed::FeedName;
use state_machine::{Span, Uaid};

use crate::clockwork::{self, pass, settle};
use crate::feeds::{FeedStore, limits, node as feeds_on, put};
use crate::node::{Node, UserAgent, log};
use crate::wire::Unlimited;

const LIFETIME_S: u64 = 60;

/// Adds a token that lives for [`LIFETIME_S`].
async fn add(feeds: &Feeds, node: &Node, id: AccessId) -> AccessGrant {
    let created_s = node.clients.clock.now().as_secs();
    let grant = AccessGrant {
        name: id.to_string(),
        sha256: id.to_string(),
        created_s,
        expires_s: Some(created_s + LIFETIME_S),
        agents_max: 0,
        revoked_s: None,
    };
    write(feeds, id, &grant).await;
    grant
}

/// A node that follows the tokens of Alice and Bob.
struct TwoTokens {
    feeds: Feeds,
    node: Node,
    access: Access,
    alice: AccessId,
    of_alice: AccessGrant,
    alice_uaid: Uaid,
    bob_uaid: Uaid,
}

impl TwoTokens {
    async fn start() -> Self {
        Self::with(log()).await
    }

    async fn with(log: Logger) -> Self {
        let (store, node) = (FeedStore::new(), Node::start().await);
        let feeds = feeds_on(&store);
        let access = access::load(&feeds, node.clients.clock.clone()).await.unwrap();
        access.follow(&feeds, node.clients.registry.clone(), log);
        let [alice, bob] = [1, 2].map(|byte| AccessId([byte; 6]));
        let of_alice = add(&feeds, &node, alice).await;
        add(&feeds, &node, bob).await;
        let [alice_uaid, bob_uaid] = [alice, bob].map(|id| Uaid::with_access([7; 16], id));
        Self { feeds, node, access, alice, of_alice, alice_uaid, bob_uaid }
    }
}

async fn write(feeds: &Feeds, id: AccessId, grant: &AccessGrant) {
    put(feeds, &FeedName::access(), &id.to_string(), grant.to_value().as_str()).await;
    settle().await;
}

#[clockwork::test]
async fn a_replaced_token_closes_its_agents_and_refuses_those_that_have_not_said_hello() {
    let TwoTokens { feeds, node, access, alice, of_alice, alice_uaid, bob_uaid } =
        TwoTokens::start().await;
    let mut at_alice = UserAgent::with_uaid(&node, alice_uaid).await;
    let mut at_bob = UserAgent::with_uaid(&node, bob_uaid).await;
    let connect = |sha256: &str| {
        let slot = access.try_connect(sha256);
        slot.map(|slot| WithAccess { of_address: Box::new(Unlimited(())), slot })
    };
    let early = connect(&of_alice.sha256).ok().unwrap();

    let new = AccessGrant { sha256: "new".into(), agents_max: 1, ..of_alice.clone() };
    write(&feeds, alice, &new).await;
    assert_eq!(at_alice.is_closed().await, CloseReason::AccessEnded);
    assert!(!access.has_ended(alice_uaid));
    assert_eq!(early.hello(Some(alice_uaid)), Err(CloseReason::AccessEnded));
    let former = connect(&of_alice.sha256).err();
    assert_eq!(former, Some(AccessRefusal::NoSuchToken));
    drop(early);
    let slot = connect("new").ok().unwrap();
    assert_eq!(slot.hello(Some(alice_uaid)), Ok(()));
    assert_eq!(connect("new").err(), Some(AccessRefusal::Full));
    drop(slot);
    assert!(connect("new").is_ok(), "its place is free again");
    at_bob.heard_nothing_more();
}

#[clockwork::test]
async fn a_token_that_is_revoked_or_expires_closes_its_agents_and_no_others() {
    let TwoTokens { feeds, node, access, alice, of_alice, alice_uaid, bob_uaid } =
        TwoTokens::start().await;
    let mut of = [
        UserAgent::with_uaid(&node, alice_uaid).await,
        UserAgent::with_uaid(&node, bob_uaid).await,
        UserAgent::new(&node, 7).await,
    ];
    let [at_alice, at_bob, without] = &mut of;

    write(&feeds, alice, &AccessGrant { revoked_s: Some(1), ..of_alice }).await;
    assert_eq!(at_alice.is_closed().await, CloseReason::AccessEnded);
    assert!(access.has_ended(alice_uaid) && !access.has_ended(bob_uaid));

    pass(Span::from_secs(LIFETIME_S - 2)).await;
    at_bob.heard_nothing_more();
    pass(Span::from_secs(2)).await;
    assert_eq!(at_bob.is_closed().await, CloseReason::AccessEnded);
    assert!(access.has_ended(bob_uaid) && !access.has_ended(without.uaid));
    without.heard_nothing_more();
}

/// Counts the lines about tokens that have ended.
struct EndedLines(Arc<AtomicUsize>);

impl Drain for EndedLines {
    type Ok = ();
    type Err = Never;

    fn log(&self, record: &Record<'_>, _: &OwnedKVList) -> Result<(), Never> {
        let is_end = record.msg().to_string().contains("an access token has ended");
        self.0.fetch_add(usize::from(is_end), Ordering::Relaxed);
        Ok(())
    }
}

#[clockwork::test]
async fn a_token_ends_once_and_once_more_after_the_clock_was_set_back() {
    let lines = Arc::new(AtomicUsize::new(0));
    let logger = Logger::root(EndedLines(Arc::clone(&lines)), o!());
    let TwoTokens { node, access, bob_uaid, .. } = TwoTokens::with(logger).await;
    let (clock, start) = (node.clients.clock.clone(), node.clients.clock.now());
    for ended in [2, 4] {
        clock.set(start);
        pass(Span::from_secs(60)).await;
        assert!(access.has_ended(bob_uaid));
        for _ in 0..10 {
            pass(Span::from_secs(60)).await;
        }
        assert_eq!(lines.load(Ordering::Relaxed), ended);
        clock.set(start);
        // The next check of the clock.
        for _ in 0..60 {
            clock.set(start);
            pass(Span::from_secs(1)).await;
        }
    }
    // A clock that is ahead ends them at the next check.
    clock.set(start + Span::from_secs(86_400));
    pass(Span::from_secs(60)).await;
    assert_eq!(lines.load(Ordering::Relaxed), 6);
}

#[clockwork::test]
async fn tokens_beyond_the_first_page_are_known_at_the_start() {
    let (store, node) = (FeedStore::new(), Node::start().await);
    let tokens = (0..2 * limits().consumer.page.rows as u8).map(|byte| AccessId([byte; 6]));
    let tokens: Vec<_> = tokens.collect();
    for id in &tokens {
        add(&feeds_on(&store), &node, *id).await;
    }
    let access = access::load(&feeds_on(&store), node.clients.clock.clone()).await.unwrap();
    for id in tokens {
        assert!(access.try_connect(&id.to_string()).is_ok(), "{id}");
    }
}
