//! The command line of `kalends preflight`, `kalends tables` and `kalends users`.

use clap::{Args, Command, Subcommand};
use state_machine::Month;
use state_machine::month::MonthError;

use super::help;
use super::request::{
    Copy, Create, Drop, DropInactive, DropOld, INACTIVE_MONTHS, INACTIVE_MONTHS_MIN, KEEP_MONTHS,
    MonthName, Request, USERS_A_SECOND, Units,
};
use crate::settings::Flags;

/// A command as it was given.
#[derive(Debug)]
pub struct ParsedCommand {
    /// What is asked for.
    pub request: Request,
    /// The settings that name the store.
    pub flags: Flags,
    /// Whether the answer is to be JSON.
    pub is_json: bool,
}

/// `kalends preflight`
#[derive(Debug, Args)]
pub struct Preflight {
    #[command(flatten)]
    flags: Flags,
}

/// `kalends tables`
#[derive(Debug, Subcommand)]
pub enum TablesAction {
    /// Say which tables there are: state, rows, bytes, throughput
    #[command(after_help = help::LIST)]
    List(ReadOnlyArgs),
    /// Say how many clients are on which month, and what there is to do
    #[command(after_help = help::STATUS)]
    Status(ReadOnlyArgs),
    /// Make the tables of last, this and next month
    #[command(after_help = help::CREATE)]
    Create(CreateArgs),
    /// Drop the tables of months that nobody is on any more
    #[command(after_help = help::DROP_OLD)]
    DropOld(DropOldArgs),
    /// Copy a month's table to another month, while no server is running
    #[command(after_help = help::COPY)]
    Copy(CopyArgs),
    /// Drop one month's table
    #[command(after_help = help::DROP)]
    Drop(DropArgs),
}

/// `kalends users`
#[derive(Debug, Subcommand)]
pub enum UsersAction {
    /// Drop users that have not connected for months
    #[command(after_help = help::DROP_INACTIVE)]
    DropInactive(DropInactiveArgs),
}

/// `kalends tables list`, `kalends tables status`
#[derive(Debug, Args)]
pub struct ReadOnlyArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: Flags,
}

/// `kalends tables create`
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// Lower last month's table to so many reads and writes a second, from the fourth of a month on
    #[arg(long, value_name = "READ:WRITE", value_parser = units)]
    lower_prior: Option<Units>,
    #[command(flatten)]
    flags: Flags,
}

/// `kalends tables drop-old`
#[derive(Debug, Args)]
pub struct DropOldArgs {
    /// Months before this one whose tables are kept
    #[arg(long, value_name = "MONTHS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(KEEP_MONTHS))]
    keep: u32,
    /// Say what would be dropped, and drop nothing
    #[arg(long)]
    dry_run: bool,
    /// Drop tables that clients are still on: these get a new id when they connect
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    flags: Flags,
}

/// `kalends tables copy`
#[derive(Debug, Args)]
pub struct CopyArgs {
    /// The month to copy, such as 2026_09
    #[arg(value_parser = month)]
    from: MonthName,
    /// The month to copy it to, such as 2026_11
    #[arg(value_parser = month)]
    to: MonthName,
    /// Confirm that no server uses the tables, which is not to be seen in DynamoDB
    #[arg(long)]
    server_stopped: bool,
    #[command(flatten)]
    flags: Flags,
}

/// `kalends tables drop`
#[derive(Debug, Args)]
pub struct DropArgs {
    /// The month, such as 2026_09
    #[arg(value_parser = month)]
    month: MonthName,
    /// Really drop it; without this it is only said what would be dropped
    #[arg(long)]
    yes: bool,
    /// Drop it although clients are still on it: these get a new id when they connect
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    flags: Flags,
}

/// `kalends users drop-inactive`
#[derive(Debug, Args)]
pub struct DropInactiveArgs {
    /// Drop those last seen so many months ago or earlier: with 2, in November, in September
    #[arg(long, value_name = "MONTHS", default_value_t = INACTIVE_MONTHS_MIN, value_parser = clap::value_parser!(u32).range(INACTIVE_MONTHS))]
    months: u32,
    /// Users dropped a second, at most
    #[arg(long, value_name = "USERS", default_value_t = 100, value_parser = clap::value_parser!(u32).range(USERS_A_SECOND))]
    rate: u32,
    /// Say how many there are, and drop none
    #[arg(long)]
    dry_run: bool,
    /// Look from this month on; else from that of the oldest table, three months at least
    #[arg(long, value_name = "MONTH", value_parser = month)]
    since: Option<MonthName>,
    #[command(flatten)]
    flags: Flags,
}

impl Preflight {
    /// What it asks for.
    pub fn asked(self) -> ParsedCommand {
        ParsedCommand::plainly(Request::Preflight, self.flags)
    }
}

impl TablesAction {
    /// What it asks for.
    pub fn asked(self) -> ParsedCommand {
        match self {
            Self::List(ReadOnlyArgs { json, flags }) => {
                ParsedCommand { request: Request::List, flags, is_json: json }
            }
            Self::Status(ReadOnlyArgs { json, flags }) => {
                ParsedCommand { request: Request::Status, flags, is_json: json }
            }
            Self::Create(CreateArgs { lower_prior, flags }) => {
                ParsedCommand::plainly(Request::Create(Create { lower_prior }), flags)
            }
            Self::DropOld(DropOldArgs { keep, dry_run, force, flags }) => {
                ParsedCommand::plainly(Request::DropOld(DropOld { keep, dry_run, force }), flags)
            }
            Self::Copy(CopyArgs { from, to, server_stopped, flags }) => {
                ParsedCommand::plainly(Request::Copy(Copy { from, to, server_stopped }), flags)
            }
            Self::Drop(DropArgs { month, yes, force, flags }) => {
                ParsedCommand::plainly(Request::Drop(Drop { month, yes, force }), flags)
            }
        }
    }
}

impl UsersAction {
    /// What it asks for.
    pub fn asked(self) -> ParsedCommand {
        let Self::DropInactive(DropInactiveArgs { months, rate, dry_run, since, flags }) = self;
        ParsedCommand::plainly(
            Request::DropInactive(DropInactive { months, rate, dry_run, since }),
            flags,
        )
    }
}

impl ParsedCommand {
    fn plainly(request: Request, flags: Flags) -> Self {
        Self { request, flags, is_json: false }
    }
}

/// Shows in a command's help only those settings that it has to do with; all can be given.
pub fn with_short_help(command: Command) -> Command {
    let name = command.get_name().to_owned();
    command.mut_args(|arg| match (name.as_str(), arg.get_id().as_str()) {
        ("token", "feed_tokens_epoch") | (_, "config" | "data_dir") => arg,
        // They need no store, only the keys.
        ("token" | "cluster", id) if is_setting(id) => arg.hide(true),
        ("put", "feed_keys_max" | "feed_value_bytes_max") | (_, "store") => arg,
        (_, "rotation" | "last_connect_shards") => arg.hide_short_help(true),
        (_, id) if id.starts_with("dynamodb_") => arg.hide_short_help(true),
        (_, id) if is_setting(id) => arg.hide(true),
        _ => arg,
    })
}

fn is_setting(id: &str) -> bool {
    crate::settings::table::Setting::find(id).is_some()
}

fn month(text: &str) -> Result<MonthName, MonthError> {
    text.parse::<Month>().map(MonthName)
}

fn units(text: &str) -> Result<Units, String> {
    let expected = || "expected READ:WRITE, such as 5:5".to_owned();
    let (read, write) = text.split_once(':').ok_or_else(expected)?;
    let number = |text: &str| text.parse().ok().filter(|units: &u32| *units > 0);
    Ok(Units {
        read: number(read).ok_or_else(expected)?,
        write: number(write).ok_or_else(expected)?,
    })
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Tables {
        #[command(subcommand)]
        action: TablesAction,
    }

    #[derive(Debug, Parser)]
    struct Users {
        #[command(subcommand)]
        action: UsersAction,
    }

    fn tables(text: &str) -> Result<ParsedCommand, clap::Error> {
        let words = ["tables"].into_iter().chain(text.split(' '));
        Tables::try_parse_from(words).map(|tables| tables.action.asked())
    }

    fn users(text: &str) -> Result<ParsedCommand, clap::Error> {
        let words = ["users"].into_iter().chain(text.split(' '));
        Users::try_parse_from(words).map(|users| users.action.asked())
    }

    fn month_name(text: &str) -> MonthName {
        MonthName(text.parse().unwrap())
    }

    #[test]
    fn each_command_asks_for_what_it_says() {
        let asked = tables("status --json --data-dir /x").unwrap();
        assert_eq!((asked.request, asked.is_json), (Request::Status, true));
        assert_eq!(asked.flags.given, [("data_dir".to_owned(), "/x".to_owned())]);
        let lower_prior = Some(Units { read: 7, write: 5 });
        let ensure = tables("create --lower-prior 7:5").unwrap().request;
        assert_eq!(ensure, Request::Create(Create { lower_prior }));
        let drop_old = DropOld { keep: 1, dry_run: false, force: false };
        assert_eq!(tables("drop-old").unwrap().request, Request::DropOld(drop_old));
        let (from, to) = (month_name("2026_09"), month_name("2026_11"));
        let copy = tables("copy 2026_09 2026_11 --server-stopped").unwrap().request;
        assert_eq!(copy, Request::Copy(Copy { from, to, server_stopped: true }));
        let drop = Drop { month: from, yes: true, force: false };
        assert_eq!(tables("drop 2026_09 --yes").unwrap().request, Request::Drop(drop));
        let stale = DropInactive { months: 2, rate: 100, dry_run: false, since: None };
        assert_eq!(users("drop-inactive").unwrap().request, Request::DropInactive(stale));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for wrong in [
            "copy 2026_09",
            "copy 2026_09 2026_13",
            "drop 2026-09 --yes",
            "drop-old --keep 0",
            "create --lower-prior 5",
            "create --lower-prior 0:5",
            "create --lower-prior 5:-5",
            "list --jsn",
            "create --json",
        ] {
            assert_eq!(tables(wrong).unwrap_err().exit_code(), 2, "{wrong}");
        }
        for wrong in
            ["drop-inactive --months 1", "drop-inactive --rate 0", "drop-inactive --since x"]
        {
            assert_eq!(users(wrong).unwrap_err().exit_code(), 2, "{wrong}");
        }
    }

    #[test]
    fn the_help_shows_the_settings_that_name_the_store_and_takes_all_others() {
        let mut command = Tables::command().mut_subcommands(with_short_help);
        let ensure = command.find_subcommand_mut("create").unwrap();
        let (short, long) =
            (ensure.render_help().to_string(), ensure.render_long_help().to_string());
        assert!(short.contains("--data-dir") && short.contains("--lower-prior"), "{short}");
        assert!(!short.contains("--dynamodb") && long.contains("--dynamodb-region"), "{long}");
        assert!(!long.contains("--hello-timeout-ms"), "{long}");
        assert!(tables("create --hello-timeout-ms 5").is_ok());
    }
}
