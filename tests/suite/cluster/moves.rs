//! The same agent at two places at once.

use crate::harness::{AT_ONCE, Agent, Cluster, Plan, Sender, until};

/// An agent that connects to a second node while nobody has noticed that it left the first.
#[actix_web::test]
async fn an_agent_that_comes_to_another_node_is_closed_on_the_older_and_gets_what_it_did_not_ack() {
    let cluster = Cluster::launch(Plan::of(2, 1).with(&["--ack-wait-ms=60000"]));
    let mut older = Agent::new(&cluster.connects[0]).await;
    let channel = older.register().await;
    let sender = Sender::new();
    let push = sender.push(&channel.endpoint, "unacked");
    let moved = async {
        let unacked = older.notification().await;
        let mut newer = Agent::back(&cluster.connects[1], older.uaid()).await;
        assert_eq!(older.socket().closed().await.0, Some(4409));
        (newer.notification().await, unacked, newer)
    };
    // Answered long before the ack wait is over: the older connection says that it was not acked.
    let (_, (again, unacked, mut newer)) = tokio::join!(push, moved);
    assert_eq!(again, unacked);
    newer.ack(&again).await;
    sender.push_to(&mut newer, &channel, "after").await;
    until(AT_ONCE, "the older node counts nobody", async || {
        cluster.connects[0].connections().await == 0
    })
    .await;
    newer.leave().await;
    let mut back = Agent::back(&cluster.connects[0], older.uaid()).await;
    assert_eq!(back.notifications_so_far().await, [], "the ack on the newer connection counted");
}

#[actix_web::test]
async fn an_agent_that_goes_to_and_fro_between_nodes_misses_nothing_and_is_where_it_was_last() {
    const PUSHES: usize = 30;
    let cluster = Cluster::start(2, 1);
    let (uaid, channel) = Agent::absent(&cluster.connects[0]).await;
    let sender = Sender::new();
    let pushes = async {
        for number in 0..PUSHES {
            sender.push(&channel.endpoint, &number.to_string()).await;
        }
    };
    let travels = async {
        let mut bodies = std::collections::BTreeSet::new();
        for turn in 0.. {
            let mut agent = Agent::back(&cluster.connects[turn % 2], &uaid).await;
            let came = agent.notifications_so_far().await;
            agent.ack_all(&came).await;
            agent.ping().await;
            bodies.extend(came.iter().map(|came| came.body().to_owned()));
            if bodies.len() == PUSHES {
                return agent;
            }
        }
        unreachable!("it goes on until it has all")
    };
    let ((), mut agent) = tokio::join!(pushes, travels);
    sender.push_to(&mut agent, &channel, "where it is now").await;
}
