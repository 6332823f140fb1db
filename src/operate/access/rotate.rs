//! `kalends access rotate`: replaces a token by a new one.

use clap::Args;
use serde::{Deserialize, Serialize};
use state_machine::access::{AccessGrant, is_name};

use super::table;
use super::token::{NewAccess, is_lifetime, name, seconds};
use crate::command::{Job, JobError, StoreCommand};
use crate::push::access::{new_token, sha256};

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessRotate {
    /// Name of the token
    #[arg(value_parser = name)]
    pub name: String,
    /// Time until the new token ends by itself, such as 90d; without it, the end of the former one
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub expires: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl StoreCommand for AccessRotate {
    const NAME: &'static str = "access rotate";
    const ABOUT: &'static str =
        "Replace a token by a new one, and print it once: subscriptions stay";
    const HELP: &'static str = "\
For a token that others may have seen, and to extend one that expires. The former token ends: its user
agents are closed, and cannot connect with it. With the new one they keep their subscriptions, and get what was
stored meanwhile. The exit code is 1 if there is no valid token with the name.

Examples:
  kalends access rotate alice --data-dir /var/lib/kalends
  kalends access rotate alice --expires 90d --config /etc/kalends/kalends.toml";
    type Report = NewAccess;

    fn is_json(&self) -> bool {
        self.json
    }

    fn is_within_bounds(&self) -> bool {
        is_name(&self.name) && is_lifetime(self.expires)
    }

    /// The id stays, and with it the uaids of the token's agents and their endpoints.
    async fn run(self, job: &Job<NewAccess>) -> Result<(), JobError> {
        let AccessRotate { name, expires, .. } = self;
        let (table, now) = (table::read_to_change(job).await?, job.context.now());
        let mut of_name =
            table.iter().filter(|(_, grant)| grant.name == name && !grant.has_ended(now));
        let Some((id, grant)) = of_name.next() else {
            return Err(JobError::Refused(format!(
                "there is no valid access token with the name {name}: see kalends access list, and add a new one"
            )));
        };
        let token = new_token();
        let expires_s = expires.map(|after_s| now.as_secs().saturating_add(after_s));
        let expires_s = expires_s.or(grant.expires_s);
        let grant = AccessGrant { sha256: sha256(&token), expires_s, ..grant.clone() };
        table::write(id, &grant, job).await?;
        job.report(NewAccess::new(token, &grant, job.context.origin.as_deref())).await
    }
}
