//! `kalends import autopush-redis`: copies the users of an autopush-rs that was stopped, with their channels and messages.
//!
//! The record of a user is created last, and a user that has one is skipped. So a user is complete once its agent can
//! connect, and whatever the agent does from then on, another import does not undo it. Before that, another import
//! repeats the user's writes with the same results.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use state_machine::{
    Chid, LastConnect, Message, Month, RouterRecord, RouterType, Span, Time, Uaid,
};
use storage::{StoreOp, Stored};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::records::{SealedMessage, User};
use super::redis_source::{MESSAGES_AT_ONCE, RedisSource, RedisUrl, SourceError, UserValues};
use crate::command::backend;
use crate::command::{Backend, CommandError, Job, JobError, NoReport, Servers, StoreCommand};
use crate::operate::exclusive::SERVERS_UNKNOWN;
use crate::push::fernet::FernetKeys;
use crate::settings::keys::{KEYS_FILE, Keys};
use crate::settings::{Settings, StoreKind};
use crate::system::clock::unix_now;

/// Users that are imported at once.
const USERS_AT_ONCE: usize = 256;

/// Applications behind bridges that are listed. Users of further ones are counted together.
const APPS_MAX: usize = 50;

/// How far the clock of the other server may be ahead.
const CLOCK_SKEW: Span = Span::from_secs(60 * 60);

const WHAT: &str = "importing users";

/// Never sent to a server: the URL may have a password.
#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
pub struct ImportRedis {
    /// The Redis, as redis://HOST:PORT/DATABASE or rediss:// with TLS; the password may be in REDISCLI_AUTH
    #[arg(required = true)]
    #[serde(skip)]
    pub url: Option<RedisUrl>,
    /// Read and count everything, and import nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Confirm that no server uses the tables, which DynamoDB does not show
    #[arg(long)]
    pub server_stopped: bool,
}

impl StoreCommand for ImportRedis {
    const NAME: &'static str = "import autopush-redis";
    const ABOUT: &'static str =
        "Import users, channels and waiting messages from the Redis of autopush-rs";
    const HELP: &'static str = "\
Stop autopush-rs and this server first, and put the crypto keys of autopush-rs into keys.toml of the data
directory. Redis keeps running and is not changed. With SQLite, a store is created if there is none.

A user is imported with its channels and its messages that are neither acked nor expired. A user that is
in the store already is skipped: after an interruption, run the command again. The exit code is 1 if
no crypto key opens the ids of the waiting messages, if users are behind a bridge and keys.toml has no
auth_keys, or if the database has no users. Without waiting messages the crypto key is not checked.
A special character of the password in the URL is written as %XX.

Examples:
  kalends import autopush-redis redis://127.0.0.1:6379 --dry-run --data-dir /var/lib/kalends
  REDISCLI_AUTH=secret kalends import autopush-redis rediss://redis.example.net/2 --data-dir /var/lib/kalends
  kalends import autopush-redis redis://127.0.0.1 --store dynamodb --server-stopped --data-dir /var/lib/kalends";
    type Report = NoReport;

    /// An import begins with `keys.toml`, which shows that its directory is meant.
    async fn reach(&self, settings: &Settings) -> Result<Backend, CommandError> {
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

    async fn run(self, job: &Job) -> Result<(), JobError> {
        if job.context.servers == Servers::Unknown && !self.server_stopped && !self.dry_run {
            return Err(JobError::Refused(SERVERS_UNKNOWN.into()));
        }
        let importer = Importer::new(&self, job).await?;
        let opens = importer.opens_messages().await?;
        if opens == Some(false) && !self.dry_run {
            return Err(JobError::Refused(NO_KEY.into()));
        }
        if !self.dry_run {
            job.step(|| job.context.store.ensure_month(importer.month)).await?;
        }
        let tally = importer.all_users().await?;
        tally.print(self.dry_run, job).await?;
        if opens.is_none() {
            job.note("the crypto key could not be checked: no message waits").await?;
        }
        let faults = importer.faults(&tally, opens);
        for fault in &faults {
            job.note(fault.as_str()).await?;
        }
        if faults.is_empty() { Ok(()) } else { Err(JobError::Unwell) }
    }
}

const NO_USERS: &str =
    "this database has no users of autopush-rs: check HOST and /DATABASE (db_dsn of autopush-rs)";

const NO_KEY: &str = "keys.toml has no crypto key of that server: none of its keys opens the ids of the waiting messages. Add \
     the CRYPTO_KEY of autopush-rs to crypto_keys before the server starts, or all old endpoints are answered 404";

struct Importer<'a> {
    source: RedisSource,
    job: &'a Job,
    /// The month that the users are imported to.
    month: Month,
    now: Time,
    dry_run: bool,
    crypto_keys: FernetKeys,
    has_auth_keys: bool,
}

impl<'a> Importer<'a> {
    async fn new(import: &'a ImportRedis, job: &'a Job) -> Result<Self, JobError> {
        let settings = &job.context.settings;
        let keys =
            Keys::load(&settings.data_dir).map_err(|error| JobError::refused(error.to_string()))?;
        Ok(Self {
            source: RedisSource::connect(import.url.as_ref().expect("clap requires it")).await?,
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
        let sealed = messages.iter().flatten().filter_map(|text| SealedMessage::parse(text));
        let opens: Vec<_> =
            sealed.map(|sealed| self.crypto_keys.open(&sealed.version, unix_now())).collect();
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
                "{bridged} users are behind a bridge and keys.toml has no auth_keys: add the auth_keys of autoendpoint \
                 before the server starts, or their requests are refused for good"
            ));
        }
        faults
    }

    async fn all_users(&self) -> Result<Tally, JobError> {
        let (mut tally, mut cursor) = (Tally::default(), 0);
        loop {
            let page = self.source.users(cursor).await?;
            tally.skip_users("with an unreadable key", page.unreadable);
            let imports = page.users.into_iter().map(|uaid| self.user(uaid));
            let mut imports = stream::iter(imports).buffer_unordered(USERS_AT_ONCE);
            while let Some(of_user) = imports.next().await {
                tally.add(of_user?);
                self.job.progress(WHAT, tally.seen, None);
            }
            cursor = page.next;
            if cursor == 0 {
                return Ok(tally);
            }
        }
    }

    async fn user(&self, uaid: Uaid) -> Result<Tally, JobError> {
        let store = &self.job.context.store;
        if self.job.step(|| store.record(uaid)).await?.is_some() {
            return Ok(Tally::skipped("already in the store"));
        }
        let values = match self.source.user(uaid).await {
            Err(error) if error.is_of_a_value() => {
                return Ok(Tally::skipped("with unreadable values"));
            }
            values => values?,
        };
        if values.channels.len() > self.settings().channels_max {
            return Ok(Tally::skipped("with more channels than channels_max"));
        }
        let Some(user) = values.record.as_deref().and_then(User::parse) else {
            return Ok(Tally::skipped("with an expired or unreadable record"));
        };
        let router_type = match router_type(&user) {
            Ok(router_type) => router_type,
            Err(why) => return Ok(Tally::skipped(why)),
        };
        let mut tally = Tally { seen: 1, ..Tally::default() };
        if !self.dry_run {
            let channels = values.channels.clone();
            let add = StoreOp::AddChannels { uaid, month: self.month, channels };
            self.job.step(|| store.execute(add.clone())).await?;
        }
        self.messages(uaid, &values, &mut tally).await?;
        if let Some(recipient) = router_type.recipient() {
            tally.add_bridged(&format!("{}/{}", recipient.bridge.as_str(), recipient.app), 1);
        }
        let record = self.record(uaid, router_type, &user, &values);
        let create = || store.create_record(record.clone());
        if !self.dry_run && !self.job.step(create).await? {
            return Ok(Tally::skipped("already in the store"));
        }
        tally.users = 1;
        tally.channels = values.channels.len() as u64;
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
        let mut skip = 0;
        loop {
            let page = self.source.messages(uaid, values.acked, skip).await?;
            let read = page.len();
            let kept =
                page.iter().filter_map(|text| self.keep(text.as_deref(), &values.channels, tally));
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
            if read < MESSAGES_AT_ONCE {
                return Ok(());
            }
            skip += read;
        }
    }

    /// The message, if it is to be imported.
    fn keep(
        &self,
        text: Option<&str>,
        channels: &BTreeSet<Chid>,
        tally: &mut Tally,
    ) -> Option<Message> {
        let why = match text.map(SealedMessage::parse) {
            None => "expired",
            Some(None) => "unreadable",
            Some(Some(sealed)) => {
                let message = sealed.message;
                let bytes = message.payload.as_ref().map_or(0, |payload| payload.data.len());
                if message.accepted_at + message.ttl <= self.now {
                    "expired"
                } else if !channels.contains(&message.chid) {
                    UNREGISTERED
                } else if bytes > self.settings().aesgcm_bytes_max() {
                    "above payload_bytes_max"
                } else if message.accepted_at > self.now + CLOCK_SKEW {
                    "of the future"
                } else {
                    return Some(message);
                }
            }
        };
        tally.skip_messages(why, 1);
        None
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

impl From<SourceError> for JobError {
    fn from(error: SourceError) -> Self {
        Self::Refused(error.to_string())
    }
}

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

/// What was imported and what was skipped, with the reasons.
#[derive(Debug, Default)]
struct Tally {
    seen: u64,
    users: u64,
    /// Those of the users that a bridge reaches, by application.
    bridged: BTreeMap<String, u64>,
    channels: u64,
    messages: u64,
    users_skipped: BTreeMap<&'static str, u64>,
    messages_skipped: BTreeMap<&'static str, u64>,
}

impl Tally {
    fn skipped(why: &'static str) -> Self {
        Self { seen: 1, users_skipped: [(why, 1)].into(), ..Self::default() }
    }

    fn skip_users(&mut self, why: &'static str, count: u64) {
        add_count(&mut self.users_skipped, why, count);
    }

    fn skip_messages(&mut self, why: &'static str, count: u64) {
        add_count(&mut self.messages_skipped, why, count);
    }

    fn add_bridged(&mut self, app: &str, count: u64) {
        let is_listed = self.bridged.len() < APPS_MAX || self.bridged.contains_key(app);
        let app = if is_listed { app } else { "others" };
        *self.bridged.entry(app.to_owned()).or_default() += count;
    }

    fn bridged(&self) -> u64 {
        self.bridged.values().sum()
    }

    fn add(&mut self, other: Self) {
        self.seen += other.seen;
        self.users += other.users;
        other.bridged.into_iter().for_each(|(app, count)| self.add_bridged(&app, count));
        self.channels += other.channels;
        self.messages += other.messages;
        other.users_skipped.into_iter().for_each(|(why, count)| self.skip_users(why, count));
        other.messages_skipped.into_iter().for_each(|(why, count)| self.skip_messages(why, count));
    }

    async fn print(&self, dry_run: bool, job: &Job) -> Result<(), JobError> {
        let Self { users, channels, messages, .. } = self;
        let bridged = self.bridged();
        let done = if dry_run { "would import" } else { "imported" };
        job
            .note(format!(
                "{done} {users} users ({bridged} behind a bridge), {channels} channels and {messages} messages"
            ))
            .await?;
        let app = |(app, count): (&String, &u64)| format!("{} {count}", app.escape_default());
        let apps: Vec<_> = self.bridged.iter().map(app).collect();
        if !apps.is_empty() {
            job.note(format!("behind a bridge: {}", apps.join(", "))).await?;
        }
        for (what, skipped) in
            [("users", &self.users_skipped), ("messages", &self.messages_skipped)]
        {
            for (why, count) in skipped {
                job.note(format!("skipped {count} {what} {why}")).await?;
            }
        }
        Ok(())
    }
}

fn add_count(counts: &mut BTreeMap<&'static str, u64>, why: &'static str, count: u64) {
    if count > 0 {
        *counts.entry(why).or_default() += count;
    }
}
