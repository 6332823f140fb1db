//! A TCP relay between Firefox and the server, which a test can interrupt.

use std::io::{Read, Write, copy};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Forwards connections until it is dropped.
pub(super) struct TcpRelay {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Discards everything that Firefox sends.
    discards: AtomicBool,
    /// Accepts no further connection.
    removed: AtomicBool,
    /// Both ends of every connection since the last cut.
    ends: Mutex<Vec<TcpStream>>,
}

impl TcpRelay {
    /// Starts a relay to the server.
    pub(super) fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let state = Arc::<State>::default();
        let relay = Self { address, state: Arc::clone(&state) };
        thread::spawn(move || forward(&listener, server, &state));
        relay
    }

    /// The URL that Firefox connects to.
    pub(super) fn socket_url(&self) -> String {
        format!("ws://{}/", self.address)
    }

    /// From now on everything that Firefox sends is discarded; it still receives.
    pub(super) fn discard(&self) {
        self.state.discards.store(true, Ordering::SeqCst);
    }

    /// Closes all connections. Later ones lose nothing.
    pub(super) fn cut(&self) {
        for end in self.state.ends().drain(..) {
            // Fails if the connection has ended already.
            let _ = end.shutdown(Shutdown::Both);
        }
        self.state.discards.store(false, Ordering::SeqCst);
    }
}

impl Drop for TcpRelay {
    fn drop(&mut self) {
        self.state.removed.store(true, Ordering::SeqCst);
        self.cut();
        // Wakes the thread that accepts connections.
        let _ = TcpStream::connect(self.address);
    }
}

impl State {
    fn ends(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn forward(listener: &TcpListener, server: SocketAddr, state: &Arc<State>) {
    for firefox in listener.incoming().map_while(Result::ok) {
        if state.removed.load(Ordering::SeqCst) {
            return;
        }
        // Without a server the connection is closed, which Firefox notices.
        let Ok(server) = TcpStream::connect(server) else { continue };
        let share = |end: &TcpStream| end.try_clone().expect("a socket can be shared");
        state.ends().extend([share(&firefox), share(&server)]);
        let (down, state) = ((share(&server), share(&firefox)), Arc::clone(state));
        thread::spawn(move || up(firefox, server, &state));
        thread::spawn(move || {
            let (mut server, mut firefox) = down;
            let _ = copy(&mut server, &mut firefox);
            let _ = firefox.shutdown(Shutdown::Both);
        });
    }
}

fn up(mut firefox: TcpStream, mut server: TcpStream, state: &State) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = firefox.read(&mut bytes) {
        if !state.discards.load(Ordering::SeqCst) && server.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Both);
}
