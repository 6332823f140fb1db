//! `kalends init`: asks four questions, writes a file of settings, and starts the unit that reads it if one wants.

use std::io::{self, BufRead, IsTerminal, Write, stderr, stdin};
use std::path::{Path, PathBuf, absolute};
use std::process::{self, Stdio};

use clap::Args;
use storage::durable::NewFile;
use url::Url;

use crate::command::{Command, Commands, Failure, Shown};
use crate::settings::reference::chosen;
use crate::settings::value::{DomainName, Value};
use crate::settings::{
    Flags, ListenAddress, PostgresUrl, PublicUrl, Role, RoleProblem, Settings, SettingsError,
};

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
    /// Enable kalends.service, and start it again with FILE
    #[arg(long)]
    pub start: bool,
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
    #[error("no kalends.service reads {}: install the package or docs/deploy/kalends.service, and name its file", .0.display())]
    NoUnit(PathBuf),
    #[error(
        "the file is written, and `systemctl {0} {UNIT}` failed: `journalctl -u kalends` says why"
    )]
    Unit(&'static str),
    #[error(
        "a certificate is ordered for a name in DNS, and {0} is none: answer with a name, put a proxy in front, or add \
         --tls-certificate FILE and --tls-key FILE"
    )]
    NoName(String),
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Role(#[from] RoleProblem),
}

/// Modes of a file with a password, and of one without.
const PRIVATE: u32 = 0o600;
const READABLE: u32 = 0o644;

const UNIT: &str = "kalends.service";

/// What the unit reads if it names no file.
const UNIT_FILE: &str = "/etc/kalends/kalends.toml";

/// The data directory of the unit.
const PACKAGE_DIR: &str = "/var/lib/kalends";

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
who may connect. A setting that is given as a flag is not asked for. The answers are checked at once. If
kalends.service of systemd reads FILE, it is started if you want.

Examples:
  kalends init                                   writes kalends.toml here
  kalends init /etc/kalends/kalends.toml --public-url https://push.example.net
  kalends init /etc/kalends/kalends.toml --force --start    for the unit of the package
  kalends init --yes --access token              no questions: defaults for the rest";
    const SETTINGS: Shown =
        Shown::Only(&["data_dir", "listen", "public_url", "trusted_proxies", "access"]);

    fn run(self, _commands: Commands) -> Result<(), Failure> {
        init(&self).map_err(|error| match error {
            InitError::Settings(_)
            | InitError::Role(_)
            | InitError::NoAnswer
            | InitError::NoName(_)
            | InitError::Config => Failure::usage(error),
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
    let given = args.flags.given.clone();
    let has_unit = (args.start || !args.yes) && is_of_unit(&args.file);
    if args.start && !has_unit {
        return Err(InitError::NoUnit(args.file.clone()));
    }
    let asks_for_start = has_unit && !args.start;
    let dir = is_of_package(&args.file).then_some(PACKAGE_DIR);
    let (chosen, starts) = match args.yes {
        true => ask(None::<io::Empty>, io::sink(), given, dir, false)?,
        false => ask(Some(stdin().lock()), stderr(), given, dir, asks_for_start)?,
    };
    let settings = check(&chosen)?;
    settings.check(Role::All)?;
    let has_password = settings.postgresql_url.as_ref().is_some_and(PostgresUrl::has_password);
    write(args, &self::chosen(&chosen), if has_password { PRIVATE } else { READABLE })?;
    let (file, mut output) = (args.file.display(), stderr());
    output.write_all(of_socket(&settings.listen).as_bytes())?;
    if has_password {
        writeln!(
            output,
            "{file} has a password: only its owner can read it, who must run the server."
        )?;
    }
    if !args.start && !starts {
        return Ok(writeln!(
            output,
            "Wrote {file}. Start the server: kalends serve --config {file}"
        )?);
    }
    for verb in ["enable", "restart"] {
        let done = systemctl(&[verb, UNIT]).status().is_ok_and(|status| status.success());
        done.then_some(()).ok_or(InitError::Unit(verb))?;
    }
    Ok(writeln!(output, "Wrote {file}. {UNIT} runs with it: kalends status --config {file}")?)
}

/// What a Unix socket needs, in lines.
fn of_socket(listen: &ListenAddress) -> String {
    match listen {
        ListenAddress::Tcp(_) => String::new(),
        ListenAddress::Unix(path) => format!(
            "Let the proxy connect to {}. The directory must be there before the start: RuntimeDirectory=kalends in the \
             unit makes /run/kalends.\n",
            path.display()
        ),
    }
}

fn systemctl(arguments: &[&str]) -> process::Command {
    let mut command = process::Command::new("systemctl");
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Whether the unit of systemd, if there is one, reads this file.
fn is_of_unit(file: &Path) -> bool {
    let shown = systemctl(&["cat", UNIT]).stderr(Stdio::null()).output();
    let Some(shown) = shown.ok().filter(|shown| shown.status.success()) else { return false };
    let text = String::from_utf8_lossy(&shown.stdout);
    let starts = text.lines().rfind(|line| line.starts_with("ExecStart=")).unwrap_or_default();
    let mut words = starts.split_whitespace().skip_while(|word| *word != "--config").skip(1);
    let named = Path::new(words.next().unwrap_or(UNIT_FILE));
    absolute(file).is_ok_and(|file| file == named)
}

fn write(args: &Init, text: &str, mode: u32) -> Result<(), InitError> {
    let write = || -> io::Result<()> {
        let mut file = NewFile::with_mode(&args.file, mode)?;
        file.write_all(text.as_bytes())?;
        if args.force { file.replace() } else { file.create() }
    };
    write().map_err(|error| InitError::Unwritable { file: args.file.clone(), error })
}

/// Whether packages have the file, or would have it.
fn is_of_package(file: &Path) -> bool {
    let folder = Path::new(UNIT_FILE).parent().expect("it is in a folder");
    absolute(file).is_ok_and(|file| file.starts_with(folder))
}

/// Asks for what is not chosen yet, and whether the unit is started. Without an answer the file names `dir`.
fn ask(
    input: Option<impl BufRead>,
    output: impl Write,
    chosen: Chosen,
    dir: Option<&str>,
    asks_for_start: bool,
) -> Result<(Chosen, bool), InitError> {
    let url = match check(&chosen)?.listen.is_unix() {
        true => {
            "Public URL that the proxy has, such as https://push.example.net (a server on a Unix socket needs it)"
        }
        false => {
            "Public URL of the server, such as https://push.example.net (empty: only for this machine)"
        }
    };
    let mut questions = Questions { input, output, chosen };
    questions.setting("public_url", url)?;
    check(&questions.chosen)?.check(Role::All)?;
    questions.proxy()?;
    let empty = dir.unwrap_or("./kalends-data");
    let question = format!("Directory of the database and the keys (empty: {empty})");
    questions.setting("data_dir", &question)?;
    if let Some(dir) = dir.filter(|_| questions.chosen("data_dir").is_none()) {
        questions.choose("data_dir", dir.to_owned());
    }
    questions.setting(
        "access",
        "Who may connect: `open` for everyone, `token` for people with an access token (empty: open)",
    )?;
    let question = "Start kalends.service with these settings now, and at each boot?";
    let starts = asks_for_start && questions.is_yes(question, false)?;
    Ok((questions.chosen, starts))
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
        let url = settings.public_url.as_ref().map(PublicUrl::as_str);
        let url = url.map(|url| Url::parse(url).expect("an origin is a URL"));
        let Some(url) = url.filter(|url| url.scheme() == "https") else { return Ok(()) };
        if DECIDED.iter().any(|name| self.chosen(name).is_some()) {
            return Ok(());
        }
        if self.is_yes("Does a proxy on this machine terminate TLS?", true)? {
            self.choose("trusted_proxies", "127.0.0.1, ::1".to_owned());
            return Ok(());
        }
        let host = url.host_str().unwrap_or_default();
        let name = DomainName::parse(host).map_err(|_| InitError::NoName(host.to_owned()))?;
        self.choose("domain", name.as_str().to_owned());
        if let Some(port) = url.port() {
            self.choose("listen", format!("[::]:{port}"));
            writeln!(
                self.output,
                "The server listens on port {port}, and on port 80, which the authority of its certificate must reach."
            )?;
        }
        Ok(())
    }

    fn is_yes(&mut self, question: &str, default: bool) -> Result<bool, InitError> {
        let empty = if default { "yes" } else { "no" };
        let question = format!("{question} `yes` or `no` (empty: {empty})");
        loop {
            match self.answer(&question)?.as_deref() {
                None => return Ok(default),
                Some("yes" | "y") => return Ok(true),
                Some("no" | "n") => return Ok(false),
                Some(_) => writeln!(self.output, "expected yes or no")?,
            }
        }
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
        if !stdin().is_terminal() {
            // A terminal has shown the end of the line.
            writeln!(self.output)?;
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
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn answers(text: &str) -> Result<(Chosen, String), InitError> {
        let mut shown = Vec::new();
        let (chosen, starts) = ask(Some(text.as_bytes()), &mut shown, Vec::new(), None, false)?;
        assert!(!starts, "the question was not asked");
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
            (settings.listen.to_string().as_str(), settings.acme_domain()),
            ("[::]:443", Some("push.example.net"))
        );
    }

    #[test]
    fn a_port_in_the_url_is_the_one_that_the_server_listens_on() {
        let (chosen, shown) = answers("https://push.example.net:8443\nno\n\n\n").unwrap();
        let expected = [
            ("public_url", "https://push.example.net:8443"),
            ("domain", "push.example.net"),
            ("listen", "[::]:8443"),
        ];
        assert_eq!(pairs(&chosen), expected);
        assert!(shown.contains("on port 8443, and on port 80"), "{shown}");
        assert_eq!(check(&chosen).unwrap().http_listen.0.unwrap().port(), 80);
    }

    #[test]
    fn no_certificate_is_ordered_for_an_address() {
        for host in ["10.0.0.1", "[::1]", "10.0.0.1:8443"] {
            let error = answers(&format!("https://{host}\nno\n\n\n")).unwrap_err();
            assert!(matches!(error, InitError::NoName(_)), "{error}");
            assert!(error.to_string().contains("put a proxy in front"), "{error}");
            assert!(answers(&format!("https://{host}\nyes\n\n\n")).is_ok());
        }
    }

    #[test]
    fn a_file_stays_as_it_is_if_the_settings_are_wrong_and_is_private_with_a_password() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("kalends.toml");
        let run = |url: &str| {
            let given = vec![("postgresql_url".to_owned(), url.to_owned())];
            let (flags, file) = (Flags { config: None, given }, file.clone());
            init(&Init { file, yes: true, force: true, start: false, flags })
        };
        for (url, mode) in [
            ("postgresql://u@h/db", READABLE),
            ("postgresql://u:pw@h/db", PRIVATE),
            ("postgresql://u@h/db", READABLE),
        ] {
            run(url).unwrap();
            // The umask may take bits.
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777 & !mode, 0);
            assert!(fs::read_to_string(&file).unwrap().contains(url));
        }
        let written = fs::read_to_string(&file).unwrap();
        run("postgresql://u@h:99999/db").unwrap_err();
        assert_eq!(fs::read_to_string(&file).unwrap(), written);
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
        let (chosen, _) = ask(Some("\n\n".as_bytes()), io::sink(), given, None, false).unwrap();
        assert_eq!(pairs(&chosen), [("access", "token")]);
        let given = vec![("access".to_owned(), "closed".to_owned())];
        assert!(ask(None::<io::Empty>, io::sink(), given, None, false).is_err());
        let given = vec![("listen".to_owned(), "unix:/run/a.sock".to_owned())];
        let refused = ask(None::<io::Empty>, io::sink(), given, None, false);
        assert!(matches!(refused, Err(InitError::Role(RoleProblem::NoOriginOfSocket))));
    }

    #[test]
    fn a_unix_socket_is_for_a_proxy_whose_url_is_asked_for() {
        let given = vec![("listen".to_owned(), "unix:/run/a.sock".to_owned())];
        let (input, mut shown) = ("https://push.example.net\n\n\n".as_bytes(), Vec::new());
        let (chosen, _) = ask(Some(input), &mut shown, given, None, false).unwrap();
        let shown = String::from_utf8(shown).expect("questions are a text");
        assert!(shown.starts_with("Public URL that the proxy has, "), "{shown}");
        assert!(!shown.contains("empty: only for this machine") && !shown.contains("TLS"));
        let settings = check(&chosen).unwrap();
        let told = of_socket(&settings.listen);
        assert!(told.starts_with("Let the proxy connect to /run/a.sock. "), "{told}");
        assert_eq!(of_socket(&Settings::default().listen), "");
    }

    #[test]
    fn a_file_of_the_package_names_the_directory_of_the_unit() {
        assert!(is_of_package(Path::new("/etc/kalends/node-1.toml")));
        assert!(!is_of_package(Path::new("kalends.toml")));
        for (input, expected) in [("\n\n\n", PACKAGE_DIR), ("\n/srv/k\n\n", "/srv/k")] {
            let mut shown = Vec::new();
            let (dir, input) = (Some(PACKAGE_DIR), Some(input.as_bytes()));
            let (chosen, _) = ask(input, &mut shown, Vec::new(), dir, false).unwrap();
            assert_eq!(pairs(&chosen), [("data_dir", expected)]);
            let shown = String::from_utf8(shown).expect("questions are a text");
            assert!(shown.contains("(empty: /var/lib/kalends)"), "{shown}");
        }
        let (chosen, _) =
            ask(None::<io::Empty>, io::sink(), Vec::new(), Some(PACKAGE_DIR), false).unwrap();
        assert_eq!(pairs(&chosen), [("data_dir", PACKAGE_DIR)]);
    }

    #[test]
    fn the_unit_is_started_if_one_wants() {
        for (answer, expected) in [("yes", true), ("no", false), ("", false)] {
            let answers = format!("\n\n\n{answer}\n");
            let asked = ask(Some(answers.as_bytes()), io::sink(), Vec::new(), None, true);
            assert_eq!(asked.unwrap(), (Vec::new(), expected), "{answer}");
        }
    }
}
