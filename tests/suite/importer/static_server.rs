//! An HTTP server that answers every request alike and records the requests.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use crate::harness::{AT_ONCE, until};

/// The server, whose thread runs until the process of the tests ends.
pub(crate) struct StaticServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The heads of requests, in lower case.
    heads: Vec<String>,
    /// The complete answer; without one, requests wait.
    answer: Option<String>,
    /// Connections that wait for an answer that is never sent.
    waiting: Vec<TcpStream>,
}

impl StaticServer {
    /// Starts a server that does not answer yet.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::<Mutex<State>>::default();
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client may disconnect at any time.
                let _ = answer(stream, &shared);
            }
        });
        Self { address, state }
    }

    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the status and body of further answers.
    pub(crate) fn answers(&self, status: u16, body: &str) {
        self.answers_with(&format!("{status} Status"), "", body);
    }

    /// Like [`answers`](Self::answers), with headers that each end with CRLF.
    pub(crate) fn answers_with(&self, status: &str, headers: &str, body: &str) {
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status}\r\n{headers}connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        self.state().answer = Some(answer);
    }

    /// The heads of all requests so far, in lower case.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.state().heads.clone()
    }

    /// Waits for this many further requests.
    pub(crate) async fn wait_for_requests(&self, times: usize) {
        let before = self.state().heads.len();
        let is_asked = async || self.state().heads.len() >= before + times;
        until(3 * AT_ONCE, "it is asked", is_asked).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics while it has the lock")
    }
}

fn answer(mut stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut head = String::new();
    let mut lines = BufReader::new(stream.try_clone()?);
    while lines.read_line(&mut head)? > 2 {}
    let mut state = state.lock().expect("no test panics while it has the lock");
    state.heads.push(head.to_ascii_lowercase());
    match state.answer.clone() {
        Some(answer) => stream.write_all(answer.as_bytes())?,
        None => state.waiting.push(stream),
    }
    Ok(())
}
