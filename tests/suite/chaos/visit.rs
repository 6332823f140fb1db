//! One connection of a user agent.

use std::pin::pin;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::{sleep, sleep_until, timeout};
use tokio_tungstenite::tungstenite::Message;
use uuid::Uuid;

use super::client::Client;
use super::plan::Habit;
use super::scene::{Scene, Stage};
use crate::harness::{Channel, Closed, Notification, Socket, ack};

/// A user agent that was answered hello.
pub(super) struct Visit<'a> {
    client: &'a Client,
    scene: &'a Scene,
    opened_at: Instant,
    socket: Socket,
    /// What came and was not acked.
    unacked: Vec<Notification>,
    /// Since when there is any.
    unacked_since: Option<Instant>,
    /// The channel it asked for.
    asked: Option<String>,
}

/// How long a user agent waits for the answer to its hello. Firefox waits as long.
const HELLO_WAIT: Duration = Duration::from_secs(10);

/// How long it waits before it tries again; it doubles with each time.
const BACK_OFF: Duration = Duration::from_millis(100);
const BACK_OFF_MAX: Duration = Duration::from_secs(2);

impl<'a> Visit<'a> {
    /// Connects to this node, or to another where that is not to be had, until it is answered hello.
    pub(super) async fn arrive(client: &'a Client, scene: &'a Scene, node: usize) -> Self {
        let (wanted_at, mut back_off) = (Instant::now(), BACK_OFF);
        for node in node.. {
            let node = node % scene.connects.len();
            match timeout(HELLO_WAIT, Self::greet(client, scene, node)).await {
                Ok(Ok(visit)) => return visit.arrived(node, wanted_at).await,
                Ok(Err(_)) => scene.count_hello(|hellos| hellos.refused += 1),
                Err(_) => scene.count_hello(|hellos| hellos.given_up += 1),
            }
            sleep(back_off).await;
            back_off = (back_off * 2).min(BACK_OFF_MAX);
        }
        unreachable!("there is always another node to try")
    }

    async fn greet(client: &'a Client, scene: &'a Scene, node: usize) -> Result<Self, Closed> {
        let opened_at = Instant::now();
        let socket = Socket::open_ever(scene.connects[node]).await.map_err(|_| Closed(None))?;
        let mut visit = Self {
            client,
            scene,
            opened_at,
            socket,
            unacked: Vec::new(),
            unacked_since: None,
            asked: None,
        };
        let hello = json!({"messageType": "hello", "uaid": client.uaid, "use_webpush": true});
        visit.socket.say(&hello).await;
        let answer = visit.socket.hear_ever().await?;
        let expected = json!(["hello", 200, client.uaid]);
        if json!([answer["messageType"], answer["status"], answer["uaid"]]) != expected {
            let record_lost = format!("the record of {} is lost: {answer}", client.number);
            scene.ledger().found(record_lost);
        }
        Ok(visit)
    }

    /// Says what it owes from its last connection.
    async fn arrived(mut self, node: usize, wanted_at: Instant) -> Self {
        let now = Instant::now();
        self.scene.comebacks().came_home(self.client.number, node, now);
        self.scene.count_hello(|hellos| {
            hellos.answered += 1;
            hellos.longest = hellos.longest.max(now - wanted_at);
        });
        self.unacked = self.client.owed.take();
        self.ack().await;
        self
    }

    /// Asks for a channel, whose answer comes when it comes.
    pub(super) async fn register(&mut self) {
        let channel = Uuid::new_v4().to_string();
        self.socket.say(&json!({"messageType": "register", "channelID": channel})).await;
        self.asked = Some(channel);
    }

    /// Takes what comes, until then or until the storm is over.
    pub(super) async fn until(&mut self, at: Instant, habit: Habit) -> Result<(), Closed> {
        let mut left = pin!(self.scene.until(at));
        loop {
            let ack_at = self.ack_at(habit);
            tokio::select! {
                heard = self.socket.hear_ever() => self.hears(&heard?),
                () = sleep_until(ack_at.unwrap_or(at).into()), if ack_at.is_some() => {
                    self.ack().await;
                }
                () = &mut left => return Ok(()),
            }
        }
    }

    /// Takes what comes and acks it at once, until the stage is over.
    pub(super) async fn until_end_of(&mut self, stage: Stage) -> Result<(), Closed> {
        let mut end = pin!(self.scene.end_of(stage));
        loop {
            tokio::select! {
                heard = self.socket.hear_ever() => self.hears(&heard?),
                () = &mut end => return Ok(()),
            }
            self.ack().await;
        }
    }

    /// Takes one message; gives its number.
    pub(super) async fn next(&mut self) -> Result<usize, Closed> {
        while self.unacked.is_empty() {
            let heard = self.socket.hear_ever().await?;
            self.hears(&heard);
        }
        let number = number_of(&self.unacked[0]);
        self.ack().await;
        Ok(number)
    }

    /// The end: gives the connection, which is still open.
    pub(super) fn left(self, habit: Habit) -> Socket {
        if habit == Habit::NextTime {
            self.client.owed.replace(self.unacked);
        }
        self.socket
    }

    fn ack_at(&self, habit: Habit) -> Option<Instant> {
        let since = self.unacked_since?;
        match habit {
            Habit::Prompt | Habit::Stalled(_) => Some(since),
            Habit::Late(wait) => Some(since + wait),
            Habit::Silent | Habit::NextTime => None,
        }
    }

    fn hears(&mut self, heard: &Value) {
        let Some(notification) = Notification::read(heard) else { return self.answered(heard) };
        let number = number_of(&notification);
        let (client, opened_at) = (self.client.number, self.opened_at);
        self.scene.ledger().came(client, opened_at, number, &notification.version);
        self.unacked.push(notification);
        self.unacked_since.get_or_insert_with(Instant::now);
    }

    async fn ack(&mut self) {
        self.unacked_since = None;
        let unacked = std::mem::take(&mut self.unacked);
        if unacked.is_empty() {
            return;
        }
        self.socket.say(&ack(&unacked)).await;
        let now = Instant::now();
        for notification in &unacked {
            self.scene.ledger().acked(number_of(notification), now);
        }
    }

    /// The channel is there from now on.
    fn answered(&mut self, answer: &Value) {
        let (said, endpoint) = (&answer["messageType"], answer["pushEndpoint"].as_str());
        match (self.asked.take(), endpoint) {
            (Some(id), Some(endpoint)) if said == "register" && answer["status"] == 200 => {
                let channel = Channel { id, endpoint: endpoint.to_owned() };
                self.client.channels.borrow_mut().push(channel);
            }
            _ => self.scene.ledger().found(format!("nothing was asked, or not this: {answer}")),
        }
    }
}

/// The number that a message's body begins with.
fn number_of(notification: &Notification) -> usize {
    let number = notification.body().split(' ').next().and_then(|number| number.parse().ok());
    number.expect("a body begins with a number")
}

/// Says goodbye, and does not wait for an answer.
pub(super) async fn say_goodbye(mut socket: Socket) {
    // Where the node is gone there is nobody to tell.
    let _ = socket.send(Message::Close(None)).await;
}
