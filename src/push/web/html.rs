//! Texts in HTML: escaped, and with the code of this program marked.

/// The text without signs that HTML reads.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            _ => escaped.push(c),
        }
    }
    escaped
}

/// A text of this program, escaped, in which code is between backticks.
pub(crate) fn with_code(text: &str) -> String {
    let mut marked = String::new();
    for (at, part) in escaped(text).split('`').enumerate() {
        let tag = match at {
            0 => "",
            at if at % 2 == 1 => "<code>",
            _ => "</code>",
        };
        marked += &format!("{tag}{part}");
    }
    marked + if text.matches('`').count() % 2 == 1 { "</code>" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_marked_and_nothing_else() {
        for (text, marked) in [
            ("a `b` or `c`.", "a <code>b</code> or <code>c</code>."),
            ("`a`", "<code>a</code>"),
            ("a `b", "a <code>b</code>"),
            ("`<b>`", "<code>&lt;b&gt;</code>"),
        ] {
            assert_eq!(with_code(text), marked);
        }
    }
}
