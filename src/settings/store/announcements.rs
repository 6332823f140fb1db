//! What the servers on one store tell those that start later: settings that must be equal, and whether one of them is
//! alone.
//!
//! The entries are beside the fingerprints of keys, whose code keeps entries of other kinds. The last server that
//! started is the one to compare with.

use std::collections::BTreeSet;

use super::key_fingerprints::{FingerprintStore, KeyFingerprintsError, update};

/// The start of an entry.
const PREFIX: &str = "announced:";

/// A name and its value, which must be equal on all servers.
pub(crate) type Announcement = (&'static str, String);

/// A value that was announced before, and is not this server's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) name: &'static str,
    pub(crate) ours: String,
    pub(crate) theirs: String,
}

/// Announces the values of this server, and returns those in which it differs from the server before.
pub(crate) async fn announce<S: FingerprintStore + ?Sized>(
    store: &S,
    own: &[Announcement],
) -> Result<Vec<Difference>, KeyFingerprintsError> {
    update(store, async |before: &BTreeSet<String>| Ok(compare(before, own))).await
}

/// The entries with the values of this server in place of others.
fn compare(before: &BTreeSet<String>, own: &[Announcement]) -> (BTreeSet<String>, Vec<Difference>) {
    let (mut after, mut differences) = (before.clone(), Vec::new());
    for (name, ours) in own {
        let start = format!("{PREFIX}{name}=");
        after.retain(|entry| !entry.starts_with(&start));
        after.insert(start.clone() + ours);
        let values = before.iter().filter_map(|entry| entry.strip_prefix(&start));
        differences.extend(values.filter(|theirs| theirs != ours).map(|theirs| Difference {
            name,
            ours: ours.clone(),
            theirs: theirs.to_owned(),
        }));
    }
    (after, differences)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(value: &str) -> Announcement {
        ("public_url", value.to_owned())
    }

    #[test]
    fn the_value_of_the_server_before_is_reported_once_and_replaced() {
        let keys = BTreeSet::from(["crypto:1".to_owned()]);
        let (first, differences) =
            compare(&keys, &[url("https://a"), ("simplepush", "false".to_owned())]);
        assert_eq!(differences, []);
        let (second, differences) = compare(&first, &[url("https://b")]);
        let expected =
            Difference { name: "public_url", ours: "https://b".into(), theirs: "https://a".into() };
        assert_eq!(differences, [expected]);
        let entries = ["announced:public_url=https://b", "announced:simplepush=false", "crypto:1"];
        assert_eq!(second, entries.map(str::to_owned).into());
        assert_eq!(compare(&second, &[url("https://b")]), (second.clone(), Vec::new()));
    }
}
