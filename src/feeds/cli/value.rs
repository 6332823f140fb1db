//! The value that `feed put` sets.

use std::io::{self, IsTerminal, Read, Write, stderr, stdin};

use state_machine::feed::FeedValue;

use super::FeedCliError;

/// The value on the command line, or on standard input.
pub fn read(argument: Option<&str>) -> Result<FeedValue, FeedCliError> {
    match argument {
        Some(text) if text != "-" => parse(text),
        _ => {
            if stdin().is_terminal() {
                writeln!(stderr(), "type the value, then Ctrl-D on a line of its own")?;
            }
            read_from(stdin())
        }
    }
}

/// Reads at most one byte more than a value may have.
fn read_from(from: impl Read) -> Result<FeedValue, FeedCliError> {
    let (mut bytes, max) = (Vec::new(), FeedValue::BYTES_MAX as u64);
    from.take(max + 1).read_to_end(&mut bytes).map_err(|error| {
        FeedCliError::Io(io::Error::new(error.kind(), format!("cannot read the value: {error}")))
    })?;
    if bytes.len() > FeedValue::BYTES_MAX {
        return Err(too_large());
    }
    let text = String::from_utf8(bytes).map_err(|_| {
        FeedCliError::Unusable("a value is text in UTF-8: encode it, in base64 for instance".into())
    })?;
    parse(&text)
}

fn parse(text: &str) -> Result<FeedValue, FeedCliError> {
    FeedValue::parse(text).map_err(|_| too_large())
}

fn too_large() -> FeedCliError {
    FeedCliError::Unusable(format!("a value has at most {} bytes", FeedValue::BYTES_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_unchanged() {
        assert_eq!(read_from(&b"a\nb\n"[..]).unwrap().as_str(), "a\nb\n");
        assert_eq!(read_from(&b""[..]).unwrap().as_str(), "");
        assert_eq!(read(Some("")).unwrap().as_str(), "");
        let most = vec![b'x'; FeedValue::BYTES_MAX];
        assert_eq!(read_from(&most[..]).unwrap().as_str().len(), FeedValue::BYTES_MAX);
    }

    #[test]
    fn a_value_that_is_too_large_or_no_text_is_refused() {
        let why = |bytes: &[u8]| read_from(bytes).unwrap_err().to_string();
        assert_eq!(why(&vec![b'x'; FeedValue::BYTES_MAX + 1]), "a value has at most 262144 bytes");
        assert!(why(b"\xff").starts_with("a value is text in UTF-8"));
        assert!(read_from(io::repeat(b'x')).is_err());
        assert!(read(Some(&"x".repeat(FeedValue::BYTES_MAX + 1))).is_err());
    }
}
