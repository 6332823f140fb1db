//! Texts that this server has issued, one of each kind. Every version of it accepts them, and makes the same from the same
//! keys (docs/stability.md). A text that differs is never updated: the change that caused it breaks what people hold.

use std::collections::BTreeSet;

use aws_lc_rs::hkdf::HKDF_SHA256;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use state_machine::feed::FeedName;
use state_machine::wire::VapidKey;
use state_machine::{Chid, MessageId, MessageKey, NodeId, Span, Time, Topic, Uaid};

use crate::cluster::signature::{ClusterKeys, Request, Signature};
use crate::feeds::http::tokens::{FeedTokens, Grant, Scopes};
use crate::push::endpoint_token::{EndpointToken, EndpointTokens, TokenVersion};
use crate::push::message_url::MessageUrls;
use crate::push::receipts::ReceiptUrls;
use crate::settings::keys::{KeyList, Keys, MacKeys, Passes, Purpose, ticket_roots};

/// The bytes 0 to 31.
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// The key of RFC 8292 §2.4.
const VAPID_KEY: &str =
    "BA1Hxzyi1RUM1b5wjxsn7nGxAszw2u61m164i3MrAIxHF6YK5h4SDYic-dRuU_RCPCfA5aq9ojSwk5Y2EmClBPs";

const NOW: Time = Time(1_796_000_000_000);
const UAID: Uaid = Uaid([0x11; 16]);
const CHID: Chid = Chid([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
const INSIDE: EndpointToken = EndpointToken { uaid: UAID, chid: CHID };

const SHORT: &str = "/wpush/1Kfq8WbrfVHrVeL27p-kJuyzaK4rBOh3E0MLHBosa7QrO8nNiJ9HKS3AJKAPsYoL";
const RESTRICTED: &str = "/wpush/r/qPVi0g0BInCVqTUIshnJhyTfv3D3zfndNj-wRm3yioWYQyIwxoqkKo8OS19fUtVC7-7legI2k7Pq5HmSXwEMXg";
/// Sealed by a version whose restricted tokens had 64 characters.
const EARLIER_RESTRICTED: &str =
    "/wpush/r/eslpVXaJsX_dE0olxSs5DrChNvmwXi0L1pgpl3xf7Y4tKpjRx0bOVUCBKCoNU5R3";
/// Made by Python's `cryptography.fernet`, as autopush makes them.
const V1: &str = "/wpush/v1/gAAAAABfXhAA1eAy1aYGQbuVxAHeUyXjlsbetjqIMyNU88W6Hdii7XzF77E7HO3IKebHrvCVNPOD8spaJEwz\
    fbVGzGq9qLeDg_K7Z8gW_vE04IgCE_FO5-ZSPGslAbKo_b7jJ5eJVbnq";
const V2: &str = "/wpush/v2/gAAAAABfXhAAwJjLxLbFAFX44dVAdWP_uTT7wdV4sZoUQbDbADDoXM-GtoU7yKnZqtZ-JYynj9rML50DHkay\
    p1qlo7oO65RnxnMkwr4FI7kLX-PZ9KgrgmUFn2ZUyC1e21idkGzERYV7rcvTl57sikHCPwAECnE2qSXwy-_pt-h-3RTTZ9Q2gYs";
const LOCATION: &str =
    "/m/9M1jLmNxFBfyu2LQU40UmH-gWP8q3LqB5jyw-JMBk9iayVuoUfIu4ij3u_LN7OavIorFXaveO5Ip90OodtnqhA";
const LOCATION_OF_TOPIC: &str = "/m/nOWy-L_DNA1VSNsoW7_JcwQBln_ZBiGR4HAr--WLy_muD5-bIiOU2lW4LMOE4_n9PkCxgAqC0ta2uQkf2XmAW-Gd4yd2uoc";
const RECEIPTS: &str =
    "/receipts/zik801ocxYYD9qAKUD0ys4AgiMvHNyFQyOD4gDwbzsyEr38x1kE7s8HEJEcfhzgoDyEqMuuYBPo";

/// The cookie of a session of the operator's page. Its beginning is random.
const SESSION: &str =
    "00112233445566778899aabbccddeeff.1796000000001.SG-llkXf0GZc5k83kxYvEHW1IsZKaXSM9HG8PXY9E2o";

/// Random, and stored as its SHA-256.
const ACCESS: &str = "/u/kal_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

/// The path of each kind of endpoint, message and receipt subscription.
const PATHS: [&str; 9] =
    [SHORT, RESTRICTED, EARLIER_RESTRICTED, V1, V2, LOCATION, LOCATION_OF_TOPIC, RECEIPTS, ACCESS];

fn keys() -> Keys {
    let keys = Keys::from_texts(&[KEY]).and_then(|keys| keys.with_cluster_texts(&[KEY]));
    keys.and_then(|keys| keys.with_auth_texts(&[KEY])).unwrap()
}

fn message(topic: Option<&str>) -> MessageKey {
    let topic = topic.map(|text| Topic::parse(text).unwrap());
    let id = MessageId::from_uuid_v7(0x0190_1234_5678_7abc, topic.is_some());
    MessageKey { id, chid: CHID, topic }
}

/// The text that is made today for a purpose, and the one that was made. It is opened here where that is possible.
fn made_and_fixed(purpose: Purpose) -> (String, &'static str) {
    let keys = keys();
    let signed = || MacKeys::derive(keys.crypto_keys(), purpose, b"").sign("text");
    let key = VapidKey::parse(VAPID_KEY).unwrap();
    match purpose {
        Purpose::Endpoint => (EndpointTokens::new(&keys).encrypt(UAID, CHID, None), SHORT),
        Purpose::RestrictedEndpoint => {
            (EndpointTokens::new(&keys).encrypt(UAID, CHID, Some(&key)), RESTRICTED)
        }
        Purpose::MessageLocation => {
            let (urls, topic) = (MessageUrls::new(&keys), message(Some("a-topic")));
            assert_eq!(urls.encrypt(UAID, &topic), LOCATION_OF_TOPIC);
            assert_eq!(urls.decrypt(last(LOCATION_OF_TOPIC)), Some((UAID, topic)));
            assert_eq!(urls.decrypt(last(LOCATION)), Some((UAID, message(None))));
            (urls.encrypt(UAID, &message(None)), LOCATION)
        }
        Purpose::ReceiptSubscription => (receipts(&keys), RECEIPTS),
        Purpose::FeedToken => {
            let (tokens, text) = (
                FeedTokens::derive(&keys, 1),
                "kf1.rw.prices.1796000000.JVkz5f45z2SWCwCiIljjBZAH2U2eReh6x00n98KCLkk",
            );
            let feed = FeedName::parse("prices").unwrap();
            let grant = Grant { feed, scopes: Scopes::Both, expires: Some(NOW) };
            assert_eq!(tokens.check(text, NOW - Span(1)), Ok(grant.clone()));
            (tokens.mint(&grant), text)
        }
        // These two end within minutes, and with their session.
        Purpose::OperatorLink => (signed(), "jaYAyUpXEHakf5-WAAzhTfgxgSyGU1X6AAmrgQsLjmc"),
        Purpose::OperatorForm => (signed(), "na4yjOJ7VmDFTXS_8Jlsjandnc18XV1H63X1tY5fRzE"),
        Purpose::OperatorSession => {
            let passes = Passes::derive(&keys, purpose, Span::from_secs(12 * 60 * 60));
            let open = passes.open(SESSION, NOW).expect("it opens");
            (open.id, "00112233445566778899aabbccddeeff")
        }
        Purpose::TlsTicket => {
            let mut key = [0; 32];
            let root = &ticket_roots(&keys)[0];
            root.expand(&[b"test"], HKDF_SHA256).unwrap().fill(&mut key).unwrap();
            (URL_SAFE_NO_PAD.encode(key), "vTykuZk8PdfQAP2DIgtxUbt5HmrwdsNthHPY589-TFQ")
        }
        Purpose::NodeRequest => {
            let text = "Kalends t=1796000000000 mac=TyRuaU4IL07ia50eskPR4f6U1b4lS3ot_GAS2THHTmA";
            let (cluster, node) = (ClusterKeys::derive(&keys).unwrap(), node());
            let signature = Signature::read(text, NOW, Span(0)).unwrap();
            assert!(cluster.verify(&request(&node), &signature).is_ok());
            (cluster.sign(&request(&node), NOW).0, text)
        }
        Purpose::NodeAnswer => (
            node_answer(&keys),
            "is0LJgsHTxZo-2RodB5AZFr77y2peL5wXOJsSC04Dh0 1796000000000 bHdyinzxK9g6Sk3X2fCxScnU3BlGNO9iDmOd-U53hZY",
        ),
        Purpose::Fingerprint => {
            let of = |list: KeyList| list.fingerprints(&keys).pop_first().unwrap();
            (
                KeyList::ALL.map(of).join(" "),
                "crypto:db689c9c81e8c89881f5d219e653c307 cluster:75da0e0f25a7db65353e7c4de5b6174c auth:3987163ea113335a0fd9538bae70d6f0",
            )
        }
    }
}

/// Opens the receipt subscription, whose id is random, and returns its path as it is made today.
fn receipts(keys: &Keys) -> String {
    let urls = ReceiptUrls::new(keys);
    let opened = urls.open(last(RECEIPTS)).expect("it opens");
    assert_eq!(opened.feed(), FeedName::receipts(NOW, u128::from_be_bytes([0x22; 16])));
    assert!(opened.is_of(Some([0x33; 32])) && !opened.is_of(None));
    urls.path(&opened)
}

/// The signatures of an answer, and of one with the time of the node.
fn node_answer(keys: &Keys) -> String {
    let (cluster, node) = (ClusterKeys::derive(keys).unwrap(), node());
    let (_, mac) = cluster.sign(&request(&node), NOW);
    let (time, of_time) = cluster.sign_time(&mac, NOW);
    format!("{} {time} {of_time}", cluster.sign_answer(&mac, 200))
}

fn node() -> NodeId {
    NodeId::new("http://10.0.0.1:8081")
}

fn request(node: &NodeId) -> Request<'_> {
    Request { method: "PUT", path: "/push/11111111111111111111111111111111", node, body: b"{}" }
}

/// The last segment of a path.
fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap()
}

#[test]
fn each_purpose_of_a_key_makes_the_text_that_it_has_made_before() {
    let all = Purpose::ALL.iter().map(|purpose| (purpose, made_and_fixed(*purpose)));
    let differing: Vec<_> = all.filter(|(_, (made, fixed))| made != fixed).collect();
    assert!(differing.is_empty(), "{differing:#?}");
}

#[test]
fn each_endpoint_that_was_issued_opens() {
    let (tokens, key) = (EndpointTokens::new(&keys()), VapidKey::parse(VAPID_KEY).unwrap());
    // A new kind needs a path here.
    let paths = |version| match version {
        TokenVersion::Short => &[SHORT][..],
        TokenVersion::Restricted => &[RESTRICTED, EARLIER_RESTRICTED],
        TokenVersion::V1 => &[V1],
        TokenVersion::V2 => &[V2],
    };
    for version in
        [TokenVersion::Short, TokenVersion::Restricted, TokenVersion::V1, TokenVersion::V2]
    {
        for path in paths(version) {
            let (of_path, token) = TokenVersion::in_path(path).expect("it is an endpoint");
            assert_eq!(of_path, version);
            assert_eq!(tokens.decrypt(version, token, Some(&key)), Ok(INSIDE), "{path}");
        }
    }
    assert_eq!((last(SHORT).len(), last(RESTRICTED).len()), (64, 86));
}

#[test]
fn an_access_token_is_known_by_its_sha_256() {
    let stored = crate::push::access::sha256(last(ACCESS));
    assert_eq!(stored, "ece323d699adff85079f50273d7a666b41c0bf23f05f93eaecf5ad3de5dd1cc7");
}

#[test]
fn each_route_with_a_token_has_a_fixed_text() {
    let description: Value = serde_json::from_str(include_str!("../../docs/openapi.json")).unwrap();
    let routes = description["paths"].as_object().unwrap().keys();
    let with_token =
        routes.filter(|route| ["{token}", "{id}"].iter().any(|part| route.contains(part)));
    let starts: BTreeSet<_> =
        PATHS.iter().map(|path| path.strip_suffix(last(path)).unwrap()).collect();
    let of_routes = with_token.map(|route| route.split('{').next().unwrap()).collect();
    assert_eq!(starts, of_routes);
}
