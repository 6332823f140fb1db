//! The `name=value` items of `Authorization`, `Crypto-Key` and `Encryption`.

/// Splits at the first `=`, and strips spaces around both parts and quotes around the value.
pub(super) fn item(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.split_once('=')?;
    Some((name.trim(), value.trim().trim_matches('"').trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_may_have_spaces_quotes_and_padding() {
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
