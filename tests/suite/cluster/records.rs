//! Router records that were not written by a node of this cluster.

use std::io::ErrorKind;
use std::net::TcpListener;

use super::{name_node, node_of};
use crate::harness::{AT_ONCE, Agent, Cluster, ClusterPlan, Sender, until};

/// A listener that must not receive a request.
struct Stranger(TcpListener);

impl Stranger {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        listener.set_nonblocking(true).expect("it can be asked without waiting");
        Self(listener)
    }

    fn url(&self) -> String {
        format!("http://{}", self.0.local_addr().expect("it has an address"))
    }

    fn was_called(&self) -> bool {
        match self.0.accept() {
            Ok(_) => true,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                false
            }
        }
    }
}

#[actix_web::test]
async fn a_record_with_a_foreign_address_causes_no_request_and_the_push_is_stored() {
    let plan =
        ClusterPlan::of(1, 1).with_endpoint_arguments(&["--nodes-allowed=[::1], *.example.net"]);
    let cluster = Cluster::launch(plan);
    let stranger = Stranger::new();
    let port = stranger.url().rsplit(':').next().expect("a URL has a port").to_owned();
    let (uaid, channel) = Agent::offline(&cluster.connection_nodes[0]).await;
    let sender = Sender::new();
    let urls = [
        stranger.url(),
        format!("{}/push", stranger.url()),
        format!("http://a.example.net@127.0.0.1:{port}"),
        format!("http://localhost:{port}"),
        format!("http://2130706433:{port}"),
        format!("https://127.0.0.1:{port}"),
        "file:///etc/passwd".to_owned(),
        "local".to_owned(),
        "http://".to_owned(),
    ];
    for url in &urls {
        name_node(&cluster, &uaid, url).await;
        sender.push(&channel.endpoint, url).await;
        assert_eq!(node_of(&cluster, &uaid).await.as_ref(), Some(url), "the record is unchanged");
    }
    assert!(!stranger.was_called());
    let expected = "a record names a node that nodes_allowed does not allow, so it is not called";
    let named = format!("\"node\":\"{}\"", stranger.url());
    until(AT_ONCE, "the log names it", async || {
        let log = cluster.endpoint_nodes[0].log();
        log.lines().filter(|line| line.contains(expected) && line.contains(&named)).count() == 1
    })
    .await;
    let mut agent = Agent::reconnect(&cluster.connection_nodes[0], &uaid).await;
    let got = agent.take(urls.len()).await;
    assert!(got.iter().map(|got| got.body()).eq(urls.iter()));
}

/// A listener at an allowed address that does not know the cluster's keys.
#[actix_web::test]
async fn an_unauthenticated_answer_is_ignored() {
    let cluster = Cluster::start(1, 1);
    let liar = crate::harness::Server::start();
    let (uaid, channel) = Agent::offline(&cluster.connection_nodes[0]).await;
    // Another server answers 404 to paths that it does not know.
    name_node(&cluster, &uaid, &liar.origin()).await;
    Sender::new().push(&channel.endpoint, "stored").await;
    assert_eq!(node_of(&cluster, &uaid).await, Some(liar.origin()));
    let _agent = Agent::returned_to(&cluster.connection_nodes[0], &uaid, "stored").await;
}
