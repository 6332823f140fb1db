//! A real PostgreSQL server in a directory of its own, reached by a socket in it. `make tools` installs it, for tests.
//!
//! PostgreSQL refuses to run as root. A test that runs as root starts it as the user `postgres`, or as `nobody`.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::fs::{StatVfs, statvfs};

/// A running server. It ends when this is dropped, and with this process, also by a signal, and takes its directory along.
pub struct PostgresServer {
    /// What a client takes as its URL.
    pub url: String,
    /// That of the server and its standby.
    pub both_urls: String,
    dir: PathBuf,
    process: Child,
    answers: Mutex<Lines<BufReader<ChildStdout>>>,
}

/// Reads commands from stdin, a pipe to us, and ends when it does. It answers each with a line.
const SCRIPT: &str = r#"
serve() { # DIRECTORY SOCKETS
    until pg_isready -q -h "$2"; do
        [ -n "$server" ] && kill -0 "$server" 2>/dev/null || {
            postgres -D "$1" -k "$2" -c listen_addresses="$listen" -c ssl="${ssl:-off}" -c ssl_cert_file="$2/server.crt" \
                -c ssl_key_file="$2/server.key" -c max_connections=500 -c shared_buffers=64MB -c dynamic_shared_memory_type=mmap \
                -c max_wal_size=256MB >>"$2/log" 2>&1 &
            server=$!
        }
        sleep 0.02
    done
}
all() { echo "$server $(pgrep -P "$server")"; }
initdb -D "$1/data" -U kalends -A trust -E UTF8 --locale=C --no-sync >"$1/initdb" 2>&1 || { cat "$1/initdb" >&2; exit 1; }
serve "$1/data" "$1"
echo started
while read -r command; do
    case $command in
    kill) kill -9 $(all); wait "$server" 2>/dev/null ;;
    start) serve "$1/data" "$1" ;;
    stop) kill -STOP $(all) ;;
    go) kill -CONT $(all) ;;
    standby)
        mkdir "$1/standby.sockets"
        pg_basebackup -h "$1" -U kalends -D "$1/standby" -R -c fast
        primary=$server; server=
        serve "$1/standby" "$1/standby.sockets"
        standby=$server; server=$primary ;;
    synchronous)
        psql -q -h "$1" -U kalends postgres -c "ALTER SYSTEM SET synchronous_standby_names = '*'" \
            -c "SELECT pg_reload_conf()" >/dev/null
        until psql -tAq -h "$1" -U kalends postgres -c "SELECT sync_state FROM pg_stat_replication" | grep -q sync$
        do sleep 0.02; done ;;
    unsafe) psql -q -h "$1" -U kalends postgres -c "ALTER SYSTEM SET fsync = off" -c "SELECT pg_reload_conf()" >/dev/null
        until psql -tAq -h "$1" -U kalends postgres -c "SHOW fsync" | grep -q off; do sleep 0.02; done ;;
    pooler)
        mkdir "$1/pooler"
        printf '%s\n' '[databases]' "postgres = host=$1 dbname=postgres user=kalends" '[pgbouncer]' "unix_socket_dir = $1/pooler" 'listen_port = 5432' \
            'listen_addr =' 'pool_mode = transaction' 'auth_type = any' 'default_pool_size = 2' >"$1/pooler.ini"
        pgbouncer -q "$1/pooler.ini" >"$1/pooler.log" 2>&1 &
        pooler=$!
        until pg_isready -q -h "$1/pooler"; do
            kill -0 $pooler || { cat "$1/pooler.log" >&2; exit 1; }
            sleep 0.02
        done ;;
    listen\ *)
        listen=${command#listen }; ssl=off
        [ -f "$1/server.crt" ] && ssl=on
        kill -INT "$server"; wait "$server" 2>/dev/null
        serve "$1/data" "$1" ;;
    dump\ *) pg_dump -h "$1" -U kalends -Fc -n "${command#dump }" -f "$1/dump" postgres ;;
    restore) pg_restore -h "$1" -U kalends -d postgres "$1/dump" ;;
    fail-over)
        kill -9 $(all); wait "$server" 2>/dev/null
        pg_ctl promote -D "$1/standby" -w >/dev/null; server=$standby ;;
    esac
    echo "$command"
done
kill -CONT $(all) 2>/dev/null
kill -QUIT $server $standby 2>/dev/null
[ -z "$pooler" ] || kill -TERM $pooler
wait
rm -rf "$1"
"#;

impl PostgresServer {
    /// Starts a server of its own. Panics where none is installed.
    pub fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("postgresql").tempdir_in(fast_dir());
        let dir = dir.expect("a temporary directory can be made").keep();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).expect("it is ours");
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "postgresql"]).arg(&dir).env("PATH", path()).current_dir(&dir);
        if let Some((uid, gid)) = given_away(&dir) {
            command.uid(uid).gid(gid);
        }
        let process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = process.expect("there is a shell");
        let stdout = process.stdout.take().expect("it was piped");
        let answers = Mutex::new(BufReader::new(stdout).lines());
        let socket = dir.to_str().expect("a temporary path is text").replace('/', "%2F");
        let url = format!("postgresql://kalends@{socket}/postgres");
        let both_urls =
            format!("postgresql://kalends@{socket},{socket}%2Fstandby.sockets/postgres");
        let server = Self { url, both_urls, dir, process, answers };
        server.wait();
        server
    }

    /// Does one of the commands of the script, and waits until it is done.
    pub fn tell(&self, command: &str) {
        let mut stdin = self.process.stdin.as_ref().expect("it was piped");
        writeln!(stdin, "{command}").expect("the script runs");
        self.wait();
    }

    /// Executes statements as the owner of all tables.
    pub fn sql(&self, statements: &str) {
        let _nothing = self.psql(statements);
    }

    /// The rows of a query, each column as a text; null is empty.
    pub fn rows(&self, query: &str) -> Vec<Vec<String>> {
        let rows = self.psql(query);
        rows.lines().map(|row| row.split('\x1f').map(str::to_owned).collect()).collect()
    }

    /// The statements that make a schema with its rows.
    pub fn dump(&self, schema: &str) -> String {
        let mut command = Command::new("pg_dump");
        command.env("PATH", path()).args(["--inserts", "--no-owner", "--schema", schema]);
        command.arg("-h").arg(&self.dir).args(["-U", "kalends", "postgres"]);
        let done = command.output().expect("there is a pg_dump");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let text = String::from_utf8(done.stdout).expect("it prints UTF-8");
        // Commands of psql that older ones do not know.
        let lines = text.lines().filter(|line| !line.starts_with("\\"));
        lines.flat_map(|line| [line, "\n"]).collect()
    }

    /// Executes the statements of such a dump, in one transaction.
    pub fn load(&self, statements: &str) {
        let mut command = Command::new("psql");
        command.env("PATH", path()).args(["-q", "-1", "-v", "ON_ERROR_STOP=1", "-f", "-"]);
        command.arg("-h").arg(&self.dir).args(["-U", "kalends", "postgres"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut process = command.spawn().expect("there is a psql");
        let mut stdin = process.stdin.take().expect("it was piped");
        stdin.write_all(statements.as_bytes()).expect("psql reads them");
        drop(stdin);
        assert!(process.wait().expect("it can be waited for").success(), "psql fails");
    }

    /// A session that executes statements until it is dropped.
    pub fn session(&self, statements: &str) -> Session {
        let mut command = self.client(statements);
        Session(
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("there is a psql"),
        )
    }

    fn psql(&self, statements: &str) -> String {
        let done = self.client(statements).output().expect("there is a psql");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).expect("it prints UTF-8")
    }

    fn client(&self, statements: &str) -> Command {
        let host = self.dir.to_str().expect("a temporary path is text");
        let mut command = Command::new("psql");
        command.env("PATH", path()).args(["-q", "-t", "-A", "-F", "\x1f", "-v", "ON_ERROR_STOP=1"]);
        command.args(["-h", host, "-U", "kalends", "postgres", "-c", statements]);
        command
    }

    /// Starts a pooler before the server, and returns its URL.
    pub fn pooled(&self) -> String {
        self.tell("pooler");
        self.url.replace("/postgres", "%2Fpooler/postgres")
    }

    /// Restarts it so that it listens at an address of this machine that no other server has, which is returned. With a
    /// certificate and its key, as PEM, it offers TLS there.
    #[expect(clippy::disallowed_methods, reason = "no power loss meets the files of a test")]
    pub fn listen(&self, pair: Option<(&str, &str)>) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let files = pair.map_or(["", ""], |(certificate, key)| [certificate, key]);
        for (name, pem) in ["server.crt", "server.key"].into_iter().zip(files) {
            let path = self.dir.join(name);
            // It may not be there yet.
            let _ = fs::remove_file(&path);
            if pair.is_some() {
                fs::write(&path, pem).expect("it is ours");
                fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
                given_away(&path);
            }
        }
        // 22 bits of the process and two of the call.
        let number = (process::id() << 2) | (COUNT.fetch_add(1, Ordering::Relaxed) % 4);
        let [_, high, middle, low] = number.to_be_bytes();
        let address = format!("127.{high}.{middle}.{low}");
        self.tell(&format!("listen {address}"));
        address
    }

    fn wait(&self) {
        let answer = self.answers.lock().unwrap_or_else(PoisonError::into_inner).next();
        assert!(matches!(answer, Some(Ok(_))), "PostgreSQL does not run: try `make tools`");
    }
}

/// A client of the server. It ends when this is dropped.
pub struct Session(Child);

impl Drop for Session {
    fn drop(&mut self) {
        // It may have ended already, which is no error.
        let _ended = self.0.kill();
        let _ended = self.0.wait();
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // It may have ended already, which is no error.
        let _ended = self.process.wait();
    }
}

/// The server of this process, started by the first test that asks.
pub fn shared() -> &'static PostgresServer {
    static SHARED: OnceLock<PostgresServer> = OnceLock::new();
    SHARED.get_or_init(PostgresServer::start)
}

/// A directory in memory if there is one with room, as in no small container: many tests share a disk.
fn fast_dir() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let has_room = |space: StatVfs| space.f_bavail * space.f_frsize >= MEMORY_MIN;
    match statvfs(memory).is_ok_and(has_room) {
        true => memory.to_owned(),
        false => std::env::temp_dir(),
    }
}

/// Bytes that the servers of all test programs at once fit into.
const MEMORY_MIN: u64 = 3 << 30;

/// The directory with the programs of the server, if it is not the installed one. Clients are always those.
pub const PROGRAMS: &str = "TEST_POSTGRESQL_PROGRAMS";

/// With the programs of the newest version that Debian has installed, which are on no path.
fn path() -> OsString {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.map(|entry| entry.path()).max_by_key(number);
    let mut path = OsString::new();
    if let Some(programs) = std::env::var_os(PROGRAMS) {
        path.push(programs);
        path.push(":");
    }
    if let Some(newest) = newest {
        path.push(newest.join("bin"));
        path.push(":");
    }
    path.push(std::env::var_os("PATH").unwrap_or_default());
    path
}

/// Gives a file of root to the user that the server runs as, who is returned.
fn given_away(path: &Path) -> Option<(u32, u32)> {
    let is_of_root = fs::metadata(path).expect("it was made").uid() == 0;
    let (uid, gid) = is_of_root.then(user)?;
    chown(path, Some(uid), Some(gid)).expect("root may give it away");
    Some((uid, gid))
}

fn user() -> (u32, u32) {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let of = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut ids = line.split(':').skip(2).map(str::parse::<u32>);
        Some((ids.next()?.ok()?, ids.next()?.ok()?))
    };
    of("postgres").or_else(|| of("nobody")).expect("there is a user without rights")
}
