//! The versions of the rows in a shared store: the one that wrote them, and the oldest one that can use them. A file of SQLite
//! has the same two numbers in itself.
//!
//! They are an entry beside the fingerprints of keys, so that a start needs no request for them.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// The start of the entry.
const PREFIX: &str = "rows:";

/// Those of this program. A change of rows raises `written`. One that older programs cannot ignore raises `oldest` too.
const OURS: Versions = Versions { written: 1, oldest: 1 };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Versions {
    written: u32,
    oldest: u32,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the tables were written by a newer kalends, with the versions {theirs} of their rows, and this one knows {}: run the \
     newer one, or restore a backup of before the upgrade",
    OURS.written
)]
pub struct NewerRows {
    theirs: String,
}

/// Refuses a store of a newer version that this one cannot use. Without an entry, rows are of the first version.
pub(crate) fn check(entries: &BTreeSet<String>) -> Result<(), NewerRows> {
    for theirs in versions(entries) {
        // What cannot be read is of a version that writes it in another way.
        if theirs.parse().is_ok_and(|theirs: Versions| theirs.oldest <= OURS.written) {
            continue;
        }
        return Err(NewerRows { theirs: theirs.to_owned() });
    }
    Ok(())
}

/// The entries after a server of this version has started on the store. A newer entry stays: its server may still write.
pub(super) fn with_own(entries: &mut BTreeSet<String>) {
    let theirs = versions(entries).filter_map(|theirs| theirs.parse().ok());
    let newest = theirs.max_by_key(|theirs: &Versions| theirs.written);
    let newest = newest.filter(|theirs| theirs.written > OURS.written).unwrap_or(OURS);
    entries.retain(|entry| !entry.starts_with(PREFIX));
    entries.insert(format!("{PREFIX}{newest}"));
}

fn versions(entries: &BTreeSet<String>) -> impl Iterator<Item = &str> {
    entries.iter().filter_map(|entry| entry.strip_prefix(PREFIX))
}

impl FromStr for Versions {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (written, oldest) = text.split_once('/').ok_or(())?;
        let number = |text: &str| text.parse().map_err(|_| ());
        Ok(Self { written: number(written)?, oldest: number(oldest)? })
    }
}

impl Display for Versions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.written, self.oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(versions: &[&str]) -> BTreeSet<String> {
        let versions = versions.iter().map(|versions| format!("{PREFIX}{versions}"));
        versions.chain(["crypto:1".to_owned()]).collect()
    }

    #[test]
    fn a_store_is_refused_whose_oldest_version_is_newer_than_this_one() {
        for (versions, is_refused) in [
            (&[][..], false),
            (&["1/1"], false),
            (&["2/1"], false),
            (&["2/2"], true),
            (&["1/1", "9/2"], true),
            (&["2"], true),
            (&["x/1"], true),
            (&["2/1/of another kind"], true),
        ] {
            let refused = check(&entries(versions)).err().map(|error| error.to_string());
            assert_eq!(refused.is_some(), is_refused, "{versions:?}");
            assert!(refused.is_none_or(|text| text.contains(versions[versions.len() - 1])));
        }
    }

    #[test]
    fn the_newest_version_that_has_written_is_remembered() {
        for (before, after) in [(&[][..], "1/1"), (&["1/1"], "1/1"), (&["3/1", "1/1"], "3/1")] {
            let mut changed = entries(before);
            with_own(&mut changed);
            assert_eq!(changed, entries(&[after]), "{before:?}");
        }
    }
}
