//! What a TLS handshake costs the server, in full and resumed.
//!
//! ```text
//! handshake_load --kalends PATH [--handshakes 2000] [--rounds 3] [--rsa]
//! ```
//!
//! Each round has connections with a request each, one after the other: with full handshakes, and with the ticket of the
//! connection before. In the other parts each request is one of the same connection, which is subtracted. The result is
//! CPU µs of the server for a handshake, as the median of the rounds. The exit status is 1 if a handshake was not what it
//! should be.

#![expect(
    clippy::disallowed_methods,
    reason = "a measurement writes files that no power loss meets"
)]

#[expect(dead_code, reason = "each tool uses a part")]
#[path = "shared/mod.rs"]
mod shared;

use std::error::Error;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser;
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256};
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, DEFAULT_VERSIONS, HandshakeKind, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use shared::percentile::percentile;
use shared::process::Process;
use shared::usage::CpuTime;

const REQUEST: &[u8] = b"GET /__lbheartbeat__ HTTP/1.1\r\nHost: a\r\n\r\n";

/// Measures what a TLS handshake costs the server, in full and resumed
#[derive(Debug, Parser)]
struct Args {
    /// The program `kalends`, of a release build
    #[arg(long, value_name = "PATH")]
    kalends: PathBuf,
    /// Handshakes of each kind in a round
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..))]
    handshakes: u32,
    /// Rounds, of which the medians are taken
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// A certificate with an RSA key of 2,048 bits, in place of one with P-256
    #[arg(long)]
    rsa: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Full,
    Resumed,
    /// On one connection, to be subtracted from the others.
    Requests,
}

struct Target {
    process: Process,
    certificate: CertificateDer<'static>,
    _dir: TempDir,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let target = start(&args).await?;
    let mut rounds = [const { Vec::new() }; 2];
    for _ in 0..args.rounds {
        let requests = target.cpu_us(Part::Requests, args.handshakes).await?;
        for (part, of_part) in [Part::Full, Part::Resumed].into_iter().zip(&mut rounds) {
            of_part.push(target.cpu_us(part, args.handshakes).await? - requests);
        }
    }
    let [full, resumed] = rounds.map(|mut rounds| {
        rounds.sort_by(f64::total_cmp);
        percentile(&rounds, 50)
    });
    println!("full handshake: {full:.1} us of CPU");
    println!("resumed handshake: {resumed:.1} us of CPU, {:.2} of a full one", resumed / full);
    Ok(())
}

async fn start(args: &Args) -> Result<Target, Box<dyn Error>> {
    let dir = TempDir::with_prefix("kalends-handshakes-")?;
    let algorithm = if args.rsa { &PKCS_RSA_SHA256 } else { &PKCS_ECDSA_P256_SHA256 };
    let key = KeyPair::generate_for(algorithm)?;
    let certificate = CertificateParams::new(["127.0.0.1".to_owned()])?.self_signed(&key)?;
    let [chain, secret] = ["pair.pem", "pair.key"].map(|name| dir.path().join(name));
    fs::write(&chain, certificate.pem())?;
    fs::write(&secret, key.serialize_pem())?;
    let mut command = Command::new(&args.kalends);
    command.args(["serve", "--listen=127.0.0.1:0", "--metrics-listen=off", "--data-dir"]);
    command.arg(dir.path().join("data"));
    command.arg("--tls-certificate").arg(chain).arg("--tls-key").arg(secret);
    let process = Process::start(command, &dir.path().join("log")).await?;
    Ok(Target { process, certificate: certificate.der().clone(), _dir: dir })
}

impl Target {
    /// CPU time of the server for each handshake, with a request, or for each request.
    async fn cpu_us(&self, part: Part, count: u32) -> Result<f64, Box<dyn Error>> {
        let client = self.client(part)?;
        // The first handshake of a client is full.
        let mut first = self.connect(&client).await?;
        ask(&mut first).await?;
        let before = CpuTime::of(self.process.pid())?;
        for _ in 0..count {
            if part == Part::Requests {
                ask(&mut first).await?;
                continue;
            }
            let mut stream = self.connect(&client).await?;
            ask(&mut stream).await?;
            let expected = match part {
                Part::Resumed => HandshakeKind::Resumed,
                Part::Full | Part::Requests => HandshakeKind::Full,
            };
            let kind = stream.get_ref().1.handshake_kind();
            if kind != Some(expected) {
                return Err(format!("a handshake was {kind:?}, not {expected:?}").into());
            }
        }
        let used = CpuTime::of(self.process.pid())?.us_since(&before);
        Ok(used / f64::from(count))
    }

    fn client(&self, part: Part) -> Result<TlsConnector, Box<dyn Error>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone())?;
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(DEFAULT_VERSIONS)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        if part != Part::Resumed {
            config.resumption = Resumption::disabled();
        }
        Ok(TlsConnector::from(Arc::new(config)))
    }

    async fn connect(&self, client: &TlsConnector) -> io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.process.address).await?;
        stream.set_nodelay(true)?;
        client.connect(ServerName::from(self.process.address.ip()), stream).await
    }
}

/// Makes a request, with whose answer the ticket arrives.
async fn ask(stream: &mut TlsStream<TcpStream>) -> io::Result<()> {
    stream.write_all(REQUEST).await?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"}") {
        if stream.read_buf(&mut answer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}
