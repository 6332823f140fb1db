//! A proxy process with a sample of `docs/deploy` as its configuration.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};

use tempfile::TempDir;
use tokio::net::{TcpSocket, TcpStream};

use super::Sample;
use crate::harness::{AT_ONCE, Agent, Cluster, Server, Socket, child, until};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Nginx,
    Caddy,
    /// The short samples, for one server.
    OneServerNginx,
    OneServerCaddy,
}

impl Kind {
    pub(super) const ALL: [Self; 4] =
        [Self::Nginx, Self::Caddy, Self::OneServerNginx, Self::OneServerCaddy];

    fn is_nginx(self) -> bool {
        matches!(self, Self::Nginx | Self::OneServerNginx)
    }
}

/// The public ports of the nodes behind a proxy.
#[derive(Debug, Default)]
pub(super) struct Backends {
    pub(super) connection_nodes: Vec<String>,
    pub(super) endpoint_nodes: Vec<String>,
}

/// A running proxy, which ends when this is dropped.
pub(super) struct ProxyProcess {
    kind: Kind,
    process: Child,
    address: SocketAddr,
    dir: TempDir,
}

/// The rest of the nginx configuration, which does not concern Kalends. A line of `tried` lists the
/// nodes that a request was sent to.
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

impl Backends {
    /// A single server that has all roles.
    pub(super) fn one(server: &Server) -> Self {
        let node = vec![server.address().to_string()];
        Self { connection_nodes: node.clone(), endpoint_nodes: node }
    }

    pub(super) fn cluster(cluster: &Cluster) -> Self {
        let address = |node: &Server| node.address().to_string();
        let connection_nodes = cluster.connection_nodes.iter().map(address).collect();
        Self {
            connection_nodes,
            endpoint_nodes: cluster.endpoint_nodes.iter().map(address).collect(),
        }
    }
}

impl ProxyProcess {
    /// Starts a proxy at a [reserved](reserve) address with the unmodified sample.
    pub(super) async fn start(kind: Kind, reserved: TcpSocket, backends: &Backends) -> Self {
        Self::start_with(kind, reserved, backends, |sample| sample).await
    }

    /// Like [`start`](Self::start), with a modified sample.
    pub(super) async fn start_with(
        kind: Kind,
        reserved: TcpSocket,
        backends: &Backends,
        change: impl FnOnce(Sample) -> Sample,
    ) -> Self {
        let address = address(&reserved);
        let sample = change(Sample::of(kind, &address.to_string(), backends));
        let dir = TempDir::new().expect("a temporary directory can be made");
        fs::write(dir.path().join("sample"), sample.text()).expect("a file can be written");
        let process = spawn(kind, dir.path());
        let mut proxy_process = Self { kind, process, address, dir };
        until(AT_ONCE, "the proxy listens", async || {
            let ended = proxy_process.process.try_wait().expect("a process can be waited for");
            assert!(
                ended.is_none(),
                "{kind:?} ended ({ended:?}) with the output:\n{}",
                proxy_process.output()
            );
            TcpStream::connect(address).await.is_ok()
        })
        .await;
        drop(reserved);
        proxy_process
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn origin(&self) -> String {
        origin(self.address)
    }

    /// Connects a new agent, which must be accepted.
    pub(super) async fn agent(&self) -> Agent {
        self.try_agent().await.expect("the proxy lets an agent in")
    }

    /// Connects a new agent; `None` if it is rejected.
    pub(super) async fn try_agent(&self) -> Option<Agent> {
        let socket = Socket::open_untimed(self.address).await.ok()?;
        Agent::hello(socket, None).await.ok()
    }

    /// The statuses of the nodes that nginx tried, for each completed request.
    pub(super) fn tried(&self) -> String {
        fs::read_to_string(self.dir.path().join("tried")).expect("nginx has a log")
    }

    fn output(&self) -> String {
        fs::read_to_string(self.dir.path().join("said")).unwrap_or_default()
    }
}

impl Drop for ProxyProcess {
    fn drop(&mut self) {
        // nginx ends its workers itself; Caddy would wait for its clients. The signal fails if the
        // process has ended already.
        let signal = if self.kind.is_nginx() { "TERM" } else { "KILL" };
        let pid = self.process.id().to_string();
        let _ = child("kill").args(["-s", signal, &pid]).stderr(Stdio::null()).status();
        let _ = self.process.wait();
        if std::thread::panicking() {
            eprintln!("the output of the proxy:\n{}", self.output());
        }
    }
}

/// An address that no other process gets before a proxy listens there.
pub(super) fn reserve() -> TcpSocket {
    let socket = TcpSocket::new_v4().expect("a socket can be made");
    // The proxy sets the same option, so that both can bind the address while only one listens.
    socket.set_reuseaddr(true).expect("an address can be shared");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("loopback has a free port");
    socket
}

/// The origin of endpoints behind a proxy at this address.
pub(super) fn origin(address: SocketAddr) -> String {
    format!("http://{address}")
}

/// The address of a reserved socket.
pub(super) fn address(reserved: &TcpSocket) -> SocketAddr {
    reserved.local_addr().expect("a bound socket has an address")
}

fn spawn(kind: Kind, dir: &Path) -> Child {
    let (name, arguments): (_, &[&str]) = match kind.is_nginx() {
        true => ("nginx", &["-e", "stderr", "-p", ".", "-c", "nginx.conf"]),
        false => ("caddy", &["run", "--adapter", "caddyfile", "--config", "sample"]),
    };
    let user = if is_root(dir) { "user root;" } else { "" };
    fs::write(dir.join("nginx.conf"), format!("{user}{NGINX}")).expect("a file can be written");
    let output = File::create(dir.join("said")).expect("a file can be made");
    let start = |program: &str| {
        let output = output.try_clone().expect("a file can be shared");
        let mut command = child(program);
        command.args(arguments).current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null());
        let homes = ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"].map(|name| (name, dir));
        command.envs(homes).stderr(output).spawn()
    };
    installed(name, start)
}

/// Starts a program of the system, which may be in a directory that is not on the path.
pub(super) fn installed<T>(name: &str, start: impl Fn(&str) -> io::Result<T>) -> T {
    let elsewhere = format!("/usr/sbin/{name}");
    let started = match start(name) {
        Err(error) if error.kind() == ErrorKind::NotFound => start(&elsewhere),
        started => started,
    };
    started.unwrap_or_else(|error| panic!("{name} cannot be run ({error}): run `make tools`"))
}

/// As root, nginx has workers of another user who cannot read a temporary directory.
fn is_root(dir: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    dir.metadata().expect("it was made just now").uid() == 0
}
