use super::*;

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const OTHER: &str = "_v38-_r5-Pf29fTz8vHw7-7t7Ovq6ejn5uXk4-Lh4N8=";

/// The clock of these tests, on 2026-11-30.
const EXPIRES: Time = Time(1_796_000_000_000);
const NOW: Time = Time(EXPIRES.0 - 1);

fn tokens(keys: &[&str], epoch: u32) -> FeedTokens {
    FeedTokens::derive(&Keys::from_texts(keys).unwrap(), epoch)
}

fn grant(feed: &str, scopes: Scopes, expires: Option<Time>) -> Grant {
    Grant { feed: FeedName::parse(feed).unwrap(), scopes, expires }
}

/// Tokens that are in use somewhere: they must stay what they are. Computed apart from this code, with HKDF
/// (RFC 5869) and HMAC out of Python's standard library.
const VECTORS: [(&str, u32, &str); 3] = [
    (KEY, 0, "kf1.rw.broadcasts.1796000000.NlfhEjvpYwGg_yz_Q28e0UoU0Zzom1lviK7QUZaWWKU"),
    (KEY, 1, "kf1.r.receipts-2_a.0.ELlRlACjfVrJBOy3LA_TRVPlY3Fj4yYUcZDTDH9qY_s"),
    (OTHER, 0, "kf1.w.x.1.BczW5qU0nTkR_PjqoFaETu3tTcJ4N9LBtHczLEi4e6U"),
];

#[test]
fn tokens_keep_their_form() {
    let grants = [
        grant("broadcasts", Scopes::Both, Some(EXPIRES)),
        grant("receipts-2_a", Scopes::Read, None),
        grant("x", Scopes::Write, Some(Time(1000))),
    ];
    for ((key, epoch, token), grant) in VECTORS.into_iter().zip(grants) {
        let tokens = tokens(&[key], epoch);
        assert_eq!(tokens.mint(&grant), token);
        assert_eq!(tokens.check(token, Time(0)), Ok(grant));
    }
}

#[test]
fn the_longest_token_is_within_its_limit() {
    let longest = grant(&"f".repeat(64), Scopes::Both, Some(Time(u64::MAX)));
    let token = tokens(&[KEY], 0).mint(&longest);
    assert!(token.len() <= TOKEN_MAX_BYTES, "{}", token.len());
    let opened = tokens(&[KEY], 0).check(&token, NOW).unwrap();
    assert_eq!(opened.feed, longest.feed);
}

#[test]
fn a_token_is_valid_until_the_second_that_it_names() {
    let tokens = tokens(&[KEY], 0);
    let token = tokens.mint(&grant("x", Scopes::Read, Some(EXPIRES + state_machine::Span(999))));
    assert!(tokens.check(&token, NOW).is_ok());
    for now in [EXPIRES, Time(u64::MAX)] {
        assert_eq!(tokens.check(&token, now), Err(FeedTokenError::Expired));
    }
    let for_ever = tokens.mint(&grant("x", Scopes::Read, None));
    assert!(tokens.check(&for_ever, Time(u64::MAX)).is_ok());
}

#[test]
fn a_token_changed_anywhere_is_refused() {
    let tokens = tokens(&[KEY], 0);
    let token = tokens.mint(&grant("news", Scopes::Read, Some(EXPIRES)));
    for at in 0..token.len() {
        let mut changed = token.clone();
        changed.replace_range(at..=at, if &token[at..=at] == "A" { "B" } else { "A" });
        assert_eq!(tokens.check(&changed, NOW), Err(FeedTokenError::Unknown), "{changed}");
        let cut = &token[..at];
        assert_eq!(tokens.check(cut, NOW), Err(FeedTokenError::Unknown), "{cut}");
    }
    for changed in [format!("{token}A"), format!("{token}="), format!(" {token}"), token.repeat(9)]
    {
        assert_eq!(tokens.check(&changed, NOW), Err(FeedTokenError::Unknown), "{changed}");
    }
}

#[test]
fn a_forged_token_or_a_signature_for_another_purpose_is_refused() {
    let ours = tokens(&[KEY], 0);
    let grant = grant("x", Scopes::Both, None);
    for elsewhere in [tokens(&[OTHER], 0), tokens(&[KEY], 1), tokens(&[KEY], u32::MAX)] {
        let token = elsewhere.mint(&grant);
        assert_eq!(ours.check(&token, NOW), Err(FeedTokenError::Unknown));
    }
    for text in ["", ".", "kf1", "kf1.rw.x.0", "kf1.rw.x.0.", "....", "ключ", "\0"] {
        assert_eq!(ours.check(text, NOW), Err(FeedTokenError::Unknown), "{text}");
    }
}

#[test]
fn a_signed_text_of_another_form_is_refused() {
    let ours = tokens(&[KEY], 0);
    for signed in [
        "kf2.rw.x.0",
        "kf1.wr.x.0",
        "kf1..x.0",
        "kf1.rw.X.0",
        "kf1.rw..0",
        "kf1.rw.x.",
        "kf1.rw.x",
        "kf1.rw.x.0.0",
        "kf1.rw.x.-1",
        "kf1.rw.x.99999999999999999999",
    ] {
        let token = format!("{signed}.{}", ours.0.sign(signed));
        assert_eq!(ours.check(&token, NOW), Err(FeedTokenError::Unknown), "{signed}");
    }
}

#[test]
fn the_first_key_signs_and_all_keys_verify() {
    let grant = grant("x", Scopes::Write, None);
    let (old, new) = (tokens(&[OTHER], 0), tokens(&[KEY, OTHER], 0));
    assert_eq!(new.check(&old.mint(&grant), NOW), Ok(grant.clone()));
    assert_eq!(old.check(&new.mint(&grant), NOW), Err(FeedTokenError::Unknown));
}

#[test]
fn scopes_allow_what_they_name() {
    use Scopes::{Both, Read, Write};
    for (has, wanted, expected) in [
        (Read, Read, true),
        (Read, Write, false),
        (Write, Write, true),
        (Write, Read, false),
        (Both, Read, true),
        (Both, Write, true),
        (Both, Both, true),
        (Read, Both, false),
    ] {
        assert_eq!(has.allow(wanted), expected, "{has} {wanted}");
    }
    for text in ["r", "w", "rw"] {
        assert_eq!(Scopes::parse(text).unwrap().as_str(), text);
    }
    for wrong in ["", "wr", "R", "rw ", "x"] {
        assert_eq!(Scopes::parse(wrong), None, "{wrong}");
    }
}
