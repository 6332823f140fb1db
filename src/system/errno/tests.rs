use std::fmt::Write;
use std::path::Path;

use super::*;

const HEAD: &str = "\
# Errors

All numbers in `errno`, for authors of senders and user agents. Each server explains them at `/errors`, to which the
`more_info` of its answers leads ([protocol.md](protocol.md#errors) has their form). The `message` of an answer is about
the request, and this page about the kind of error.

`UPDATE_DOCS=1 cargo test --workspace -q --lib -- errno` writes this page, and the list in `openapi.json`, from
`src/system/errno.rs`.
";

fn markdown() -> String {
    ALL.iter().fold(HEAD.to_owned(), |mut text, error| {
        let (number, statuses) = (error.errno.number(), error.statuses());
        write!(text, "\n## {number}\n\n").unwrap();
        let said =
            format!("**{}** ({statuses}). {} *{}*", error.title, error.meaning, error.advice);
        let mut width = 0;
        for word in said.split(' ') {
            let fits = width > 0 && width + word.len() < 119;
            text.push_str(if fits {
                " "
            } else if width > 0 {
                "\n"
            } else {
                ""
            });
            width = if fits { width + 1 + word.len() } else { word.len() };
            text.push_str(word);
        }
        text.push('\n');
        text
    })
}

/// The description of the interface, with the errors in its schema.
fn described(openapi: &str) -> String {
    let (before, rest) = openapi.split_once("    \"errno\": {\n").expect("it has the field");
    let (_, after) = rest.split_once("\n     },\n").expect("the field ends");
    let numbers: Vec<_> = ALL.iter().map(|error| error.errno.number().to_string()).collect();
    let titles = ALL.iter().map(|error| format!("{}: {}.", error.errno.number(), error.title));
    let titles = serde_json::to_string(&titles.collect::<Vec<_>>().join(" ")).unwrap();
    format!(
        "{before}    \"errno\": {{\n      \"type\": \"integer\",\n      \"enum\": [\n       {}\n      ],\n      \
         \"description\": {titles}\n     }},\n{after}",
        numbers.join(",\n       ")
    )
}

#[test]
fn the_page_of_errors_and_the_description_of_the_interface_are_what_the_code_says() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let written = |name| std::fs::read_to_string(docs.join(name)).unwrap_or_default();
    let expected =
        [("errors.md", markdown()), ("openapi.json", described(&written("openapi.json")))];
    for (name, expected) in expected {
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(docs.join(name), &expected).unwrap();
        }
        assert!(written(name) == expected, "docs/{name} differs from the code: UPDATE_DOCS=1");
    }
}

#[test]
fn each_error_has_a_number_of_its_own_and_all_of_its_texts() {
    for pair in ALL.windows(2) {
        assert!(pair[0].errno.number() < pair[1].errno.number(), "{pair:?}");
    }
    for ErrorText { errno, title, meaning, advice, .. } in ALL {
        assert!(!title.ends_with('.') && !title.is_empty(), "{errno:?}");
        assert!(meaning.ends_with('.') && advice.ends_with('.'), "{errno:?}");
    }
}
