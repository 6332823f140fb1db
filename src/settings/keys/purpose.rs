//! What keys are derived for.

macro_rules! purposes {
    ($($name:ident = $label:literal;)*) => {
        /// The purpose of a derived key. A text sealed or signed for one is invalid for every other.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Purpose {
            $($name,)*
        }

        impl Purpose {
            #[cfg(test)]
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)*];

            pub(super) fn label(self) -> &'static str {
                match self {
                    $(Self::$name => $label,)*
                }
            }
        }
    };
}

// A key depends on its label: with another one, all that was made for the purpose is invalid (docs/stability.md).
purposes! {
    Endpoint = "endpoint token";
    RestrictedEndpoint = "restricted endpoint token";
    MessageLocation = "message location";
    ReceiptSubscription = "receipt subscriptions";
    FeedToken = "feed tokens";
    OperatorLink = "operator links";
    OperatorSession = "operator sessions";
    OperatorForm = "operator forms";
    TlsTicket = "tls tickets";
    NodeRequest = "node request";
    NodeAnswer = "node answer";
    Fingerprint = "key mark";
}
