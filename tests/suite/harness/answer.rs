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

    /// Checks status, errno and the common form of an error body; returns its message.
    pub(crate) fn assert_error(&self, status: u16, errno: u16) -> String {
        let body: Value = match serde_json::from_slice(&self.body) {
            Ok(body) => body,
            Err(_) => panic!("the body is not JSON: {self}"),
        };
        let numbers = (self.status, &body["code"], &body["errno"]);
        assert_eq!(numbers, (status, &status.into(), &errno.into()), "{self}");
        assert_eq!(self.header("content-type"), Some("application/json"), "{self}");
        assert!(body["error"].is_string() && body["more_info"].is_string(), "{self}");
        body["message"].as_str().unwrap_or_else(|| panic!("no message: {self}")).to_owned()
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} {}", self.status, self.headers, String::from_utf8_lossy(&self.body))
    }
}
