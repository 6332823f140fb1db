//! The client actor on a clock that the test moves: frames, orders to the store, answers to pushes,
//! the registry and the close, all compared.

use std::sync::Arc;

use actix::Addr;
use actors::Client;
use actors::handle::DirectPush;
use harness::transcript::{Bindings, Input, Mismatch, Transcript};
use state_machine::connection::{Effect, Event};

use super::play_all;
use super::played_step::PlayedStep;
use super::stage::{Agent, Stage};
use crate::clockwork::settle;
use crate::wire::{Arrived, Came, Sent, Wire};

#[test]
fn every_transcript_plays_on_the_client_actor() {
    play_all(play);
}

async fn play(transcript: Arc<Transcript>) -> Result<(), Mismatch> {
    let mut stage = Stage::set(transcript);
    let record = Arc::clone(&stage.record);
    let mut client = Wire::start(&stage.shared, stage.transcript.seed, move |sent| match sent {
        Sent::Text(json) => record.note(format!("agent< {json}")),
        Sent::Ping => record.ordered(&Effect::Ping),
        Sent::Close(reason) => record.ordered(&Effect::Close(reason)),
    });
    settle().await;
    for played in PlayedStep::all(&stage.transcript) {
        stage.play(&played, &mut client).await;
        settle().await;
        stage.compare(&played).await?;
    }
    Ok(())
}

impl Agent for Addr<Client<Wire>> {
    async fn act(&mut self, input: &Input, names: &Bindings) {
        let event = input.event(names).expect("names were checked when the transcript was read");
        // If it is refused, the connection has ended, and the agent's events are ignored.
        drop(self.try_send(Came(event)));
    }

    async fn unfound_push(&mut self, push: DirectPush) {
        self.try_send(Arrived(push)).unwrap();
    }

    async fn unheard_shutdown(&mut self) {
        self.try_send(Came(Event::ShutdownBegan)).unwrap();
    }
}
