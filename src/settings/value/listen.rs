//! Where the public port listens.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

pub(super) const ADDRESS: &str = "ADDRESS:PORT, such as 127.0.0.1:8080 or [::1]:8080";

/// What a path begins with.
const UNIX: &str = "unix:";

/// Length of a path that the kernel takes, in bytes (`sun_path` in unix(7), without its end).
const PATH_BYTES_MAX: usize = 107;

/// An address and port, or a Unix socket for a proxy on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl ListenAddress {
    /// None of a Unix socket.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    pub fn is_unix(&self) -> bool {
        self.tcp().is_none()
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(path) = text.strip_prefix(UNIX) else {
            let address = text.parse().map(Self::Tcp);
            return address.map_err(|_| format!("expected {ADDRESS}, or {UNIX}PATH"));
        };
        if path.len() > PATH_BYTES_MAX {
            return Err(format!(
                "expected a path of at most {PATH_BYTES_MAX} bytes, such as /run/kalends/http.sock"
            ));
        }
        // With `//` it would be the host of a URL.
        let is_path = Path::new(path).is_absolute() && !path.starts_with("//");
        // Such a path names a directory.
        let is_dir = ["", ".", ".."].contains(&path.rsplit('/').next().unwrap_or_default());
        match is_path && !is_dir && !path.contains('\0') {
            true => Ok(Self::Unix(path.into())),
            false => Err(format!(
                "expected {UNIX} and the absolute path of a file, such as {UNIX}/run/kalends/http.sock"
            )),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_or_the_absolute_path_of_a_socket_is_read_as_it_is_shown() {
        let longest = format!("unix:/{}", "a".repeat(PATH_BYTES_MAX - 1));
        for text in ["127.0.0.1:8080", "[::]:443", "unix:/run/kalends/http.sock", &longest] {
            let address: ListenAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
            assert_eq!(address.is_unix(), text.starts_with("unix:"));
        }
        let path =
            "expected unix: and the absolute path of a file, such as unix:/run/kalends/http.sock";
        for (text, expected) in [
            (
                "localhost:80",
                "expected ADDRESS:PORT, such as 127.0.0.1:8080 or [::1]:8080, or unix:PATH",
            ),
            (
                "/run/http.sock",
                "expected ADDRESS:PORT, such as 127.0.0.1:8080 or [::1]:8080, or unix:PATH",
            ),
            ("unix:", path),
            ("unix:http.sock", path),
            ("unix:///run/http.sock", path),
            ("unix:/run/\0", path),
            ("unix:/", path),
            ("unix:/tmp/", path),
            ("unix:/tmp/.", path),
            ("unix:/tmp/..", path),
            (
                &format!("{longest}a"),
                "expected a path of at most 107 bytes, such as /run/kalends/http.sock",
            ),
        ] {
            assert_eq!(text.parse::<ListenAddress>(), Err(expected.to_owned()), "{text:?}");
        }
    }
}
