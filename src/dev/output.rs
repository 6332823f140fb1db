//! What `kalends subscribe` prints: for people, or one JSON object a line.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Value, json};

use super::agent::{Event, Received};
use super::subscription::Subscription;
use super::to_base64url;
use crate::https_client::printable;

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
            _ if self.is_json => json_of(event).to_string(),
            Event::Connected { .. } if self.shown.is_some() => "connected again".into(),
            Event::Connected { .. } => "connected".into(),
            Event::Forgotten => {
                "the server does not know this agent any more, so it subscribes anew: \
                 the old endpoint is dead"
                    .into()
            }
            Event::Subscribed(subscription) if self.shown.as_ref() == Some(subscription) => {
                return Ok(());
            }
            Event::Subscribed(subscription) => {
                self.shown = Some(subscription.clone());
                self.subscribed(subscription)
            }
            Event::Message(received) => message(received),
            Event::Broadcast { id, version } => {
                format!("broadcast {}: {}", printable(id), printable(version))
            }
            Event::BroadcastRefused { id, reason } => {
                format!("(no broadcast {}: {})", printable(id), printable(reason))
            }
            Event::Repeated { version } => format!("(message {version} came again)"),
        };
        self.line(&text)
    }

    /// Prints that the connection is gone.
    pub fn disconnected(&mut self, why: &str, retry: Duration) -> io::Result<()> {
        let text = if self.is_json {
            let retry_ms = u64::try_from(retry.as_millis()).unwrap_or(u64::MAX);
            json!({"event": "disconnected", "reason": why, "retry_ms": retry_ms}).to_string()
        } else {
            format!("disconnected: {why}; connecting again in {:.1} s", retry.as_secs_f64())
        };
        self.line(&text)
    }

    fn line(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.to, "{text}")?;
        self.to.flush()
    }

    fn subscribed(&self, subscription: &Subscription) -> String {
        let (p256dh, auth) = subscription.keys.to_texts();
        let send = match &self.subscription_file {
            Some(file) => format!("--subscription {}", quote(file)),
            None => {
                format!("{} --p256dh={p256dh} --auth={auth}", quote(subscription.endpoint.as_str()))
            }
        };
        format!(
            "endpoint: {}\nsubscription: {}\n\nsend a message with\n\n    \
             kalends push {send} --message hello\n\nwaiting for messages; Ctrl-C ends",
            subscription.endpoint,
            subscription.to_json(),
        )
    }
}

fn json_of(event: &Event) -> Value {
    match event {
        Event::Connected { uaid } => json!({"event": "connected", "uaid": uaid}),
        Event::Forgotten => json!({"event": "forgotten"}),
        Event::Subscribed(subscription) => {
            let subscription: Value = serde_json::from_str(&subscription.to_json())
                .expect("a subscription is written as JSON");
            json!({"event": "subscribed", "subscription": subscription})
        }
        Event::Message(received) => json_of_message(received),
        Event::Broadcast { id, version } => {
            json!({"event": "broadcast", "id": id, "version": version})
        }
        Event::BroadcastRefused { id, reason } => {
            json!({"event": "broadcast_refused", "id": id, "reason": reason})
        }
        Event::Repeated { version } => json!({"event": "repeated", "version": version}),
    }
}

fn json_of_message(received: &Received) -> Value {
    let Received { version, encoding, body } = received;
    match body {
        Err(reason) => json!({"event": "undecryptable", "version": version, "reason": reason}),
        Ok(body) => json!({
            "event": "message",
            "version": version,
            "encoding": encoding,
            "text": std::str::from_utf8(body).ok(),
            "base64url": to_base64url(body),
        }),
    }
}

fn message(received: &Received) -> String {
    match &received.body {
        Ok(body) if body.is_empty() => "(a push without a message)".into(),
        Ok(body) => match std::str::from_utf8(body) {
            Ok(text) => printable(text),
            Err(_) => format!("({} bytes that are no text: {})", body.len(), to_base64url(body)),
        },
        Err(reason) => format!("(message {} cannot be read: {reason})", received.version),
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
    use url::Url;

    fn print(is_json: bool, file: Option<&str>, event: &Event) -> String {
        let subscription_file = file.map(str::to_owned);
        let mut output = Output::new(Vec::new(), is_json, subscription_file);
        output.event(event).unwrap();
        String::from_utf8(output.to).unwrap()
    }

    fn received(body: Result<&[u8], &str>) -> Event {
        let body = body.map(<[u8]>::to_vec).map_err(str::to_owned);
        Event::Message(Received { version: "v".into(), encoding: Some("aes128gcm"), body })
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
        let (p256dh, auth) = subscription.keys.to_texts();
        let event = Event::Subscribed(subscription);
        let command = format!("kalends push 'http://a/b?c&d' --p256dh={p256dh} --auth={auth} -");
        assert!(print(false, None, &event).contains(&command));
        let command = "kalends push --subscription sub.json --message hello\n";
        assert!(print(false, Some("sub.json"), &event).contains(command));
        assert!(print(false, Some("my sub"), &event).contains("--subscription 'my sub' "));
    }

    #[test]
    fn a_reconnect_is_one_line_unless_the_subscription_is_another() {
        let connected = Event::Connected { uaid: "u".into() };
        let (first, other) = (Event::Subscribed(subscription()), Event::Subscribed(subscription()));
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
        assert_eq!(print(false, None, &received(Ok(&[0xff]))), "(1 bytes that are no text: _w)\n");
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
        let printed: Value =
            serde_json::from_str(&print(true, None, &Event::Subscribed(subscription()))).unwrap();
        assert_eq!(printed["subscription"]["endpoint"], "http://a/b?c&d");
    }

    #[test]
    fn a_lost_connection_is_printed_with_when_it_is_tried_again() {
        let mut output = Output::new(Vec::new(), false, None);
        output.disconnected("gone", Duration::from_millis(1500)).unwrap();
        output.is_json = true;
        output.disconnected("gone", Duration::from_millis(1500)).unwrap();
        assert_eq!(
            String::from_utf8(output.to).unwrap(),
            "disconnected: gone; connecting again in 1.5 s\n\
             {\"event\":\"disconnected\",\"reason\":\"gone\",\"retry_ms\":1500}\n"
        );
    }
}
