//! A user agent on its way from one month to the next.

use std::collections::BTreeSet;
use std::time::Instant;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::Message;
use uuid::Uuid;

use super::ledger::Slot;
use super::scene::Scene;
use crate::harness::{Channel, Closed, Notification, Sender, Socket, ack};

/// Somebody with subscriptions.
#[derive(Debug)]
pub(super) struct Traveller {
    pub(super) number: usize,
    pub(super) uaid: String,
    pub(super) channels: Vec<Channel>,
    /// What it does during the storm; afterwards it is prompt.
    pub(super) habit: Habit,
}

/// How it treats what it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Habit {
    /// Acks at once.
    Prompt,
    /// Acks when it is in December, all at once.
    Late,
    /// Never acks.
    Silent,
    /// Breaks off after its first message, or when it is in December and none came, and returns as a prompt one.
    Restless,
}

/// How a visit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parting {
    /// It said goodbye: there is nothing more to do.
    Done,
    /// It broke off.
    BrokeOff,
    /// The server closed the connection, with this code.
    Sent(u16),
    /// The server is dead.
    Gone,
}

/// One connection.
struct Visit<'a> {
    traveller: &'a Traveller,
    scene: &'a Scene,
    habit: Habit,
    socket: Socket,
    /// Since when a command was answered: commands are answered in December only.
    ready_since: Option<Instant>,
    /// What came and was not acked.
    unacked: Vec<Notification>,
    /// Messages that came, and those of them whose acks are not known to be durable.
    came: BTreeSet<usize>,
    acked: Vec<usize>,
    proof: Option<Proof>,
    end: watch::Receiver<bool>,
}

/// A channel that is registered and given up again, to prove what was written before.
struct Proof {
    channel: String,
    /// Messages that were acked before.
    of: Vec<usize>,
}

impl Traveller {
    /// Connects, and connects again whenever that ends, until the scene does.
    pub(super) async fn travel(&self, scene: &Scene) {
        let mut habit = self.habit;
        loop {
            let life = scene.life();
            match or_parting(self.pass(scene, habit).await) {
                Parting::Done => return,
                Parting::BrokeOff => habit = Habit::Prompt,
                Parting::Sent(code) => scene.sent_away(code),
                Parting::Gone => scene.life_after(life).await,
            }
        }
    }

    async fn pass(&self, scene: &Scene, habit: Habit) -> Result<Parting, Closed> {
        let mut visit = self.arrive(scene, habit).await?;
        if habit == Habit::Restless {
            visit.until(|visit| visit.ready_since.is_some() || !visit.came.is_empty()).await?;
            return Ok(Parting::BrokeOff);
        }
        visit.until(|_| scene.is_over()).await?;
        visit.leave().await
    }

    /// Connects once more and takes what is left, up to a message that is posted when it is there. When this
    /// ends, all that it acked is settled.
    pub(super) async fn take_the_rest(&self, scene: &Scene, sender: &Sender) {
        let parting = or_parting(self.take(scene, sender).await);
        assert_eq!(parting, Parting::Done, "a server that nobody disturbs serves to the end");
    }

    /// The last message has a topic: such a one is not sent ahead of what is in storage.
    async fn take(&self, scene: &Scene, sender: &Sender) -> Result<Parting, Closed> {
        let mut visit = self.arrive(scene, Habit::Prompt).await?;
        visit.until(|visit| visit.ready_since.is_some()).await?;
        let slot = Slot { traveller: self.number, channel: 0, topic: Some("last") };
        let last = scene.ledger().post(slot);
        let pushed = scene.push(sender, last, &self.channels[0]);
        let (pushed, came) = tokio::join!(pushed, visit.until(|visit| visit.came.contains(&last)));
        assert_eq!(pushed, Some(true), "a server that nobody disturbs takes a push");
        came?;
        visit.until(|visit| visit.acked.is_empty() && visit.proof.is_none()).await?;
        visit.leave().await
    }

    async fn arrive<'a>(&'a self, scene: &'a Scene, habit: Habit) -> Result<Visit<'a>, Closed> {
        let socket = Socket::open_ever(scene.address).await.map_err(|_| Closed(None))?;
        let mut visit = Visit {
            traveller: self,
            scene,
            habit,
            socket,
            ready_since: None,
            unacked: Vec::new(),
            came: BTreeSet::new(),
            acked: Vec::new(),
            proof: None,
            end: scene.end(),
        };
        let hello = json!({"messageType": "hello", "uaid": self.uaid, "use_webpush": true});
        visit.socket.say(&hello).await;
        let answer = visit.socket.hear_ever().await?;
        assert_eq!((&answer["messageType"], &answer["status"]), (&json!("hello"), &json!(200)));
        assert_eq!(answer["uaid"], *self.uaid, "the server forgot a user agent");
        visit.prove().await;
        Ok(visit)
    }
}

fn or_parting(ended: Result<Parting, Closed>) -> Parting {
    match ended {
        Ok(parting) => parting,
        Err(Closed(Some(code))) => Parting::Sent(code),
        Err(Closed(None)) => Parting::Gone,
    }
}

impl Visit<'_> {
    /// Listens until the condition holds.
    async fn until(&mut self, holds: impl Fn(&Self) -> bool) -> Result<(), Closed> {
        while !holds(self) {
            tokio::select! {
                heard = self.socket.hear_ever() => self.hears(&heard?).await,
                changed = self.end.changed() => changed.expect("the scene is there"),
            }
        }
        Ok(())
    }

    async fn hears(&mut self, heard: &Value) {
        match Notification::read(heard) {
            Some(notification) => self.notified(notification).await,
            None => self.answered(heard).await,
        }
    }

    async fn notified(&mut self, notification: Notification) {
        let number = notification.body().parse().expect("a body is a number");
        self.scene.came(self.traveller.number, number, &notification.version);
        self.came.insert(number);
        self.unacked.push(notification);
        match self.habit {
            Habit::Prompt | Habit::Restless => self.ack().await,
            Habit::Late if self.ready_since.is_some() => self.ack().await,
            Habit::Late | Habit::Silent => {}
        }
    }

    /// Acks all that is not acked yet.
    async fn ack(&mut self) {
        let unacked = std::mem::take(&mut self.unacked);
        if unacked.is_empty() {
            return;
        }
        self.socket.say(&ack(&unacked)).await;
        for notification in unacked {
            let number = notification.body().parse().expect("a body is a number");
            self.scene.ledger().acked(number, self.ready_since);
            self.acked.push(number);
        }
        if self.proof.is_none() {
            self.prove().await;
        }
    }

    /// Begins to prove that the acks so far are durable; the first time, that it is in December.
    async fn prove(&mut self) {
        let channel = Uuid::new_v4().to_string();
        self.socket.say(&json!({"messageType": "register", "channelID": channel})).await;
        let of = std::mem::take(&mut self.acked);
        self.proof = Some(Proof { channel, of });
    }

    async fn answered(&mut self, answer: &Value) {
        let proof = self.proof.take().unwrap_or_else(|| panic!("nothing was asked: {answer}"));
        let answered = (&answer["channelID"], &answer["status"]);
        assert_eq!(answered, (&json!(proof.channel), &json!(200)), "{answer}");
        if answer["messageType"] == "register" {
            let give_up = json!({"messageType": "unregister", "channelID": proof.channel});
            self.socket.say(&give_up).await;
            self.proof = Some(proof);
            self.is_in_december().await;
            return;
        }
        assert_eq!(answer["messageType"], "unregister");
        self.scene.ledger().acks_are_durable(&proof.of);
        if !self.acked.is_empty() {
            self.prove().await;
        }
    }

    /// Commands are answered when a move is over, and not before.
    async fn is_in_december(&mut self) {
        if self.ready_since.is_some() {
            return;
        }
        self.ready_since = Some(Instant::now());
        self.scene.arrived(self.traveller.number);
        if self.habit == Habit::Late {
            self.ack().await;
        }
    }

    async fn leave(mut self) -> Result<Parting, Closed> {
        // Where the server is dead there is nobody to tell.
        let _ = self.socket.send(Message::Close(None)).await;
        while let Ok(heard) = self.socket.hear_ever().await {
            self.hears_while_leaving(&heard);
        }
        Ok(Parting::Done)
    }

    /// What comes after the goodbye came all the same.
    fn hears_while_leaving(&mut self, heard: &Value) {
        if let Some(notification) = Notification::read(heard) {
            let number = notification.body().parse().expect("a body is a number");
            self.scene.came(self.traveller.number, number, &notification.version);
        }
    }
}
