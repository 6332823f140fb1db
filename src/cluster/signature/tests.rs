use super::*;
use crate::cluster::fixture::{self, KEY, NOW, OTHER_KEY as OTHER};
use crate::fuzz::fuzz;

const SKEW: Span = Span(60_000);

fn keys(cluster: &[&str]) -> ClusterKeys {
    ClusterKeys::derive(&fixture::keys(cluster)).unwrap()
}

fn verify(
    keys: &ClusterKeys,
    request: &Request<'_>,
    header: &str,
    now: Time,
    skew: Span,
) -> Result<RequestMac, Refused> {
    keys.verify(request, &Signature::read(header, now, skew)?)
}

fn node(name: &str) -> NodeId {
    NodeId::new(name)
}

fn request(node: &NodeId) -> Request<'_> {
    Request { method: "PUT", path: "/push/ab", node, body: b"{}" }
}

#[test]
fn signatures_need_cluster_keys() {
    assert!(ClusterKeys::derive(&Keys::from_texts(&[KEY]).unwrap()).is_none());
}

#[test]
fn a_request_signature_covers_method_path_node_and_body() {
    let (keys, a) = (keys(&[KEY]), node("http://a:1"));
    let signed = request(&a);
    let (header, mac) = keys.sign(&signed, NOW);
    let check = |request: &Request<'_>| verify(&keys, request, &header, NOW, SKEW);
    assert_eq!(check(&signed), Ok(mac));
    let b = node("http://b:1");
    for other in [
        Request { method: "DELETE", ..signed },
        Request { path: "/notif/ab", ..signed },
        Request { path: "/push/ab?", ..signed },
        Request { node: &b, ..signed },
        Request { body: b"{ }", ..signed },
        Request { body: b"", ..signed },
    ] {
        assert_eq!(check(&other), Err(Refused::NotOurs), "{other:?}");
    }
}

#[test]
fn a_request_signature_is_valid_at_its_time_only() {
    let (keys, a) = (keys(&[KEY]), node("http://a:1"));
    let (header, mac) = keys.sign(&request(&a), NOW);
    let check = |now| verify(&keys, &request(&a), &header, now, SKEW);
    let (earliest, latest) = (Time(NOW.0 - SKEW.0), Time(NOW.0 + SKEW.0));
    assert_eq!((check(earliest), check(latest)), (Ok(mac), Ok(mac)));
    for ahead in [60_001, 86_400_000, -60_001, -86_400_000] {
        let ahead = ClockDifference(ahead);
        let now = Time(NOW.0.saturating_add_signed(-ahead.0));
        assert_eq!(check(now), Err(Refused::OtherTime { request: mac, ahead }), "{ahead}");
    }
    for ahead in [86_400_001, -86_400_001, 1_796_000_000_000] {
        let now = Time(NOW.0.saturating_add_signed(-ahead));
        assert_eq!(check(now), Err(Refused::OtherDay(ClockDifference(ahead))), "{ahead}");
    }
    let latest = i64::MAX.cast_unsigned();
    let behind = ClockDifference(NOW.0.cast_signed() - i64::MAX);
    assert_eq!(check(Time(latest)), Err(Refused::OtherDay(behind)));
}

#[test]
fn only_a_signed_request_of_another_time_is_told_from_one_that_is_not_ours() {
    let (keys, theirs, a) = (keys(&[KEY]), keys(&[OTHER]), node("http://a:1"));
    let later = NOW + Span::from_secs(1200);
    let (header, _) = theirs.sign(&request(&a), NOW);
    assert_eq!(verify(&keys, &request(&a), &header, later, SKEW), Err(Refused::NotOurs));
    let (header, _) = keys.sign(&request(&a), NOW);
    let other = Request { body: b"", ..request(&a) };
    assert_eq!(verify(&keys, &other, &header, later, SKEW), Err(Refused::NotOurs));
    let other_time = header.replace(&NOW.0.to_string(), &later.0.to_string());
    assert_eq!(verify(&keys, &request(&a), &other_time, later, SKEW), Err(Refused::NotOurs));
}

#[test]
fn a_header_with_any_changed_byte_is_refused() {
    let (keys, a) = (keys(&[KEY]), node("http://a:1"));
    let (header, _) = keys.sign(&request(&a), NOW);
    for at in 0..header.len() {
        for bit in [1, 2, 32] {
            let mut bytes = header.clone().into_bytes();
            bytes[at] ^= bit;
            let changed = String::from_utf8(bytes).unwrap();
            assert!(verify(&keys, &request(&a), &changed, NOW, SKEW).is_err(), "{changed}");
        }
    }
}

#[test]
fn a_malformed_header_is_unsigned() {
    let (keys, a) = (keys(&[KEY]), node("http://a:1"));
    let (header, _) = keys.sign(&request(&a), NOW);
    let mac = header.rsplit('=').next().unwrap();
    let long = "1".repeat(1_000_000);
    for wrong in [
        "".to_owned(),
        "Kalends".to_owned(),
        format!("kalends t={} mac={mac}", NOW.0),
        format!("Bearer t={} mac={mac}", NOW.0),
        format!("Kalends mac={mac} t={}", NOW.0),
        format!("Kalends t= mac={mac}"),
        format!("Kalends t=+{} mac={mac}", NOW.0),
        format!("Kalends t=0{} mac={mac}", NOW.0),
        format!("Kalends t=-{} mac={mac}", NOW.0),
        format!("Kalends t={}.0 mac={mac}", NOW.0),
        format!("Kalends t=99999999999999999999 mac={mac}"),
        format!("Kalends t={long} mac={mac}"),
        format!("Kalends t={} mac={}", NOW.0, &mac[1..]),
        format!("Kalends t={} mac={mac}=", NOW.0),
        format!("Kalends t={} mac={mac} ", NOW.0),
        format!("Kalends t={} mac={long}", NOW.0),
        format!("Kalends t={} mac=", NOW.0),
        header.replace(' ', "  "),
        format!("{header},{header}"),
    ] {
        let refused = verify(&keys, &request(&a), &wrong, NOW, SKEW);
        assert_eq!(refused, Err(Refused::Unsigned), "{wrong:.99}");
    }
}

#[test]
fn an_answer_signature_covers_request_and_status() {
    let (keys, a) = (keys(&[KEY]), node("http://a:1"));
    let (_, mac) = keys.sign(&request(&a), NOW);
    let (_, later) = keys.sign(&request(&a), Time(NOW.0 + 1));
    let answer = keys.sign_answer(&mac, 404);
    assert!(keys.verify_answer(&mac, 404, &answer));
    assert!(!keys.verify_answer(&mac, 200, &answer));
    assert!(!keys.verify_answer(&mac, 40, &answer));
    assert!(!keys.verify_answer(&later, 404, &answer));
    assert!(!keys.verify_answer(&mac, 404, &keys.sign_answer(&later, 404)));
    let request_mac = URL_SAFE_NO_PAD.encode(mac.mac);
    for wrong in ["", &answer[1..], &format!("{answer}="), &request_mac] {
        assert!(!keys.verify_answer(&mac, 404, wrong), "{wrong}");
    }
}

#[test]
fn a_time_is_valid_for_its_request_and_with_each_byte() {
    let (keys, a) = (keys(&[KEY]), node("http://a:1"));
    let (_, mac) = keys.sign(&request(&a), NOW);
    let (time, header) = keys.sign_time(&mac, NOW);
    assert_eq!(keys.verify_time(&mac, &time, &header), Some(NOW));
    let changed = |text: &str| -> Vec<String> {
        let of = |at: usize, bit: u8| {
            let mut bytes = text.as_bytes().to_vec();
            bytes[at] ^= bit;
            String::from_utf8(bytes).unwrap()
        };
        (0..text.len()).flat_map(|at| [1, 2, 32].map(|bit| of(at, bit))).collect()
    };
    for other in changed(&time) {
        assert_eq!(keys.verify_time(&mac, &other, &header), None, "{other}");
    }
    for other in changed(&header) {
        assert_eq!(keys.verify_time(&mac, &time, &other), None, "{other}");
    }
    for other in ["", "0", "-1", &format!("0{time}"), &format!("+{time}"), &format!("{time} ")] {
        assert_eq!(keys.verify_time(&mac, other, &header), None, "{other}");
    }
    let (_, of_another) = keys.sign(&request(&a), Time(NOW.0 + 1));
    assert_eq!(keys.verify_time(&of_another, &time, &header), None);
    let (_, of_others) = self::keys(&[OTHER]).sign_time(&mac, NOW);
    assert_eq!(keys.verify_time(&mac, &time, &of_others), None);
}

#[test]
fn a_time_and_a_status_are_not_signed_alike() {
    let (keys, a) = (keys(&[KEY]), node("http://a:1"));
    let (_, mac) = keys.sign(&request(&a), NOW);
    let (time, header) = keys.sign_time(&mac, NOW);
    for status in [200, 401, 404] {
        assert!(!keys.verify_answer(&mac, status, &header));
        assert_eq!(keys.verify_time(&mac, &time, &keys.sign_answer(&mac, status)), None);
    }
}

#[test]
fn signatures_of_another_cluster_are_refused() {
    let (ours, theirs, a) = (keys(&[KEY]), keys(&[OTHER]), node("http://a:1"));
    let (header, mac) = theirs.sign(&request(&a), NOW);
    assert_eq!(verify(&ours, &request(&a), &header, NOW, SKEW), Err(Refused::NotOurs));
    let (_, mac_of_ours) = ours.sign(&request(&a), NOW);
    assert_ne!(mac, mac_of_ours);
    let answer = theirs.sign_answer(&mac_of_ours, 404);
    assert!(!ours.verify_answer(&mac_of_ours, 404, &answer));
}

#[test]
fn every_listed_key_verifies() {
    let a = node("http://a:1");
    let both_ways = [keys(&[KEY, OTHER]), keys(&[OTHER, KEY])];
    for (asking, answering) in [(0, 1), (1, 0)] {
        let (asking, answering) = (&both_ways[asking], &both_ways[answering]);
        let (header, sent) = asking.sign(&request(&a), NOW);
        let taken = verify(answering, &request(&a), &header, NOW, SKEW).unwrap();
        let answer = answering.sign_answer(&taken, 200);
        assert!(asking.verify_answer(&sent, 200, &answer));
    }
}

#[test]
fn an_answer_is_signed_with_the_key_of_its_request() {
    let (old, both, a) = (keys(&[OTHER]), keys(&[KEY, OTHER]), node("http://a:1"));
    let (header, sent) = old.sign(&request(&a), NOW);
    let taken = verify(&both, &request(&a), &header, NOW, SKEW).unwrap();
    assert!(old.verify_answer(&sent, 200, &both.sign_answer(&taken, 200)));
    let (header, _) = both.sign(&request(&a), NOW);
    assert_eq!(verify(&old, &request(&a), &header, NOW, SKEW), Err(Refused::NotOurs));
}

#[test]
fn keys_are_not_printed() {
    assert_eq!(format!("{:?}", keys(&[KEY])), "ClusterKeys(redacted)");
}

#[test]
fn the_example_of_the_documentation_is_right() {
    let document = include_str!("../../../docs/protocol.md");
    let a = node("http://10.0.0.7:8081");
    let body = r#"{"channelID":"01234567-0123-abcd-0123-0123456789ab","version":"0190a4a3b0007000800000000000000e","urgency":"normal","accepted_at":1796000000000,"ttl_ms":60000}"#;
    let path = "/push/00112233445566778899aabbccddeeff";
    let signed = Request { method: "PUT", path, node: &a, body: body.as_bytes() };
    let keys = keys(&[KEY]);
    let (header, mac) = keys.sign(&signed, NOW);
    let answer = format!("kalends-mac: {}", keys.sign_answer(&mac, 200));
    let text = String::from_utf8(signed.text(NOW)).unwrap();
    let answer_text = String::from_utf8(answer_text(&mac, 200)).unwrap();
    let (time, signature) = keys.sign_time(&mac, Time(NOW.0 + 1_200_000));
    let time_text = time_text(&mac, Time(NOW.0 + 1_200_000));
    let time_text = String::from_utf8(time_text).unwrap();
    let time = format!("kalends-time: {time}\nkalends-mac: {signature}");
    let header = format!("authorization: {header}");
    for part in [KEY, &text, &header, &answer_text, &answer, &time_text, &time] {
        assert!(document.contains(part), "docs/protocol.md does not have this:\n{part}");
    }
    assert!(crate::cluster::wire_message::from_bytes(body.as_bytes()).is_ok());
}

#[test]
fn no_hostile_signature_panics_or_is_accepted() {
    let (keys, a) = (keys(&[KEY]), node("http://a:1"));
    let (header, _) = keys.sign(&request(&a), NOW);
    fuzz("peer_signatures", &[&header], |bytes| {
        let text = String::from_utf8_lossy(bytes);
        match verify(&keys, &request(&a), &text, NOW, SKEW) {
            Ok(_) => assert_eq!(text, header),
            Err(Refused::OtherTime { .. }) => panic!("no other time is signed"),
            Err(Refused::Unsigned | Refused::NotOurs | Refused::OtherDay(_)) => {}
        }
    });
}

#[test]
fn no_hostile_time_panics_or_is_accepted() {
    let (keys, a) = (keys(&[KEY]), node("http://a:1"));
    let (_, mac) = keys.sign(&request(&a), NOW);
    let (time, header) = keys.sign_time(&mac, NOW);
    let sample = format!("{time}\n{header}");
    fuzz("peer_times", &[&sample], |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let (time, header) = text.split_once('\n').unwrap_or_default();
        if keys.verify_time(&mac, time, header).is_some() {
            assert_eq!(text, sample);
        }
    });
}

#[test]
fn what_a_node_says_of_itself_is_signed_with_its_request_and_status() {
    let (keys, a) = (keys(&[KEY]), node("http://a:1"));
    let (_, mac) = keys.sign(&request(&a), NOW);
    let (_, later) = keys.sign(&request(&a), Time(NOW.0 + 1));
    let signature = keys.sign_about(&mac, 404, "about");
    assert!(keys.verify_about(&mac, 404, ("about", &signature)));
    assert!(!keys.verify_about(&mac, 200, ("about", &signature)));
    assert!(!keys.verify_about(&mac, 404, ("About", &signature)));
    assert!(!keys.verify_about(&later, 404, ("about", &signature)));
    assert!(!keys.verify_about(&mac, 404, ("about", &keys.sign_answer(&mac, 404))));
    assert!(!keys.verify_answer(&mac, 404, &signature));
}
