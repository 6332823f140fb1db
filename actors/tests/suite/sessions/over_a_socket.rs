//! The same over a real socket: the frames to the user agent, the code of the close frame, and
//! that TCP is closed right after it. Firefox waits for that, not for the frame. An agent without
//! the subprotocol gets the frame of a violation only.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use actix_web::rt::spawn;
use actix_web::rt::task::JoinHandle;
use actors::Directory;
use actors::handle::DirectPush;
use harness::transcript::{Bindings, Expected, Input, Mismatch, Transcript};
use state_machine::connection::Event;
use state_machine::wire::InvalidFrame;

use super::play_all;
use super::played_step::PlayedStep;
use super::stage::{Agent, Stage};
use crate::net::{Heard, Listener, Peer, Server, Speaker, Traffic};
use crate::node::MESSAGE_BYTES_MAX;

#[test]
fn every_transcript_plays_over_a_real_socket() {
    play_all(play);
}

#[test]
fn without_the_subprotocol_a_session_that_broke_no_rule_ends_without_a_close_frame() {
    play_all(async |transcript| {
        let mut transcript = Transcript::clone(&transcript);
        let effects = transcript.steps.iter_mut().flat_map(|step| &mut step.effects);
        let reconnects = |text: &str| {
            ["close< 1001 ", "close< 4409 ", "close< 4410 "].iter().any(|end| text.starts_with(end))
        };
        effects
            .filter(|effect| reconnects(&effect.text))
            .for_each(|effect| effect.text = UNFRAMED.to_owned());
        play_with(Arc::new(transcript), None).await
    });
}

/// The line of an end of TCP without a close frame.
const UNFRAMED: &str = "close< without a close frame";

async fn play(transcript: Arc<Transcript>) -> Result<(), Mismatch> {
    play_with(transcript, Some("push-notification")).await
}

async fn play_with(transcript: Arc<Transcript>, subprotocol: Option<&str>) -> Result<(), Mismatch> {
    let mut stage = Stage::set(transcript);
    let server = Server::start(&stage.shared, stage.transcript.seed).await;
    let peer = server.connect_with(subprotocol).await;
    let mut agent = SocketAgent::on(peer, stage.directory.clone());
    for played in PlayedStep::all(&stage.transcript) {
        stage.play(&played, &mut agent).await;
        agent.traffic.settle().await;
        stage.follow().await;
        stage.agrees(&played, &agent.take_lines(), is_on_the_wire)?;
    }
    Ok(())
}

fn is_on_the_wire(line: &Expected) -> bool {
    match line.recipient() {
        "agent" => true,
        // An agent that hung up gets no close frame.
        "close" => line.text != "close< socket closed",
        _ => false,
    }
}

/// A user agent that writes down what it hears.
struct SocketAgent {
    /// None once it hung up.
    speaker: Option<Speaker>,
    traffic: Traffic,
    directory: Directory,
    lines: Rc<RefCell<Vec<String>>>,
    listening: JoinHandle<()>,
    /// Whether it sends hello only to get the shutdown.
    is_late: bool,
}

impl SocketAgent {
    fn on(peer: Peer, directory: Directory) -> Self {
        let Peer { speaker, listener, traffic } = peer;
        let lines = Rc::default();
        let listening = spawn(listen(listener, Rc::clone(&lines)));
        Self { speaker: Some(speaker), traffic, directory, lines, listening, is_late: false }
    }

    fn take_lines(&mut self) -> Vec<String> {
        let mut lines = self.lines.take();
        if std::mem::take(&mut self.is_late) {
            assert!(lines.remove(0).contains("hello"), "a late hello is answered");
        }
        lines
    }

    async fn event(&mut self, event: &Event) {
        let Some(speaker) = &mut self.speaker else { return };
        match event {
            Event::InvalidFrame(InvalidFrame::Binary) => speaker.binary().await,
            Event::InvalidFrame(InvalidFrame::Unreadable) => {
                speaker.say(&" ".repeat(MESSAGE_BYTES_MAX + 1)).await;
            }
            Event::PeerActive => speaker.pong().await,
            Event::SocketClosed => {
                self.listening.abort();
                self.speaker = None;
            }
            other => panic!("no user agent does this: {other:?}"),
        }
    }
}

impl Agent for SocketAgent {
    async fn act(&mut self, input: &Input, names: &Bindings) {
        match input {
            Input::Frame(text) => {
                let text = names.substitute(text).unwrap();
                if let Some(speaker) = &mut self.speaker {
                    speaker.say(&text).await;
                }
            }
            Input::Event(event) => self.event(event).await,
            Input::Wait(_) => {}
        }
    }

    async fn unfound_push(&mut self, push: DirectPush) {
        self.directory.deliver_here(push);
    }

    async fn unheard_shutdown(&mut self) {
        self.is_late = true;
        self.speaker.as_mut().unwrap().say(r#"{"messageType":"hello"}"#).await;
    }
}

/// Records the frames. A close frame counts once the socket is closed after it.
async fn listen(mut listener: Listener, lines: Rc<RefCell<Vec<String>>>) {
    let mut close = UNFRAMED.to_owned();
    loop {
        let line = match listener.hear().await {
            Heard::Text(json) => format!("agent< {json}"),
            Heard::Ping => "agent< <ping>".to_owned(),
            Heard::Pong(_) => "agent< <pong>".to_owned(),
            Heard::Close(Some((code, reason))) => {
                close = format!("close< {code} {reason}");
                continue;
            }
            Heard::Close(None) => "close< without a code".to_owned(),
            Heard::End => break,
        };
        lines.borrow_mut().push(line);
    }
    lines.borrow_mut().push(close);
}
