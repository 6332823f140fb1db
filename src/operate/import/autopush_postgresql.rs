//! `kalends import autopush-postgresql`: the users of an autopush-rs whose database is PostgreSQL.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::importer::{self, Import};
use super::postgresql_source::PostgresSource;
use super::source::SourceUrl;
use crate::command::{Backend, CommandError, Job, JobError, NoReport, StoreCommand};
use crate::settings::Settings;

#[derive(Debug, Clone, PartialEq, Eq, Args, Serialize, Deserialize)]
pub struct ImportPostgres {
    /// The database, as postgresql://USER@HOST:PORT/DATABASE; the password may be in PGPASSWORD
    #[arg(required = true)]
    #[serde(skip)]
    pub url: Option<SourceUrl>,
    /// The schema of the tables, if db_settings of autopush-rs names one
    #[arg(long, value_name = "NAME")]
    pub schema: Option<String>,
    #[command(flatten)]
    pub import: Import,
}

impl StoreCommand for ImportPostgres {
    const NAME: &'static str = "import autopush-postgresql";
    const ABOUT: &'static str =
        "Import users, channels and waiting messages from the PostgreSQL of autopush-rs";
    const HELP: &'static str = concat!(
        "\
Stop autopush-rs and this server first, and put the crypto keys of autopush-rs into keys.toml of the data
directory. The tables router, meta and message are read in one transaction that writes nothing.
",
        importer::help!(),
        "
The URL is completed by PGHOST, PGPORT, PGUSER, PGDATABASE, PGPASSWORD, PGSSLMODE and PGSSLROOTCERT. To
another machine, sslmode=verify-full is the default.

Examples:
  kalends import autopush-postgresql postgresql://autopush@127.0.0.1/autopush --dry-run --data-dir /var/lib/kalends
  PGPASSWORD=secret kalends import autopush-postgresql postgresql://autopush@db.example.net/autopush \\
    --schema autopush --data-dir /var/lib/kalends"
    );
    type Report = NoReport;

    async fn reach(&self, settings: &Settings) -> Result<Backend, CommandError> {
        importer::reach(settings).await
    }

    async fn run(self, job: &Job) -> Result<(), JobError> {
        let url = self.url.as_ref().expect("clap requires it");
        let source = PostgresSource::connect(url, self.schema.as_deref());
        Box::pin(importer::run(source, &self.import, job)).await
    }
}
