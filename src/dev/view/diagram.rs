//! The diagrams of the machines as SVG: phases at fixed places, and the transitions between them.
//!
//! The transitions of a connection are those of the chart that `kalends dev states` prints. Those of the other machines
//! are listed here, and a test compares them with what the scripts in `fixtures` do.

use harness::chart;
use harness::script::MachineKind;

/// A phase, and its column and row.
type Place = (&'static str, i32, i32);

/// A phase, and those that follow it.
type Edges = (&'static str, &'static [&'static str]);

/// Pixels from the middle of one column to the next.
const COLUMN: f64 = 208.0;
const ROW: f64 = 76.0;
const BOX_WIDTH: f64 = 168.0;
const BOX_HEIGHT: f64 = 38.0;
/// Space around the boxes, for curves.
const MARGIN: f64 = 34.0;

/// How far the curves of two opposite transitions are bent away from each other.
const BEND: f64 = 9.0;

const CONNECTION: &[Place] = &[
    ("AwaitingHello", 0, 0),
    ("Identified", 0, 1),
    ("DrainingOldMonth", 0, 2),
    ("CopyingChids", 0, 3),
    ("WritingRecord", 0, 4),
    ("DrainingAgain", 1, 3),
    ("AwaitingDeletes", 1, 4),
    ("MovingMessages", 2, 3),
    ("ClearingOldMonth", 2, 2),
    ("Ready", 2, 0),
    ("Closed", 2, 4),
];

const DELIVERY: &[Place] = &[
    ("ReadingRecord", 1, 0),
    ("Delivering", 0, 1),
    ("ClearingNode", 0, 2),
    ("Confirming", 0, 3),
    ("Storing", 1, 2),
    ("RereadingRecord", 1, 3),
    ("DeletingOldRow", 0, 4),
    ("MovingAgent", 2, 0),
    ("ConfirmingForBridge", 2, 1),
    ("ConfirmingInOldMonth", 2, 2),
    ("SendingToBridge", 2, 3),
    ("RereadingMonths", 3, 1),
    ("RereadingRecipient", 3, 2),
    ("DroppingRecipient", 3, 3),
    ("Done", 1, 4),
];

const DELIVERY_EDGES: &[Edges] = &[
    ("ReadingRecord", &["Delivering", "Storing", "MovingAgent", "ConfirmingForBridge"]),
    ("Delivering", &["ClearingNode", "Confirming", "Storing"]),
    ("ClearingNode", &["Storing"]),
    ("Confirming", &["Storing"]),
    ("Storing", &["RereadingRecord", "DeletingOldRow"]),
    ("RereadingRecord", &["Storing"]),
    ("DeletingOldRow", &["RereadingRecord"]),
    ("MovingAgent", &["ConfirmingForBridge"]),
    ("ConfirmingForBridge", &["ConfirmingInOldMonth", "SendingToBridge", "RereadingMonths"]),
    ("ConfirmingInOldMonth", &["SendingToBridge", "RereadingMonths"]),
    ("RereadingMonths", &["ConfirmingForBridge"]),
    ("SendingToBridge", &["DroppingRecipient"]),
    ("DroppingRecipient", &["RereadingRecipient"]),
    ("RereadingRecipient", &["ConfirmingForBridge"]),
];

const PUBLISHER: &[Place] =
    &[("Idle", 0, 0), ("Publishing", 1, 0), ("Failed", 2, 0), ("Resting", 1, 1)];

const PUBLISHER_EDGES: &[Edges] = &[
    ("Idle", &["Publishing"]),
    ("Publishing", &["Idle", "Failed", "Resting"]),
    ("Failed", &["Publishing"]),
    ("Resting", &["Publishing", "Idle"]),
];

const CONSUMER: &[Place] = &[
    ("New", 0, 0),
    ("Fetching", 1, 0),
    ("Consuming", 2, 0),
    ("Failed", 0, 1),
    ("Ended", 1, 1),
    ("CaughtUp", 2, 1),
];

const CONSUMER_EDGES: &[Edges] = &[
    ("New", &["Fetching"]),
    ("Fetching", &["Consuming", "Failed", "Ended", "CaughtUp"]),
    ("Consuming", &["Fetching", "CaughtUp"]),
    ("Failed", &["Fetching"]),
    ("CaughtUp", &["Fetching"]),
];

/// Curves around a box between two phases, in pixels to the left of the arrow's direction.
const BENT: &[(&str, &str, f64)] =
    &[("Delivering", "Confirming", -80.0), ("ConfirmingForBridge", "SendingToBridge", 80.0)];

struct Diagram {
    kind: MachineKind,
    places: &'static [Place],
    edges: Vec<(String, String)>,
    /// The phase to which all others may lead. Such a transition is shown once it is taken.
    end: Option<&'static str>,
}

/// A template for each kind of machine.
pub(super) fn templates() -> String {
    diagrams().iter().map(Diagram::template).collect()
}

fn diagrams() -> [Diagram; 4] {
    let listed = |edges: &[Edges]| {
        let pairs = edges.iter().flat_map(|(from, all)| all.iter().map(move |to| (*from, *to)));
        pairs.map(|(from, to)| (from.to_owned(), to.to_owned())).collect()
    };
    let connection = chart::phase_changes().into_iter().filter(|(_, to)| to != "Closed");
    let diagram = |kind, places, edges, end| Diagram { kind, places, edges, end };
    use MachineKind as Kind;
    [
        diagram(Kind::Connection, CONNECTION, connection.collect(), Some("Closed")),
        diagram(Kind::Delivery, DELIVERY, listed(DELIVERY_EDGES), Some("Done")),
        diagram(Kind::Publisher, PUBLISHER, listed(PUBLISHER_EDGES), None),
        diagram(Kind::Consumer, CONSUMER, listed(CONSUMER_EDGES), None),
    ]
}

impl Diagram {
    fn template(&self) -> String {
        let most = |of: fn(&Place) -> i32| self.places.iter().map(of).max().unwrap_or_default();
        let width = f64::from(most(|place| place.1)) * COLUMN + BOX_WIDTH + 2.0 * MARGIN;
        let height = f64::from(most(|place| place.2)) * ROW + BOX_HEIGHT + 2.0 * BEND;
        let edges: String =
            self.edges.iter().map(|(from, to)| self.edge(from, to, "edge")).collect();
        let ends: String = self
            .end
            .into_iter()
            .flat_map(|end| {
                let others = self.places.iter().filter(move |place| place.0 != end);
                others.map(move |place| self.edge(place.0, end, "edge end"))
            })
            .collect();
        let phases: String = self.places.iter().map(phase).collect();
        format!(
            "<template id=\"diagram-{}\"><svg viewBox=\"0 0 {width} {height}\" role=\"list\">\n\
             <g aria-hidden=\"true\">\n{edges}{ends}</g>\n{phases}</svg></template>\n",
            self.kind.as_str()
        )
    }

    /// An arrow from one box to the edge of another.
    fn edge(&self, from: &str, to: &str, class: &str) -> String {
        let [begin, end] = [from, to].map(|name| self.middle(name));
        let has_reverse = self.edges.iter().any(|(a, b)| a == to && b == from);
        let bent = BENT.iter().find(|(a, b, _)| *a == from && *b == to).map(|(.., bend)| *bend);
        let bend = bent.unwrap_or(if has_reverse { BEND } else { 0.0 });
        let (dx, dy) = (end.0 - begin.0, end.1 - begin.1);
        let length = dx.hypot(dy);
        // The curve passes `bend` beside the middle.
        let control = (
            (begin.0 + end.0) / 2.0 + 2.0 * bend * dy / length,
            (begin.1 + end.1) / 2.0 - 2.0 * bend * dx / length,
        );
        let [(x1, y1), (x2, y2)] = [border(begin, control), border(end, control)];
        let (cx, cy) = control;
        format!(
            "<path class=\"{class}\" data-from=\"{from}\" data-to=\"{to}\" \
             d=\"M{x1:.0} {y1:.0}Q{cx:.0} {cy:.0} {x2:.0} {y2:.0}\"/>\n"
        )
    }

    fn middle(&self, name: &str) -> (f64, f64) {
        let place = self.places.iter().find(|place| place.0 == name);
        middle(place.expect("a test compares the places with the phases"))
    }
}

fn middle((_, column, row): &Place) -> (f64, f64) {
    let x = f64::from(*column) * COLUMN + BOX_WIDTH / 2.0 + MARGIN;
    (x, f64::from(*row) * ROW + BOX_HEIGHT / 2.0 + BEND)
}

/// Where the line from the middle of a box to a point leaves the box, and a little further.
fn border((x, y): (f64, f64), (to_x, to_y): (f64, f64)) -> (f64, f64) {
    let (dx, dy) = (to_x - x, to_y - y);
    let across = |half: f64, distance: f64| (half + 3.0) / distance.abs().max(f64::EPSILON);
    let part = across(BOX_WIDTH / 2.0, dx).min(across(BOX_HEIGHT / 2.0, dy));
    (x + dx * part, y + dy * part)
}

fn phase(place: &Place) -> String {
    let (name, (x, y)) = (place.0, middle(place));
    let (left, top) = (x - BOX_WIDTH / 2.0, y - BOX_HEIGHT / 2.0);
    format!(
        "<g class=\"phase\" role=\"listitem\" data-phase=\"{name}\"><rect x=\"{left}\" y=\"{top}\" width=\"{BOX_WIDTH}\" \
         height=\"{BOX_HEIGHT}\" rx=\"6\"/><text x=\"{x}\" y=\"{y}\">{name}</text></g>\n"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use harness::script::MachineState;
    use harness::scripts::{Language, Script};
    use state_machine::connection::PhaseName;
    use state_machine::delivery::Delivery;

    use super::*;

    /// The phases of a kind of machine, and the changes between two different ones.
    type Seen = (BTreeSet<String>, BTreeSet<(String, String)>);

    fn note(seen: &mut Seen, before: &[MachineState], now: &MachineState) {
        seen.0.insert(now.phase.clone());
        let from = before.iter().find(|it| it.name == now.name).map(|it| it.phase.clone());
        seen.1.extend(from.filter(|from| *from != now.phase).map(|from| (from, now.phase.clone())));
    }

    /// What the fixtures do. A crash and a new connection are no transitions.
    fn seen(kind: MachineKind) -> Seen {
        let mut seen = Seen::default();
        for (language, folder) in
            Language::ALL.into_iter().zip(["sessions", "feeds", "deliveries", "agents"])
        {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(folder);
            for entry in fs::read_dir(folder).unwrap() {
                let text = fs::read_to_string(entry.unwrap().path()).unwrap();
                let script = Script::parse(language, &text).unwrap();
                let mut before = script.machines();
                let see = |step: harness::script::TraceStep| {
                    let is_new =
                        step.event.ends_with("crashes") || step.event.ends_with("<connects>");
                    if !is_new {
                        let machines = step.machines.iter().filter(|machine| machine.kind == kind);
                        machines.for_each(|machine| note(&mut seen, &before, machine));
                    }
                    before = step.machines;
                };
                script.replay(see).unwrap();
            }
        }
        seen
    }

    #[test]
    fn every_phase_has_a_place_of_its_own() {
        for diagram in diagrams() {
            let phases: BTreeSet<String> = match diagram.kind {
                MachineKind::Connection => {
                    PhaseName::ALL.iter().map(PhaseName::to_string).collect()
                }
                MachineKind::Delivery => Delivery::PHASES.map(str::to_owned).into(),
                kind => seen(kind).0,
            };
            let placed = diagram.places.iter().map(|place| place.0.to_owned()).collect();
            assert_eq!(phases, placed, "{:?}", diagram.kind);
            let places: BTreeSet<_> =
                diagram.places.iter().map(|place| (place.1, place.2)).collect();
            assert_eq!(places.len(), diagram.places.len(), "{:?}", diagram.kind);
        }
    }

    #[test]
    fn the_transitions_are_those_of_the_scripts() {
        for diagram in diagrams() {
            let (_, mut taken) = seen(diagram.kind);
            taken.retain(|(_, to)| Some(to.as_str()) != diagram.end);
            let drawn: BTreeSet<_> = diagram.edges.iter().cloned().collect();
            assert_eq!(taken, drawn, "{:?}", diagram.kind);
        }
    }

    #[test]
    fn a_line_ends_at_the_border_of_its_box() {
        assert_eq!(border((0.0, 0.0), (1000.0, 0.0)), (BOX_WIDTH / 2.0 + 3.0, 0.0));
        assert_eq!(border((0.0, 0.0), (0.0, -1000.0)), (0.0, -22.0));
    }
}
