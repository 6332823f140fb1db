//! `name=value`, as `Authorization`, `Crypto-Key` and `Encryption` are made of.

/// Splits at the first `=`; spaces around both and quotes around the value are taken off.
pub(super) fn item(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.split_once('=')?;
    Some((name.trim(), value.trim().trim_matches('"').trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_read_with_spaces_and_quotes_and_padding() {
        for (text, read) in [
            ("a=b", Some(("a", "b"))),
            (" a = b ", Some(("a", "b"))),
            ("a=\"b\"", Some(("a", "b"))),
            ("a=\"b==\"", Some(("a", "b=="))),
            ("a=b==", Some(("a", "b=="))),
            ("a=", Some(("a", ""))),
            ("=b", Some(("", "b"))),
            ("a", None),
            ("", None),
        ] {
            assert_eq!(item(text), read, "{text}");
        }
    }
}
