//! A TCP connection between Firefox and the server that the test can harm.

use std::io::{Read, Write, copy};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// A forwarder of connections. It ends when dropped.
pub(super) struct Cable {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// What Firefox says is taken and thrown away.
    loses: AtomicBool,
    /// No connection is taken any more.
    removed: AtomicBool,
    /// Both ends of every connection since the last cut.
    ends: Mutex<Vec<TcpStream>>,
}

impl Cable {
    /// A cable to the server.
    pub(super) fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let state = Arc::<State>::default();
        let cable = Self { address, state: Arc::clone(&state) };
        thread::spawn(move || forward(&listener, server, &state));
        cable
    }

    /// What Firefox connects to.
    pub(super) fn socket_url(&self) -> String {
        format!("ws://{}/", self.address)
    }

    /// From now on, what Firefox says is lost; it still hears the server.
    pub(super) fn lose(&self) {
        self.state.loses.store(true, Ordering::SeqCst);
    }

    /// Ends all connections. The next ones lose nothing.
    pub(super) fn cut(&self) {
        for end in self.state.ends().drain(..) {
            // It may have ended by itself.
            let _ = end.shutdown(Shutdown::Both);
        }
        self.state.loses.store(false, Ordering::SeqCst);
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.state.removed.store(true, Ordering::SeqCst);
        self.cut();
        // Wakes the thread that waits for connections.
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
        // Without a server there is nobody to talk to, which Firefox notices by the closed socket.
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
        if !state.loses.load(Ordering::SeqCst) && server.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Both);
}
