//! A message in the names that Mozilla's client library reads on either platform.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use state_machine::{Encoding, Message};

/// What the agent needs to decrypt a message. Only a message with a body has more than `chid`.
#[derive(Serialize)]
pub(super) struct MessageData<'a> {
    chid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    con: Option<&'static str>,
    /// The `Encryption` header, of `aesgcm` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    enc: Option<&'a str>,
    /// The `Crypto-Key` header, of `aesgcm` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    cryptokey: Option<&'a str>,
}

impl<'a> MessageData<'a> {
    pub(super) fn of(message: &'a Message) -> Self {
        let (con, enc, cryptokey) = match message.payload.as_ref().map(|payload| &payload.encoding)
        {
            // Versions of SimplePush are plain, and go to agents of SimplePush only.
            None | Some(Encoding::Plain) => (None, None, None),
            Some(Encoding::Aes128Gcm) => (Some("aes128gcm"), None, None),
            Some(Encoding::AesGcm { encryption, crypto_key }) => {
                (Some("aesgcm"), Some(&**encryption), Some(&**crypto_key))
            }
        };
        let body = message.payload.as_ref().map(|payload| URL_SAFE_NO_PAD.encode(&payload.data));
        Self { chid: message.chid.to_string(), body, con, enc, cryptokey }
    }

    /// The length of all names and values.
    pub(super) fn len(&self) -> usize {
        let fields = [
            ("chid", Some(self.chid.as_str())),
            ("body", self.body.as_deref()),
            ("con", self.con),
            ("enc", self.enc),
            ("cryptokey", self.cryptokey),
        ];
        fields.iter().filter_map(|(name, value)| Some(name.len() + value.as_ref()?.len())).sum()
    }
}
