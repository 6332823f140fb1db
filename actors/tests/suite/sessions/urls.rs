//! Endpoints as transcripts write them.

use harness::transcript::Bindings;
use state_machine::wire::{EndpointUrls, VapidKey};
use state_machine::{Chid, Uaid};

/// Gives `{endpoint U1 C1}`, and `{endpoint U1 C1 K1}` where a key restricts it.
pub(crate) struct NamedUrls;

impl EndpointUrls for NamedUrls {
    fn endpoint(&self, uaid: Uaid, chid: Chid, key: Option<&VapidKey>) -> String {
        let (uaid, chid) = (name('U', &uaid.to_string()), name('C', &chid.to_string()));
        let key = key.map(|key| format!(" {}", name('K', &format!("{key:?}")))).unwrap_or_default();
        format!("{{endpoint {uaid} {chid}{key}}}")
    }
}

/// The name that stands for a text.
fn name(letter: char, text: &str) -> String {
    const NUMBERS_MAX: u32 = 100;
    let names = Bindings::fixed();
    let stands_for_it = |name: &String| names.text(name).as_deref() == Some(text);
    let mut all = (0..NUMBERS_MAX).map(|number| format!("{letter}{number}"));
    all.find(stands_for_it).unwrap_or_else(|| text.to_owned())
}
