//! `kalends refusals`, and what `kalends inspect` says of refusals and of the reason why a push was stored.

use hyper::Method;
use serde_json::{Value, json};

use super::AdminFixture;
use crate::harness::{Agent, Sender, Signer};

async fn refusals(fixture: &AdminFixture) -> Vec<Value> {
    let list = fixture.json_of("refusals --json").await;
    list["refusals"].as_array().expect("it is a list").clone()
}

fn brief(row: &Value) -> Value {
    json!([row["count"], row["status"], row["errno"], row["method"], row["route"]])
}

#[actix_web::test]
async fn the_last_refusals_are_listed_without_a_token_or_a_payload() {
    for mut fixture in AdminFixture::engines(&[]) {
        assert_eq!(
            fixture.stdout_of("refusals").await,
            "no request was refused since the start of the server\n"
        );
        let (uaid, channel) = Agent::offline(&fixture.server).await;
        let (sender, origin) = (Sender::new(), fixture.server.origin());
        let post = || sender.post(&channel.endpoint).body("a secret text");
        for id in ["first", "second", "third"] {
            post().header("x-request-id", id).send().await.assert_error(400, 111);
        }
        let wrong = Signer::new().authorization("https://elsewhere.example");
        let unsigned = post().ttl(60).header("authorization", &wrong);
        unsigned.send().await.assert_error(401, 109);
        sender.post(&format!("{origin}/mytopic")).send().await.assert_error(404, 117);
        sender
            .request(Method::GET, &format!("{origin}/m/secret"))
            .send()
            .await
            .assert_error(405, 999);
        sender.push(&channel.endpoint, "accepted").await;

        let listed = refusals(&fixture).await;
        let found: Vec<_> = listed.iter().map(brief).collect();
        let expected = [
            json!([1, 405, 999, "GET", "/m/{id}"]),
            json!([1, 404, 117, "POST", null]),
            json!([1, 401, 109, "POST", "/wpush/{token}"]),
            json!([3, 400, 111, "POST", "/wpush/{token}"]),
        ];
        assert_eq!(found, expected);
        assert_eq!((&listed[3]["request"], &listed[3]["uaid"]), (&json!("third"), &json!(uaid)));
        assert!(listed[2]["message"].as_str().is_some_and(|why| why.contains("aud")), "{listed:?}");

        let inspected = fixture.json_of(&format!("inspect {} --json", channel.endpoint)).await;
        assert_eq!(inspected["refusals"], json!([listed[2], listed[3]]));
        let text = fixture.stdout_of("refusals").await;
        assert!(text.contains("POST /wpush/{token}") && text.contains("no such path"), "{text}");
        let token = channel.endpoint.rsplit('/').next().expect("a URL has a path");
        for text in [json!(listed).to_string(), inspected.to_string(), text] {
            for secret in [token, "secret", "mytopic"] {
                assert!(!text.contains(secret), "{text}");
            }
        }

        assert!(fixture.server.terminate().success());
        fixture.refuses("refusals", "no server runs on this data directory").await;
    }
}

#[actix_web::test]
async fn what_is_refused_in_other_ways_than_an_error_is_listed_too() {
    let fixture = AdminFixture::embedded(&["--vapid-keys-allowed", &Signer::new().key()]);
    let (sender, origin) = (Sender::new(), fixture.server.origin());
    let mut agents = [Agent::new(&fixture.server).await, Agent::new(&fixture.server).await];
    for agent in &mut agents {
        let channel = uuid::Uuid::new_v4().to_string();
        let refused =
            agent.request(&json!({"messageType": "register", "channelID": channel})).await;
        assert_ne!(refused.expect("it is answered")["status"], 200);
    }
    let device = json!({"app_id": "a", "pushkey": format!("{origin}/wpush/none")});
    let notification = json!({"notification": {"event_id": "$a", "devices": [device]}});
    let gateway = format!("{origin}/_matrix/push/v1/notify");
    let answer = sender.request(Method::POST, &gateway).raw_body(notification.to_string());
    assert_eq!(answer.send().await.status, 200);
    sender.get(&format!("{origin}/v1/feeds/prices")).await.assert_error(401, 301);
    let found: Vec<_> = refusals(&fixture).await.iter().map(brief).collect();
    let expected = [
        json!([1, 401, 301, "GET", "/v1/feeds/…"]),
        json!([1, 404, 102, "POST", "/_matrix/push/v1/notify"]),
        json!([2, 403, 0, "register", "over a WebSocket"]),
    ];
    assert_eq!(found, expected);
}

#[actix_web::test]
async fn the_refusal_of_the_last_push_is_the_reason_until_one_is_accepted() {
    let fixture = AdminFixture::embedded(&[]);
    let mut agent = Agent::new(&fixture.server).await;
    let channel = agent.register_for(&Signer::new().key()).await;
    let sender = Sender::new();
    let other = Signer::new();
    let push = sender.post(&channel.endpoint).ttl(60).signed(&other, &fixture.server.origin());
    push.send().await.assert_error(403, 109);
    let facts = fixture.json_of(&format!("inspect {} --json", channel.endpoint)).await;
    let why = facts["findings"][0].as_str().expect("there is a finding");
    assert!(
        why.contains("was refused with 403, errno 109: this subscription is restricted"),
        "{why}"
    );
}

#[actix_web::test]
async fn each_stored_push_has_its_one_reason_and_equal_ones_are_a_line() {
    let fixture = AdminFixture::embedded(&["--unacked-max=1", "--ack-wait-ms=100"]);
    let mut agent = Agent::new(&fixture.server).await;
    let channel = agent.register().await;
    let sender = Sender::new();
    let stored = async || sender.push(&channel.endpoint, "x").await.location();
    stored().await;
    let got = agent.notification().await;
    agent.ack(&got).await;
    let wants = sender.post(&channel.endpoint).ttl(60).header("prefer", "respond-async").body("x");
    assert_eq!(wants.send().await.status, 202);
    agent.leave().await;
    stored().await;
    stored().await;

    let facts = fixture.json_of(&format!("inspect {} --json", channel.endpoint)).await;
    let pushes = facts["pushes"].as_array().expect("it is a list");
    let reasons: Vec<_> = pushes.iter().map(|push| push["reason"].clone()).collect();
    assert_eq!(reasons, ["not_connected", "not_connected", "receipt", "not_acked"]);
    let text = fixture.stdout_of(&format!("inspect {}", channel.endpoint)).await;
    assert!(
        text.contains("2 pushes, ") && !text.contains(&format!(" channel {}", channel.id)),
        "{text}"
    );
    for why in ["was not connected", "wants a receipt", "did not ack it in time"] {
        assert_eq!(text.matches(why).count(), 1, "{why}: {text}");
    }
}
