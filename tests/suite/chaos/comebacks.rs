//! How long it takes until everybody is back that lost a connection to a node that died.

use std::collections::BTreeSet;
use std::time::Instant;

/// Who is where, and who is waited for.
#[derive(Debug)]
pub(super) struct Comebacks {
    /// For each user agent the connection node it is at. None where it would not notice that the node died, or does not
    /// care.
    homes: Vec<Option<usize>>,
    waits: Vec<Wait>,
    over: Vec<Comeback>,
}

/// All are back after a death.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Comeback {
    pub(super) from: Instant,
    pub(super) until: Instant,
}

#[derive(Debug)]
struct Wait {
    since: Instant,
    left: BTreeSet<usize>,
}

impl Comebacks {
    pub(super) fn of(clients: usize) -> Self {
        Self { homes: vec![None; clients], waits: Vec::new(), over: Vec::new() }
    }

    /// A connection node dies.
    pub(super) fn died(&mut self, node: usize, now: Instant) {
        let homes = self.homes.iter().enumerate();
        let left: BTreeSet<_> =
            homes.filter(|(_, home)| **home == Some(node)).map(|(client, _)| client).collect();
        if !left.is_empty() {
            self.waits.push(Wait { since: now, left });
        }
    }

    /// A user agent was answered hello.
    pub(super) fn came_home(&mut self, client: usize, node: usize, now: Instant) {
        self.homes[client] = Some(node);
        let over = &mut self.over;
        self.waits.retain_mut(|wait| {
            wait.left.remove(&client);
            if wait.left.is_empty() {
                over.push(Comeback { from: wait.since, until: now });
            }
            !wait.left.is_empty()
        });
    }

    /// It left, lost its connection, or does not read any more.
    pub(super) fn left_home(&mut self, client: usize) {
        self.homes[client] = None;
    }

    /// For each death after which all came back.
    pub(super) fn over(&self) -> &[Comeback] {
        &self.over
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_comeback_is_over_when_the_last_one_is_somewhere_again() {
        let mut comebacks = Comebacks::of(4);
        let now = Instant::now();
        for (client, node) in [(0, 1), (1, 1), (2, 0), (3, 1)] {
            comebacks.came_home(client, node, now);
        }
        comebacks.left_home(3);
        comebacks.died(1, now);
        comebacks.died(2, now);
        comebacks.came_home(2, 1, now + Duration::from_secs(1));
        comebacks.came_home(0, 0, now + Duration::from_secs(2));
        assert_eq!(comebacks.over(), []);
        let until = now + Duration::from_secs(3);
        comebacks.came_home(1, 1, until);
        assert_eq!(comebacks.over(), [Comeback { from: now, until }]);
    }
}
