//! `access add`, `access list`, `access rotate` and `access revoke`.

use actors::access::AccessCounts;
use futures_util::FutureExt;
use state_machine::access::{AccessGrant, AccessId, AccessTable};
use state_machine::feed::{FeedName, WriteResult};
use storage::StoreFuture;
use uuid::Uuid;

use super::feed::{PAGE, number_all};
use super::{JobError, Report};
use crate::operate::admin::access_command::{AccessAdd, AccessRevoke, AccessRotate};
use crate::operate::admin::output::{AccessRow, NewAccess, Output};
use crate::push::access::{new_token, sha256};

/// Tokens in one output.
const ROWS_MAX: usize = 200;

pub(super) async fn add(add: AccessAdd, report: &Report) -> Result<(), JobError> {
    let AccessAdd { name, expires, agents_max, .. } = add;
    let (table, now) = (read(report).await?, report.context.now());
    if table.iter().any(|(_, grant)| grant.name == name && !grant.has_ended(now)) {
        return Err(JobError::Refused(format!(
            "there is an access token with the name {name}: choose another, or see kalends access rotate"
        )));
    }
    let (id, token) = (fresh_id(&table), new_token());
    let created_s = now.as_secs();
    let expires_s = expires.map(|after_s| created_s.saturating_add(after_s));
    let sha256 = sha256(&token);
    let grant = AccessGrant { name, sha256, created_s, expires_s, agents_max, revoked_s: None };
    write(id, &grant, report).await?;
    let name = grant.name;
    report.emit(Output::NewAccess(NewAccess { name, token, expires_s, agents_max })).await
}

/// Prints the tokens by name. Only the server that holds the store knows what they use.
pub(super) async fn list(report: &Report) -> Result<(), JobError> {
    let (table, now) = (read(report).await?, report.context.now());
    let row = |(id, grant): (AccessId, &AccessGrant)| {
        let counts = report.context.access.as_ref().map(|access| access.counts(id));
        let AccessGrant { name, created_s, expires_s, agents_max, revoked_s, .. } = grant.clone();
        let state = match grant.has_ended(now) {
            _ if revoked_s.is_some() => "revoked",
            true => "expired",
            false => "valid",
        };
        let state = state.to_owned();
        let numbers = |count: fn(AccessCounts) -> u64| counts.map(count);
        AccessRow {
            name,
            state,
            created_s,
            expires_s,
            agents_max,
            connected: numbers(|counts| counts.connections),
            pushes: numbers(|counts| counts.pushes),
            bytes: numbers(|counts| counts.bytes),
        }
    };
    let mut rows: Vec<_> = table.iter().map(row).collect();
    rows.sort_by(|a, b| (&a.name, a.created_s).cmp(&(&b.name, b.created_s)));
    if rows.is_empty() {
        return report.emit(Output::Access(rows)).await;
    }
    for rows in rows.chunks(ROWS_MAX) {
        report.emit(Output::Access(rows.to_vec())).await?;
    }
    Ok(())
}

/// The id stays, and with it the uaids of the token's agents and their endpoints.
pub(super) async fn rotate(rotate: AccessRotate, report: &Report) -> Result<(), JobError> {
    let AccessRotate { name, expires, .. } = rotate;
    let (table, now) = (read(report).await?, report.context.now());
    let mut of_name = table.iter().filter(|(_, grant)| grant.name == name && !grant.has_ended(now));
    let Some((id, grant)) = of_name.next() else {
        return Err(JobError::Refused(format!(
            "there is no valid access token with the name {name}: see kalends access list, and add a new one"
        )));
    };
    let token = new_token();
    let expires_s = expires.map(|after_s| now.as_secs().saturating_add(after_s));
    let expires_s = expires_s.or(grant.expires_s);
    let grant = AccessGrant { sha256: sha256(&token), expires_s, ..grant.clone() };
    write(id, &grant, report).await?;
    let agents_max = grant.agents_max;
    report.emit(Output::NewAccess(NewAccess { name, token, expires_s, agents_max })).await
}

/// A name is unique among the valid tokens, but for two commands at the same instant: all of them are revoked.
pub(super) async fn revoke(
    AccessRevoke { name }: AccessRevoke,
    report: &Report,
) -> Result<(), JobError> {
    let (table, now) = (read(report).await?, report.context.now());
    let has_name = |(_, grant): &(AccessId, &AccessGrant)| grant.name == name;
    let mut revoked = 0;
    for (id, grant) in table.iter().filter(has_name).filter(|(_, grant)| grant.revoked_s.is_none())
    {
        write(id, &AccessGrant { revoked_s: Some(now.as_secs()), ..grant.clone() }, report).await?;
        revoked += 1;
    }
    if revoked == 0 {
        let why = match table.iter().any(|token| has_name(&token)) {
            true => format!("the access token {name} is revoked already"),
            false => {
                format!("there is no access token with the name {name}: see kalends access list")
            }
        };
        return Err(JobError::Refused(why));
    }
    let text =
        format!("revoked {name}: its user agents are closed, and their endpoints answer 410");
    report.note(text).await
}

/// All tokens, as the store has them.
pub(super) async fn read(report: &Report) -> Result<AccessTable, JobError> {
    let mut table = AccessTable::default();
    loop {
        let fetch = || report.context.store.fetch_feed(FeedName::access(), table.cursor(), PAGE);
        let Some(page) = report.step(fetch).await? else { return Ok(table) };
        if page.is_too_late(table.cursor()) {
            table = AccessTable::default();
            continue;
        }
        let is_last = page.is_last();
        table.apply(page);
        if is_last {
            return Ok(table);
        }
    }
}

async fn write(id: AccessId, grant: &AccessGrant, report: &Report) -> Result<(), JobError> {
    let feed = FeedName::access();
    let keys_max = feed.keys_max(report.context.feed_keys_max);
    let write = || -> StoreFuture<WriteResult> {
        let (feed, key, value) = (feed.clone(), id.to_key(), grant.to_value());
        match report.context.feeds.clone() {
            Some(feeds) => async move { feeds.write(feed, key, value).await }.boxed(),
            None => report.context.store.write_key(feed, key, value, keys_max),
        }
    };
    match report.step(write).await? {
        WriteResult::TooManyKeys => Err(JobError::Refused(format!(
            "there are {keys_max} access tokens, with those that were revoked, and no more can be added"
        ))),
        // The publisher of a server publishes by itself.
        WriteResult::Done(_) if report.context.feeds.is_some() => Ok(()),
        WriteResult::Done(_) => number_all(&feed, report).await.map(|_last| ()),
    }
}

/// An id that no token has.
fn fresh_id(table: &AccessTable) -> AccessId {
    loop {
        let [a, b, c, d, e, f, ..] = Uuid::new_v4().into_bytes();
        let id = AccessId([a, b, c, d, e, f]);
        if table.get(id).is_none() {
            return id;
        }
    }
}
