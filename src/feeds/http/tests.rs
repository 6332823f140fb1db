use std::time::Duration;

use actix_web::http::{Method, header};
use actix_web::test::TestRequest;
use actix_web::web::Bytes;
use serde_json::{Value, json};
use state_machine::feed::{FeedName, FeedPage, FeedSyncId};
use state_machine::{Span, Time};

use super::fixture::{NOW, Scene, limits};
use super::tokens::Scopes;

const STREAM: (&str, &str) = ("accept", "text/event-stream");

#[actix_web::test]
async fn a_write_returns_the_version_and_201_for_a_new_key() {
    let scene = Scene::new();
    assert_eq!(scene.put("bread", "2.40").await, (201, 1));
    scene.page("wait=10").await;
    assert_eq!(scene.put("bread", "2.60").await, (200, 3));
    let republish = scene.request(Method::POST, "x/bread/republish");
    scene.page("after=1&wait=10").await;
    assert_eq!(scene.ask(republish).await.json, json!({"version": 5}));
    scene.page("after=2&wait=10").await;
    let told = scene.ask(scene.request(Method::DELETE, "x/bread")).await;
    assert_eq!((told.status, told.json), (200, json!({"version": 7})));
    scene.page("after=3&wait=10").await;
    assert_eq!(scene.put("bread", "").await, (200, 9), "it was there before");
}

#[actix_web::test]
async fn a_page_has_the_updates_behind_the_cursor() {
    let scene = Scene::new();
    scene.put("fred", "bob").await;
    let bob = json!({"feed_sync_id": 1, "key": "fred", "version": 2, "value": "bob"});
    assert_eq!(scene.page("wait=10").await, json!({"updates": [bob], "cursor": 1, "head": 1}));
    scene.put("fred", "jim").await;
    let jim = json!({"feed_sync_id": 2, "key": "fred", "version": 4, "value": "jim"});
    let page = scene.page("after=1&wait=10").await;
    assert_eq!(page, json!({"updates": [jim], "cursor": 2, "head": 2}));
    scene.ask(scene.request(Method::DELETE, "x/fred")).await;
    let gone = json!({"feed_sync_id": 3, "key": "fred", "version": 6, "deleted": true});
    let page = scene.page("after=2&wait=10").await;
    assert_eq!(page, json!({"updates": [gone], "cursor": 3, "head": 3}));
    assert_eq!(scene.page("after=3").await, json!({"updates": [], "cursor": 3, "head": 3}));
}

#[actix_web::test]
async fn a_page_is_read_by_the_command_line() {
    let scene = Scene::new();
    scene.put("a", "\"\n\u{1}ä").await;
    scene.put("b", "").await;
    scene.ask(scene.request(Method::DELETE, "x/b")).await;
    let json = all(&scene).await;
    let page: FeedPage = serde_json::from_value(json.clone()).unwrap();
    assert_eq!(serde_json::to_value(&page).unwrap(), json);
    let shown: Vec<_> = page
        .updates
        .iter()
        .map(|row| (row.key.as_str(), row.value.as_ref().map(|value| value.as_str())))
        .collect();
    assert_eq!(shown, [("a", Some("\"\n\u{1}ä")), ("b", None)]);
}

#[actix_web::test]
async fn pages_of_one_update_have_all_in_order() {
    let scene = Scene::new();
    for key in ["c", "a", "b"] {
        scene.put(key, key).await;
    }
    let whole = all(&scene).await;
    let mut updates = Vec::new();
    let mut cursor = 0;
    while cursor < 3 {
        let page = scene.page(&format!("after={cursor}&limit=1&wait=10")).await;
        assert_eq!(page["updates"].as_array().unwrap().len(), 1, "{page}");
        updates.push(page["updates"][0].clone());
        cursor = page["cursor"].as_u64().unwrap();
    }
    assert_eq!(json!(updates), whole["updates"]);
}

#[actix_web::test]
async fn a_write_wakes_a_waiting_reader_which_gets_up_to_its_limit() {
    let scene = Scene::with_a().await;
    let write = async {
        scene.put("b", "2").await;
        scene.put("c", "3").await;
    };
    let (page, ()) = tokio::join!(scene.page("after=1&wait=60&limit=1"), write);
    assert_eq!(page["updates"].as_array().unwrap().len(), 1);
    assert_eq!(page["cursor"], 2);
}

#[actix_web::test]
async fn a_wait_without_an_update_ends_with_an_empty_page() {
    let scene = Scene::with_a().await;
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    let page = scene.page("after=1&wait=7").await;
    assert_eq!(page, json!({"updates": [], "cursor": 1, "head": 1}));
    let waited = began.elapsed();
    assert!((7..8).contains(&waited.as_secs()), "{waited:?}");
}

#[actix_web::test]
async fn a_wait_ends_with_its_token() {
    let scene = Scene::with_a().await;
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    let now = scene.service.clock.now();
    let token = scene.token("x", Scopes::Read, Some(now + Span::from_secs(5)));
    let request = scene.request(Method::GET, "x?after=1&wait=60");
    let told = scene.ask(request.insert_header((header::AUTHORIZATION, token))).await;
    assert_eq!((told.status, &told.json["updates"]), (200, &json!([])));
    assert!(began.elapsed() <= Duration::from_secs(5));
}

#[actix_web::test]
async fn a_server_that_stops_answers_all_waiting_readers() {
    let scene = Scene::with_a().await;
    let mut stream = scene.stream(scene.request(Method::GET, "x?after=1")).await;
    assert_eq!(stream.next().await.as_deref(), Some("id: 1\n\n"));
    let stop = async { scene.service.feeds.close() };
    let (page, rest, ()) = tokio::join!(scene.page("after=1&wait=60"), stream.next(), stop);
    assert_eq!((&page["updates"], rest), (&json!([]), None));
}

#[actix_web::test]
async fn bad_input_gets_its_status_and_number() {
    let scene = Scene::with_a().await;
    let (put, get) = (Method::PUT, Method::GET);
    let long = format!("x/{}", "k".repeat(257));
    for (method, path, body, status, errno) in [
        (&get, "x?after=-1", "", 400, 307),
        (&get, "x?after=2", "", 400, 308),
        (&get, "x?after=99999999999999999999&wait=60", "", 400, 308),
        (&get, "x?limit=0", "", 400, 309),
        (&get, "x?wait=x", "", 400, 310),
        (&get, "x?cursor=1", "", 400, 306),
        (&get, "x?after=1&after=1", "", 400, 306),
        (&put, "x/b?c", "1", 400, 306),
        (&put, "x/", "1", 400, 311),
        (&put, &long, "1", 400, 311),
        (&put, "x/%ff", "1", 400, 311),
        (&put, "x/a%00", "1", 400, 311),
        (&Method::DELETE, "x/%", "", 400, 311),
        (&Method::DELETE, "x/b", "", 404, 314),
        (&Method::POST, "x/b/republish", "", 404, 314),
        (&Method::POST, "x/%0a/republish", "", 400, 311),
        (&Method::POST, "x/a", "", 405, 999),
        (&Method::POST, "x", "", 405, 999),
        (&get, "x/a", "", 405, 999),
        (&put, "x", "1", 405, 999),
    ] {
        let request = scene.request(method.clone(), path).set_payload(body);
        assert_refused(&scene, request, status, errno, path).await;
    }
    let request = scene.request(put, "x/a").set_payload(Bytes::from_static(&[0xc3, 0x28]));
    assert_refused(&scene, request, 400, 312, "not UTF-8").await;
    assert_eq!(all(&scene).await["updates"].as_array().unwrap().len(), 1, "nothing was written");
}

#[actix_web::test]
async fn a_wrong_method_is_refused_with_the_allowed_ones() {
    let scene = Scene::new();
    for (method, path, allow) in [
        (Method::PUT, "x", "GET, HEAD"),
        (Method::HEAD, "x/a", "PUT, DELETE"),
        (Method::GET, "x/a", "PUT, DELETE"),
        (Method::POST, "x/a", "PUT, DELETE"),
        (Method::PATCH, "x/a/republish", "PUT, DELETE, POST"),
    ] {
        let response = scene.respond(scene.request(method, path)).await;
        assert_eq!(response.headers().get(header::ALLOW).unwrap(), allow, "{path}");
    }
}

#[actix_web::test]
async fn a_value_is_limited_whatever_its_content_length() {
    let scene = Scene::new();
    let most = limits().value_bytes_max;
    assert_eq!(scene.put("a", &"x".repeat(most)).await.0, 201);
    let request = scene.request(Method::PUT, "x/a").set_payload("x".repeat(most + 1));
    assert_refused(&scene, request, 413, 104, "too large").await;
    for length in ["101", "99999999999"] {
        let request = scene.request(Method::PUT, "x/a").insert_header(("content-length", length));
        assert_refused(&scene, request, 413, 104, "announced as too large").await;
    }
}

#[actix_web::test]
async fn a_full_feed_refuses_a_new_key_and_accepts_its_own() {
    let scene = Scene::new();
    for key in 0..12 {
        assert_eq!(scene.put(&key.to_string(), "1").await, (201, 1));
    }
    scene.ask(scene.request(Method::DELETE, "x/1")).await;
    let request = scene.request(Method::PUT, "x/12").set_payload("1");
    assert_refused(&scene, request, 507, 315, "one more").await;
    assert_eq!(scene.put("1", "2").await.0, 200);
}

#[actix_web::test]
async fn a_feed_exists_from_its_first_write_and_broadcasts_always() {
    let scene = Scene::new();
    for query in ["x", "x?wait=60", "x?after=1"] {
        assert_refused(&scene, scene.request(Method::GET, query), 404, 313, query).await;
    }
    let token = || (header::AUTHORIZATION, scene.token("broadcasts", Scopes::Both, None));
    let read = |query: &str| {
        let path = format!("broadcasts{query}");
        scene.request(Method::GET, &path).insert_header(token())
    };
    let empty = json!({"updates": [], "cursor": 0, "head": 0});
    assert_eq!(scene.ask(read("")).await.json, empty);
    assert_refused(&scene, read("?after=1"), 400, 308, "from the future").await;
    let mut stream = scene.stream(read("")).await;
    let put = scene.request(Method::PUT, "broadcasts/a/b").insert_header(token());
    let write = scene.ask(put.set_payload("v1"));
    let (page, event, told) = tokio::join!(scene.ask(read("?wait=60")), stream.next(), write);
    assert_eq!((told.status, &page.json["updates"][0]["value"]), (201, &json!("v1")));
    assert!(event.unwrap().starts_with("id: 1\nevent: update\n"));
}

#[actix_web::test]
async fn without_a_valid_token_nothing_else_of_a_request_is_checked() {
    let scene = Scene::with_a().await;
    let token = |feed, scopes, expires| Some(scene.token(feed, scopes, expires));
    let changed = scene.token("x", Scopes::Both, None).replacen(".rw.", ".r.", 1);
    let good = scene.token("x", Scopes::Both, None);
    for (token, status, errno) in [
        (None, 401, 301),
        (Some("Bearer".into()), 401, 301),
        (Some(format!("Basic {}", &good[7..])), 401, 301),
        (Some("Bearer x".into()), 401, 302),
        (Some(changed), 401, 302),
        (Some(format!("{good} {}", &good[7..])), 401, 302),
        (token("x", Scopes::Both, Some(Time(1000))), 401, 303),
        (token("x", Scopes::Both, Some(NOW)), 401, 303),
        (token("y", Scopes::Both, None), 403, 304),
    ] {
        for (method, path) in [
            (Method::GET, "x"),
            (Method::GET, "x?after=garbage"),
            (Method::PATCH, "x"),
            (Method::PUT, "x/a"),
            (Method::PUT, "x/%ff"),
            (Method::GET, "X"),
            (Method::GET, ""),
            (Method::GET, "%ff"),
        ] {
            let request = TestRequest::with_uri(&format!("/v1/feeds/{path}")).method(method);
            let request = token.iter().fold(request, |request, token| {
                request.insert_header((header::AUTHORIZATION, token.as_str()))
            });
            // A body that is never sent must not be waited for.
            let request = request.insert_header((header::CONTENT_LENGTH, "99"));
            assert_refused(&scene, request, status, errno, path).await;
        }
    }
    let twice = scene.request(Method::GET, "x").append_header((header::AUTHORIZATION, good));
    assert_refused(&scene, twice, 401, 301, "two tokens").await;
}

#[actix_web::test]
async fn a_scope_allows_its_methods_only() {
    let scene = Scene::with_a().await;
    for (scopes, method, path, status) in [
        (Scopes::Read, Method::GET, "x", 200),
        (Scopes::Read, Method::PUT, "x/a", 403),
        (Scopes::Read, Method::DELETE, "x/b", 403),
        (Scopes::Read, Method::POST, "x/b/republish", 403),
        (Scopes::Write, Method::GET, "x", 403),
        (Scopes::Write, Method::GET, "x?after=garbage", 403),
        (Scopes::Write, Method::PUT, "x/a", 200),
        (Scopes::Write, Method::DELETE, "x/b", 404),
        (Scopes::Write, Method::POST, "x/b/republish", 404),
    ] {
        let token = (header::AUTHORIZATION, scene.token("x", scopes, None));
        let told = scene.ask(scene.request(method, path).insert_header(token)).await;
        assert_eq!(told.status, status, "{scopes} {path}");
        assert!(status != 403 || told.json["errno"] == 305, "{told:?}");
    }
}

#[actix_web::test]
async fn a_stream_has_an_event_for_every_update_and_comments_between() {
    let scene = Scene::new();
    scene.put("a", "1\n2").await;
    scene.page("wait=10").await;
    let mut stream = scene.stream(scene.request(Method::GET, "x?limit=1")).await;
    assert_eq!(
        stream.next().await.as_deref(),
        Some(
            "id: 1\nevent: update\ndata: {\"feed_sync_id\":1,\"key\":\"a\",\"version\":2,\"value\":\"1\\n2\"}\n\n"
        )
    );
    let delete = scene.ask(scene.request(Method::DELETE, "x/a"));
    assert_eq!(
        tokio::join!(stream.next(), delete).0.as_deref(),
        Some(
            "id: 2\nevent: delete\ndata: {\"feed_sync_id\":2,\"key\":\"a\",\"version\":4,\"deleted\":true}\n\n"
        )
    );
    tokio::time::pause();
    for _ in 0..3 {
        let began = tokio::time::Instant::now();
        assert_eq!(stream.next().await.as_deref(), Some(":\n\n"));
        assert!(began.elapsed() >= limits().keepalive);
    }
}

#[actix_web::test]
async fn a_stream_continues_behind_the_last_event() {
    let scene = Scene::new();
    for key in ["a", "b", "c"] {
        scene.put(key, "1").await;
    }
    all(&scene).await;
    for (query, last, first) in [("x", "2", "id: 3\n"), ("x?after=0", "1", "id: 2\n")] {
        let request = scene.request(Method::GET, query).insert_header(("last-event-id", last));
        let mut stream = scene.stream(request).await;
        assert!(stream.next().await.unwrap().starts_with(first), "{query}");
    }
    let request = scene.request(Method::GET, "x").insert_header(("last-event-id", "4"));
    assert_refused(&scene, request.insert_header(STREAM), 400, 308, "from the future").await;
}

#[actix_web::test]
async fn a_stream_ends_with_its_token() {
    let scene = Scene::with_a().await;
    tokio::time::pause();
    let expires = scene.service.clock.now() + Span::from_secs(20);
    let token = scene.token("x", Scopes::Read, Some(expires));
    let request = scene.request(Method::GET, "x").insert_header((header::AUTHORIZATION, token));
    let mut stream = scene.stream(request).await;
    let began = tokio::time::Instant::now();
    let mut parts = Vec::new();
    while let Some(part) = stream.next().await {
        parts.push(part);
    }
    assert!(parts[0].starts_with("id: 1\n"), "{parts:?}");
    assert_eq!(parts.last().unwrap(), ":\n\n");
    assert!((19..=21).contains(&began.elapsed().as_secs()));
}

#[actix_web::test]
async fn a_cursor_below_the_horizon_is_gone_and_none_is_not() {
    let scene = Scene::new();
    forget_two(&scene).await;
    assert_refused(&scene, scene.request(Method::GET, "x?after=1"), 410, 318, "a page").await;
    let waits = scene.request(Method::GET, "x?after=1&wait=1");
    assert_refused(&scene, waits, 410, 318, "a page that would wait").await;
    let stream = scene.request(Method::GET, "x").insert_header(("last-event-id", "1"));
    assert_refused(&scene, stream.insert_header(STREAM), 410, 318, "a stream").await;
    let tombstone = json!({"feed_sync_id": 3, "key": "a", "version": 4, "deleted": true});
    let page = json!({"updates": [tombstone], "cursor": 3, "head": 3, "horizon": 2});
    for query in ["", "after=2"] {
        assert_eq!(scene.page(query).await, page, "{query}");
    }
}

#[actix_web::test]
async fn a_stream_that_falls_behind_the_horizon_ends_with_a_reason() {
    let scene = Scene::new();
    scene.put("z", "1").await;
    scene.page("wait=10").await;
    let mut stream = scene.stream(scene.request(Method::GET, "x")).await;
    assert!(stream.next().await.unwrap().starts_with("id: 1\n"));
    scene.put("y", "1").await;
    scene.page("after=1&wait=10").await;
    forget(&scene, 2).await;
    // The stream could still join the read of the page above.
    scene.put("x", "1").await;
    scene.page("after=2&wait=10").await;
    let last = stream.next().await.unwrap();
    assert!(last.starts_with("event: gone\ndata: {\"errno\":318,"), "{last}");
    assert_eq!(stream.next().await, None);
}

/// Leaves the feed with the tombstone 3 and the horizon 2.
async fn forget_two(scene: &Scene) {
    for (key, cursor) in [("a", 0), ("b", 1)] {
        scene.put(key, "1").await;
        scene.page(&format!("after={cursor}&wait=10")).await;
    }
    scene.ask(scene.request(Method::DELETE, "x/a")).await;
    scene.page("after=2&wait=10").await;
    forget(scene, 2).await;
}

async fn forget(scene: &Scene, through: u64) {
    let (feed, through) = (FeedName::parse("x").unwrap(), FeedSyncId(through));
    scene.service.feeds.store().forget(feed, through, 10).await.unwrap().unwrap();
}

#[actix_web::test]
async fn followers_are_counted_until_they_end() {
    let scene = Scene::with_a().await;
    let stream = |_| scene.stream(scene.request(Method::GET, "x"));
    let (first, second) = (stream(1).await, stream(2).await);
    let third = scene.request(Method::GET, "x").insert_header(STREAM);
    assert_refused(&scene, third, 503, 316, "one more stream").await;
    let waits = scene.request(Method::GET, "x?after=1&wait=1");
    assert_refused(&scene, waits, 503, 316, "one that would wait").await;
    assert_eq!(scene.page("wait=60").await["cursor"], 1, "what is there needs no place");
    drop(first);
    let third = stream(3).await;
    drop((second, third));
    assert_eq!(scene.service.feeds.stats().followers, 0);
}

async fn assert_refused(scene: &Scene, request: TestRequest, status: u16, errno: u16, what: &str) {
    let told = scene.ask(request).await;
    assert_eq!((told.status, &told.json["errno"]), (status, &json!(errno)), "{what}: {told:?}");
    let message = told.json["message"].as_str().unwrap();
    assert!(message.len() > 10, "{message}");
}

/// The whole feed, once nothing of it waits to be published.
async fn all(scene: &Scene) -> Value {
    loop {
        let before = scene.page("").await;
        let store = scene.service.feeds.store();
        let feed = FeedName::parse("x").unwrap();
        store.publish(feed, None, 100).await.unwrap();
        let after = scene.page("").await;
        if before == after {
            return after;
        }
    }
}
