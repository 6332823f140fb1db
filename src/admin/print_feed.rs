//! Feeds for people and for programs.

use serde::Serialize;

use super::feed::{BroadcastRow, FeedRow, Page, UpdateRow};
use super::print::columns;

/// A line an update; nothing where there is none.
pub fn page_text(page: &Page, is_json: bool) -> String {
    let text = |update: &UpdateRow| match is_json {
        true => json(update),
        false => update_text(update),
    };
    lines(page.updates.iter().map(text))
}

/// A line a feed; for people under a head, where it is the first.
pub fn feeds_text(feeds: &[FeedRow], is_json: bool, is_first: bool) -> String {
    if is_json {
        return lines(feeds.iter().map(json));
    }
    let head = ["FEED", "HEAD", "KEYS"].map(str::to_owned);
    let row = |feed: &FeedRow| [feed.feed.clone(), feed.head.to_string(), feed.keys.to_string()];
    let head = is_first.then_some(head).into_iter();
    columns(&head.chain(feeds.iter().map(row)).collect::<Vec<_>>()) + "\n"
}

/// A line a broadcast.
pub fn broadcasts_text(broadcasts: &[BroadcastRow], is_json: bool) -> String {
    let text = |broadcast: &BroadcastRow| match is_json {
        true => json(broadcast),
        false => format!("{} = {}", on_one_line(&broadcast.id), on_one_line(&broadcast.version)),
    };
    lines(broadcasts.iter().map(text))
}

/// An object with its fields in the order they have in the code.
fn json(row: &impl Serialize) -> String {
    serde_json::to_string(row).expect("a row has only text as keys")
}

fn update_text(update: &UpdateRow) -> String {
    let UpdateRow { feed_sync_id, key, value, .. } = update;
    let key = on_one_line(key);
    match value {
        Some(value) => format!("{feed_sync_id} {key} = {}", on_one_line(value)),
        None => format!("{feed_sync_id} {key} deleted"),
    }
}

/// Control characters could make a terminal do things; who wrote the feed is somebody else.
fn on_one_line(text: &str) -> String {
    let escape = |character: char| match character.is_control() {
        true => character.escape_default().to_string(),
        false => character.to_string(),
    };
    text.chars().map(escape).collect()
}

fn lines(lines: impl Iterator<Item = String>) -> String {
    lines.map(|line| line + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Page {
        let set = |feed_sync_id, value: &str| UpdateRow {
            feed_sync_id,
            key: "a/b".into(),
            version: 2,
            value: Some(value.into()),
            deleted: false,
        };
        let deleted = UpdateRow { value: None, deleted: true, ..set(7, "") };
        Page { updates: vec![set(5, "\"1\""), set(6, "x\n\u{1b}[2J"), deleted], cursor: 7, head: 7 }
    }

    #[test]
    fn an_update_is_one_line_whatever_is_in_it() {
        let expected = "5 a/b = \"1\"\n6 a/b = x\\n\\u{1b}[2J\n7 a/b deleted\n";
        assert_eq!(page_text(&page(), false), expected);
        let json = page_text(&page(), true);
        let first = r#"{"feed_sync_id":5,"key":"a/b","version":2,"value":"\"1\""}"#;
        assert_eq!(json.lines().next(), Some(first));
        assert_eq!(json.lines().count(), 3);
        assert_eq!(page_text(&Page { updates: vec![], cursor: 7, head: 7 }, true), "");
    }

    #[test]
    fn feeds_stand_in_columns_under_one_head() {
        let feeds = [FeedRow { feed: "broadcasts".into(), head: 12, keys: 3 }];
        let expected = "FEED        HEAD  KEYS\nbroadcasts  12    3\n";
        assert_eq!(feeds_text(&feeds, false, true), expected);
        assert_eq!(feeds_text(&feeds, false, false), "broadcasts  12  3\n");
        let json = "{\"feed\":\"broadcasts\",\"head\":12,\"keys\":3}\n";
        assert_eq!(feeds_text(&feeds, true, true), json);
    }

    #[test]
    fn broadcasts_are_shown_with_their_versions() {
        let broadcasts = [BroadcastRow { id: "a/b".into(), version: "\"1\"".into() }];
        assert_eq!(broadcasts_text(&broadcasts, false), "a/b = \"1\"\n");
        assert_eq!(
            broadcasts_text(&broadcasts, true),
            "{\"id\":\"a/b\",\"version\":\"\\\"1\\\"\"}\n"
        );
    }
}
