//! The texts of the pages, from templates. Every value is escaped.

use std::fmt::Write;

use actix_web::error::InternalError;
use actix_web::http::StatusCode;
use actix_web::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use actix_web::{HttpResponse, HttpResponseBuilder};

use crate::operate::access::list::AccessRow;
use crate::operate::inspect::facts::Inspection;
use crate::operate::inspect::text;
use crate::push::web::escaped;
use crate::system::clock;

/// Access tokens on one page, the first by name.
const ROWS_MAX: usize = 1000;

const SHELL: &str = include_str!("shell.html");
const BAR: &str = include_str!("bar.html");
const LIVE: &str = include_str!("live.html");
const LOGIN: &str = include_str!("login.html");

/// The files of the page: name, type and contents.
const FILES: [(&str, &str, &str); 2] = [
    ("page.css", "text/css; charset=utf-8", include_str!("page.css")),
    ("page.js", "text/javascript; charset=utf-8", include_str!("page.js")),
];

/// What the page may load, and from where. Nothing is inline.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// An answer that ends a request before its handler has done its work.
pub(super) type Refusal = InternalError<&'static str>;

/// The script of the live page.
const SCRIPT: &str = "<script src=\"/admin/page.js\" defer></script>";

pub(super) fn file(name: &str) -> HttpResponse {
    let Some((_, kind, contents)) = FILES.iter().find(|(file, ..)| *file == name) else {
        return message(StatusCode::NOT_FOUND, "There is no such page.");
    };
    with_security(&mut HttpResponse::Ok()).content_type(*kind).body(*contents)
}

pub(super) fn refusal(answer: HttpResponse) -> Refusal {
    InternalError::from_response("refused", answer)
}

/// The page with the live values.
pub(super) fn live(form: &str) -> HttpResponse {
    signed_in(form, LIVE, SCRIPT)
}

/// The page that exchanges a link for a session.
pub(super) fn sign_in(status: StatusCode, link: &str) -> HttpResponse {
    answer(status, "", &LOGIN.replace("{{link}}", &escaped(link)), "")
}

/// A page with one sentence.
pub(super) fn message(status: StatusCode, text: &str) -> HttpResponse {
    answer(status, "", &why_not(text), "")
}

/// What is known of a user agent, or why nothing is.
pub(super) fn inspection(form: &str, found: &Result<Inspection, String>) -> HttpResponse {
    let mut main = "<h2>User agent</h2>".to_owned();
    match found {
        Ok(facts) => main += &inspected(form, facts),
        Err(why) => main += &why_not(why),
    }
    signed_in(form, &main, "")
}

fn inspected(form: &str, facts: &Inspection) -> String {
    let findings = facts.findings.iter().map(|finding| format!("<li>{}</li>", escaped(finding)));
    let findings: String = findings.collect();
    let facts_text = escaped(&text::facts(facts));
    let mut main = format!("<ul>{findings}</ul><pre>{facts_text}</pre>");
    if let Some(access) = facts.access.as_ref().filter(|access| !access.has_ended) {
        main += &revoke_form(form, &access.name, "Revoke its access token");
    }
    main
}

/// The access tokens, with a sentence about what was done.
pub(super) fn people(form: &str, rows: Result<Vec<AccessRow>, String>, done: &str) -> HttpResponse {
    let mut main = "<h2>Access tokens</h2>".to_owned();
    if !done.is_empty() {
        main += &format!("<p role=\"status\"><strong>{}</strong></p>", escaped(done));
    }
    match rows {
        Err(why) => main += &why_not(&why),
        Ok(rows) if rows.is_empty() => {
            main += "<p>There is none. <code>kalends access add NAME</code> makes one.</p>";
        }
        Ok(rows) => main += &table(form, &rows),
    }
    signed_in(form, &main, "")
}

fn table(form: &str, rows: &[AccessRow]) -> String {
    let mut text = "<div class=\"wide\" role=\"region\" aria-label=\"Access tokens\" tabindex=\"0\"><table><thead><tr>"
        .to_owned();
    for head in ["Name", "State", "Action", "Connected", "Pushes", "Created", "Expires"] {
        text += &format!("<th scope=\"col\">{head}</th>");
    }
    text += "</tr></thead><tbody>";
    for row in rows.iter().take(ROWS_MAX) {
        let number = |count: Option<u64>| count.map_or("–".to_owned(), |count| count.to_string());
        let (name, state) = (escaped(&row.name), escaped(&row.state));
        let expires = row.expires_s.map_or("never".to_owned(), date);
        let (connected, pushes) = (number(row.connected), number(row.pushes));
        let action = match row.state.as_str() {
            "revoked" => String::new(),
            _ => revoke_form(form, &row.name, "Revoke"),
        };
        let cells = [state, action, connected, pushes, date(row.created_s), expires];
        text += &format!("<tr><th scope=\"row\">{name}</th>");
        cells.iter().for_each(|cell| write!(text, "<td>{cell}</td>").expect("a text takes all"));
        text += "</tr>";
    }
    text += "</tbody></table></div>";
    if rows.len() > ROWS_MAX {
        let more = rows.len() - ROWS_MAX;
        text += &format!("<p>{more} more: <code>kalends access list</code> prints them all.</p>");
    }
    text
}

/// A button that leads to the confirmation.
fn revoke_form(form: &str, name: &str, text: &str) -> String {
    format!(
        "<form method=\"post\" action=\"/admin/people\"><input type=\"hidden\" name=\"form\" value=\"{}\">\
         <input type=\"hidden\" name=\"name\" value=\"{name}\"><button aria-label=\"{text} {name}\">{text}</button></form>",
        escaped(form),
        name = escaped(name)
    )
}

pub(super) fn confirmation(form: &str, name: &str) -> HttpResponse {
    let main = format!(
        "<h2>Revoke {name}?</h2><p>All user agents of this token are closed now, and their endpoints answer 410. A \
         revoked token is never valid again.</p><form method=\"post\" action=\"/admin/people\" class=\"row\">\
         <input type=\"hidden\" name=\"form\" value=\"{}\"><input type=\"hidden\" name=\"name\" value=\"{name}\">\
         <input type=\"hidden\" name=\"confirmed\" value=\"yes\"><button class=\"danger\">Revoke {name}</button>\
         <a href=\"/admin/people\">Keep it</a></form>",
        escaped(form),
        name = escaped(name)
    );
    signed_in(form, &main, "")
}

/// Such as `14 Nov 2023`, in UTC.
fn date(seconds: u64) -> String {
    let text = clock::date(seconds);
    text.get(5..16).unwrap_or(&text).to_owned()
}

/// Adds the headers of every answer.
pub(super) fn with_security(answer: &mut HttpResponseBuilder) -> &mut HttpResponseBuilder {
    answer
        .insert_header((CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((X_CONTENT_TYPE_OPTIONS, "nosniff"))
        // With `no-referrer` the Origin of a form would be `null`.
        .insert_header((REFERRER_POLICY, "same-origin"))
        .insert_header(("Cross-Origin-Resource-Policy", "same-origin"))
        .insert_header((CACHE_CONTROL, "no-store"))
}

fn why_not(text: &str) -> String {
    format!("<p class=\"down\">{}</p>", escaped(text))
}

/// A page of a session, whose bar signs out.
fn signed_in(form: &str, main: &str, script: &str) -> HttpResponse {
    answer(StatusCode::OK, &BAR.replace("{{form}}", &escaped(form)), main, script)
}

fn answer(status: StatusCode, bar: &str, main: &str, script: &str) -> HttpResponse {
    let version = env!("CARGO_PKG_VERSION");
    let parts = [("version", version), ("bar", bar), ("main", main), ("script", script)];
    let text = parts.iter().fold(SHELL.to_owned(), |text, (name, value)| {
        text.replacen(&format!("{{{{{name}}}}}"), value, 1)
    });
    with_security(&mut HttpResponse::build(status))
        .content_type("text/html; charset=utf-8")
        .body(text)
}

#[cfg(test)]
mod tests {
    use actix_web::body::MessageBody;

    use super::*;

    fn html(answer: HttpResponse) -> String {
        let bytes = answer.into_body().try_into_bytes().expect("the page is in memory");
        String::from_utf8(bytes.into()).unwrap()
    }

    const HOSTILE: &str = "<script>alert(1)</script>\"'&{{main}}";

    #[test]
    fn no_text_is_shown_unescaped() {
        let row = AccessRow {
            name: HOSTILE.to_owned(),
            state: HOSTILE.to_owned(),
            created_s: 1_700_000_000,
            expires_s: None,
            agents_max: 0,
            connected: None,
            pushes: None,
            bytes: None,
        };
        for page in [
            sign_in(StatusCode::OK, HOSTILE),
            message(StatusCode::OK, HOSTILE),
            inspection(HOSTILE, &Err(HOSTILE.to_owned())),
            people(HOSTILE, Ok(vec![row]), HOSTILE),
            people(HOSTILE, Err(HOSTILE.to_owned()), HOSTILE),
            confirmation(HOSTILE, HOSTILE),
        ] {
            let page = html(page);
            assert!(!page.contains("<script>") && !page.contains("alert(1)</script>"), "{page}");
            assert!(
                page.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;"),
                "{page}"
            );
        }
        assert!(html(live("x")).contains(SCRIPT));
    }

    #[test]
    fn the_page_and_its_files_are_small_and_have_nothing_inline() {
        let page = html(live(&"x".repeat(43)));
        let bytes: usize = FILES.iter().map(|(_, _, contents)| contents.len()).sum();
        assert!(page.len() + bytes <= 60 * 1024, "{}", page.len() + bytes);
        for inline in ["style=", "onclick", "<style", "javascript:", "<script>", "{{", "http://"] {
            assert!(!page.contains(inline), "{inline}");
        }
        assert_eq!(date(1_700_000_000), "14 Nov 2023");
    }
}
