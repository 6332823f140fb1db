//! Not faster than so many a second.

use std::time::Duration;

use tokio::time::Instant;

/// Says when the next batch may be done of what is to be done at a rate: from the start on never
/// more than the rate allows, and what was not done is not made up for.
#[derive(Debug)]
pub struct Pace {
    per_second: u32,
    free_at: Instant,
}

impl Pace {
    /// So many a second from now on, at most `batch` at a time.
    pub fn new(per_second: u32, batch: usize) -> Self {
        let mut pace = Self { per_second: per_second.max(1), free_at: Instant::now() };
        // The first batch too comes when it is due and not before.
        pace.done(batch);
        pace
    }

    /// When the next batch may be done.
    pub fn free_at(&self) -> Instant {
        self.free_at
    }

    /// So many were done just now.
    pub fn done(&mut self, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let time = Duration::from_secs(1) * count / self.per_second;
        self.free_at = self.free_at.max(Instant::now()) + time;
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, sleep_until};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_never_faster_than_its_rate() {
        let (start, mut pace, mut done) = (Instant::now(), Pace::new(10, 25), 0);
        for count in [25, 1, 25, 0, 3, 25] {
            sleep_until(pace.free_at()).await;
            pace.done(count);
            done += count;
            let allowed = start.elapsed().as_secs_f64() * 10.0;
            assert!(done as f64 <= allowed, "{done} after {:?}", start.elapsed());
        }
        // Nor much slower: it waited for the first batch and for all but the last.
        assert!(start.elapsed() < Duration::from_millis(2500 + 5400 + 50));
    }

    #[tokio::test(start_paused = true)]
    async fn time_that_was_lost_is_not_made_up_for() {
        let mut pace = Pace::new(10, 5);
        advance(Duration::from_secs(60)).await;
        let before = Instant::now();
        for _ in 0..3 {
            sleep_until(pace.free_at()).await;
            pace.done(5);
        }
        assert!(before.elapsed() >= Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn where_nothing_is_done_nothing_is_waited_for() {
        let mut pace = Pace::new(1, 25);
        sleep_until(pace.free_at()).await;
        let before = Instant::now();
        for _ in 0..1000 {
            sleep_until(pace.free_at()).await;
            pace.done(0);
        }
        assert!(before.elapsed() < Duration::from_secs(2));
    }
}
