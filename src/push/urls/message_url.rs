//! The `Location` of a stored message, `/m/{id}`: the URL with which its sender deletes it.
//!
//! The id is sealed. It authorises its holder to delete that one message, and cannot be forged.

use state_machine::{Chid, MessageId, MessageKey, Topic, Uaid};

use super::sealed;
use crate::settings::keys::{Keys, Purpose, SealKeys, TAG_BYTES};

const START: &str = "/m/";

/// Maximum length of a topic (RFC 8030 §5.4).
const TOPIC_MAX_BYTES: usize = 32;

/// The ids of the user agent, the channel and the message, and the topic.
const SEALED_MAX_BYTES: usize = 3 * 16 + TOPIC_MAX_BYTES + TAG_BYTES;

pub struct MessageUrls {
    keys: SealKeys,
}

impl MessageUrls {
    pub fn new(keys: &Keys) -> Self {
        Self { keys: SealKeys::derive(keys, Purpose::MessageLocation) }
    }

    /// The path of a message of `uaid`, to append to the public URL.
    pub fn encrypt(&self, uaid: Uaid, message: &MessageKey) -> String {
        let topic = message.topic.as_ref().map_or("", Topic::as_str).as_bytes();
        let parts = [&uaid.0, &message.chid.0, &message.id.to_bytes(), topic];
        sealed::seal::<SEALED_MAX_BYTES>(&self.keys, START, &parts)
    }

    /// Decrypts the id of a path: the user agent and its message. None if it was not made with the keys of this server.
    pub fn decrypt(&self, id: &str) -> Option<(Uaid, MessageKey)> {
        let mut buffer = [0; SEALED_MAX_BYTES];
        sealed::open(&self.keys, &[], id, &mut buffer).and_then(parse)
    }
}

fn parse(plain: &[u8]) -> Option<(Uaid, MessageKey)> {
    let (uaid, rest) = plain.split_first_chunk()?;
    let (chid, rest) = rest.split_first_chunk()?;
    let (id, topic) = rest.split_first_chunk()?;
    let topic = match topic {
        [] => None,
        text => Some(Topic::parse(std::str::from_utf8(text).ok()?).ok()?),
    };
    let message = MessageKey { id: MessageId::from_bytes(*id), chid: Chid(*chid), topic };
    Some((Uaid(*uaid), message))
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz::fuzz;

    fn message_urls() -> MessageUrls {
        MessageUrls::new(&Keys::from_texts(&["A".repeat(43)]).unwrap())
    }

    fn message(topic: Option<&str>) -> MessageKey {
        let topic = topic.map(|text| Topic::parse(text).unwrap());
        let id = MessageId::from_uuid_v7(0x0190_1234_5678_7abc, topic.is_some());
        MessageKey { id, chid: Chid([2; 16]), topic }
    }

    #[test]
    fn a_location_decrypts_to_its_message_and_does_not_contain_the_ids_in_clear() {
        let longest = "t".repeat(32);
        for topic in [None, Some("t"), Some(longest.as_str())] {
            let path = message_urls().encrypt(Uaid([1; 16]), &message(topic));
            let id = path.strip_prefix("/m/").unwrap();
            assert_eq!(message_urls().decrypt(id), Some((Uaid([1; 16]), message(topic))));
            assert!(id.len() <= 128 && (id.len() == 128) == (topic == Some(longest.as_str())));
            // The ids are not in clear.
            let sealed = URL_SAFE_NO_PAD.decode(id).unwrap();
            assert!(!sealed.windows(8).any(|bytes| bytes == [1; 8] || bytes == [2; 8]));
        }
    }

    #[test]
    fn a_location_with_a_changed_character_is_unknown() {
        let path = message_urls().encrypt(Uaid([1; 16]), &message(Some("topic")));
        let id = path.strip_prefix("/m/").unwrap();
        for at in 0..id.len() {
            let mut changed = id.to_owned();
            changed.replace_range(at..=at, if id[at..].starts_with('A') { "B" } else { "A" });
            assert_eq!(message_urls().decrypt(&changed), None, "{at}");
        }
    }

    #[test]
    fn a_location_is_no_endpoint_token_and_a_token_is_no_location() {
        use crate::push::endpoint_token::{EndpointTokens, TokenError, TokenVersion};

        let tokens = EndpointTokens::new(&Keys::from_texts(&["A".repeat(43)]).unwrap());
        let path = tokens.encrypt(Uaid([1; 16]), Chid([2; 16]), None);
        assert_eq!(message_urls().decrypt(path.strip_prefix("/wpush/").unwrap()), None);
        let path = message_urls().encrypt(Uaid([1; 16]), &message(None));
        let opened = tokens.decrypt(TokenVersion::Short, path.strip_prefix("/m/").unwrap(), None);
        assert_eq!(opened, Err(TokenError::Unknown));
    }

    #[test]
    fn an_id_that_is_too_short_too_long_or_not_base64_is_unknown() {
        for id in ["", "A", "AAAA", "!", "é", &"A".repeat(21), &"A".repeat(22), &"A".repeat(128)] {
            assert_eq!(message_urls().decrypt(id), None, "{id}");
        }
        assert_eq!(message_urls().decrypt(&"A".repeat(1 << 20)), None);
    }

    #[test]
    fn no_hostile_location_panics_or_is_accepted() {
        let (urls, made) = (message_urls(), [message(None), message(Some("topic"))]);
        let id = |message| urls.encrypt(Uaid([1; 16]), message).split_off("/m/".len());
        fuzz("message_urls", &made.each_ref().map(id), |bytes| {
            if let Some((uaid, message)) = urls.decrypt(&String::from_utf8_lossy(bytes)) {
                assert!(uaid == Uaid([1; 16]) && made.contains(&message), "forged: {message:?}");
            }
        });
    }

    proptest! {
        #[test]
        fn no_id_panics(id in "\\PC{0,140}") {
            prop_assert!(message_urls().decrypt(&id).is_none());
        }

        #[test]
        fn no_base64_panics(id in "[A-Za-z0-9_-]{0,140}") {
            prop_assert!(message_urls().decrypt(&id).is_none());
        }
    }
}
