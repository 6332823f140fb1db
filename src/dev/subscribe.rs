//! `kalends subscribe`: a user agent that prints what is sent to it.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::time::Duration;

use actix_web::rt::System;
use actix_web::rt::time::{sleep, timeout};
use aws_lc_rs::rand;
use clap::builder::NonEmptyStringValueParser;
use futures_util::{SinkExt, StreamExt};
use state_machine::Span;
use state_machine::backoff::Backoff;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};
use url::Url;

use super::agent::{Agent, AgentError, Event, Step};
use super::error::ToolError;
use super::files::FileError;
use super::identity::{Identity, vapid_public_key};
use super::output::Output;
use crate::command::{Command, Commands, Failure};
use crate::system::https_client::{ClientError, WebSocket, WebSocketClient, why};
use crate::system::printable::printable;

#[derive(Debug, Clone, clap::Args)]
pub struct SubscribeArgs {
    /// Server to connect to: a ws, wss, http or https URL
    #[arg(value_name = "URL", default_value = "ws://127.0.0.1:8080/", value_parser = websocket)]
    pub url: Url,

    /// Keep id, channel and keys in FILE (mode 0600), so that a later run gets the messages of the meantime.
    /// For one server and one run at a time
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,

    /// Write the subscription as JSON to FILE (mode 0600), for `kalends push --subscription FILE`
    #[arg(long, value_name = "FILE")]
    pub subscription: Option<PathBuf>,

    /// Let only the owner of this VAPID key send: the public key in base64url
    #[arg(long, value_name = "KEY", value_parser = vapid_public_key, allow_hyphen_values = true)]
    pub vapid_public_key: Option<String>,

    /// Subscribe to the broadcast ID too, and print each version. May be repeated
    #[arg(long = "broadcast", value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub broadcasts: Vec<String>,

    /// End after N messages
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// Print one JSON object a line, for programs
    #[arg(long)]
    pub json: bool,
}

impl Command for SubscribeArgs {
    const NAME: &'static str = "subscribe";
    const ABOUT: &'static str = "Act as a user agent: subscribe, and print each message";
    const HELP: &'static str = "\
Examples:
  kalends subscribe                              a new agent on ws://127.0.0.1:8080/
  kalends subscribe wss://push.example.net/ --state agent.json
                                                 the same agent every time
  kalends subscribe --subscription sub.json --count 1
                                                 end after one message
  kalends subscribe --vapid-public-key \"$(kalends keys vapid vapid.pem)\"
                                                 accept only messages signed with that key";

    fn run(self, _commands: Commands) -> Result<(), Failure> {
        Ok(run(&self)?)
    }
}

/// Runs until `--count` messages are received, or for ever.
pub fn run(args: &SubscribeArgs) -> Result<(), ToolError> {
    System::new().block_on(async {
        let mut listener = Listener::new(args, stdout(), Timing::default())?;
        listener.run().await
    })
}

/// Parses the server's URL. The WebSocket has the path of the HTTP URL.
fn websocket(text: &str) -> Result<Url, String> {
    let expected = || {
        let suggested = Url::parse(&format!("ws://{text}")).ok();
        let suggested = suggested.filter(|_| !text.contains("://"));
        let suggestion = suggested.map(|url| format!(": did you mean {url}?")).unwrap_or_default();
        format!("expected a ws, wss, http or https URL{suggestion}")
    };
    let mut url = Url::parse(text).map_err(|_| expected())?;
    let scheme = match url.scheme() {
        "ws" | "http" => "ws",
        "wss" | "https" => "wss",
        _ => return Err(expected()),
    };
    url.set_scheme(scheme).map_err(|()| "the URL has no host".to_owned())?;
    Ok(url)
}

/// Timeouts and retry intervals of the listener.
struct Timing {
    /// Connecting: finding the server, TCP, TLS and HTTP.
    connect: Duration,
    /// An answer of the server, as in Firefox.
    answer: Duration,
    /// Silence before a ping, as in Firefox.
    idle: Duration,
    /// The answer to the ping, as in Firefox.
    pong: Duration,
    /// The first wait before a reconnect; it doubles up to `retry_max`.
    retry: Span,
    retry_max: Span,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(20),
            answer: Duration::from_secs(10),
            idle: Duration::from_secs(30 * 60),
            pong: Duration::from_secs(10),
            retry: Span(500),
            retry_max: Span::from_secs(30),
        }
    }
}

/// The close code after which an agent must not reconnect by itself.
const DO_NOT_RETURN: u16 = 4774;
/// The close code of a connection that a newer one of the same agent replaced.
const REPLACED: u16 = 4409;

struct Listener<'a, W> {
    args: &'a SubscribeArgs,
    timing: Timing,
    agent: Agent,
    output: Output<W>,
    client: WebSocketClient,
    /// Messages until the end.
    left: Option<u64>,
    /// Whether the server has ever accepted the agent.
    was_connected: bool,
    backoff: Backoff,
}

/// Why a connection ended before the last message.
enum Ended {
    /// A reconnect may succeed.
    Lost(String),
    /// A reconnect would fail too.
    Failed(ToolError),
}

impl<E: Into<ToolError>> From<E> for Ended {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl<'a, W: Write> Listener<'a, W> {
    fn new(args: &'a SubscribeArgs, to: W, timing: Timing) -> Result<Self, ToolError> {
        let key = args.vapid_public_key.clone();
        let identity = match &args.state {
            Some(path) => Identity::load_or_generate(path, &args.url, key)?,
            None => Identity::generate(&args.url, key),
        };
        let subscription_file = args.subscription.as_ref().map(|path| path.display().to_string());
        Ok(Self {
            args,
            agent: Agent::new(identity).with_broadcasts(&args.broadcasts),
            output: Output::new(to, args.json, subscription_file),
            client: WebSocketClient::new(&args.url)?,
            left: args.count,
            was_connected: false,
            backoff: Backoff::new(timing.retry, timing.retry_max),
            timing,
        })
    }

    async fn run(&mut self) -> Result<(), ToolError> {
        loop {
            let why = match self.session().await {
                Ok(()) => return Ok(()),
                Err(Ended::Failed(error)) => return Err(error),
                Err(Ended::Lost(why)) => why,
            };
            if !self.was_connected {
                // Most likely a wrong URL.
                return Err(ClientError::Unreachable { url: self.args.url.to_string(), why }.into());
            }
            let retry_ms = jittered(self.backoff.next().0);
            self.output.event(&Event::Disconnected { reason: why, retry_ms })?;
            sleep(Duration::from_millis(retry_ms)).await;
        }
    }

    /// One connection, until it breaks or the last message is received.
    async fn session(&mut self) -> Result<(), Ended> {
        let opened = timeout(self.timing.connect, self.client.open()).await;
        let silent = |_| Ended::Lost("the server does not answer".into());
        let mut socket = opened.map_err(silent)?.map_err(|error| Ended::Lost(error.to_string()))?;
        let hello = self.agent.hello();
        self.send(&mut socket, Message::text(hello)).await?;
        while self.left != Some(0) {
            match self.next(&mut socket).await? {
                Message::Text(text) => self.on_message(&mut socket, &text).await?,
                // The library answers a ping while the next message is awaited.
                Message::Ping(_) | Message::Pong(_) => {}
                Message::Close(frame) => return Err(self.closed(frame)),
                Message::Binary(_) | Message::Frame(_) => {
                    let text = "the server sent something that is not a text";
                    return Err(ClientError::Refused(text.into()).into());
                }
            }
            // As in Firefox, any message resets the wait, but a server may refuse every register after its hello.
            if !self.agent.is_waiting() {
                self.backoff.reset();
            }
        }
        self.leave(&mut socket).await;
        Ok(())
    }

    /// The next message. After a long silence the server is pinged.
    async fn next(&self, socket: &mut WebSocket) -> Result<Message, Ended> {
        let mut patience = self.timing.answer;
        if !self.agent.is_waiting() {
            if let Ok(message) = timeout(self.timing.idle, socket.next()).await {
                return whole(message);
            }
            self.send(socket, Message::text("{}")).await?;
            patience = self.timing.pong;
        }
        match timeout(patience, socket.next()).await {
            Ok(message) => whole(message),
            Err(_) => Err(Ended::Lost("the server does not answer".into())),
        }
    }

    async fn on_message(&mut self, socket: &mut WebSocket, text: &str) -> Result<(), Ended> {
        let Step { events, send } = match self.agent.on_message(text) {
            Err(error @ AgentError::Refused { status: 500.., .. }) => {
                return Err(Ended::Lost(error.to_string()));
            }
            heard => heard.map_err(ToolError::from)?,
        };
        for event in &events {
            self.keep(event)?;
            self.output.event(event)?;
        }
        for text in send {
            self.send(socket, Message::text(text)).await?;
        }
        Ok(())
    }

    /// Stores an event before it is printed.
    fn keep(&mut self, event: &Event) -> Result<(), FileError> {
        match event {
            Event::Connected { .. } => self.was_connected = true,
            Event::Subscribed { subscription } => {
                if let Some(path) = &self.args.subscription {
                    subscription.save(path)?;
                }
            }
            Event::Message { .. } | Event::Undecryptable { .. } => {
                self.left = self.left.map(|left| left.saturating_sub(1));
                return Ok(());
            }
            Event::Forgotten
            | Event::Broadcast { .. }
            | Event::BroadcastRefused { .. }
            | Event::Repeated { .. }
            | Event::Disconnected { .. } => return Ok(()),
        }
        self.args.state.as_ref().map_or(Ok(()), |path| self.agent.identity.save(path))
    }

    async fn send(&self, socket: &mut WebSocket, message: Message) -> Result<(), Ended> {
        match timeout(self.timing.answer, socket.send(message)).await {
            Ok(sent) => sent.map_err(|error| Ended::Lost(why(&error))),
            Err(_) => Err(Ended::Lost("the server does not read".into())),
        }
    }

    fn closed(&self, frame: Option<CloseFrame>) -> Ended {
        let Some(CloseFrame { code, reason }) = frame else {
            return Ended::Lost("the server closed the connection".into());
        };
        // Two agents that both reconnect would replace each other for ever.
        let refused = match (u16::from(code), &self.args.state) {
            (REPLACED, Some(path)) => format!(
                "another `kalends subscribe` uses {}, or the agent was dropped (close code 4409): \
                 run one at a time, or name another file",
                path.display()
            ),
            (REPLACED, None) => {
                "the same agent connected again, or was dropped (close code 4409)".into()
            }
            (DO_NOT_RETURN, _) => {
                "the server asked this agent not to reconnect (close code 4774)".into()
            }
            (code, _) => {
                let reason = printable(&reason);
                let colon = if reason.is_empty() { "" } else { ": " };
                let text = format!("the server closed the connection ({code}{colon}{reason})");
                return Ended::Lost(text);
            }
        };
        ClientError::Refused(refused).into()
    }

    /// Closes the connection and waits for the server to close it too: by then it has read all acks.
    async fn leave(&self, socket: &mut WebSocket) {
        let frame = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        let goodbye = Message::Close(Some(frame));
        if self.send(socket, goodbye).await.is_err() {
            return;
        }
        let gone = async {
            while let Some(Ok(message)) = socket.next().await {
                if message.is_close() {
                    return;
                }
            }
        };
        let _a_server_that_stays_is_left = timeout(self.timing.answer, gone).await;
    }
}

fn whole(message: Option<Result<Message, Error>>) -> Result<Message, Ended> {
    match message {
        Some(Ok(message)) => Ok(message),
        Some(Err(Error::Utf8(_))) => {
            Err(ClientError::Refused("the server sent a text that is not UTF-8".into()).into())
        }
        Some(Err(error)) => Err(Ended::Lost(why(&error))),
        None => Err(Ended::Lost("the server closed the connection".into())),
    }
}

/// Half to all of a wait, so that agents disconnected together do not reconnect together.
fn jittered(wait_ms: u64) -> u64 {
    let mut random = [0; 1];
    rand::fill(&mut random).expect("the system gives random bytes");
    wait_ms / 2 + wait_ms / 2 * u64::from(random[0]) / 255
}

#[cfg(test)]
mod tests;
