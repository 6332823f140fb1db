//! `kalends access revoke`: ends a token.

use clap::Args;
use serde::{Deserialize, Serialize};
use state_machine::access::{AccessGrant, AccessId, is_name};

use super::table;
use super::token::name;
use crate::command::{Job, JobError, NoReport, StoreCommand};

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessRevoke {
    /// Name of the token
    #[arg(value_parser = name)]
    pub name: String,
}

impl StoreCommand for AccessRevoke {
    const NAME: &'static str = "access revoke";
    const ABOUT: &'static str =
        "End a token: its user agents are closed, and their endpoints answer 410";
    const HELP: &'static str = "\
A revoked token is never valid again: add a new one. Its user agents then subscribe anew. The exit
code is 1 if there is no such token, or if it is revoked already.

Example:
  kalends access revoke alice --data-dir /var/lib/kalends";
    type Report = NoReport;

    fn is_within_bounds(&self) -> bool {
        is_name(&self.name)
    }

    /// A name is unique among the valid tokens, but for two commands at the same instant: all of them are revoked.
    async fn run(self, job: &Job) -> Result<(), JobError> {
        let Self { name } = self;
        let (table, now) = (table::read_to_change(job).await?, job.context.now());
        let has_name = |(_, grant): &(AccessId, &AccessGrant)| grant.name == name;
        let mut is_revoked = false;
        for (id, grant) in
            table.iter().filter(has_name).filter(|(_, grant)| grant.revoked_s.is_none())
        {
            table::write(id, &AccessGrant { revoked_s: Some(now.as_secs()), ..grant.clone() }, job)
                .await?;
            is_revoked = true;
        }
        if !is_revoked {
            let why = match table.iter().any(|token| has_name(&token)) {
                true => format!("the access token {name} is revoked already"),
                false => {
                    format!(
                        "there is no access token with the name {name}: see kalends access list"
                    )
                }
            };
            return Err(JobError::Refused(why));
        }
        let text =
            format!("revoked {name}: its user agents are closed, and their endpoints answer 410");
        job.note(text).await
    }
}
