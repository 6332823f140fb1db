//! The requests between nodes, by method and path.

use state_machine::{Time, Uaid};

/// A request to the node that an agent is, or was, connected to. A repeated request does no harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PeerRequest {
    /// `PUT /push/{uaid}`: deliver the message in the body.
    DeliverPush(Uaid),
    /// `PUT /notif/{uaid}`: a message for the agent is in storage.
    MessageStored(Uaid),
    /// `DELETE /notif/{uaid}/{connected_at}`: the agent connected to another node at this time.
    ConnectedElsewhere(Uaid, Time),
}

impl PeerRequest {
    /// Parses a request. None if it is unknown, or not in the one spelling of [`path`](Self::path).
    pub(super) fn parse(method: &str, path: &str) -> Option<Self> {
        let (kind, rest) = path.strip_prefix('/')?.split_once('/')?;
        let (uaid, since) = rest.split_once('/').map_or((rest, None), |(a, b)| (a, Some(b)));
        let uaid = Uaid::parse(uaid).ok()?;
        let request = match (kind, since) {
            ("push", None) => Self::DeliverPush(uaid),
            ("notif", None) => Self::MessageStored(uaid),
            ("notif", Some(since)) => Self::ConnectedElsewhere(uaid, Time(since.parse().ok()?)),
            _ => return None,
        };
        (request.method() == method && request.path() == path).then_some(request)
    }

    pub(super) fn method(self) -> &'static str {
        match self {
            Self::DeliverPush(_) | Self::MessageStored(_) => "PUT",
            Self::ConnectedElsewhere(..) => "DELETE",
        }
    }

    pub(super) fn path(self) -> String {
        match self {
            Self::DeliverPush(uaid) => format!("/push/{uaid}"),
            Self::MessageStored(uaid) => format!("/notif/{uaid}"),
            Self::ConnectedElsewhere(uaid, Time(since)) => format!("/notif/{uaid}/{since}"),
        }
    }

    pub(super) fn uaid(self) -> Uaid {
        match self {
            Self::DeliverPush(uaid)
            | Self::MessageStored(uaid)
            | Self::ConnectedElsewhere(uaid, _) => uaid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENT: &str = "00112233445566778899aabbccddeeff";

    #[test]
    fn each_request_has_one_method_and_one_path() {
        let uaid = Uaid::parse(AGENT).unwrap();
        for (method, path, request) in [
            ("PUT", "/push/ID", PeerRequest::DeliverPush(uaid)),
            ("PUT", "/notif/ID", PeerRequest::MessageStored(uaid)),
            (
                "DELETE",
                "/notif/ID/1796000000000",
                PeerRequest::ConnectedElsewhere(uaid, Time(1_796_000_000_000)),
            ),
            ("DELETE", "/notif/ID/0", PeerRequest::ConnectedElsewhere(uaid, Time(0))),
        ] {
            let path = path.replace("ID", AGENT);
            assert_eq!(PeerRequest::parse(method, &path), Some(request));
            assert_eq!((request.method(), request.path(), request.uaid()), (method, path, uaid));
        }
    }

    #[test]
    fn any_other_method_or_path_is_unknown() {
        let dashed = "00112233-4455-6677-8899-aabbccddeeff";
        let parse = |method, path: &str| PeerRequest::parse(method, &path.replace("ID", AGENT));
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
            assert_eq!(parse("PUT", path), None, "{path}");
        }
        for uaid in [&AGENT.to_uppercase(), dashed, &AGENT[1..]] {
            assert_eq!(parse("PUT", &format!("/push/{uaid}")), None, "{uaid}");
        }
        for since in ["", "/", "/x", "/-1", "/+1", "/01", "/1/", "/1/1", "/18446744073709551616"] {
            assert_eq!(parse("DELETE", &format!("/notif/ID{since}")), None, "{since}");
        }
        for method in ["GET", "POST", "DELETE", "HEAD", "put"] {
            assert_eq!(parse(method, "/push/ID"), None, "{method}");
        }
        assert_eq!(parse("DELETE", "/push/ID/1"), None);
    }
}
