//! The output of `kalends access` as text.

use indicatif::HumanBytes;

use super::output::{AccessRow, NewAccess};
use super::print::columns;
use crate::system::clock::date;

/// The path is the same on every server; this command does not know the public name.
pub(super) fn new_access_text(access: &NewAccess) -> String {
    let NewAccess { name, token, expires_s, agents_max } = access;
    let expires = expires_s.map(|end_s| format!("It expires on {}.\n", date(end_s)));
    let most =
        (*agents_max > 0).then(|| format!("At most {agents_max} user agents connect with it.\n"));
    format!(
        "{token}\n\nThe access token of {name}, shown once. The user agents of {name} connect at \
         wss://HOST/u/{token}\n{}{}",
        expires.unwrap_or_default(),
        most.unwrap_or_default()
    )
}

pub(super) fn access_text(rows: &[AccessRow], is_first: bool) -> String {
    let or_dash = |count: Option<u64>| count.map_or("-".to_owned(), |count| count.to_string());
    let rows = rows.iter().map(|row| {
        let agents_max = u64::from(row.agents_max);
        [
            row.name.clone(),
            row.state.clone(),
            date(row.created_s),
            row.expires_s.map_or("-".to_owned(), date),
            or_dash(Some(agents_max).filter(|max| *max > 0)),
            or_dash(row.connected),
            or_dash(row.pushes),
            row.bytes.map_or("-".to_owned(), |bytes| HumanBytes(bytes).to_string()),
        ]
    });
    let head = ["NAME", "STATE", "CREATED", "EXPIRES", "AGENTS MAX", "CONNECTED", "PUSHES", "SIZE"];
    columns(is_first.then_some(head), rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_tokens_are_printed_in_columns_and_a_new_one_with_its_path() {
        let row = AccessRow {
            name: "alice".into(),
            state: "valid".into(),
            created_s: 1_700_000_000,
            expires_s: None,
            agents_max: 0,
            connected: Some(2),
            pushes: None,
            bytes: Some(2048),
        };
        let printed = access_text(&[row], true);
        assert!(printed.starts_with("NAME   STATE  CREATED "), "{printed}");
        let cells: Vec<_> = printed.lines().nth(1).unwrap().split("  ").map(str::trim).collect();
        let cells: Vec<_> = cells.into_iter().filter(|cell| !cell.is_empty()).collect();
        let date = "Tue, 14 Nov 2023 22:13:20 GMT";
        assert_eq!(cells, ["alice", "valid", date, "-", "-", "2", "-", "2.00 KiB"]);

        let (name, token) = ("bob".to_owned(), "kal_x".to_owned());
        let access = NewAccess { name, token, expires_s: Some(u64::MAX), agents_max: 5 };
        let printed = new_access_text(&access);
        let has = |text: &str| printed.contains(text);
        assert!(printed.starts_with("kal_x\n") && has("wss://HOST/u/kal_x\n"), "{printed}");
        assert!(has("31 Dec 9999") && has("At most 5 "), "{printed}");
    }
}
