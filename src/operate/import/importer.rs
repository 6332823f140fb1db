//! Copies the users of an autopush-rs that was stopped, with their channels and messages, whichever its database is.
//!
//! The record of a user is created last, and a user that has one is skipped. So a user is complete once its agent can
//! connect, and whatever the agent does from then on, another import does not undo it. Before that, another import
//! repeats the user's writes with the same results.

use std::collections::BTreeSet;

use clap::Args;
use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use state_machine::{
    Chid, LastConnect, Message, Month, RouterRecord, RouterType, Span, Time, Uaid,
};
use storage::{StoreOp, Stored};

use super::records::User;
use super::source::{Source, SourceError, UserValues};
use super::tally::Tally;
use crate::command::backend;
use crate::command::{Backend, CommandError, Job, JobError, Servers};
use crate::operate::exclusive::SERVERS_UNKNOWN;
use crate::push::fernet::FernetKeys;
use crate::settings::keys::{KEYS_FILE, Keys};
use crate::settings::{Settings, StoreKind};
use crate::system::clock::unix_now;

/// Users that are imported at once.
const USERS_AT_ONCE: usize = 256;

/// How far the clock of the other server may be ahead.
const CLOCK_SKEW: Span = Span::from_secs(60 * 60);

const WHAT: &str = "importing users";

/// The arguments that all imports have.
#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
pub struct Import {
    /// Read and count everything, and import nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Confirm that no server uses the tables, which DynamoDB and PostgreSQL do not show
    #[arg(long)]
    pub server_stopped: bool,
}

/// What the help of all imports says.
macro_rules! help {
    () => {
        "\
With SQLite, a store is created if there is none.

A user is imported with its channels and its messages that are neither acked nor expired. A user that is
in the store already is skipped: after an interruption, run the command again. The exit code is 1 if
no crypto key opens the ids of the waiting messages, if users are behind a bridge and keys.toml has no
auth_keys, or if the database has no users. Without waiting messages the crypto key is not checked.
A special character of the password in the URL is written as %XX."
    };
}
pub(super) use help;

/// An import begins with `keys.toml`, which shows that its directory is meant.
pub async fn reach(settings: &Settings) -> Result<Backend, CommandError> {
    if !settings.data_dir.join(KEYS_FILE).exists() {
        return Err(CommandError::NoKeys { dir: settings.data_dir.clone() });
    }
    match settings.store {
        StoreKind::DynamoDb | StoreKind::PostgreSql => backend::reach(settings).await,
        StoreKind::Embedded => match backend::reach_embedded(settings, true).await? {
            Backend::Server(_) => Err(CommandError::ServerRuns),
            own => Ok(own),
        },
    }
}

/// Imports all users of the source.
pub async fn run<S: Source>(
    connect: impl Future<Output = Result<S, SourceError>>,
    import: &Import,
    job: &Job,
) -> Result<(), JobError> {
    if job.context.servers == Servers::Unknown && !import.server_stopped && !import.dry_run {
        return Err(JobError::Refused(SERVERS_UNKNOWN.into()));
    }
    let importer = Importer::new(connect, import, job).await?;
    let opens = importer.opens_messages().await?;
    if opens == Some(false) && !import.dry_run {
        return Err(JobError::Refused(NO_KEY.into()));
    }
    if !import.dry_run {
        job.step(|| job.context.store.ensure_month(importer.month)).await?;
    }
    let tally = importer.all_users().await?;
    tally.print(import.dry_run, job).await?;
    if opens.is_none() {
        job.note("the crypto key could not be checked: no message waits").await?;
    }
    let faults = importer.faults(&tally, opens);
    for fault in &faults {
        job.note(fault.as_str()).await?;
    }
    if faults.is_empty() { Ok(()) } else { Err(JobError::Unwell) }
}

const NO_USERS: &str =
    "this database has no users of autopush-rs: check HOST and /DATABASE (db_dsn of autopush-rs)";

const NO_KEY: &str = "keys.toml has no crypto key of that server: none of its keys opens the ids of the waiting messages. Add \
     the CRYPTO_KEY of autopush-rs to crypto_keys before the server starts, or all old endpoints are answered 404";

struct Importer<'a, S> {
    source: S,
    job: &'a Job,
    /// The month that the users are imported to.
    month: Month,
    now: Time,
    dry_run: bool,
    crypto_keys: FernetKeys,
    has_auth_keys: bool,
}

impl<'a, S: Source> Importer<'a, S> {
    async fn new(
        connect: impl Future<Output = Result<S, SourceError>>,
        import: &Import,
        job: &'a Job,
    ) -> Result<Self, JobError> {
        let settings = &job.context.settings;
        let keys =
            Keys::load(&settings.data_dir).map_err(|error| JobError::refused(error.to_string()))?;
        Ok(Self {
            source: connect.await?,
            job,
            month: job.frozen_month().await?.unwrap_or(job.context.this_month()),
            now: job.context.now(),
            dry_run: import.dry_run,
            crypto_keys: FernetKeys::new(&keys),
            has_auth_keys: !keys.auth_keys().is_empty(),
        })
    }

    fn settings(&self) -> &Settings {
        &self.job.context.settings
    }

    /// Whether a crypto key opens the ids of messages; none if there is no message.
    async fn opens_messages(&self) -> Result<Option<bool>, JobError> {
        let messages = self.source.some_messages().await?;
        let opens: Vec<_> = messages
            .iter()
            .map(|sealed| self.crypto_keys.open(&sealed.version, unix_now()))
            .collect();
        Ok((!opens.is_empty()).then(|| opens.contains(&true)))
    }

    /// What keeps the users from being served here as they were there.
    fn faults(&self, tally: &Tally, opens: Option<bool>) -> Vec<String> {
        let mut faults = Vec::new();
        if tally.seen == 0 && tally.users_skipped.is_empty() {
            faults.push(NO_USERS.to_owned());
        }
        if opens == Some(false) {
            faults.push(NO_KEY.to_owned());
        }
        let bridged = tally.bridged();
        if bridged > 0 && !self.has_auth_keys {
            faults.push(format!(
                "{} behind a bridge and keys.toml has no auth_keys: add the auth_keys of autoendpoint \
                 before the server starts, or their requests are refused for good",
                if bridged == 1 { "1 user is".to_owned() } else { format!("{bridged} users are") }
            ));
        }
        faults
    }

    async fn all_users(&self) -> Result<Tally, JobError> {
        let total = self.source.total().await?;
        let (mut tally, mut from) = (Tally::default(), S::Users::default());
        loop {
            let page = self.source.users(from).await?;
            tally.skip_users("with an unreadable key", page.unreadable);
            let imports = page.items.into_iter().map(|uaid| self.user(uaid));
            let mut imports = stream::iter(imports).buffer_unordered(USERS_AT_ONCE);
            while let Some(of_user) = imports.next().await {
                tally.add(of_user?);
                self.job.progress(WHAT, tally.seen, total);
            }
            match page.next {
                Some(next) => from = next,
                None => return Ok(tally),
            }
        }
    }

    async fn user(&self, uaid: Uaid) -> Result<Tally, JobError> {
        let store = &self.job.context.store;
        if self.job.step(|| store.record(uaid)).await?.is_some() {
            return Ok(Tally::skipped("already in the store"));
        }
        let values = match self.source.user(uaid, self.settings().channels_max).await {
            Err(SourceError::Unreadable) => return Ok(Tally::skipped("with unreadable values")),
            values => values?,
        };
        // A database may leave out those above the bound, whether they can be read or not.
        if values.channels.len() + values.channels_unreadable > self.settings().channels_max {
            return Ok(Tally::skipped("with more channels than channels_max"));
        }
        let Some(user) = &values.record else {
            return Ok(Tally::skipped("with an expired or unreadable record"));
        };
        let router_type = match router_type(user) {
            Ok(router_type) => router_type,
            Err(why) => return Ok(Tally::skipped(why)),
        };
        let mut tally = Tally::of_user();
        if !self.dry_run {
            let channels = values.channels.clone();
            let add = StoreOp::AddChannels { uaid, month: self.month, channels };
            self.job.step(|| store.execute(add.clone())).await?;
        }
        self.messages(uaid, &values, &mut tally).await?;
        if let Some(recipient) = router_type.recipient() {
            tally.add_bridged(&format!("{}/{}", recipient.bridge.as_str(), recipient.app), 1);
        }
        let record = self.record(uaid, router_type, user, &values);
        let create = || store.create_record(record.clone());
        if !self.dry_run && !self.job.step(create).await? {
            return Ok(Tally::skipped("already in the store"));
        }
        tally.users = 1;
        tally.channels = values.channels.len() as u64;
        tally.channels_unreadable = values.channels_unreadable as u64;
        Ok(tally)
    }

    fn record(
        &self,
        uaid: Uaid,
        router_type: RouterType,
        user: &User,
        values: &UserValues,
    ) -> RouterRecord {
        // A connection of a clock that is ahead would supersede the next ones.
        let connected_at = Time(user.connected_at).min(self.now);
        let last_contact = values.last_contact.map_or(connected_at, Time);
        let last_contact = last_contact.clamp(connected_at, self.now);
        RouterRecord {
            uaid,
            router_type,
            node: None,
            connected_at,
            last_connect: LastConnect::of(last_contact, uaid, self.settings().last_connect_shards),
            curmonth: self.month,
            oldmonth: None,
        }
    }

    /// Imports the messages of a user, a page at a time.
    async fn messages(
        &self,
        uaid: Uaid,
        values: &UserValues,
        tally: &mut Tally,
    ) -> Result<(), JobError> {
        tally.skip_messages("acked", values.acked_messages);
        let mut from = S::Messages::default();
        loop {
            let page = self.source.messages(uaid, values.acked, from).await?;
            tally.skip_messages("expired", page.expired);
            tally.skip_messages("unreadable", page.unreadable);
            let messages = page.items.into_iter().map(|sealed| sealed.message);
            let kept = messages.filter(|message| self.keeps(message, &values.channels, tally));
            let stores = kept.collect::<Vec<_>>();
            let stores = stores.into_iter().map(|message| self.store(uaid, message));
            for stored in join_all(stores).await {
                match stored? {
                    Stored::Done => tally.messages += 1,
                    Stored::Outranked(_) => tally.skip_messages(REPLACED, 1),
                    Stored::Full(_) => tally.skip_messages("above a bound of waiting messages", 1),
                    Stored::NoSuchChannel => tally.skip_messages(UNREGISTERED, 1),
                }
            }
            match page.next {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }

    /// Whether the message is to be imported.
    fn keeps(&self, message: &Message, channels: &BTreeSet<Chid>, tally: &mut Tally) -> bool {
        let bytes = message.payload.as_ref().map_or(0, |payload| payload.data.len());
        let why = if message.accepted_at + message.ttl <= self.now {
            "expired"
        } else if !channels.contains(&message.chid) {
            UNREGISTERED
        } else if bytes > self.settings().aesgcm_bytes_max() {
            "above payload_bytes_max"
        } else if message.accepted_at > self.now + CLOCK_SKEW {
            "of the future"
        } else {
            return true;
        };
        tally.skip_messages(why, 1);
        false
    }

    async fn store(&self, uaid: Uaid, message: Message) -> Result<Stored, JobError> {
        if self.dry_run {
            return Ok(Stored::Done);
        }
        let store = &self.job.context.store;
        self.job.step(|| store.store_message(uaid, self.month, message.clone())).await
    }
}

/// Why a message is skipped that a later one of its topic has replaced.
const REPLACED: &str = "replaced by a later one of their topic";

const UNREGISTERED: &str = "of a channel that is not registered";

/// How the agent is reached, or why it cannot be.
fn router_type(user: &User) -> Result<RouterType, &'static str> {
    let name = user.router_type.as_str();
    storage::router_type(name, || user.router_data.clone()).ok_or(match name {
        "fcm" => "of router type fcm without its data",
        "apns" => "of router type apns without its data",
        "gcm" => "of router type gcm",
        "adm" => "of router type adm",
        _ => "of another router type",
    })
}
