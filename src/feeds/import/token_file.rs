//! The file that holds the bearer token of a broadcast source.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::system::regular_file;

/// Maximum size of the file, in bytes.
const FILE_BYTES_MAX: u64 = 8192;

/// Why there is no token. The texts never quote the file.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    #[error("cannot read {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error(
        "{} has mode {mode:04o}, so other users can read the token: run `chmod 600 {}`",
        path.display(), path.display()
    )]
    Exposed { path: PathBuf, mode: u32 },
    #[error(
        "{} is not a bearer token: expected one line of printable characters without blanks",
        path.display()
    )]
    Malformed { path: PathBuf },
}

pub fn read(path: &Path) -> Result<Zeroizing<String>, TokenFileError> {
    let unreadable = |error| TokenFileError::Unreadable { path: path.to_owned(), error };
    let file = regular_file::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if let Some(mode) = regular_file::exposed_mode(&metadata) {
        return Err(TokenFileError::Exposed { path: path.to_owned(), mode });
    }
    let mut bytes = Zeroizing::new(Vec::new());
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    let token = bytes.trim_ascii();
    let is_token = !token.is_empty() && token.iter().all(u8::is_ascii_graphic);
    match std::str::from_utf8(token) {
        Ok(token) if is_token && bytes.len() as u64 <= FILE_BYTES_MAX => {
            Ok(Zeroizing::new(token.to_owned()))
        }
        _ => Err(TokenFileError::Malformed { path: path.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn read_as(contents: &[u8], mode: u32) -> Result<String, String> {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("token");
        fs::write(&path, contents).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        read(&path).map(|token| token.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_token_is_read_without_its_newline() {
        assert_eq!(read_as(b"abc.def-1=\n", 0o600), Ok("abc.def-1=".into()));
        assert_eq!(read_as(b"abc", 0o400), Ok("abc".into()));
    }

    #[test]
    fn a_token_that_others_can_read_is_refused_with_what_to_do() {
        for mode in [0o640, 0o604, 0o620] {
            assert!(read_as(b"secret", mode).unwrap_err().contains("chmod 600"), "{mode:o}");
        }
    }

    #[test]
    fn a_malformed_token_is_refused_and_not_quoted() {
        for wrong in [&b""[..], b"\n", b"two words", b"a\nb", b"\xff", b"a\x01", &[b'x'; 8193]] {
            let why = read_as(wrong, 0o600).unwrap_err();
            assert!(
                why.ends_with("expected one line of printable characters without blanks"),
                "{why}"
            );
        }
        let why = read(Path::new("/nowhere/at/all")).unwrap_err().to_string();
        assert!(why.starts_with("cannot read /nowhere/at/all: "), "{why}");
    }
}
