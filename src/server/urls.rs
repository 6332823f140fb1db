//! Endpoint URLs: the public origin and an encrypted token.

use std::sync::Arc;

use state_machine::wire::{EndpointUrls, VapidKey};
use state_machine::{Chid, Uaid};

use crate::push::endpoint_token::EndpointTokens;

pub(super) struct SealedUrls {
    origin: String,
    tokens: Arc<EndpointTokens>,
}

impl SealedUrls {
    pub(super) fn new(origin: &str, tokens: Arc<EndpointTokens>) -> Self {
        Self { origin: origin.to_owned(), tokens }
    }
}

impl EndpointUrls for SealedUrls {
    fn endpoint(&self, uaid: Uaid, chid: Chid, key: Option<&VapidKey>) -> String {
        let path = self.tokens.encrypt(uaid, chid, key.map(Into::into).as_ref());
        format!("{}{path}", self.origin)
    }
}
