//! The origins of endpoint URLs: that of new ones, and former ones, which stay valid after a move to another name.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use actix_web::HttpRequest;
use actix_web::http::header::HOST;

use crate::settings::{FormerUrls, PublicUrl};

/// The origins of this server, and how many pushes still come to former ones.
pub struct Origins {
    own: PublicUrl,
    former: FormerUrls,
    former_pushes: AtomicU64,
}

/// Which name of this server a push was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    Own,
    Former,
}

impl Origins {
    pub fn new(own: PublicUrl, former: FormerUrls) -> Self {
        Self { own, former, former_pushes: AtomicU64::new(0) }
    }

    /// The one with which new URLs begin.
    pub fn own(&self) -> &str {
        self.own.as_str()
    }

    /// Which of them a text means in any spelling; none for that of another server.
    pub fn meant_by(&self, text: &str) -> Option<Name> {
        if self.own.is_meant_by(text) {
            return Some(Name::Own);
        }
        let is_former = self.former.urls().iter().any(|url| url.is_meant_by(text));
        is_former.then_some(Name::Former)
    }

    /// The name in the URL of a request. A proxy may have replaced it by the own one.
    pub fn addressed_by(&self, request: &HttpRequest) -> Name {
        let names = |url: &PublicUrl| {
            let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
            let host = request.uri().authority().map(|host| host.as_str()).or(host);
            let (scheme, _) = url.as_str().split_once("://").expect("it is an origin");
            host.is_some_and(|host| url.is_meant_by(&format!("{scheme}://{host}")))
        };
        match self.former.urls().iter().any(names) && !names(&self.own) {
            true => Name::Former,
            false => Name::Own,
        }
    }

    /// Counts a push by the names in its URL and its signature.
    pub fn count(&self, names: [Name; 2]) {
        if names.contains(&Name::Former) {
            self.former_pushes.fetch_add(1, Relaxed);
        }
    }

    pub fn former_pushes(&self) -> u64 {
        self.former_pushes.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;
    use crate::settings::value::Value as _;

    fn origins() -> Origins {
        let own = PublicUrl::parse("https://new.example").unwrap();
        let former = FormerUrls::parse("https://old.example, http://older.example:8080").unwrap();
        Origins::new(own, former)
    }

    #[test]
    fn a_request_is_addressed_by_a_former_name_in_each_of_its_spellings() {
        for (host, name) in [
            ("new.example", Name::Own),
            ("old.example", Name::Former),
            ("OLD.example:443", Name::Former),
            ("old.example:8443", Name::Own),
            ("older.example:8080", Name::Former),
            ("127.0.0.1:8080", Name::Own),
            ("", Name::Own),
        ] {
            let request = TestRequest::default().insert_header((HOST, host)).to_http_request();
            assert_eq!(origins().addressed_by(&request), name, "{host}");
        }
        // Over HTTP/2 the name is in the URL.
        let request = TestRequest::with_uri("https://old.example/wpush/a").to_http_request();
        assert_eq!(origins().addressed_by(&request), Name::Former);
    }

    #[test]
    fn a_push_to_a_former_name_is_counted_once() {
        let origins = origins();
        for names in [[Name::Own, Name::Former], [Name::Former; 2], [Name::Own; 2]] {
            origins.count(names);
        }
        assert_eq!(origins.former_pushes(), 2);
    }
}
