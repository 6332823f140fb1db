//! `kalends init`: asks four questions and writes a file of settings.

use std::io::{self, BufRead, Write, stderr, stdin};
use std::path::PathBuf;

use clap::Args;
use storage::durable::NewFile;

use crate::command::{Command, Commands, Failure, Shown};
use crate::settings::reference::chosen;
use crate::settings::{Flags, PublicUrl, Settings, SettingsError};

#[derive(Debug, Args)]
pub struct Init {
    /// The file to write
    #[arg(default_value = "kalends.toml")]
    pub file: PathBuf,
    /// Ask nothing: the defaults are the answers
    #[arg(long)]
    pub yes: bool,
    /// Replace FILE if it exists
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub flags: Flags,
}

/// Why no file was written.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    #[error("{} exists: name another file, or add --force to replace it", .0.display())]
    Exists(PathBuf),
    #[error("cannot write {}: {error}", file.display())]
    Unwritable { file: PathBuf, error: io::Error },
    #[error("the input ended before the last answer: answer all, or add --yes for the defaults")]
    NoAnswer,
    #[error("cannot ask: {0}")]
    Terminal(#[from] io::Error),
    #[error("--config is for commands that read a file: name the file to write without it")]
    Config,
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

/// The settings and their values as text.
type Chosen = Vec<(String, String)>;

/// A person who answers, or the defaults.
struct Questions<I, O> {
    input: Option<I>,
    output: O,
    chosen: Chosen,
}

impl Command for Init {
    const NAME: &'static str = "init";
    const ABOUT: &'static str = "Write a file of settings after four questions";
    const HELP: &'static str = "\
Asks for what the first start needs: the public URL, whether a proxy is in front, the data directory, and
who may connect. A setting that is given as a flag is not asked for. The answers are checked at once.

Examples:
  kalends init                                   writes kalends.toml here
  kalends init /etc/kalends/kalends.toml --public-url https://push.example.net
  kalends init --yes --access token              no questions: defaults for the rest";
    const SETTINGS: Shown =
        Shown::Only(&["data_dir", "listen", "public_url", "trusted_proxies", "access"]);

    fn run(self, _commands: Commands) -> Result<(), Failure> {
        init(&self).map_err(|error| match error {
            InitError::Settings(_) | InitError::NoAnswer | InitError::Config => {
                Failure::usage(error)
            }
            error => error.into(),
        })
    }
}

fn init(args: &Init) -> Result<(), InitError> {
    if args.flags.config.is_some() {
        return Err(InitError::Config);
    }
    if args.file.exists() && !args.force {
        return Err(InitError::Exists(args.file.clone()));
    }
    let chosen = match args.yes {
        true => ask(None::<io::Empty>, io::sink(), args.flags.given.clone())?,
        false => ask(Some(stdin().lock()), stderr(), args.flags.given.clone())?,
    };
    write(args, &self::chosen(&chosen))?;
    let (file, mut output) = (args.file.display(), stderr());
    Ok(writeln!(output, "Wrote {file}. Start the server: kalends serve --config {file}")?)
}

fn write(args: &Init, text: &str) -> Result<(), InitError> {
    let write = || -> io::Result<()> {
        let mut file = NewFile::with_mode(&args.file, 0o644)?;
        file.write_all(text.as_bytes())?;
        if args.force { file.replace() } else { file.create() }
    };
    write().map_err(|error| InitError::Unwritable { file: args.file.clone(), error })
}

/// Asks for what is not chosen yet.
fn ask(
    input: Option<impl BufRead>,
    output: impl Write,
    chosen: Chosen,
) -> Result<Chosen, InitError> {
    check(&chosen)?;
    let mut questions = Questions { input, output, chosen };
    questions.setting(
        "public_url",
        "Public URL of the server, such as https://push.example.net (empty: only for this machine)",
    )?;
    questions.proxy()?;
    questions
        .setting("data_dir", "Directory of the database and the keys (empty: ./kalends-data)")?;
    questions.setting(
        "access",
        "Who may connect: `open` for everyone, `token` for people with an access token (empty: open)",
    )?;
    Ok(questions.chosen)
}

impl<I: BufRead, O: Write> Questions<I, O> {
    /// Asks for a setting until the answer is valid or empty, unless it is chosen already.
    fn setting(&mut self, name: &str, question: &str) -> Result<(), InitError> {
        if self.chosen(name).is_some() {
            return Ok(());
        }
        while let Some(answer) = self.answer(question)? {
            let tried = [&self.chosen[..], &[(name.to_owned(), answer)]].concat();
            match check(&tried) {
                Ok(_) => {
                    self.chosen = tried;
                    return Ok(());
                }
                Err(error) => writeln!(self.output, "{error}")?,
            }
        }
        Ok(())
    }

    /// Who terminates TLS in front of a public URL: a proxy on this machine, or the server with a certificate that it
    /// orders.
    fn proxy(&mut self) -> Result<(), InitError> {
        const DECIDED: [&str; 4] = ["trusted_proxies", "tls_certificate", "domain", "listen"];
        let settings = check(&self.chosen)?;
        let Some(url) = settings.public_url.as_ref().map(PublicUrl::as_str) else { return Ok(()) };
        let Some(host) = url.strip_prefix("https://").map(str::to_owned) else { return Ok(()) };
        if DECIDED.iter().any(|name| self.chosen(name).is_some()) {
            return Ok(());
        }
        let question = "Does a proxy on this machine terminate TLS? `yes` or `no` (empty: yes)";
        let has_proxy = loop {
            match self.answer(question)?.as_deref() {
                None | Some("yes" | "y") => break true,
                Some("no" | "n") => break false,
                Some(_) => writeln!(self.output, "expected yes or no")?,
            }
        };
        if has_proxy {
            self.choose("trusted_proxies", "127.0.0.1, ::1".to_owned());
            return Ok(());
        }
        let host = host.split(':').next().unwrap_or_default().to_owned();
        self.choose("domain", host);
        Ok(())
    }

    /// The answer. None if it is empty, or without an input.
    fn answer(&mut self, question: &str) -> Result<Option<String>, InitError> {
        let Some(input) = &mut self.input else { return Ok(None) };
        write!(self.output, "{question}: ")?;
        self.output.flush()?;
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            return Err(InitError::NoAnswer);
        }
        Ok(Some(line.trim().to_owned()).filter(|answer| !answer.is_empty()))
    }

    fn choose(&mut self, name: &str, text: String) {
        self.chosen.push((name.to_owned(), text));
    }

    fn chosen(&self, name: &str) -> Option<&str> {
        let mut chosen = self.chosen.iter();
        chosen.find(|(known, _)| known == name).map(|(_, text)| text.as_str())
    }
}

fn check(chosen: &Chosen) -> Result<Settings, SettingsError> {
    Settings::load(&Flags { config: None, given: chosen.clone() }, [])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(text: &str) -> Result<(Chosen, String), InitError> {
        let mut shown = Vec::new();
        let chosen = ask(Some(text.as_bytes()), &mut shown, Vec::new())?;
        Ok((chosen, String::from_utf8(shown).expect("questions are a text")))
    }

    fn pairs(chosen: &Chosen) -> Vec<(&str, &str)> {
        chosen.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect()
    }

    #[test]
    fn a_wrong_answer_is_explained_and_asked_for_again() {
        let (chosen, shown) =
            answers("push.example.net\nhttps://push.example.net\nmaybe\nyes\n\nclosed\ntoken\n")
                .unwrap();
        let expected = [
            ("public_url", "https://push.example.net"),
            ("trusted_proxies", "127.0.0.1, ::1"),
            ("access", "token"),
        ];
        assert_eq!(pairs(&chosen), expected);
        assert_eq!(shown.matches("Public URL").count(), 2, "{shown}");
        for told in ["public_url = `push.example.net`", "expected yes or no", "access = `closed`"] {
            assert!(shown.contains(told), "{told}: {shown}");
        }
    }

    #[test]
    fn without_a_proxy_the_server_orders_a_certificate() {
        let (chosen, _) = answers("https://push.example.net\nno\n/srv/k\n\n").unwrap();
        let expected = [
            ("public_url", "https://push.example.net"),
            ("domain", "push.example.net"),
            ("data_dir", "/srv/k"),
        ];
        assert_eq!(pairs(&chosen), expected);
        let settings = check(&chosen).unwrap();
        assert_eq!(
            (settings.listen.port(), settings.acme_domain()),
            (443, Some("push.example.net"))
        );
    }

    #[test]
    fn a_server_of_this_machine_is_asked_for_no_proxy() {
        assert_eq!(answers("\n\n\n").unwrap().0, []);
    }

    #[test]
    fn an_input_that_ends_early_writes_nothing() {
        assert!(matches!(answers("\n"), Err(InitError::NoAnswer)));
    }

    #[test]
    fn what_is_given_as_a_flag_is_not_asked_for_and_checked() {
        let given = vec![("access".to_owned(), "token".to_owned())];
        let chosen = ask(Some("\n\n".as_bytes()), io::sink(), given).unwrap();
        assert_eq!(pairs(&chosen), [("access", "token")]);
        let given = vec![("access".to_owned(), "closed".to_owned())];
        assert!(ask(None::<io::Empty>, io::sink(), given).is_err());
    }
}
