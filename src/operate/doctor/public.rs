//! A user agent and an application server that use the public URL.

use std::io;
use std::pin::pin;
use std::time::Duration;

use actix_web::rt::task::spawn_blocking;
use futures_util::{SinkExt, StreamExt};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use url::Url;

use super::findings::Findings;
use super::reach;
use super::trouble::Trouble;
use crate::dev::agent::{Agent, Event};
use crate::dev::encrypt::MESSAGE_BYTES_MAX;
use crate::dev::identity::Identity;
use crate::dev::keypair::KeyPair;
use crate::dev::push::{Accepted, Push};
use crate::dev::subscription::Subscription;
use crate::dev::to_base64url;
use crate::push::endpoint_token::{EndpointTokens, TokenVersion};
use crate::system::https_client;
use crate::system::https_client::{WebSocket, WebSocketClient};

/// Maximum time for a step of the server.
const STEP_WAIT: Duration = Duration::from_secs(10);

/// The remedy if the user agent gets no answer.
const UNREACHABLE: &str =
    "check that the server or its proxy listens at this URL, DNS, and firewalls";

/// The remedy if the application server gets no answer.
const LOGS: &str = "look at the logs of the proxy and of the server";

/// A user agent on its connection.
struct Session {
    socket: WebSocket,
    agent: Agent,
}

/// An application server that has its subscription.
struct Sender {
    subscription: Subscription,
    pair: KeyPair,
}

/// How the URL is used.
pub(super) struct Visit<'a> {
    pub(super) url: &'a Url,
    pub(super) access_token: Option<&'a str>,
    /// The VAPID key that the application server signs with.
    pub(super) pair: KeyPair,
    pub(super) has_proxy: bool,
    /// Those of the server that should answer, if it runs on this machine.
    pub(super) tokens: Option<EndpointTokens>,
    /// How long the connection is silent before the last push. Without it there is none.
    pub(super) idle: Option<Duration>,
}

pub(super) async fn check(visit: Visit<'_>, findings: &mut Findings) -> io::Result<()> {
    let Visit { url, access_token, pair, has_proxy, tokens, idle } = visit;
    if !reach::dns(url, findings).await? {
        return Ok(());
    }
    if let Some(answer) = reach::request(url).await {
        reach::clock(&answer, findings)?;
        reach::client_address(&answer, has_proxy, findings)?;
    }
    let mut socket_url = url.clone();
    let scheme = if url.scheme() == "https" { "wss" } else { "ws" };
    socket_url.set_scheme(scheme).expect("a WebSocket has the host of an HTTP URL");
    // No finding has the token.
    let shown = socket_url.clone();
    if let Some(token) = access_token {
        socket_url.set_path(&format!("/u/{token}"));
    }
    let client = match WebSocketClient::new(&socket_url) {
        Ok(client) => client,
        Err(error) => return findings.fail("certificates", error.to_string(), "as it says"),
    };
    let identity = Identity::generate(&socket_url, Some(to_base64url(pair.public())));
    let agent = Agent::new(identity);
    let mut session = match Session::connect(&client, agent).await {
        Ok(session) => session,
        Err(trouble) => {
            let failed: Result<String, _> = Err(trouble.at(shown.as_str()));
            return findings.step("user agent", failed, UNREACHABLE);
        }
    };
    findings.ok("user agent", format!("it connects to {shown} and subscribes"))?;
    reach::certificate(&session.socket, findings)?;
    let subscription = session.agent.identity.subscription().expect("it is subscribed");
    if subscription.endpoint.origin() != url.origin() {
        let found = format!(
            "endpoints begin with {}, and the public URL is {}",
            subscription.endpoint.origin().ascii_serialization(),
            url.origin().ascii_serialization()
        );
        let remedy = "set public_url to the URL that browsers and application servers use, and restart: signed pushes to \
                      older subscriptions are rejected then, unless former_urls has their origin";
        return findings.fail("endpoint", found, remedy);
    }
    if tokens.is_some_and(|tokens| !opens(&tokens, &subscription.endpoint)) {
        let found =
            "another Kalends server answers at the public URL: its endpoints have other keys";
        return findings.fail("endpoint", found, "let DNS and the proxy lead to this server");
    }
    findings.ok("endpoint", "it begins with the public URL")?;
    let sender = Sender { subscription, pair };
    if !direct(&mut session, &sender, findings).await? {
        return Ok(());
    }
    large(&mut session, &sender, findings).await?;
    let again = Box::pin(stored(session, &client, &sender, findings)).await?;
    let Some((mut session, idle)) = again.zip(idle) else {
        return Ok(());
    };
    silent(&mut session, idle, &sender, findings).await
}

/// Whether the endpoint is of a server with these keys.
fn opens(tokens: &EndpointTokens, endpoint: &Url) -> bool {
    let token = TokenVersion::in_path(endpoint.path());
    token.is_some_and(|(version, token)| tokens.inspect(version, token).is_ok())
}

/// A push to the connected agent. Returns whether pushes are accepted.
async fn direct(
    session: &mut Session,
    sender: &Sender,
    findings: &mut Findings,
) -> io::Result<bool> {
    let (answer, message) = deliver(session, sender.push(b"direct")).await;
    let answer = match answer {
        Ok(answer) => answer,
        Err(trouble) => {
            findings.step("push", Err::<String, _>(trouble), LOGS)?;
            return Ok(false);
        }
    };
    let arrives = message.map(|()| "a signed push arrives at once");
    let arrives = arrives.map_err(|trouble| trouble.at("it does not arrive"));
    let remedy = "the push was accepted and stored: let the proxy pass frames of WebSockets at once, without buffering";
    findings.step("push", arrives, remedy)?;
    for (header, is_there) in
        [("Location", answer.location.is_some()), ("TTL", answer.ttl.is_some())]
    {
        if !is_there {
            let found = format!("the proxy removes the response header {header}");
            let remedy =
                "application servers need it: let the proxy pass response headers unchanged";
            findings.warn("push", found, remedy)?;
        }
    }
    Ok(true)
}

async fn large(session: &mut Session, sender: &Sender, findings: &mut Findings) -> io::Result<()> {
    let (answer, message) = deliver(session, sender.push(&[b'x'; MESSAGE_BYTES_MAX])).await;
    let arrives = answer.and(message).map(|()| "the largest body of browsers arrives");
    let arrives = arrives.map_err(|trouble| trouble.at("the largest body of browsers"));
    findings.step("large push", arrives, "let the proxy pass large bodies and frames unchanged")
}

/// A push to the agent while it is not connected. Returns its next connection.
async fn stored(
    session: Session,
    client: &WebSocketClient,
    sender: &Sender,
    findings: &mut Findings,
) -> io::Result<Option<Session>> {
    let Session { mut socket, agent } = session;
    // The server notices the end of the connection in any case.
    let _ = socket.close(None).await;
    drop(socket);
    if let Err(trouble) = sender.push(b"stored").await {
        findings.step("stored push", Err::<String, _>(trouble), LOGS)?;
        return Ok(None);
    }
    let mut session = match Session::connect(client, agent).await {
        Ok(session) => session,
        Err(trouble) => {
            let trouble = trouble.at("the agent cannot connect again");
            findings.step("stored push", Err::<String, _>(trouble), UNREACHABLE)?;
            return Ok(None);
        }
    };
    let arrives = session.message().await.map(|()| "it arrives when the agent connects again");
    let arrives = arrives.map_err(|trouble| trouble.at("it does not arrive"));
    let remedy = "look at the log of the server, and run `kalends preflight`";
    findings.step("stored push", arrives, remedy)?;
    Ok(Some(session))
}

/// A push after silence.
async fn silent(
    session: &mut Session,
    idle: Duration,
    sender: &Sender,
    findings: &mut Findings,
) -> io::Result<()> {
    let seconds = idle.as_secs();
    findings
        .wait(&format!("waiting {seconds} s on a silent connection (--idle-s 0 leaves it out)"));
    let found = match session.stays_open(idle).await {
        Err(trouble) => Err(trouble.at(&format!("it ends within {seconds} s"))),
        Ok(()) => {
            let (answer, message) = deliver(session, sender.push(b"late")).await;
            let arrives = answer.and(message).map(|()| format!("a push arrives after {seconds} s"));
            arrives.map_err(|trouble| trouble.at(&format!("after {seconds} s")))
        }
    };
    let remedy = "raise the proxy's timeout of silent connections (proxy_read_timeout of nginx) above \
                  keepalive_interval_s and keepalive_grace_s together";
    findings.step("silent connection", found, remedy)
}

/// Waits for the answer to a push, and for its message if it was accepted. The agent acks it meanwhile.
async fn deliver(
    session: &mut Session,
    push: impl Future<Output = Result<Accepted, Trouble>>,
) -> (Result<Accepted, Trouble>, Result<(), Trouble>) {
    let (mut push, mut message) = (pin!(push), None);
    let answer = loop {
        tokio::select! {
            answer = &mut push => break answer,
            received = session.message(), if message.is_none() => message = Some(received),
        }
    };
    let message = match (&answer, message) {
        (Err(_), _) => Ok(()),
        (Ok(_), Some(message)) => message,
        (Ok(_), None) => session.message().await,
    };
    (answer, message)
}

impl Sender {
    /// Sends a push. Returns the answer, whose status is that of success.
    async fn push(&self, message: &[u8]) -> Result<Accepted, Trouble> {
        let push = Push::signed(&self.subscription, message, &self.pair)?;
        let sent = spawn_blocking(move || push.send()).await;
        Ok(sent.map_err(|error| error.to_string())??)
    }
}

impl Session {
    /// Connects, and subscribes if the agent has no subscription.
    async fn connect(client: &WebSocketClient, mut agent: Agent) -> Result<Self, Trouble> {
        let late = |_| format!("no answer in {} s", STEP_WAIT.as_secs());
        let mut socket = timeout(STEP_WAIT, client.open()).await.map_err(late)??;
        let sent = socket.send(Message::text(agent.hello())).await;
        sent.map_err(|error| https_client::why(&error))?;
        let mut session = Self { socket, agent };
        while session.agent.is_waiting() {
            session.next(STEP_WAIT).await?;
        }
        Ok(session)
    }

    /// Waits for a message, which is acked.
    async fn message(&mut self) -> Result<(), Trouble> {
        loop {
            let events = self.next(STEP_WAIT).await?;
            if events.iter().any(|event| matches!(event, Event::Message { .. })) {
                return Ok(());
            }
        }
    }

    /// Handles what arrives for this time. An error is the end of the connection.
    async fn stays_open(&mut self, time: Duration) -> Result<(), Trouble> {
        let open = async {
            loop {
                self.next(Duration::MAX).await?;
            }
        };
        timeout(time, open).await.unwrap_or(Ok(()))
    }

    /// Handles the next message of the server.
    async fn next(&mut self, wait: Duration) -> Result<Vec<Event>, Trouble> {
        let late = |_| format!("nothing arrives in {} s", wait.as_secs());
        let message = timeout(wait, self.socket.next()).await.map_err(late)?;
        match message {
            Some(Ok(Message::Text(text))) => {
                let step = self.agent.on_message(&text)?;
                for text in step.send {
                    let sent = self.socket.send(Message::text(text)).await;
                    sent.map_err(|error| error.to_string())?;
                }
                Ok(step.events)
            }
            Some(Ok(Message::Close(_))) | None => {
                Err("the connection was closed".to_owned().into())
            }
            Some(Ok(_)) => Ok(Vec::new()),
            Some(Err(error)) => Err(https_client::why(&error).into()),
        }
    }
}
