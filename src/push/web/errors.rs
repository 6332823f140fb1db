//! `GET /errors`: what the numbers of errors mean, with an anchor for each. The table of errors enters, HTML leaves.

use std::sync::LazyLock;

use actix_web::http::header::CACHE_CONTROL;
use actix_web::{HttpResponse, Resource};

use super::{FILES_CACHE, escaped, with_security};
use crate::push::port::methods::{page, read};
use crate::system::errno::{ALL, ErrorText};

const HEAD: &str = include_str!("errors.html");

static PAGE: LazyLock<String> = LazyLock::new(|| {
    let sections: String = ALL.iter().map(section).collect();
    HEAD.replace("{{version}}", env!("CARGO_PKG_VERSION")).replace("{{errors}}", &sections)
});

/// On a node of any role: each one answers with errors.
pub(in crate::push) fn errors() -> Resource {
    page("/errors", read().to(show))
}

async fn show() -> HttpResponse {
    with_security(&mut HttpResponse::Ok())
        .insert_header((CACHE_CONTROL, FILES_CACHE))
        .content_type("text/html; charset=utf-8")
        .body(PAGE.as_str())
}

fn section(error: &ErrorText) -> String {
    let (number, statuses) = (error.errno.number(), error.statuses());
    let (title, meaning, advice) = (html(error.title), html(error.meaning), html(error.advice));
    format!(
        "<section id=\"{number}\" aria-labelledby=\"t{number}\">\n<h2 id=\"t{number}\"><a href=\"#{number}\">{number}</a> \
         {title} <span class=\"version\">HTTP {statuses}</span></h2>\n<p>{meaning}</p>\n<p><strong>What to do:</strong> \
         {advice}</p>\n</section>\n"
    )
}

/// A text in which code is between backticks.
fn html(text: &str) -> String {
    let mut parts = text.split('`').map(escaped).enumerate();
    let first = parts.next().map_or_else(String::new, |(_, part)| part);
    parts.fold(first, |text, (at, part)| {
        text + if at % 2 == 1 { "<code>" } else { "</code>" } + &part
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_an_anchor_for_each_error_and_loads_nothing_from_elsewhere() {
        for error in ALL {
            assert!(PAGE.contains(&format!("<section id=\"{}\"", error.errno.number())));
        }
        assert!(!PAGE.contains("://") && !PAGE.contains("{{"), "{}", *PAGE);
        assert_eq!(PAGE.matches("<code>").count(), PAGE.matches("</code>").count());
        assert!(PAGE.len() < 25_000, "{}", PAGE.len());
    }

    #[test]
    fn code_is_marked_and_signs_of_html_are_not_read() {
        assert_eq!(html("a `b<c` & `d`."), "a <code>b&lt;c</code> &amp; <code>d</code>.");
    }
}
