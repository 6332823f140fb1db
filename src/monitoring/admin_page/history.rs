//! What the figures show: an hour in detail, and 31 days in ever longer periods, in rings of fixed size.
//!
//! A period has one point, at its last reading. The present one has a point whenever it is asked for.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use state_machine::{Span, Time};

use super::series::{Reading, SERIES, Values};

/// Time between two readings of the metrics.
pub(super) const READ_EVERY: Span = Span::from_secs(15);

/// The periods of each ring, and how many it keeps: an hour, a day, a week and 31 days.
const RINGS: [(Span, usize); 4] = [
    (READ_EVERY, 240),
    (Span::from_secs(5 * 60), 288),
    (Span::from_secs(30 * 60), 336),
    (Span::from_secs(2 * 60 * 60), 372),
];

/// Starts of the server that are kept.
const STARTS_MAX: usize = 64;

/// The largest value, so that a text of the history is bounded.
const VALUE_MAX: f64 = 9_999_999.0;

pub(super) struct History {
    rings: [Ring; RINGS.len()],
    /// In milliseconds since 1970.
    starts: VecDeque<u64>,
    read: Option<Time>,
}

struct Ring {
    every: Span,
    points_max: usize,
    points: VecDeque<Point>,
    /// All points that were ever added.
    added: u64,
    present: Option<Present>,
    /// The point of this period that the server before has written.
    before: Option<Point>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    at: Time,
    values: Values,
}

/// A period that has not ended.
struct Present {
    /// The last reading before it.
    first: (Time, Reading),
    last: (Time, Reading),
    /// The sum of the user agents at its readings, and how many these are.
    agents: (f64, u32),
}

/// A history as text, for an open page and for the server after this one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Written {
    starts: Vec<u64>,
    /// Those of the columns.
    names: Vec<String>,
    rings: Vec<WrittenRing>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct WrittenRing {
    every_ms: u64,
    /// Points of periods that have ended. One more is of the present period.
    ended: usize,
    at: Vec<u64>,
    columns: Vec<Vec<Option<f64>>>,
}

impl History {
    pub(super) fn new(now: Time) -> Self {
        let ring = |(every, points_max)| Ring {
            every,
            points_max,
            points: VecDeque::with_capacity(points_max),
            added: 0,
            present: None,
            before: None,
        };
        Self { rings: RINGS.map(ring), starts: VecDeque::from([now.0]), read: None }
    }

    pub(super) fn is_due(&self, now: Time) -> bool {
        self.read.is_none_or(|read| now.since(read) >= READ_EVERY || now < read)
    }

    pub(super) fn add(&mut self, now: Time, reading: &Reading) {
        self.read = Some(now);
        self.rings.iter_mut().for_each(|ring| ring.read(now, reading));
    }

    /// All points that were ever added to each ring.
    pub(super) fn added(&self) -> [u64; RINGS.len()] {
        self.rings.each_ref().map(|ring| ring.added)
    }

    /// All points that are kept.
    pub(super) fn whole(&self) -> Written {
        self.since([0; RINGS.len()])
    }

    /// The points that were added after the first `seen`, and those of the present periods.
    pub(super) fn since(&self, seen: [u64; RINGS.len()]) -> Written {
        let rings = self.rings.iter().zip(seen).map(|(ring, seen)| ring.since(seen));
        let starts = self.starts.iter().copied().collect();
        Written { starts, names: SERIES.map(str::to_owned).into(), rings: rings.collect() }
    }

    /// Puts what the server before has written before this. Nothing of it, if it is not whole.
    pub(super) fn continues(&mut self, before: &Written, now: Time) -> Result<(), &'static str> {
        let points = before.rings.iter().map(|ring| Some((ring.every_ms, before.points(ring)?)));
        let points: Option<Vec<_>> = points.collect();
        let points = points.ok_or("its points are not whole or not in order")?;
        for (every_ms, mut points) in points {
            let ring = self.rings.iter_mut().find(|ring| ring.every.0 == every_ms);
            let Some(ring) = ring else { continue };
            if points.last().is_some_and(|last| ring.period(last.at) == ring.period(now)) {
                ring.before = points.pop();
            }
            points.into_iter().for_each(|point| ring.push(point));
        }
        for start in before.starts.iter().rev().take(STARTS_MAX - self.starts.len()) {
            self.starts.push_front(*start);
        }
        Ok(())
    }
}

impl Ring {
    /// A reading at its end belongs to a period.
    fn period(&self, at: Time) -> u64 {
        at.0.saturating_sub(1) / self.every.0
    }

    fn read(&mut self, now: Time, reading: &Reading) {
        let last = self.present.as_ref().map(|present| present.last.0);
        match last {
            Some(last) if self.period(last) == self.period(now) && last <= now => {}
            _ => self.begin(now, reading),
        }
        let present = self.present.as_mut().expect("a period has begun");
        present.last = (now, reading.clone());
        if let Some(agents) = reading.agents {
            present.agents = (present.agents.0 + agents, present.agents.1 + 1);
        }
    }

    /// Ends the present period, and begins the one of this reading.
    fn begin(&mut self, now: Time, reading: &Reading) {
        // What the server before has written may be of this period, too.
        let goes_on = |point: Point| self.period(point.at) == self.period(now);
        if self.present.is_some() || !self.before.is_some_and(goes_on) {
            let ended = self.point().filter(|point| point.at <= now);
            ended.into_iter().for_each(|point| self.push(point));
            self.before = None;
        }
        let last = self.present.take().map(|present| present.last);
        let this = || (now, reading.clone());
        // After the clock was set back, nothing is known of the time between.
        let first = last.filter(|(at, _)| *at <= now).unwrap_or_else(this);
        self.present = Some(Present { first, last: this(), agents: (0.0, 0) });
    }

    /// The point of the present period, with what the server before has written of it.
    fn point(&self) -> Option<Point> {
        let Some(Present { first, last, agents: (sum, readings) }) = &self.present else {
            return self.before;
        };
        let minutes = last.0.since(first.0).0 as f64 / 60_000.0;
        let agents = (*readings > 0).then(|| sum / f64::from(*readings));
        let mut values = last.1.since(&first.1, minutes, agents);
        for (value, before) in
            values.iter_mut().zip(self.before.map_or(Values::default(), |it| it.values))
        {
            *value = match (*value, before) {
                (Some(value), Some(before)) => Some((value + before) / 2.0),
                (value, before) => value.or(before),
            };
        }
        Some(Point { at: last.0, values })
    }

    fn push(&mut self, point: Point) {
        // The clock was set back.
        while self.points.back().is_some_and(|last| last.at >= point.at) {
            self.points.pop_back();
        }
        if self.points.len() == self.points_max {
            self.points.pop_front();
        }
        self.points.push_back(point);
        self.added += 1;
    }

    fn since(&self, seen: u64) -> WrittenRing {
        let new = usize::try_from(self.added.saturating_sub(seen)).unwrap_or(usize::MAX);
        let ended = self.points.len().min(new);
        let new = self.points.iter().skip(self.points.len() - ended).copied();
        let points: Vec<_> = new.chain(self.point()).collect();
        let column =
            |place: usize| points.iter().map(move |point| point.values[place].map(rounded));
        WrittenRing {
            every_ms: self.every.0,
            ended,
            at: points.iter().map(|point| point.at.0).collect(),
            columns: (0..SERIES.len()).map(|place| column(place).collect()).collect(),
        }
    }
}

impl Written {
    /// The points of a ring, if they are whole and in order. Of a series that has no column, nothing is known.
    fn points(&self, ring: &WrittenRing) -> Option<Vec<Point>> {
        let is_whole = ring.columns.len() == self.names.len()
            && ring.columns.iter().all(|column| column.len() == ring.at.len())
            && ring
                .columns
                .iter()
                .flatten()
                .flatten()
                .all(|value| (0.0..=VALUE_MAX).contains(value))
            && ring.at.windows(2).all(|pair| pair[0] < pair[1]);
        let column = |name: &str| self.names.iter().position(|known| known == name);
        let columns = SERIES.map(|name| column(name).and_then(|place| ring.columns.get(place)));
        let values = |place: usize| columns.map(|column| column.and_then(|column| column[place]));
        let point = |(place, at): (usize, &u64)| Point { at: Time(*at), values: values(place) };
        is_whole.then(|| ring.at.iter().enumerate().map(point).collect())
    }
}

/// A number with few digits, so that its text is short.
fn rounded(value: f64) -> f64 {
    let digits = if value < 100.0 { 1000.0 } else { 1.0 };
    (value.min(VALUE_MAX) * digits).round() / digits
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::history_file::BYTES_MAX;
    use super::super::series::tests::reading;
    use super::*;

    const SECOND: u64 = 1000;
    const DAY: u64 = 24 * 60 * 60 * SECOND;

    /// A history with readings each 15 s from one time to another, with three agents.
    pub(in super::super) fn full(from: Time, to: Time) -> History {
        let mut history = History::new(from);
        for at in (from.0..=to.0).step_by(READ_EVERY.0 as usize) {
            let mut read = reading(at / SECOND, &[]);
            read.agents = Some(3.0);
            history.add(Time(at), &read);
        }
        history
    }

    fn text(history: &History) -> String {
        serde_json::to_string(&history.whole()).unwrap()
    }

    #[test]
    fn each_ring_has_a_point_of_each_period_and_one_of_the_present() {
        let history = full(Time(DAY), Time(DAY + 3600 * SECOND));
        let Written { rings, .. } = history.whole();
        let ended: Vec<_> = rings.iter().map(|ring| ring.ended).collect();
        assert_eq!(ended, [240, 12, 2, 1], "the first reading belongs to the period before");
        for ring in &rings {
            assert_eq!(ring.at.len(), ring.ended + 1);
            assert_eq!(ring.at.last(), Some(&(DAY + 3600 * SECOND)));
            assert_eq!(ring.columns[0].last(), Some(&Some(3.0)));
            // One push in a second.
            assert_eq!(ring.columns[1].last(), Some(&Some(60.0)));
        }
        let seen = history.added();
        assert!(history.since(seen).rings.iter().all(|ring| ring.ended == 0 && ring.at.len() == 1));
    }

    #[test]
    fn the_history_never_exceeds_its_size() {
        let mut history = full(Time(DAY), Time(36 * DAY));
        let lengths = history.rings.each_ref().map(|ring| ring.points.len());
        assert_eq!(lengths, RINGS.map(|(_, points_max)| points_max));
        assert!(history.rings.iter().all(|ring| ring.points.capacity() == ring.points_max));
        let days = history.rings.each_ref().map(|ring| ring.points_max as u64 * ring.every.0 / DAY);
        assert_eq!(days, [0, 1, 7, 31]);
        for ring in &mut history.rings {
            for point in &mut ring.points {
                point.values = [Some(f64::MAX); SERIES.len()];
            }
        }
        let before = history.whole();
        let now = Time(36 * DAY + 1);
        for _ in 0..STARTS_MAX + 9 {
            history.starts.push_back(now.0);
        }
        let mut next = History::new(now);
        next.continues(&before, now).unwrap();
        next.continues(&history.whole(), now).unwrap();
        assert_eq!(next.starts.len(), STARTS_MAX);
        assert!(text(&next).len() <= BYTES_MAX, "{}", text(&next).len());
        assert!(!history.is_due(now) && history.is_due(Time(u64::MAX)) && history.is_due(Time(1)));
    }

    #[test]
    fn a_server_continues_the_history_of_the_one_before() {
        let end = Time(DAY + 600 * SECOND);
        let before = full(Time(DAY), end).whole();
        let now = end + Span(90 * SECOND);
        let mut history = History::new(now);
        history.continues(&before, now).unwrap();
        assert_eq!(history.starts, [DAY, now.0]);
        let unchanged = history.whole();
        assert_eq!(unchanged.rings[3].at, before.rings[3].at, "its last period has not ended");
        let mut read = Reading::default();
        read.agents = Some(5.0);
        history.add(now, &read);
        let Written { rings, .. } = history.whole();
        // The mean of both servers. Of a counter that has just begun nothing is known.
        assert_eq!(rings[3].columns[0].last(), Some(&Some(4.0)));
        assert_eq!(rings[3].columns[1].last(), Some(&Some(60.0)));
        assert_eq!(rings[3].at.len(), before.rings[3].at.len());
        assert_eq!(rings[0].at.len(), before.rings[0].at.len() + 1, "with a gap");
    }

    #[test]
    fn servers_that_start_often_do_not_displace_the_past() {
        let mut before = full(Time(DAY), Time(3 * DAY)).whole();
        let points = before.rings[3].at.len();
        for second in 1..100 {
            let now = Time(3 * DAY + second * SECOND);
            let mut history = History::new(now);
            history.continues(&before, now).unwrap();
            history.add(now, &reading(0, &[]));
            before = history.whole();
        }
        assert_eq!(before.rings[3].at.len(), points + 1);
        assert_eq!(before.starts.len(), STARTS_MAX);
    }

    #[test]
    fn a_clock_that_is_set_back_leaves_times_in_order() {
        let mut history = full(Time(2 * DAY), Time(2 * DAY + 3600 * SECOND));
        for at in [DAY, DAY + 20 * SECOND, DAY + 40 * SECOND] {
            history.add(Time(at), &reading(1, &[]));
        }
        let written = history.whole();
        assert_eq!(written.rings[0].at, [DAY, DAY + 20 * SECOND, DAY + 40 * SECOND]);
        assert!(written.rings.iter().all(|ring| written.points(ring).is_some()));
    }

    #[test]
    fn what_is_not_whole_is_not_continued() {
        let good = full(Time(DAY), Time(DAY + 600 * SECOND)).whole();
        let changes: [fn(&mut Written); 5] = [
            |it| it.rings[1].at.swap(0, 1),
            |it| _ = it.rings[0].at.pop(),
            |it| _ = it.rings[0].columns.pop(),
            |it| it.rings[0].columns[0][0] = Some(-1.0),
            |it| it.names.clear(),
        ];
        for change in changes {
            let mut bad = good.clone();
            change(&mut bad);
            let mut history = History::new(Time(2 * DAY));
            assert!(history.continues(&bad, Time(2 * DAY)).is_err());
            assert_eq!((history.added(), history.starts.len()), ([0; 4], 1));
        }
    }
}
