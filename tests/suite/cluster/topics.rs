//! Topics through endpoint nodes whose clocks are ahead and behind: the later push wins.

use futures_util::future::join_all;

use crate::harness::{AT_ONCE, Agent, Channel, Clocks, Cluster, ClusterPlan, Sender, until};
use crate::receipts::{Receipts, Sent};
use crate::rollover::Calendar;

/// Endpoint nodes of the earlier and of the later push: the clock of the first one is ahead.
const ORDERS: [[usize; 2]; 2] = [[0, 1], [1, 0]];

/// Seconds between the turn of the month and each clock.
const TO_MIDNIGHT_S: i64 = 1200;

/// The push that is the later one.
struct Later {
    location: String,
    /// The subscription of its receipt.
    receipts: Option<String>,
}

/// Pushes the body "earlier", and after its answer "later".
async fn push_both(cluster: &Cluster, channel: &Channel, order: [usize; 2], asks: bool) -> Later {
    push(cluster, channel, order[0], "earlier", asks).await;
    push(cluster, channel, order[1], "later", asks).await
}

async fn push(cluster: &Cluster, channel: &Channel, node: usize, body: &str, asks: bool) -> Later {
    let (sender, endpoint) = (Sender::new(), cluster.endpoint(node, channel));
    if !asks {
        let location = sender.push_topic(&endpoint, "news", body).await.location();
        return Later { location, receipts: None };
    }
    let post = sender.post(&endpoint).ttl(3600).header("topic", "news");
    let answer = post.header("prefer", "respond-async").body(body).send().await;
    let Sent { location, receipts } = Sent::of(&answer);
    Later { location, receipts: Some(receipts) }
}

impl Later {
    async fn withdraw(&self) {
        let answer = Sender::new().delete(&self.location).await;
        assert_eq!(answer.status, 204, "{answer}");
    }

    /// Waits for the receipt, if there is one: it is that of the message's URL.
    async fn was_acked(&self) {
        let Some(receipts) = &self.receipts else { return };
        until(AT_ONCE, "the receipt says delivered", async || {
            let receipts = Receipts::at(receipts).there_are().await;
            receipts.iter().any(|it| it.message == self.location && it.status == "delivered")
        })
        .await;
    }
}

fn clocks_apart() -> Cluster {
    let clocks = Clocks { connection_nodes: vec![0], endpoint_nodes: vec![20, -20] };
    let plan = ClusterPlan::of(1, 2).with(&["--feed-poll-ms=200", "--ack-wait-ms=300"]);
    Cluster::launch(plan.with_clocks(clocks))
}

/// The bodies that an agent gets when it connects, and acks.
async fn bodies(cluster: &Cluster, node: usize, uaid: &str, channel: &Channel) -> Vec<String> {
    Sender::new().push(&cluster.endpoint(0, channel), "end").await;
    let (mut agent, mut got) =
        (Agent::reconnect(&cluster.connection_nodes[node], uaid).await, Vec::new());
    while !got.iter().any(|body| body == "end") {
        got.push(agent.take(1).await[0].body().to_owned());
    }
    for notification in agent.pending_notifications().await {
        agent.ack(&notification).await;
        got.push(notification.body().to_owned());
    }
    agent.sync().await;
    agent.leave().await;
    got.retain(|body| body != "end");
    got
}

#[actix_web::test]
async fn of_two_pushes_of_a_topic_the_later_one_arrives_whatever_the_clocks_of_their_endpoints() {
    let cluster = clocks_apart();
    let node = &cluster.connection_nodes[0];
    for (order, asks) in ORDERS.into_iter().flat_map(|order| [(order, false), (order, true)]) {
        let (uaid, channel) = Agent::offline(node).await;
        let later = push_both(&cluster, &channel, order, asks).await;
        assert_eq!(bodies(&cluster, 0, &uaid, &channel).await, ["later"], "{order:?}");
        later.was_acked().await;
        assert!(bodies(&cluster, 0, &uaid, &channel).await.is_empty(), "it was acked");

        push_both(&cluster, &channel, order, asks).await.withdraw().await;
        assert!(
            bodies(&cluster, 0, &uaid, &channel).await.is_empty(),
            "{order:?}: it was withdrawn"
        );
    }
}

/// The agent gets both directly, and acks neither: a push that is repeated may come with a further version.
#[actix_web::test]
async fn an_agent_that_gets_both_pushes_directly_ends_with_the_later_one() {
    let cluster = clocks_apart();
    let node = &cluster.connection_nodes[0];
    for order in ORDERS {
        let (mut agent, channel) = Agent::subscribed(node).await;
        let pushes = push_both(&cluster, &channel, order, false);
        let (later, first) = tokio::join!(pushes, agent.notification());
        assert_eq!(first.body(), "earlier");
        let uaid = agent.leave().await;
        assert_eq!(bodies(&cluster, 0, &uaid, &channel).await, ["later"], "{order:?}");
        assert!(bodies(&cluster, 0, &uaid, &channel).await.is_empty(), "it was acked");
        let answer = Sender::new().delete(&later.location).await;
        assert_eq!(answer.status, 404, "its URL is that of the message that was acked");
    }
}

/// An agent of the node that is in November reconnects to the one that is in December, while both pushes arrive.
async fn moves(cluster: &Cluster, number: usize) {
    let [november, december] = [0, 1].map(|node| &cluster.connection_nodes[node]);
    let (order, asks) = (ORDERS[number % 2], number & 2 > 0);
    let (acks, is_withdrawn) = (number & 4 > 0, number & 8 > 0);
    let (uaid, channel) = Agent::offline(november).await;
    push(cluster, &channel, 0, "before", asks).await;
    let journey = async {
        let (mut agent, mut got) = (Agent::reconnect(december, &uaid).await, Vec::new());
        while got.last().is_none_or(|body| body != "later") {
            let notification = agent.notification().await;
            if acks {
                agent.ack(&notification).await;
            }
            got.push(notification.body().to_owned());
        }
        // It is answered when the move is finished.
        agent.register().await;
        agent.leave().await;
        got
    };
    let pushes = push_both(cluster, &channel, order, asks);
    let (later, mut got) = tokio::join!(pushes, journey);
    if is_withdrawn && !acks {
        later.withdraw().await;
        assert!(bodies(cluster, 0, &uaid, &channel).await.is_empty(), "{number}: it was withdrawn");
        return;
    }
    got.extend(bodies(cluster, 0, &uaid, &channel).await);
    let behind = got.iter().skip_while(|body| *body != "later").find(|body| *body != "later");
    assert_eq!(behind, None, "{number}: {got:?}");
    later.was_acked().await;
}

#[actix_web::test]
async fn the_later_push_of_a_topic_wins_while_the_month_turns_on_clocks_that_are_apart() {
    let midnight_s = Calendar::next_november().to_december_s();
    let [before, after] = [-TO_MIDNIGHT_S, TO_MIDNIGHT_S].map(|apart| midnight_s + apart);
    let clocks =
        Clocks { connection_nodes: vec![before, after], endpoint_nodes: vec![after, before] };
    let plan = ClusterPlan::of(2, 2).with_clocks(clocks).with(&[
        "--cluster-clock-skew-s=3600",
        "--feed-poll-ms=200",
        "--ack-wait-ms=300",
        "--drain-wait-ms=300",
    ]);
    let cluster = Cluster::launch(plan);
    join_all((0..32).map(|number| moves(&cluster, number))).await;
}
