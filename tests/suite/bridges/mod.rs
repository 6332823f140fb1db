//! Bridges against local servers that speak the APIs of FCM and APNs over TLS and HTTP/2.

mod apns;
mod config;
mod connections;
mod fcm;
mod guard;
pub(crate) mod phones;
mod tokens;

use std::sync::Arc;

use actors::{Bridge, Clock};
use kalends::push::bridges::{Bridges, GuardState};
use kalends::settings::Settings;
use slog::{Discard, Logger, o};
use state_machine::{
    BridgeName, BridgeOutcome, BridgeRecipient, Chid, Encoding, Message, MessageId, Payload, Span,
    Time,
};

use crate::harness::push_service::APP;
use crate::harness::{PushService, unix_now_s};

const CHID: &str = "11111111-2222-4333-8444-555555555555";

/// The bridges of a process, and the server behind all of them.
struct World {
    service: PushService,
    bridges: Arc<Bridges>,
    clock: Clock,
}

impl World {
    fn new() -> Self {
        Self::with(|_| {})
    }

    /// Bridges with other settings.
    fn with(change: impl FnOnce(&mut Settings)) -> Self {
        Self::of(PushService::start(), change)
    }

    /// The bridges of a process that starts after the files were changed.
    fn reload(self) -> Self {
        Self::of(self.service, |_| {})
    }

    fn of(service: PushService, change: impl FnOnce(&mut Settings)) -> Self {
        let clock = Clock::starting_at(Time(unix_now_s() * 1000));
        let mut settings =
            Settings { bridges_file: Some(service.bridges_file()), ..Settings::default() };
        change(&mut settings);
        let bridges = Bridges::load(&settings, clock.clone(), &Logger::root(Discard, o!()));
        let bridges = bridges.expect("the harness writes a right file");
        Self { service, bridges, clock }
    }

    async fn send(&self, recipient: &BridgeRecipient, message: &Message) -> BridgeOutcome {
        self.bridges.send(recipient, message).await
    }

    async fn send_to(&self, bridge: BridgeName) -> BridgeOutcome {
        self.send(&recipient(bridge), &message()).await
    }

    fn state(&self, bridge: BridgeName) -> GuardState {
        let states = self.bridges.observe();
        let mut states = states.filter(|(name, app, _)| (*name, *app) == (bridge, APP));
        states.next().expect("the application is there").2
    }

    /// Advances the clock of the bridges.
    fn advance(&self, span: Span) {
        self.clock.set(self.clock.now() + span);
    }
}

fn recipient(bridge: BridgeName) -> BridgeRecipient {
    let token = match bridge {
        BridgeName::Fcm => "fcm-token:abc_1",
        BridgeName::Apns => "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0",
    };
    BridgeRecipient { bridge, app: APP.into(), token: token.into(), aps: None }
}

/// A message of three bytes.
fn message() -> Message {
    let id = MessageId::from_uuid_v7(0x0192_0000_0000_7000_8000_0000_0000_0002, false);
    let chid = Chid::parse(CHID).expect("it is a chid");
    let (data, encoding) = (vec![0xfb, 0xff, 0x00].into(), Encoding::Aes128Gcm);
    let bare = Message::new(id, chid, Time(1_800_000_000_000), Span::from_secs(60));
    Message { payload: Some(Payload { data, encoding }), ..bare }
}

/// A message with a body of that many bytes.
fn large(bytes: usize) -> Message {
    let payload = Payload { data: vec![7; bytes].into(), encoding: Encoding::Aes128Gcm };
    Message { payload: Some(payload), ..message() }
}
