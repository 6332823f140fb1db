//! Sessions of TLS that resume: after a restart, on another server with the same keys, and for no other keys.

use std::fs;
use std::process::Stdio;
use std::sync::Arc;

use actix_web::rt::time::timeout;
use kalends::settings::keys::KEYS_FILE;
use rustls::{ClientConfig, HandshakeKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use crate::harness::{AT_ONCE, Authority, Server, child};

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const OTHER: &str = "_v38-_r5-Pf29fTz8vHw7-7t7Ovq6ejn5uXk4-Lh4N8=";

const REQUEST: &[u8] = b"GET /__version__ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

fn keys(crypto_keys: &[&str]) -> String {
    format!("crypto_keys = {crypto_keys:?}")
}

fn server(authority: &Authority, crypto_keys: &[&str]) -> Server {
    let mut launch = authority.launch();
    launch.keys = Some(keys(crypto_keys));
    Server::launch(launch)
}

/// Makes a request, with which the ticket for the next one arrives.
async fn handshake(
    authority: &Authority,
    server: &Server,
    client: &Arc<ClientConfig>,
) -> HandshakeKind {
    let mut stream = authority.connect_with(server, Arc::clone(client)).await;
    stream.write_all(REQUEST).await.expect("the connection is open");
    let mut answer = Vec::new();
    let read = timeout(AT_ONCE, stream.read_to_end(&mut answer)).await;
    read.expect("the connection ends").expect("the answer can be read");
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    stream.get_ref().1.handshake_kind().expect("the handshake is over")
}

/// Connects with OpenSSL. Returns what it says of the session.
async fn openssl(server: &Server, arguments: &[&str]) -> String {
    let mut command = Command::from(child("openssl"));
    let address = server.address().to_string();
    command.args(["s_client", "-connect", &address, "-ign_eof"]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut openssl = command.spawn().expect("openssl is installed");
    let mut stdin = openssl.stdin.take().expect("it was asked for");
    stdin.write_all(REQUEST).await.expect("openssl reads it");
    let output = timeout(AT_ONCE, openssl.wait_with_output()).await;
    let output = output.expect("the connection ends").expect("openssl ends");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains("HTTP/1.1 200"), "{printed}");
    printed
}

#[actix_web::test]
async fn a_session_resumes_after_a_restart_and_on_another_server_with_the_same_keys() {
    let authority = Authority::new();
    let mut first = server(&authority, &[KEY]);
    let client = authority.client(&[]);
    assert_eq!(handshake(&authority, &first, &client).await, HandshakeKind::Full);
    for _ in 0..2 {
        assert_eq!(handshake(&authority, &first, &client).await, HandshakeKind::Resumed);
    }
    first.terminate();
    first.restart();
    assert_eq!(handshake(&authority, &first, &client).await, HandshakeKind::Resumed);

    let second = server(&authority, &[KEY]);
    assert_eq!(handshake(&authority, &second, &client).await, HandshakeKind::Resumed);
    // A new crypto key is in front of the former one.
    first.terminate();
    fs::write(first.data_dir().join(KEYS_FILE), keys(&[OTHER, KEY])).expect("it is there");
    first.restart();
    assert_eq!(handshake(&authority, &first, &client).await, HandshakeKind::Resumed);
    // Its ticket has the new key now.
    assert_eq!(handshake(&authority, &second, &client).await, HandshakeKind::Full);
}

#[actix_web::test]
async fn a_session_does_not_resume_with_other_keys() {
    let authority = Authority::new();
    let (first, second) = (server(&authority, &[KEY]), server(&authority, &[OTHER]));
    let client = authority.client(&[]);
    assert_eq!(handshake(&authority, &first, &client).await, HandshakeKind::Full);
    assert_eq!(handshake(&authority, &second, &client).await, HandshakeKind::Full);
    assert_eq!(handshake(&authority, &second, &client).await, HandshakeKind::Resumed);
}

#[actix_web::test]
async fn openssl_resumes_after_a_restart_with_a_new_key_exchange_and_without_early_data() {
    let authority = Authority::new();
    let mut server = server(&authority, &[KEY]);
    let file = authority.path("session").display().to_string();
    let full = openssl(&server, &["-sess_out", &file]).await;
    assert!(full.contains("New, TLSv1.3"), "{full}");
    server.terminate();
    server.restart();
    let resumed = openssl(&server, &["-sess_in", &file]).await;
    assert!(resumed.contains("Reused, TLSv1.3"), "{resumed}");
    assert!(resumed.contains("Server Temp Key: "), "{resumed}");
    assert!(resumed.contains("Max Early Data: 0"), "{resumed}");
}

#[actix_web::test]
async fn a_session_of_tls_1_2_resumes_until_the_server_ends() {
    let authority = Authority::new();
    let mut server = server(&authority, &[KEY]);
    let file = authority.path("session").display().to_string();
    let full = openssl(&server, &["-tls1_2", "-sess_out", &file]).await;
    assert!(full.contains("New, TLSv1.2"), "{full}");
    let resumed = openssl(&server, &["-tls1_2", "-sess_in", &file]).await;
    assert!(resumed.contains("Reused, TLSv1.2"), "{resumed}");
    server.terminate();
    server.restart();
    let full = openssl(&server, &["-tls1_2", "-sess_in", &file]).await;
    assert!(full.contains("New, TLSv1.2"), "{full}");
}
