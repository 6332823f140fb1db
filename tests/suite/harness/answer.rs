//! An answer of the server's to an HTTP request.

use serde_json::Value;

/// Status, headers and body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// A header, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Where the message that was sent can be found.
    pub(crate) fn location(&self) -> String {
        assert_eq!(self.status, 201, "{self}");
        self.header("location").expect("a 201 says where the message is").to_owned()
    }

    /// Checks that this is an error in the form that every error has; gives its message.
    pub(crate) fn refused(&self, status: u16, errno: u16) -> String {
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
