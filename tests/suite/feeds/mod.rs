//! Feeds over HTTP: what other programs send, and what they can rely on.

mod copy;
mod desk;
mod events;
mod following;
mod killed;
mod nodes;
mod refusals;
mod slow;

use copy::Copy;
pub(crate) use desk::Desk;
use desk::{Page, Update};
use events::Events;
