//! Existing application servers: the libraries, endpoints and content encodings that they already use.

mod libraries;
mod recorded;
mod subscriber;

use aws_lc_rs::digest::{SHA256, digest};
use fernet::Fernet;
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use crate::harness::{Agent, Sender, Server, Signer};

#[actix_web::test]
async fn endpoints_of_an_autopush_rs_installation_with_the_same_key_keep_working() {
    let (server, mut agent, channel) = Server::with_subscribed(&[]).await;
    let uaid = Uuid::parse_str(agent.uaid()).unwrap();
    let chid = Uuid::parse_str(&channel.id).unwrap();
    let ids = [uaid.as_bytes().as_slice(), chid.as_bytes()].concat();
    let fernet = Fernet::new(&crypto_key(&server)).unwrap();
    let token = fernet.encrypt(&ids);
    let sender = Sender::new();
    // autopush-rs removes the Base64 padding; Python's autopush kept it.
    for path in ["v1/", ""] {
        for token in [token.as_str(), token.trim_end_matches('=')] {
            let endpoint = format!("{}/wpush/{path}{token}", server.origin());
            let push = sender.post(&endpoint).ttl(60).body("v1").send();
            let (answer, got) = tokio::join!(push, agent.take(1));
            assert_eq!(answer.status, 201, "{endpoint}: {answer}");
            assert_eq!((got[0].body(), &got[0].channel), ("v1", &channel.id));
        }
    }
}

#[actix_web::test]
async fn restricted_endpoints_of_an_autopush_rs_installation_keep_working() {
    let (server, mut agent) = Server::with_agent(&[]).await;
    let (owner, other, sender) = (Signer::new(), Signer::new(), Sender::new());
    let channel = agent.register_for(&owner.key()).await;
    let uaid = Uuid::parse_str(agent.uaid()).unwrap();
    let chid = Uuid::parse_str(&channel.id).unwrap();
    let hash = digest(&SHA256, owner.public());
    let inside = [uaid.as_bytes().as_slice(), chid.as_bytes(), hash.as_ref()].concat();
    let token = Fernet::new(&crypto_key(&server)).unwrap().encrypt(&inside);
    let endpoint = format!("{}/wpush/v2/{}", server.origin(), token.trim_end_matches('='));

    let push = || sender.post(&endpoint).ttl(60).body("v2");
    let (answer, got) = tokio::join!(push().signed(&owner, &server.origin()).send(), agent.take(1));
    assert_eq!(answer.status, 201, "{answer}");
    assert_eq!((got[0].body(), &got[0].channel), ("v2", &channel.id));

    push().send().await.assert_error(401, 109);
    push().signed(&other, &server.origin()).send().await.assert_error(403, 109);
    let unrestricted = endpoint.replace("/v2/", "/v1/");
    sender.post(&unrestricted).ttl(60).send().await.assert_error(404, 102);
}

#[actix_web::test]
async fn a_token_with_a_foreign_key_or_an_unknown_uaid_is_rejected() {
    let server = Server::start();
    let sender = Sender::new();
    let ids = [7; 32];
    let foreign = Fernet::new(&Fernet::generate_key()).unwrap().encrypt(&ids);
    let endpoint = format!("{}/wpush/v1/{foreign}", server.origin());
    sender.post(&endpoint).ttl(60).send().await.assert_error(404, 102);

    let nobody = Fernet::new(&crypto_key(&server)).unwrap().encrypt(&ids);
    let endpoint = format!("{}/wpush/v1/{nobody}", server.origin());
    let gone = sender.post(&endpoint).ttl(60).send().await;
    gone.assert_error(410, 103);
    assert_eq!(gone.header("cache-control"), Some("max-age=86400"));
}

#[actix_web::test]
async fn both_content_encodings_reach_the_agent_with_their_parameters() {
    let (_server, mut agent, channel) = Server::with_subscribed(&[]).await;
    let sender = Sender::new();
    let new = sender.post(&channel.endpoint).ttl(60).body("new").send();
    let (_, got) = tokio::join!(new, agent.take(1));
    assert_eq!(got[0].headers, json!({"encoding": "aes128gcm"}));

    let old = sender.post(&channel.endpoint).ttl(60).raw_body("old");
    let old = old.header("content-encoding", "aesgcm").header("encryption", "salt=\"c2FsdA==\"");
    let old = old.header("crypto-key", "dh=ZGg=; p256ecdsa=a2V5").send();
    let (answer, got) = tokio::join!(old, agent.take(1));
    assert_eq!(answer.status, 201, "{answer}");
    assert_eq!(
        got[0].headers,
        json!({"encoding": "aesgcm", "encryption": "salt=c2FsdA", "crypto_key": "dh=ZGg"})
    );

    let empty = sender.post(&channel.endpoint).ttl(60).send();
    let (_, got) = tokio::join!(empty, agent.take(1));
    assert_eq!((&got[0].body, got[0].headers.is_null()), (&None, true));
}

/// The key that the server generated, in Fernet's format.
fn crypto_key(server: &Server) -> String {
    #[derive(Deserialize)]
    struct Keys {
        crypto_keys: Vec<String>,
    }
    let keys = std::fs::read_to_string(server.data_dir().join("keys.toml"));
    let keys: Keys = toml::from_str(&keys.expect("there are keys")).expect("keys are TOML");
    keys.crypto_keys.into_iter().next().expect("there is a key")
}

#[actix_web::test]
async fn a_lenient_server_takes_a_bare_post_and_a_strict_one_only_what_rfc_8291_describes() {
    let (lenient, uaid, channel) =
        Server::with_offline(&["--lenient-senders=true", "--ttl-max-s=3600"]).await;
    let sender = Sender::new();
    let answer = sender.post(&channel.endpoint).raw_body("a bare text").send().await;
    assert_eq!((answer.status, answer.header("ttl")), (201, Some("3600")), "{answer}");
    let mut agent = Agent::reconnect(&lenient, &uaid).await;
    assert_eq!(agent.notification().await.body(), "a bare text");

    let (_strict, _, channel) = Server::with_offline(&["--payload-header-required=true"]).await;
    let push = async |body: Vec<u8>| {
        let post = sender.post(&channel.endpoint).ttl(60).header("content-encoding", "aes128gcm");
        post.raw_body(body).send().await
    };
    let refused = push(b"{\"notification\":{}}".to_vec()).await;
    refused.assert_refused("JSON", (400, 110), "does not begin with the header of aes128gcm");
    let header = [&[7; 16][..], &[0, 0, 16, 0], &[65], &[4], &[9; 64], &[1; 17]].concat();
    assert_eq!(push(header).await.status, 201);
}

#[actix_web::test]
async fn a_message_that_is_encrypted_with_the_vapid_key_is_refused_and_the_key_is_named() {
    let server = Server::start_with(&["--payload-header-required=true"]);
    let (signer, sender) = (Signer::new(), Sender::new());
    let (_, channel) = Agent::offline(&server).await;
    let origin = server.origin();
    let push = |dh: &str, scheme: &str| {
        let (post, key) = (sender.post(&channel.endpoint).ttl(60).raw_body("x"), signer.key());
        let post = post.header("content-encoding", "aesgcm").header("encryption", "salt=c2FsdA");
        let vapid = signer.authorization(&origin);
        let token = vapid.split(['=', ',']).nth(1).expect("there is a token").to_owned();
        match scheme {
            "vapid" => {
                post.header("authorization", &vapid).header("crypto-key", &format!("dh={dh}"))
            }
            _ => {
                let post = post.header("authorization", &format!("{scheme} {token}"));
                post.header("crypto-key", &format!("dh={dh};p256ecdsa={key}"))
            }
        }
        .send()
    };
    for scheme in ["vapid", "WebPush", "Bearer"] {
        let named = "dh of the Crypto-Key header is the VAPID";
        push(&signer.key(), scheme).await.assert_refused(scheme, (400, 110), named);
        assert_eq!(push(&Signer::new().key(), scheme).await.status, 201, "{scheme}");
    }
    let body = |key: &[u8]| [&[7; 16][..], &[0, 0, 16, 0], &[65], key, &[1; 17]].concat();
    let push = |key: &[u8]| {
        let post = sender.post(&channel.endpoint).ttl(60).body(body(key));
        post.signed(&signer, &origin).send()
    };
    let named = "header of the body is the VAPID public key";
    push(signer.public()).await.assert_refused("aes128gcm", (400, 110), named);
    assert_eq!(push(Signer::new().public()).await.status, 201);
}
