//! How an operator tells this server from others: the titles of its pages.

use url::Url;

use crate::push::app::AppState;
use crate::settings::Role;

/// The names of a server.
pub(super) struct Identity {
    /// The host of the public URL, with a port that is not the one of its scheme.
    pub(super) host: String,
    /// The role and the name of a node of a cluster. None of a single server.
    pub(super) node: Option<(&'static str, String)>,
}

impl Identity {
    pub(super) fn of(node: &AppState, origin: Option<&str>) -> Self {
        let host = origin.and_then(host_of).unwrap_or("Kalends".to_owned());
        let (role, name) = (node.role(), &node.common.name);
        let name = || host_of(name).unwrap_or(name.clone());
        Self { host, node: (role != Role::All).then(|| (role.name(), name())) }
    }

    /// The shortest distinction is first: a tab shows little.
    pub(super) fn title(&self) -> String {
        match self.node() {
            Some(node) => format!("{node}, {}", self.host),
            None => self.host.clone(),
        }
    }

    /// As an operator reads it, such as `connection node 10.0.0.1:8081`.
    pub(super) fn node(&self) -> Option<String> {
        self.node.as_ref().map(|(role, name)| format!("{role} node {name}"))
    }
}

fn host_of(origin: &str) -> Option<String> {
    let url = Url::parse(origin).ok()?;
    let host = url.host_str()?;
    Some(url.port().map_or(host.to_owned(), |port| format!("{host}:{port}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_begins_with_what_differs_between_nodes() {
        let host = || "push.example.net".to_owned();
        let identity = |node| Identity { host: host(), node };
        assert_eq!(identity(None).title(), "push.example.net");
        let node = identity(Some(("connection", "a:8081".to_owned()))).title();
        assert_eq!(node, "connection node a:8081, push.example.net");
        assert_eq!(host_of("https://a.example/").unwrap(), "a.example");
        assert_eq!(host_of("http://[::1]:8080").unwrap(), "[::1]:8080");
        for name in ["local", "machine:8090"] {
            assert_eq!(host_of(name), None, "it is no URL");
        }
    }
}
