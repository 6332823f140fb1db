//! What the script languages share: lines, names, steps with their expected effects, and the trace of a run.

mod bindings;
mod lines;
mod run;
mod step;
pub(crate) mod tokens;
mod trace;

pub use bindings::{Bindings, UnknownName};
pub(crate) use bindings::{NameKind, NamedEndpoints, abstract_names};
pub use lines::ParseError;
pub(crate) use lines::{Grammar, parse};
pub(crate) use run::{Ran, World, run};
pub use step::{Expected, Mismatch, Step};
pub(crate) use trace::since;
pub use trace::{Deadline, MachineKind, MachineState, TraceStep, Unacked};
