//! An idle agent behind nginx.

use std::time::{Duration, Instant};

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};
use uuid::Uuid;

use super::{Kind, ProxiedServer, Sample};
use crate::harness::{AT_ONCE, Sender, within};

/// Stands for the ten minutes of the sample, and for its 300 s between two pings.
const READ_TIMEOUT: Duration = Duration::from_secs(4);
const PING_EVERY: &str = "--keepalive-interval-s=1";

/// An agent that receives pings, and answers them by reading on.
struct Idle(WebSocketStream<TcpStream>);

impl Idle {
    async fn next(&mut self) -> Message {
        let next = within(AT_ONCE, "a frame arrives", self.0.next()).await;
        next.expect("the connection is kept").expect("the connection is kept")
    }

    async fn ask(&mut self, json: &Value) -> Value {
        self.0.send(Message::text(json.to_string())).await.expect("the connection is kept");
        self.receive().await
    }

    async fn receive(&mut self) -> Value {
        loop {
            if let Message::Text(text) = self.next().await {
                return serde_json::from_str(&text).expect("the server sends JSON");
            }
        }
    }
}

#[actix_web::test]
async fn pings_keep_an_idle_agent_longer_than_nginx_keeps_a_silent_one() {
    let read_timeout = format!("proxy_read_timeout {}s;", READ_TIMEOUT.as_secs());
    let change = |sample: Sample| sample.replace("proxy_read_timeout 10m;", &read_timeout);
    let proxied_server = ProxiedServer::start_with(Kind::Nginx, &[PING_EVERY], change).await;
    let address = proxied_server.proxy_process.address();
    let stream = TcpStream::connect(address).await.expect("nginx listens");
    let upgraded = client_async(format!("ws://{address}/"), stream).await;
    let mut agent = Idle(upgraded.expect("nginx lets it in").0);
    agent.ask(&json!({"messageType": "hello", "use_webpush": true})).await;
    let register = json!({"messageType": "register", "channelID": Uuid::new_v4().to_string()});
    let registered = agent.ask(&register).await;
    let (silent_since, mut pings) = (Instant::now(), 0);
    while silent_since.elapsed() < READ_TIMEOUT * 2 {
        assert!(matches!(agent.next().await, Message::Ping(_)), "no other frame is expected");
        pings += 1;
    }
    assert!(pings >= 2, "{pings} pings");
    let endpoint = registered["pushEndpoint"].as_str().expect("it is registered");
    let sender = Sender::new();
    let push = sender.post(endpoint).ttl(60).body("still here").send();
    let (answer, message) = tokio::join!(push, agent.receive());
    assert_eq!((answer.status, &message["messageType"]), (201, &json!("notification")));
}
