//! Who may see the page: a link is exchanged once for a session, which is a cookie that the server signed.
//!
//! Sessions are not stored, so they outlive a restart of the server. Signing out ends all that were made before.

use parking_lot::Mutex;
use state_machine::{Span, Time};

use crate::operate::access::operator::operator_links;
use crate::settings::keys::{Keys, MacKeys, Passes, Purpose};

/// Time from signing in to the end of a session.
pub(super) const SESSION_LIFETIME: Span = Span::from_secs(12 * 60 * 60);

/// Links of the last five minutes that were used. At this number no further one is accepted.
const LINKS_USED_MAX: usize = 64;

/// Signs operators in and out.
pub(super) struct Sessions {
    links: Passes,
    cookies: Passes,
    forms: MacKeys,
    /// Links that were made before this are refused: the server before may have accepted them.
    started: Time,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The ids of used links, with their ends.
    used: Vec<(String, Time)>,
    /// Sessions that were made until then have ended.
    signed_out: Option<Time>,
}

/// A session that was valid when it was opened. It may have ended since.
#[derive(Debug, Clone)]
pub(super) struct Session {
    cookie: String,
}

impl Sessions {
    pub(super) fn new(keys: &Keys, now: Time) -> Self {
        Self {
            links: operator_links(keys),
            cookies: Passes::derive(keys, Purpose::OperatorSession, SESSION_LIFETIME),
            forms: MacKeys::derive(keys.crypto_keys(), Purpose::OperatorForm, b""),
            started: now,
            state: Mutex::default(),
        }
    }

    /// Exchanges a link, once, for the cookie of a new session.
    pub(super) fn sign_in(&self, link: &str, now: Time) -> Option<String> {
        let link = self.links.open(link, now).filter(|link| link.made >= self.started)?;
        let mut state = self.state.lock();
        state.used.retain(|(_, expires)| *expires > now);
        let is_used = state.used.iter().any(|(id, _)| *id == link.id);
        if is_used || state.used.len() == LINKS_USED_MAX {
            return None;
        }
        state.used.push((link.id, link.expires));
        Some(self.cookies.mint(now))
    }

    /// The session of a cookie.
    pub(super) fn open(&self, cookie: &str, now: Time) -> Option<Session> {
        let made = self.cookies.open(cookie, now)?.made;
        let state = self.state.lock();
        let is_open = state.signed_out.is_none_or(|until| made > until);
        is_open.then(|| Session { cookie: cookie.to_owned() })
    }

    pub(super) fn is_open(&self, session: &Session, now: Time) -> bool {
        self.open(&session.cookie, now).is_some()
    }

    /// Ends all sessions that were made until now.
    pub(super) fn sign_out(&self, now: Time) {
        self.state.lock().signed_out = Some(now);
    }

    /// The token that every form of a session has.
    pub(super) fn form_token(&self, session: &Session) -> String {
        self.forms.sign(&session.cookie)
    }

    pub(super) fn is_form_of(&self, session: &Session, token: &str) -> bool {
        self.forms.verify(&session.cookie, token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operate::access::operator::LINK_LIFETIME;

    const START: Time = Time(1_796_000_000_000);

    fn keys(letter: &str) -> Keys {
        Keys::from_texts(&[letter.repeat(43)]).unwrap()
    }

    fn sessions() -> Sessions {
        Sessions::new(&keys("A"), START)
    }

    fn link(now: Time) -> String {
        operator_links(&keys("A")).mint(now)
    }

    #[test]
    fn a_link_opens_one_session_before_it_expires() {
        let (sessions, link) = (sessions(), link(START));
        let cookie = sessions.sign_in(&link, START).unwrap();
        assert!(sessions.open(&cookie, START).is_some());
        assert_eq!(sessions.sign_in(&link, START), None, "it is used");
        let late = operator_links(&keys("A")).mint(START);
        assert_eq!(sessions.sign_in(&late, START + LINK_LIFETIME), None, "it has expired");
        assert!(sessions.open(&cookie, START + SESSION_LIFETIME).is_none());
        for wrong in ["", "x", &cookie, &operator_links(&keys("B")).mint(START)] {
            assert_eq!(sessions.sign_in(wrong, START), None, "{wrong}");
        }
        assert!(sessions.open(&late, START).is_none(), "a link is no session");
    }

    #[test]
    fn a_link_that_a_server_before_may_have_accepted_is_refused() {
        let later = Sessions::new(&keys("A"), START + Span(1));
        assert_eq!(later.sign_in(&link(START), START + Span(2)), None);
        let cookie = sessions().sign_in(&link(START), START).unwrap();
        assert!(later.open(&cookie, START + Span(2)).is_some(), "a session outlives a restart");
    }

    #[test]
    fn signing_out_ends_all_sessions_until_then() {
        let sessions = sessions();
        let cookie = sessions.sign_in(&link(START), START).unwrap();
        let session = sessions.open(&cookie, START).unwrap();
        let now = START + Span(5);
        let same = sessions.sign_in(&link(now), now).unwrap();
        let same = sessions.open(&same, now).unwrap();
        sessions.sign_out(now);
        for session in [session, same] {
            assert!(!sessions.is_open(&session, now));
        }
        let later = now + Span(1);
        let cookie = sessions.sign_in(&link(later), later).unwrap();
        assert!(sessions.open(&cookie, later).is_some());
    }

    #[test]
    fn a_form_belongs_to_its_session() {
        let sessions = sessions();
        let session = |at| sessions.open(&sessions.sign_in(&link(at), at).unwrap(), at).unwrap();
        let (one, other) = (session(START), session(START));
        assert!(sessions.is_form_of(&one, &sessions.form_token(&one)));
        assert!(!sessions.is_form_of(&one, &sessions.form_token(&other)));
        for wrong in ["", "x", "!", &"A".repeat(43), &"A".repeat(4000)] {
            assert!(!sessions.is_form_of(&one, wrong), "{wrong}");
        }
    }

    #[test]
    fn used_links_are_bounded() {
        let sessions = sessions();
        for _ in 0..LINKS_USED_MAX {
            assert!(sessions.sign_in(&link(START), START).is_some());
        }
        assert_eq!(sessions.sign_in(&link(START), START), None);
        let later = START + LINK_LIFETIME;
        assert!(sessions.sign_in(&link(later), later).is_some());
    }
}
