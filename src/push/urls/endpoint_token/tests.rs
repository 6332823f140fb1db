use proptest::prelude::*;

use super::*;
use crate::fuzz::fuzz;

/// The bytes 0 to 31.
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

// Made by Python's `cryptography.fernet` with that key, as autopush and autopush-rs make theirs:
// of UAID and CHID, for v2 and VAPID_KEY, padding taken off.
const V1: &str = "gAAAAABfXhAA1eAy1aYGQbuVxAHeUyXjlsbetjqIMyNU88W6Hdii7XzF77E7HO3IKebHrvCVNPOD8spaJEwz\
    fbVGzGq9qLeDg_K7Z8gW_vE04IgCE_FO5-ZSPGslAbKo_b7jJ5eJVbnq";
const V2: &str = "gAAAAABfXhAAwJjLxLbFAFX44dVAdWP_uTT7wdV4sZoUQbDbADDoXM-GtoU7yKnZqtZ-JYynj9rML50DHkay\
    p1qlo7oO65RnxnMkwr4FI7kLX-PZ9KgrgmUFn2ZUyC1e21idkGzERYV7rcvTl57sikHCPwAECnE2qSXwy-_pt-h-3RTTZ9Q2gYs";
/// Only the uaid is inside.
const CUT_SHORT: &str = "gAAAAABfXhAAhxrnF-l_DTvy4-pxM0XrKS6myf8L7di_vSkywPaN72cV-tdtljg4OUxtnQOu5p1r\
    IgHVYetyQ8Z6qbrimtvguaNy0YldjBAk41BUt3zyLI4";
/// Inside are the ids and 31 bytes.
const ODD: &str = "gAAAAABfXhAARz9gqpRNMMYVc1YPo1O25S9hIl1oB13oA0SrY9hMCNPprAoy7J_vvdWVOKgEt_aU3ySIndBI\
    1RfWLDrVaZi4kgdEqsgkivwKiywMcffRuPVwLfHBv92b-bK0aZ8CbrN3TO25D8ww99nN1yQXImRimg";

/// The keys of RFC 8292 §2.4 and RFC 8291 §5 (the application server's).
const VAPID_KEY: &str =
    "BA1Hxzyi1RUM1b5wjxsn7nGxAszw2u61m164i3MrAIxHF6YK5h4SDYic-dRuU_RCPCfA5aq9ojSwk5Y2EmClBPs";
const OTHER_VAPID_KEY: &str =
    "BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8";

/// Sealed for `VAPID_KEY` by a version of this server whose restricted tokens had 64 characters.
const EARLIER_RESTRICTED: &str = "eslpVXaJsX_dE0olxSs5DrChNvmwXi0L1pgpl3xf7Y4tKpjRx0bOVUCBKCoNU5R3";

const VERSIONS: [TokenVersion; 4] =
    [TokenVersion::Short, TokenVersion::Restricted, TokenVersion::V1, TokenVersion::V2];

const UAID: Uaid = Uaid([0x11; 16]);
const CHID: Chid = Chid([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
const OPENED: EndpointToken = EndpointToken { uaid: UAID, chid: CHID };

fn tokens() -> EndpointTokens {
    EndpointTokens::new(&Keys::from_texts(&[KEY]).unwrap())
}

fn key() -> VapidKey {
    VapidKey::parse(VAPID_KEY).unwrap()
}

fn other_key() -> VapidKey {
    VapidKey::parse(OTHER_VAPID_KEY).unwrap()
}

fn short() -> String {
    tokens().encrypt(UAID, CHID, None).strip_prefix("/wpush/").unwrap().to_owned()
}

fn restricted() -> String {
    tokens().encrypt(UAID, CHID, Some(&key())).strip_prefix("/wpush/r/").unwrap().to_owned()
}

#[test]
fn a_restricted_endpoint_compares_each_byte_of_the_keys_hash() {
    let (tokens, key) = (tokens(), key());
    for at in 0..KEY_ID_BYTES {
        let mut hash = key_hash(&key);
        hash[at] ^= 1;
        let parts: [&[u8]; 3] = [&UAID.0, &CHID.0, &hash[..KEY_ID_BYTES]];
        let path = sealed::seal::<BUFFER_BYTES>(&tokens.restricted, "/wpush/r/", &parts);
        let token = path.strip_prefix("/wpush/r/").unwrap();
        let opened = tokens.decrypt(TokenVersion::Restricted, token, Some(&key));
        assert_eq!(opened, Err(TokenError::OtherKey), "byte {at}");
    }
}

#[test]
fn each_channel_has_one_endpoint() {
    assert_eq!(short(), short());
    assert_eq!(restricted(), restricted());
    assert_ne!(short(), restricted());
    assert_ne!(tokens().encrypt(UAID, Chid([9; 16]), None), format!("/wpush/{}", short()));
}

/// By the key of the request: none, that of the subscription, another one.
#[test]
fn a_token_is_valid_on_its_path_and_a_restricted_one_for_its_own_key_only() {
    let (short, restricted) = (short(), restricted());
    assert_eq!((short.len(), restricted.len()), (64, 86));
    let unknown = Err(TokenError::Unknown);
    let with_any_key = [Ok(OPENED); 3];
    let with_its_key = [Err(TokenError::KeyNeeded), Ok(OPENED), Err(TokenError::OtherKey)];
    let padded = [V1, V2].map(|token| ["=", "=="].map(|padding| format!("{token}{padding}")));
    for (version, token, expected) in [
        (TokenVersion::Short, short.as_str(), with_any_key),
        (TokenVersion::Restricted, &restricted, with_its_key),
        // Of an earlier version of this server: another key is not distinguished from a foreign token.
        (TokenVersion::Restricted, EARLIER_RESTRICTED, [with_its_key[0], Ok(OPENED), unknown]),
        // Another path neither removes nor adds a restriction.
        (TokenVersion::Short, &restricted, [unknown; 3]),
        (TokenVersion::Restricted, &short, [with_its_key[0], unknown, unknown]),
        // Of autopush, with and without padding. Without a version it is one of v1.
        (TokenVersion::V1, V1, with_any_key),
        (TokenVersion::V1, &padded[0][0], with_any_key),
        (TokenVersion::V1, &padded[0][1], with_any_key),
        (TokenVersion::Short, V1, with_any_key),
        (TokenVersion::V2, V2, with_its_key),
        (TokenVersion::V2, &padded[1][0], with_its_key),
        (TokenVersion::V2, &padded[1][1], with_its_key),
        (TokenVersion::Short, V2, [unknown; 3]),
        // Contents of another length.
        (TokenVersion::V1, V2, [unknown; 3]),
        (TokenVersion::V2, V1, [unknown; 3]),
        (TokenVersion::V1, CUT_SHORT, [unknown; 3]),
        (TokenVersion::V2, CUT_SHORT, [unknown; 3]),
        (TokenVersion::V1, ODD, [unknown; 3]),
        (TokenVersion::V2, ODD, [unknown; 3]),
    ] {
        let keys = [None, Some(key()), Some(other_key())];
        let opened = keys.map(|key| tokens().decrypt(version, token, key.as_ref()));
        assert_eq!(opened, expected, "{version:?} {token}");
    }
}

#[test]
fn tokens_of_every_listed_key_are_valid_and_no_others() {
    let later = EndpointTokens::new(&Keys::from_texts(&["B".repeat(43).as_str(), KEY]).unwrap());
    assert_eq!(later.decrypt(TokenVersion::Short, &short(), None), Ok(OPENED));
    assert_eq!(later.decrypt(TokenVersion::Restricted, &restricted(), Some(&key())), Ok(OPENED));
    assert_eq!(later.decrypt(TokenVersion::V1, V1, None), Ok(OPENED));
    assert_eq!(later.decrypt(TokenVersion::V2, V2, Some(&key())), Ok(OPENED));
    assert_ne!(later.encrypt(UAID, CHID, None), tokens().encrypt(UAID, CHID, None));

    let stranger = EndpointTokens::new(&Keys::from_texts(&["B".repeat(43)]).unwrap());
    for (version, token) in [
        (TokenVersion::Short, short().as_str()),
        (TokenVersion::Restricted, &restricted()),
        (TokenVersion::V1, V1),
    ] {
        for key in [None, Some(&key()), Some(&other_key())] {
            assert_eq!(stranger.decrypt(version, token, key), Err(TokenError::Unknown), "{token}");
        }
    }
}

#[test]
fn a_token_with_a_changed_character_is_unknown() {
    let cases = [
        (TokenVersion::Short, short()),
        (TokenVersion::Restricted, restricted()),
        (TokenVersion::Restricted, EARLIER_RESTRICTED.to_owned()),
        (TokenVersion::V1, V1.to_owned()),
        (TokenVersion::V2, V2.to_owned()),
    ];
    for (version, token) in cases {
        for at in 0..token.len() {
            let mut changed = token.clone();
            changed.replace_range(at..=at, if token[at..].starts_with('A') { "B" } else { "A" });
            let opened = tokens().decrypt(version, &changed, Some(&key()));
            assert_eq!(opened, Err(TokenError::Unknown), "{changed}");
        }
    }
}

#[test]
fn an_invalid_token_is_unknown_on_every_path() {
    let long = "A".repeat(1 << 20);
    for token in ["", "A", "é", "!".repeat(64).as_str(), &short()[1..], &long] {
        for version in VERSIONS {
            let opened = tokens().decrypt(version, token, Some(&key()));
            assert_eq!(opened, Err(TokenError::Unknown), "{version:?}");
        }
    }
}

proptest! {
    #[test]
    fn no_token_panics(token in "\\PC{0,200}") {
        for version in VERSIONS {
            prop_assert!(tokens().decrypt(version, &token, Some(&key())).is_err());
        }
    }

    #[test]
    fn every_channel_is_decrypted_as_it_was_encrypted(uaid: [u8; 16], chid: [u8; 16]) {
        let expected = Ok(EndpointToken { uaid: Uaid(uaid), chid: Chid(chid) });
        let path = tokens().encrypt(Uaid(uaid), Chid(chid), None);
        let opened = tokens().decrypt(TokenVersion::Short, &path["/wpush/".len()..], None);
        prop_assert_eq!(opened, expected);
        let path = tokens().encrypt(Uaid(uaid), Chid(chid), Some(&key()));
        let opened = tokens().decrypt(TokenVersion::Restricted, &path["/wpush/r/".len()..], Some(&key()));
        prop_assert_eq!(opened, expected);
    }
}

#[test]
fn no_hostile_token_panics_or_is_accepted() {
    let (tokens, key) = (tokens(), key());
    let samples = [&short(), &restricted(), V1, V2, CUT_SHORT, ODD, EARLIER_RESTRICTED];
    fuzz("endpoint_tokens", &samples, |bytes| {
        let token = String::from_utf8_lossy(bytes);
        for version in VERSIONS {
            for key in [None, Some(&key)] {
                if let Ok(opened) = tokens.decrypt(version, &token, key) {
                    assert_eq!(opened, OPENED, "forged: {token}");
                }
            }
        }
    });
}
