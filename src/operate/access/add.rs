//! `kalends access add`: makes a token for a person, and prints it once.

use clap::Args;
use serde::{Deserialize, Serialize};
use state_machine::access::{AGENTS_MAX, AccessGrant, AccessId, AccessTable, is_name};
use uuid::Uuid;

use super::table;
use super::token::{NewAccess, is_lifetime, name, seconds};
use crate::command::{Job, JobError, StoreCommand};
use crate::push::access::{new_token, sha256};

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessAdd {
    /// Name of the person or device: 1 to 64 of a-z A-Z 0-9 - _ . @
    #[arg(value_parser = name)]
    pub name: String,
    /// Time until the token ends by itself, such as 90d, 12h, 30m or 45s
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub expires: Option<u64>,
    /// User agents that may be connected to one node with it at once; 0 is no limit
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=i64::from(AGENTS_MAX)))]
    pub agents_max: u32,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl StoreCommand for AccessAdd {
    const NAME: &'static str = "access add";
    const ABOUT: &'static str = "Make a token for a person, and print it once";
    const HELP: &'static str = "\
Only a hash of the token is stored: it cannot be shown again. The exit code is 1 if the name is taken.

Examples:
  kalends access add alice --data-dir /var/lib/kalends
  kalends access add bob --expires 90d --agents-max 5 --config /etc/kalends/kalends.toml";
    type Report = NewAccess;

    fn is_json(&self) -> bool {
        self.json
    }

    fn is_within_bounds(&self) -> bool {
        is_name(&self.name) && self.agents_max <= AGENTS_MAX && is_lifetime(self.expires)
    }

    async fn run(self, job: &Job<NewAccess>) -> Result<(), JobError> {
        let AccessAdd { name, expires, agents_max, .. } = self;
        let (table, now) = (table::read_to_change(job).await?, job.context.now());
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
        table::write(id, &grant, job).await?;
        job.report(NewAccess::new(token, &grant, job.context.origin.as_deref())).await
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
