//! The numbers of all errors (`errno`), with what they mean and what the reader of one does: the source of `GET /errors`,
//! of docs/errors.md and of the list in docs/openapi.json. An errno exists only as a row of this table.

use serde::{Serialize, Serializer};

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorText {
    pub errno: Errno,
    /// The statuses that its answers have. None: any that HTTP has.
    pub statuses: &'static [u16],
    /// What is wrong, as the heading of its section.
    pub title: &'static str,
    pub meaning: &'static str,
    /// What the reader does.
    pub advice: &'static str,
}

macro_rules! errors {
    ($($name:ident = $number:literal, $statuses:expr, $title:literal, $meaning:literal, $advice:literal;)+) => {
        /// The number of an error.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u16)]
        pub enum Errno {
            $($name = $number,)+
        }

        /// All errors, in the order of their numbers.
        pub const ALL: &[ErrorText] = &[
            $(ErrorText {
                errno: Errno::$name,
                statuses: &$statuses,
                title: $title,
                meaning: $meaning,
                advice: $advice,
            },)+
        ];
    };
}

errors! {
    DhMissing = 101, [400], "No public key beside aesgcm",
        "The push is encrypted with `aesgcm`, and has no `Crypto-Key: dh=`: no user agent could decrypt it.",
        "Send the header, or encrypt with `aes128gcm`, which has the key in the body (RFC 8291).";
    NoSuchEndpoint = 102, [404], "No such endpoint or message",
        "The token in the URL is not one of this server's: it was changed or cut, or it is of another server. A message \
         has this answer when it was delivered, replaced or dropped, or has expired.",
        "Compare the URL with the one that the user agent gave. If it is the same, remove the subscription, unless the \
         operator says that the server has lost its keys.";
    UserGone = 103, [410], "The user agent is gone",
        "No user agent has this endpoint any longer: it was uninstalled, started anew, or not connected for long.",
        "Remove the subscription. A user agent behind a bridge registers anew.";
    TooLarge = 104, [413], "Too large",
        "The body, the value, or the number of channels exceeds a limit of this server or of the bridge. The `message` \
         has the limit.",
        "Send less, such as an id with which the app fetches the rest.";
    UserWentAway = 105, [410], "The user agent disappeared during the request",
        "The user agent was removed while the push was in progress.",
        "Remove the subscription.";
    NoSuchSubscription = 106, [410], "No such subscription",
        "The user agent has unsubscribed this channel, or the platform behind the bridge does not know its token any more.",
        "Remove the subscription.";
    WrongKind = 108, [400, 404, 410], "Not for this kind of user agent",
        "A PUT to an endpoint of Web Push, or a POST to one of SimplePush. Or, in the registration API: the type or the \
         application of a bridge that is not here, or a field of the body that is not as described. The `message` names it.",
        "Use the method of the endpoint, or correct the field that the `message` names.";
    Unauthorized = 109, [401, 403], "The signature or the secret is not accepted",
        "401: the VAPID token is missing, malformed, expired, or not for this server; or the access token or the secret of a \
         registration is wrong. The `message` names the check that failed. 403: the subscription is restricted to another \
         VAPID key.",
        "Sign with the key that the subscription was made with. `aud` is the origin of the endpoint, and `exp` at most 24 h \
         ahead. A user agent asks the operator for an access token.";
    Encryption = 110, [400], "The encryption is wrong",
        "A header of the encryption is missing, repeated or malformed, or the VAPID key was used to encrypt. A push with a \
         body needs `Content-Encoding: aes128gcm`.",
        "Encrypt the body with the keys of the subscription (RFC 8291); a library does it. Never send plain text.";
    TtlMissing = 111, [400], "TTL is missing",
        "A push says for how many seconds it is kept while the user agent is not connected (RFC 8030 §5.2).",
        "Send `TTL: 86400`, or as many seconds as the message is of use.";
    TtlInvalid = 112, [400], "TTL is not a number",
        "The `TTL` header is no whole number of seconds, or is there twice.",
        "Send digits only, once, as in `TTL: 86400`.";
    Topic = 113, [400], "The topic is not valid",
        "A `Topic` has at most 32 characters of URL-safe base64 (RFC 8030 §5.4).",
        "Use letters, digits, `-` and `_`; hash a longer name.";
    TtlNegative = 114, [400], "TTL is negative",
        "The `TTL` header is below 0.",
        "Send `TTL: 0` for a message that only a connected user agent receives, else a number of seconds.";
    Urgency = 115, [400], "The urgency is not valid",
        "An `Urgency` is `very-low`, `low`, `normal` or `high` (RFC 8030 §5.3).",
        "Send one of them, or leave the header out.";
    Link = 116, [400], "The Link is no receipt subscription",
        "The receipt subscription in the `Link` header is malformed or has ended, or belongs to another sender.",
        "Leave the header out: with `Prefer: respond-async` the answer names a new one.";
    NothingHere = 117, [404], "Nothing is at this URL",
        "The path is none of this server's. It says nothing about a subscription.",
        "Push to the endpoint that the user agent gave, as a whole: its path begins with `/wpush/`. `GET /openapi.json` \
         lists all paths. A topic name, as of ntfy, is no endpoint.";
    TryLater = 201, [429, 503], "Not now",
        "429: a limit is reached. The `message` names what waits or what was too often, and `RateLimit` the limit. 503: the \
         server has no space, is overloaded, drains, or does not reach its store.",
        "Keep the subscription, and send again after `Retry-After` seconds. Without a receipt subscription that is full, a \
         push is accepted.";
    FeedTokenMissing = 301, [401], "No token of a feed",
        "The request has no `Authorization: Bearer`, or more than one.",
        "Send the token that `kalends feed token` printed, once.";
    FeedTokenUnknown = 302, [401], "The token of the feed is unknown",
        "The token was not made here, was changed, or was revoked.",
        "Ask the operator for a new one.";
    FeedTokenExpired = 303, [401], "The token of the feed has expired",
        "Its validity is over.",
        "Ask the operator for a new one.";
    OtherFeed = 304, [403], "The token is for another feed",
        "A token is for one feed, and the URL names another.",
        "Use the token of this feed.";
    FeedScope = 305, [403], "The token lacks the scope",
        "The token can read and not write, or the reverse.",
        "Use a token with the scope that `WWW-Authenticate` names.";
    FeedParameter = 306, [400], "Unknown parameter",
        "A parameter is unknown or repeated.",
        "The parameters of a read are `after`, `limit` and `wait`. A `?` in a key is written `%3F`.";
    FeedCursor = 307, [400], "The cursor is no number",
        "`after` or `Last-Event-ID` is not a number.",
        "Send the `cursor` of the last page, or start without one.";
    FeedCursorAhead = 308, [400], "The cursor is ahead of the feed",
        "The cursor is above the last number of the feed. It belongs to another URL or another store, or the store was \
         restored from a backup.",
        "Start over without a cursor.";
    FeedLimit = 309, [400], "The limit is no number",
        "`limit` is not a whole number of at least 1.",
        "Correct or omit it.";
    FeedWait = 310, [400], "The wait is no number",
        "`wait` is not a whole number of seconds.",
        "Correct or omit it.";
    FeedKey = 311, [400], "The key is not valid",
        "A key is 1 to 256 bytes of UTF-8 without control characters.",
        "Encode it with percent signs where a URL needs it.";
    FeedValue = 312, [400], "The value is not UTF-8",
        "A value is text.",
        "Encode anything else, such as in base64.";
    NoSuchFeed = 313, [404], "No such feed",
        "A feed exists from its first write on.",
        "Write a key, or correct the name.";
    NoSuchKey = 314, [404], "No such key",
        "The key was never written, or is deleted already.",
        "Nothing, for a delete.";
    TooManyKeys = 315, [507], "The feed is full",
        "The feed has `feed_keys_max` keys. Deleted ones count until they are forgotten.",
        "Write existing keys, or ask the operator for a higher limit.";
    TooManyFollowers = 316, [503], "Too many readers wait",
        "`feed_followers_max` readers wait or stream on this server.",
        "Try again after `Retry-After` seconds, or read pages without `wait`.";
    ReservedKey = 317, [400], "A reserved key",
        "User agents receive errors of broadcasts under the name `errors`.",
        "Use another name.";
    FeedCursorTooOld = 318, [410], "The cursor is too old",
        "The feed has forgotten deletions behind this cursor, so a reader may have missed one.",
        "Discard what you have, and start over without a cursor.";
    NoSuchReceipts = 319, [404], "No such receipt subscription",
        "The URL was never one or has ended, or the `Authorization` header is that of another sender.",
        "Subscribe anew with the next push: `Prefer: respond-async`.";
    BridgeMisconfigured = 900, [502], "The bridge is not set up",
        "The bridge of this endpoint is not set up here, or refuses the message for a reason that the operator must correct.",
        "Tell the operator, who finds the reason in the log.";
    BridgeUnauthorized = 901, [502], "The bridge refuses this server",
        "The platform does not accept the credentials of this server.",
        "Tell the operator: the file `bridges_file` has them.";
    BridgeUnavailable = 902, [502], "The bridge cannot be reached",
        "The platform does not answer, or answers that it failed.",
        "Send again after `Retry-After` seconds.";
    BridgeTimedOut = 903, [503], "The bridge did not answer in time",
        "The platform may have the message nevertheless.",
        "Send again after `Retry-After` seconds, with a topic if a repetition would disturb.";
    Other = 999, [], "Another status of HTTP",
        "The status says what is wrong, and the `message` in which way. 405: the URL does not take the method. 400, 408: the \
         body did not arrive. 431: the headers are too large. 403: a web page of another origin. 426: a browser where a \
         WebSocket is expected.",
        "Correct what the `message` names. `Allow` lists the methods of the URL.";
}

impl Errno {
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// Where this server explains the error: a path, which is valid under each of its names.
    pub fn more_info(self) -> String {
        format!("/errors#{}", self.number())
    }
}

impl Serialize for Errno {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u16(self.number())
    }
}

impl ErrorText {
    /// The statuses as a text.
    pub fn statuses(&self) -> String {
        match self.statuses {
            [] => "any status".to_owned(),
            statuses => statuses.iter().map(u16::to_string).collect::<Vec<_>>().join(", "),
        }
    }
}

/// Checks that the row of an errno has the status of an answer.
#[cfg(test)]
pub(crate) fn assert_described(status: u16, number: u16) {
    let row = ALL.iter().find(|row| row.errno.number() == number);
    let statuses = row.map(|row| row.statuses);
    assert!(
        statuses.is_some_and(|known| known.is_empty() || known.contains(&status)),
        "{status} {number}: {statuses:?}"
    );
}

#[cfg(test)]
mod tests;
