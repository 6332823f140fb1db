//! What old apps and senders of UnifiedPush ask of a push server (docs/unifiedpush.md#clauses).

use hyper::Method;
use serde_json::json;

use crate::harness::{Sender, Server, Signer};
use crate::metrics::scrape;

#[actix_web::test]
async fn an_endpoint_says_that_it_is_one_at_the_cost_of_its_token() {
    let (server, mut agent) = Server::with_agent(&["--metrics-listen=127.0.0.1:0"]).await;
    let (open, gone) = (agent.register().await, agent.register().await);
    let restricted = agent.register_for(&Signer::new().key()).await;
    agent.unregister(&gone).await;
    agent.leave().await;
    let operations = async || {
        let seen = scrape(&server).await;
        let counts = seen
            .iter()
            .filter(|(name, _)| name.starts_with("kalends_store_operation_seconds_count"));
        counts.map(|(_, count)| count).sum::<f64>()
    };
    let sender = Sender::new();
    let before = operations().await;
    assert!(before > 0.0);
    for endpoint in [&open.endpoint, &restricted.endpoint, &gone.endpoint] {
        let answer = sender.request(Method::GET, endpoint).send().await;
        assert_eq!(answer.status, 200, "{answer}");
        assert_eq!(answer.json(), json!({"unifiedpush": {"version": 1}}));
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"), "{answer}");
        let head = sender.request(Method::HEAD, endpoint).send().await;
        assert_eq!((head.status, head.body.len()), (200, 0), "{head}");
        let preflight = sender.request(Method::OPTIONS, endpoint).send().await;
        let allowed = preflight.header("access-control-allow-methods").unwrap_or_default();
        assert!(preflight.status == 204 && allowed.contains("GET"), "{preflight}");
    }
    for wrong in [format!("{}x", open.endpoint), format!("{}/wpush/x", server.origin())] {
        sender.request(Method::GET, &wrong).send().await.assert_error(404, 102);
    }
    assert_eq!(operations().await, before, "the store is not asked");
}

#[actix_web::test]
async fn a_push_as_before_web_push_is_refused_with_the_setting_that_accepts_it() {
    let (_server, _, channel) = Server::with_offline(&[]).await;
    let sender = Sender::new();
    let bare = || sender.request(Method::POST, &channel.endpoint).raw_body("hello");
    for (post, errno) in [(bare(), 111), (bare().ttl(60), 110)] {
        let message = post.send().await.assert_error(400, errno);
        assert!(message.contains("lenient_senders"), "{message}");
    }
    let (_lenient, _, channel) = Server::with_offline(&["--lenient-senders=true"]).await;
    let bare = sender.request(Method::POST, &channel.endpoint).raw_body("hello");
    assert_eq!(bare.send().await.status, 201);
}
