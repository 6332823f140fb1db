//! An HTTP response of the server.

use serde_json::Value;

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Pairs of name and value; names are in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The value of the header with this lower-case name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The URL of the message, which a 201 must contain.
    pub(crate) fn location(&self) -> String {
        assert_eq!(self.status, 201, "{self}");
        self.header("location").expect("a 201 has a Location").to_owned()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let json = serde_json::from_slice(&self.body);
        json.unwrap_or_else(|_| panic!("the body is not JSON: {self}"))
    }

    /// Checks status, errno and the common form of an error body, whose message must contain `names`. `what` is the case
    /// that a failure names.
    #[track_caller]
    pub(crate) fn assert_refused(&self, what: &str, (status, errno): (u16, u16), names: &str) {
        assert_eq!(self.status, status, "{what}: {self}");
        let message = self.assert_error(status, errno);
        assert!(message.contains(names), "{what}: {message} does not contain {names}");
    }

    /// Checks status, errno and the common form of an error body; returns its message.
    #[track_caller]
    pub(crate) fn assert_error(&self, status: u16, errno: u16) -> String {
        let body = self.json();
        let numbers = (self.status, &body["code"], &body["errno"]);
        assert_eq!(numbers, (status, &status.into(), &errno.into()), "{self}");
        assert_eq!(self.header("content-type"), Some("application/json"), "{self}");
        let more_info = format!("/errors#{errno}");
        assert!(body["error"].is_string() && body["more_info"] == more_info, "{self}");
        body["message"].as_str().unwrap_or_else(|| panic!("no message: {self}")).to_owned()
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} {}", self.status, self.headers, String::from_utf8_lossy(&self.body))
    }
}
