//! Router records that somebody else wrote.

use std::io::ErrorKind;
use std::net::TcpListener;

use super::{name_node, node_of};
use crate::harness::{AT_ONCE, Agent, Cluster, Plan, Sender, until};

/// Where somebody listens who is not to be called.
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
async fn a_record_that_names_a_stranger_has_nobody_called_and_the_push_stored() {
    let plan = Plan::of(1, 1).endpoints_with(&["--nodes-allowed=[::1], *.example.net"]);
    let cluster = Cluster::launch(plan);
    let stranger = Stranger::new();
    let port = stranger.url().rsplit(':').next().expect("a URL has a port").to_owned();
    let (uaid, channel) = Agent::absent(&cluster.connects[0]).await;
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
        assert_eq!(node_of(&cluster, &uaid).await.as_ref(), Some(url), "who cannot tell leaves it");
    }
    assert!(!stranger.was_called());
    let says = "a record names a node that nodes_allowed does not allow, so it is not called";
    let named = format!("\"node\":\"{}\"", stranger.url());
    until(AT_ONCE, "the log names it", async || {
        let log = cluster.endpoints[0].log();
        log.lines().filter(|line| line.contains(says) && line.contains(&named)).count() == 1
    })
    .await;
    let mut agent = Agent::back(&cluster.connects[0], &uaid).await;
    let got = agent.take(urls.len()).await;
    assert!(got.iter().map(|got| got.body()).eq(urls.iter()));
}

/// One that may be called, and does not know the cluster's keys.
#[actix_web::test]
async fn what_a_stranger_answers_is_believed_by_nobody() {
    let cluster = Cluster::start(1, 1);
    let liar = crate::harness::Server::start();
    let (uaid, channel) = Agent::absent(&cluster.connects[0]).await;
    // Another server answers 404 to whatever is not its own.
    name_node(&cluster, &uaid, &liar.origin()).await;
    Sender::new().push(&channel.endpoint, "stored").await;
    assert_eq!(node_of(&cluster, &uaid).await, Some(liar.origin()));
    let mut agent = Agent::back(&cluster.connects[0], &uaid).await;
    assert_eq!(agent.take(1).await[0].body(), "stored");
}
