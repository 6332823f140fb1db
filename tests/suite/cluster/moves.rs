//! One agent with connections to two nodes.

use crate::harness::{AT_ONCE, Agent, Cluster, ClusterPlan, Sender, until};

/// The agent connects to a second node before the first one notices the end of its connection.
#[actix_web::test]
async fn an_agent_that_moves_is_closed_on_the_older_node_and_receives_unacked_messages() {
    let cluster = Cluster::launch(ClusterPlan::of(2, 1).with(&["--ack-wait-ms=600000"]));
    let (mut older, channel) = Agent::subscribed(&cluster.connection_nodes[0]).await;
    let sender = Sender::new();
    let push = sender.push(&channel.endpoint, "unacked");
    let moved = async {
        let unacked = older.notification().await;
        let mut newer = Agent::reconnect(&cluster.connection_nodes[1], older.uaid()).await;
        assert_eq!(older.socket().closed().await.0, Some(4409));
        (newer.notification().await, unacked, newer)
    };
    // The answer does not wait for `ack_wait`, because the older connection reports the missing ack
    // when it is closed.
    let (_, (again, unacked, mut newer)) = tokio::join!(push, moved);
    assert_eq!(again, unacked);
    newer.ack(&again).await;
    sender.push_to(&mut newer, &channel, "after").await;
    until(AT_ONCE, "the older node has no connection", async || {
        cluster.connection_nodes[0].connections().await == 0
    })
    .await;
    newer.leave().await;
    let mut back = Agent::reconnect(&cluster.connection_nodes[0], older.uaid()).await;
    assert_eq!(back.pending_notifications().await, [], "the ack on the newer connection counted");
}

#[actix_web::test]
async fn an_agent_that_alternates_between_nodes_misses_nothing() {
    const PUSHES: usize = 30;
    let cluster = Cluster::start(2, 1);
    let (uaid, channel) = Agent::offline(&cluster.connection_nodes[0]).await;
    let sender = Sender::new();
    let pushes = async {
        for number in 0..PUSHES {
            sender.push(&channel.endpoint, &number.to_string()).await;
        }
    };
    let travels = async {
        let mut bodies = std::collections::BTreeSet::new();
        for turn in 0.. {
            let mut agent = Agent::reconnect(&cluster.connection_nodes[turn % 2], &uaid).await;
            // What it has not received yet waits in storage, or is about to be pushed.
            let first = agent.notification().await;
            let mut came = agent.pending_notifications().await;
            came.push(first);
            agent.ack_all(&came).await;
            agent.sync().await;
            bodies.extend(came.iter().map(|came| came.body().to_owned()));
            if bodies.len() == PUSHES {
                return agent;
            }
        }
        unreachable!("the agent receives everything")
    };
    let ((), mut agent) = tokio::join!(pushes, travels);
    sender.push_to(&mut agent, &channel, "where it is now").await;
}
