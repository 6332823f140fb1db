//! A proxy as a process of its own, with a sample of `docs/deploy` as its configuration.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use tokio::net::{TcpSocket, TcpStream};

use super::Sample;
use crate::harness::{AT_ONCE, Agent, Cluster, Server, Socket, until};

/// Which proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Nginx,
    Caddy,
}

/// The nodes behind a proxy: their public ports.
#[derive(Debug, Default)]
pub(super) struct Behind {
    pub(super) connects: Vec<String>,
    pub(super) endpoints: Vec<String>,
}

/// A proxy that runs. It ends when this is dropped.
pub(super) struct Front {
    kind: Kind,
    process: Child,
    address: SocketAddr,
    dir: TempDir,
}

/// What surrounds the sample in nginx: nothing that is about Kalends. A line of `tried` says what became of a request.
const NGINX: &str = "
daemon off;
pid pid;
worker_processes 2;
events { worker_connections 256; }
http {
    log_format tried '$request_method $uri $upstream_status';
    access_log tried tried;
    client_body_temp_path temp_body;
    proxy_temp_path temp_proxy;
    fastcgi_temp_path temp_fastcgi;
    uwsgi_temp_path temp_uwsgi;
    scgi_temp_path temp_scgi;
    include sample;
}
";

impl Behind {
    /// One server, which is all.
    pub(super) fn one(server: &Server) -> Self {
        let node = vec![server.address().to_string()];
        Self { connects: node.clone(), endpoints: node }
    }

    pub(super) fn cluster(cluster: &Cluster) -> Self {
        let address = |node: &Server| node.address().to_string();
        let connects = cluster.connects.iter().map(address).collect();
        Self { connects, endpoints: cluster.endpoints.iter().map(address).collect() }
    }
}

impl Front {
    /// A proxy at an address that was [reserved](reserve), with the sample as it is.
    pub(super) async fn start(kind: Kind, reserved: TcpSocket, behind: &Behind) -> Self {
        Self::start_with(kind, reserved, behind, |sample| sample).await
    }

    /// The same with a sample that was changed.
    pub(super) async fn start_with(
        kind: Kind,
        reserved: TcpSocket,
        behind: &Behind,
        change: impl FnOnce(Sample) -> Sample,
    ) -> Self {
        let address = address(&reserved);
        let sample = change(Sample::of(kind, &address.to_string(), behind));
        let dir = TempDir::new().expect("a temporary directory can be made");
        fs::write(dir.path().join("sample"), sample.text()).expect("a file can be written");
        let process = spawn(kind, dir.path());
        let mut front = Self { kind, process, address, dir };
        until(AT_ONCE, "the proxy listens", async || {
            let ended = front.process.try_wait().expect("a process can be waited for");
            assert!(ended.is_none(), "{kind:?} ended ({ended:?}) and said:\n{}", front.said());
            TcpStream::connect(address).await.is_ok()
        })
        .await;
        drop(reserved);
        front
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn origin(&self) -> String {
        origin(self.address)
    }

    /// A user agent that is new and was let in.
    pub(super) async fn agent(&self) -> Agent {
        self.try_agent().await.expect("the proxy lets an agent in")
    }

    /// The same, if it is let in.
    pub(super) async fn try_agent(&self) -> Option<Agent> {
        let socket = Socket::open_ever(self.address).await.ok()?;
        Agent::greet(socket, None).await.ok()
    }

    /// The statuses of the nodes that nginx tried for each request that has ended.
    pub(super) fn tried(&self) -> String {
        fs::read_to_string(self.dir.path().join("tried")).expect("nginx has a log")
    }

    fn said(&self) -> String {
        fs::read_to_string(self.dir.path().join("said")).unwrap_or_default()
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        // nginx has workers, which it ends itself; Caddy would wait for its clients. Where it has ended already, there
        // is nobody to tell.
        let signal = if self.kind == Kind::Nginx { "TERM" } else { "KILL" };
        let pid = self.process.id().to_string();
        let _ = Command::new("kill").args(["-s", signal, &pid]).stderr(Stdio::null()).status();
        let _ = self.process.wait();
        if std::thread::panicking() {
            eprintln!("the proxy said:\n{}", self.said());
        }
    }
}

/// An address that nobody else is given until a proxy listens there.
pub(super) fn reserve() -> TcpSocket {
    let socket = TcpSocket::new_v4().expect("a socket can be made");
    // The proxy says the same of its own, so that both can have the address while only one listens.
    socket.set_reuseaddr(true).expect("an address can be shared");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("loopback has a free port");
    socket
}

/// What endpoints begin with where a proxy is at that address.
pub(super) fn origin(address: SocketAddr) -> String {
    format!("http://{address}")
}

/// Where a reserved address is.
pub(super) fn address(reserved: &TcpSocket) -> SocketAddr {
    reserved.local_addr().expect("a bound socket has an address")
}

fn spawn(kind: Kind, dir: &Path) -> Child {
    let (name, arguments): (_, &[&str]) = match kind {
        Kind::Nginx => ("nginx", &["-e", "stderr", "-p", ".", "-c", "nginx.conf"]),
        Kind::Caddy => ("caddy", &["run", "--adapter", "caddyfile", "--config", "sample"]),
    };
    let user = if is_root(dir) { "user root;" } else { "" };
    fs::write(dir.join("nginx.conf"), format!("{user}{NGINX}")).expect("a file can be written");
    let said = File::create(dir.join("said")).expect("a file can be made");
    let start = |program: &str| {
        let output = said.try_clone().expect("a file can be shared");
        let mut command = Command::new(program);
        command.args(arguments).current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null());
        let homes = ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"].map(|name| (name, dir));
        command.envs(homes).stderr(output).spawn()
    };
    installed(name, start)
}

/// Runs a program of the system. Those of administrators are not on everybody's path.
pub(super) fn installed<T>(name: &str, start: impl Fn(&str) -> io::Result<T>) -> T {
    let elsewhere = format!("/usr/sbin/{name}");
    let started = match start(name) {
        Err(error) if error.kind() == ErrorKind::NotFound => start(&elsewhere),
        started => started,
    };
    started.unwrap_or_else(|error| panic!("{name} cannot be run ({error}): run `make tools`"))
}

/// nginx as root has workers of a user who could not get at a temporary directory.
fn is_root(dir: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    dir.metadata().expect("it was made just now").uid() == 0
}
