//! What `kalends subscribe` prints: for people, or one JSON object a line.

use std::io::{self, Write};
use std::time::Duration;

use super::agent::Event;
use super::base64url::to_base64url;
use super::subscription::{KeyTexts, Subscription};
use crate::system::printable::{count, printable};

/// Where and how to print.
pub struct Output<W> {
    /// Destination of each line, such as standard output.
    pub to: W,
    /// One JSON object per line instead of text.
    pub is_json: bool,
    /// The file that the subscription is written to, for the hint how to send to it.
    pub subscription_file: Option<String>,
    /// The subscription that was printed last: it is not explained again after a reconnect.
    shown: Option<Subscription>,
}

impl<W: Write> Output<W> {
    /// Prints to `to`, as JSON or for people.
    pub fn new(to: W, is_json: bool, subscription_file: Option<String>) -> Self {
        Self { to, is_json, subscription_file, shown: None }
    }

    /// Prints one event and flushes the output.
    pub fn event(&mut self, event: &Event) -> io::Result<()> {
        let text = match event {
            _ if self.is_json => serde_json::to_string(event)?,
            Event::Connected { .. } if self.shown.is_some() => "connected again".into(),
            Event::Connected { .. } => "connected".into(),
            Event::Forgotten => {
                "the server does not know this agent any more, so it subscribes anew: \
                 the old endpoint is dead"
                    .into()
            }
            Event::Subscribed { subscription } if self.shown.as_ref() == Some(subscription) => {
                return Ok(());
            }
            Event::Subscribed { subscription } => {
                self.shown = Some(subscription.clone());
                self.subscribed(subscription)
            }
            Event::Message { body, .. } if body.is_empty() => "(a push without a message)".into(),
            Event::Message { body, .. } => match std::str::from_utf8(body) {
                Ok(text) => printable(text),
                Err(_) => {
                    format!(
                        "({} that are no text: {})",
                        count(body.len() as u64, "byte"),
                        to_base64url(body)
                    )
                }
            },
            Event::Undecryptable { version, reason } => {
                format!("(message {version} cannot be read: {reason})")
            }
            Event::Broadcast { id, version } => {
                format!("broadcast {}: {}", printable(id), printable(version))
            }
            Event::BroadcastRefused { id, reason } => {
                format!("(no broadcast {}: {})", printable(id), printable(reason))
            }
            Event::Repeated { version } => format!("(message {version} was received before)"),
            Event::Disconnected { reason, retry_ms } => {
                let retry = Duration::from_millis(*retry_ms).as_secs_f64();
                format!("disconnected: {reason}; connecting again in {retry:.1} s")
            }
        };
        writeln!(self.to, "{text}")?;
        self.to.flush()
    }

    fn subscribed(&self, subscription: &Subscription) -> String {
        let KeyTexts { p256dh, auth } = subscription.keys.clone().into();
        let send = match &self.subscription_file {
            Some(file) => format!("--subscription {}", quote(file)),
            None => {
                format!("{} --p256dh={p256dh} --auth={auth}", quote(subscription.endpoint.as_str()))
            }
        };
        let is_restricted = subscription.endpoint.path().starts_with("/wpush/r/");
        let key = if is_restricted { " --vapid-key FILE" } else { "" };
        format!(
            "endpoint: {}\nsubscription: {}\n\nsend a message with\n\n    \
             kalends push {send}{key} --message hello\n\nwaiting for messages; Ctrl-C ends",
            subscription.endpoint,
            subscription.to_json(),
        )
    }
}

/// Quotes an argument for a shell if it needs that.
fn quote(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./:=%+,@".contains(&b);
    if !text.is_empty() && text.bytes().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dev::identity::Identity;
    use serde_json::{Value, json};
    use url::Url;

    fn print(is_json: bool, file: Option<&str>, event: &Event) -> String {
        let subscription_file = file.map(str::to_owned);
        let mut output = Output::new(Vec::new(), is_json, subscription_file);
        output.event(event).unwrap();
        String::from_utf8(output.to).unwrap()
    }

    fn received(body: Result<&[u8], &str>) -> Event {
        let version = "v".into();
        match body.map(<[u8]>::to_vec).map_err(str::to_owned) {
            Ok(body) => Event::Message { version, encoding: Some("aes128gcm"), body },
            Err(reason) => Event::Undecryptable { version, reason },
        }
    }

    fn subscription() -> Subscription {
        let server = Url::parse("ws://a/").unwrap();
        let mut identity = Identity::generate(&server, None);
        identity.endpoint = Some(Url::parse("http://a/b?c&d").unwrap());
        identity.subscription().unwrap()
    }

    #[test]
    fn a_subscription_is_printed_with_a_command_that_can_be_pasted() {
        let subscription = subscription();
        let KeyTexts { p256dh, auth } = subscription.keys.clone().into();
        let event = Event::Subscribed { subscription };
        let command = format!("kalends push 'http://a/b?c&d' --p256dh={p256dh} --auth={auth} -");
        assert!(print(false, None, &event).contains(&command));
        let command = "kalends push --subscription sub.json --message hello\n";
        assert!(print(false, Some("sub.json"), &event).contains(command));
        assert!(print(false, Some("my sub"), &event).contains("--subscription 'my sub' "));
        let mut restricted = tests::subscription();
        restricted.endpoint = Url::parse("http://a/wpush/r/b").unwrap();
        let printed = print(false, Some("s"), &Event::Subscribed { subscription: restricted });
        assert!(printed.contains("--subscription s --vapid-key FILE --message hello\n"));
    }

    #[test]
    fn a_reconnect_is_one_line_unless_the_subscription_is_another() {
        let connected = Event::Connected { uaid: "u".into() };
        let subscribed = || Event::Subscribed { subscription: subscription() };
        let (first, other) = (subscribed(), subscribed());
        let mut output = Output::new(Vec::new(), false, None);
        output.event(&connected).unwrap();
        output.event(&first).unwrap();
        output.to.clear();

        output.event(&connected).unwrap();
        output.event(&first).unwrap();
        assert_eq!(std::mem::take(&mut output.to), b"connected again\n");
        output.event(&other).unwrap();
        assert!(String::from_utf8(output.to).unwrap().starts_with("endpoint: "));
    }

    #[test]
    fn a_message_is_printed_as_it_is_but_for_control_characters() {
        let printed = print(false, None, &received(Ok("Grüße\n\u{1b}[2J".as_bytes())));
        assert_eq!(printed, "Grüße\n\\u{1b}[2J\n");
        let broadcast = Event::Broadcast { id: "news".into(), version: "\u{1b}\"1\"".into() };
        assert_eq!(print(false, None, &broadcast), "broadcast news: \\u{1b}\"1\"\n");
        let refused = Event::BroadcastRefused { id: "news".into(), reason: "why".into() };
        assert_eq!(print(false, None, &refused), "(no broadcast news: why)\n");
        assert_eq!(print(false, None, &received(Ok(b""))), "(a push without a message)\n");
        assert_eq!(print(false, None, &received(Ok(&[0xff]))), "(1 byte that are no text: _w)\n");
        assert_eq!(print(false, None, &received(Err("why"))), "(message v cannot be read: why)\n");
    }

    #[test]
    fn json_is_one_object_a_line() {
        for (event, expected) in [
            (Event::Connected { uaid: "u".into() }, json!({"event": "connected", "uaid": "u"})),
            (Event::Forgotten, json!({"event": "forgotten"})),
            (Event::Repeated { version: "v".into() }, json!({"event": "repeated", "version": "v"})),
            (
                Event::Broadcast { id: "i".into(), version: "v".into() },
                json!({"event": "broadcast", "id": "i", "version": "v"}),
            ),
            (
                Event::BroadcastRefused { id: "i".into(), reason: "why".into() },
                json!({"event": "broadcast_refused", "id": "i", "reason": "why"}),
            ),
            (
                received(Ok(b"a\nb")),
                json!({"event": "message", "version": "v", "encoding": "aes128gcm",
                       "text": "a\nb", "base64url": "YQpi"}),
            ),
            (
                received(Ok(&[0xff])),
                json!({"event": "message", "version": "v", "encoding": "aes128gcm",
                       "text": null, "base64url": "_w"}),
            ),
            (
                received(Err("why")),
                json!({"event": "undecryptable", "version": "v", "reason": "why"}),
            ),
        ] {
            let printed = print(true, None, &event);
            assert_eq!(printed.lines().count(), 1);
            assert_eq!(serde_json::from_str::<Value>(&printed).unwrap(), expected);
        }
        let subscribed = Event::Subscribed { subscription: subscription() };
        let printed: Value = serde_json::from_str(&print(true, None, &subscribed)).unwrap();
        assert_eq!(printed["subscription"]["endpoint"], "http://a/b?c&d");
    }

    #[test]
    fn a_lost_connection_is_printed_with_when_it_is_tried_again() {
        let mut output = Output::new(Vec::new(), false, None);
        let disconnected = Event::Disconnected { reason: "gone".into(), retry_ms: 1500 };
        output.event(&disconnected).unwrap();
        output.is_json = true;
        output.event(&disconnected).unwrap();
        assert_eq!(
            String::from_utf8(output.to).unwrap(),
            "disconnected: gone; connecting again in 1.5 s\n\
             {\"event\":\"disconnected\",\"reason\":\"gone\",\"retry_ms\":1500}\n"
        );
    }
}
