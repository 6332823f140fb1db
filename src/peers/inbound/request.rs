//! What a node asks of another, by method and path.

use state_machine::{Time, Uaid};

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PeerRequest {
    /// Deliver the message in the body.
    Deliver(Uaid),
    /// A message was stored.
    MessageStored(Uaid),
    /// The agent is connected elsewhere, since then.
    ConnectedElsewhere(Uaid, Time),
}

impl PeerRequest {
    /// Reads a request. There is one way to write each.
    pub(super) fn read(method: &str, path: &str) -> Option<Self> {
        let mut parts = path.strip_prefix('/')?.split('/');
        let [kind, uaid] = [parts.next()?, parts.next()?];
        let uaid = Uaid::parse(uaid).ok().filter(|read| read.to_string() == uaid)?;
        match (method, kind, parts.next(), parts.next()) {
            ("PUT", "push", None, _) => Some(Self::Deliver(uaid)),
            ("PUT", "notif", None, _) => Some(Self::MessageStored(uaid)),
            ("DELETE", "notif", Some(since), None) => {
                Some(Self::ConnectedElsewhere(uaid, read_time(since)?))
            }
            _ => None,
        }
    }
}

fn read_time(text: &str) -> Option<Time> {
    let time = Time(text.parse().ok()?);
    (time.0.to_string() == text).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENT: &str = "00112233445566778899aabbccddeeff";

    #[test]
    fn each_request_has_one_method_and_one_path() {
        let uaid = Uaid::parse(AGENT).unwrap();
        let read = |method, path: &str| PeerRequest::read(method, &path.replace("ID", AGENT));
        assert_eq!(read("PUT", "/push/ID"), Some(PeerRequest::Deliver(uaid)));
        assert_eq!(read("PUT", "/notif/ID"), Some(PeerRequest::MessageStored(uaid)));
        let moved = Some(PeerRequest::ConnectedElsewhere(uaid, Time(1_796_000_000_000)));
        assert_eq!(read("DELETE", "/notif/ID/1796000000000"), moved);
        assert_eq!(
            read("DELETE", "/notif/ID/0"),
            Some(PeerRequest::ConnectedElsewhere(uaid, Time(0)))
        );
    }

    #[test]
    fn anything_else_is_none() {
        let dashed = "00112233-4455-6677-8899-aabbccddeeff";
        let read = |method, path: &str| PeerRequest::read(method, &path.replace("ID", AGENT));
        for path in [
            "",
            "/",
            "*",
            "ID",
            "/ID",
            "/push",
            "/push/",
            "/push/ID/",
            "/push/ID?",
            "/push/ID?a",
            "/push/ID#",
            "//push/ID",
            "/push//ID",
            "/PUSH/ID",
            "/push/ID/1",
            "/notif/ID/",
            "/notif/ID/1",
            "/wpush/ID",
            "/push/ID0",
            "/push/%30ID",
            "http://a/push/ID",
            "/__heartbeat__",
        ] {
            assert_eq!(read("PUT", path), None, "{path}");
        }
        for uaid in [&AGENT.to_uppercase(), dashed, &AGENT[1..]] {
            assert_eq!(read("PUT", &format!("/push/{uaid}")), None, "{uaid}");
        }
        for since in ["", "/", "/x", "/-1", "/+1", "/01", "/1/", "/1/1", "/18446744073709551616"] {
            assert_eq!(read("DELETE", &format!("/notif/ID{since}")), None, "{since}");
        }
        for method in ["GET", "POST", "DELETE", "HEAD", "put"] {
            assert_eq!(read(method, "/push/ID"), None, "{method}");
        }
        assert_eq!(read("DELETE", "/push/ID/1"), None);
    }
}
