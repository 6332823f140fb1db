//! The texts of the pages, from templates. Every value is escaped.

use actix_web::error::InternalError;
use actix_web::http::StatusCode;
use actix_web::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use actix_web::{HttpResponse, HttpResponseBuilder};

use super::buttons::{Action, BACK_UP, DOCTOR, STOP, dropping, revoking, token};
use crate::operate::access::list::AccessRow;
use crate::operate::doctor::findings::{Finding, Level};
use crate::operate::inspect::facts::Inspection;
use crate::operate::inspect::text;
use crate::push::web::{escaped, with_code};
use crate::system::build::Build;
use crate::system::clock::day;

/// Access tokens on one page, the first by name.
const ROWS_MAX: usize = 1000;

const SHELL: &str = include_str!("shell.html");
const BAR: &str = include_str!("bar.html");
const NAV: &str = "<nav aria-label=\"Pages\"><a href=\"/admin\">Live</a> <a href=\"/admin/people\">Access tokens</a></nav>";
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

/// What the pages of a session share.
pub(super) struct Shell {
    pub(super) title: String,
    pub(super) host: String,
    /// The node of a cluster.
    pub(super) node: Option<String>,
    /// The token of its forms.
    pub(super) form: String,
}

/// Makes an access token. `kalends access add` can limit it.
const ADD: &str = "<form method=\"post\" action=\"/admin/people/add\" class=\"row\">{{form}}<label for=\"name\">Name</label>\
    <input id=\"name\" name=\"name\" required maxlength=\"64\" autocomplete=\"off\" placeholder=\"of a person or device\">\
    <button>Make a token</button></form>";

/// In place of buttons.
const NO_VISIT: &str = "<p>The doctor needs an access token or a listed VAPID key here: <code>kalends doctor --help</code>.</p>";
const NO_BACKUPS: &str = "<p><code>backup_dir</code> is not set: with it the server makes backups by itself, and here.</p>";

const DOCTOR_HEAD: &str = "<table><thead><tr><th scope=\"col\">Check</th><th scope=\"col\">Result</th>\
    <th scope=\"col\">What was found, and what to do</th></tr></thead>";

const DOCTOR_MORE: &str = "<p>On the server <code>kalends doctor</code> also examines files, limits and a silent connection.</p>";

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

/// What a server can do at a button.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Can {
    pub(super) back_up: bool,
    /// It can use its public URL.
    pub(super) visit: bool,
}

/// The page with the live values.
pub(super) fn live(shell: &Shell, can: Can) -> HttpResponse {
    let button = |action: Action<'_>| action.button(&shell.form, action.name);
    let doctor = if can.visit { button(DOCTOR) } else { NO_VISIT.to_owned() };
    let backup = if can.back_up { button(BACK_UP) } else { NO_BACKUPS.to_owned() };
    let actions = backup + &button(STOP);
    let main = LIVE.replace("{{doctor}}", &doctor).replace("{{actions}}", &actions);
    signed_in(shell, &main, SCRIPT)
}

/// The page that exchanges a link for a session.
pub(super) fn sign_in(status: StatusCode, link: &str) -> HttpResponse {
    sign_in_again(status, link, "")
}

/// The same page, with the reason why a link or a session was refused.
pub(super) fn sign_in_again(status: StatusCode, link: &str, why: &str) -> HttpResponse {
    let refused = if why.is_empty() { String::new() } else { why_not(why) };
    let main = LOGIN.replacen("{{refused}}", &refused, 1);
    answer(status, None, &main.replacen("{{link}}", &escaped(link), 1), "")
}

/// A page with one sentence.
pub(super) fn message(status: StatusCode, text: &str) -> HttpResponse {
    answer(status, None, &why_not(text), "")
}

/// The question before an action.
pub(super) fn question(shell: &Shell, action: &Action<'_>) -> HttpResponse {
    signed_in(shell, &action.question(&shell.form), "")
}

/// What was done, or why it was not.
pub(super) fn done(shell: &Shell, done: Result<String, String>) -> HttpResponse {
    let main = match done {
        Ok(text) => format!("<p role=\"status\"><strong>{}</strong></p>", escaped(&text)),
        Err(why) => why_not(&why),
    };
    signed_in(shell, &(main + "<p><a href=\"/admin\">Back to the live page</a></p>"), "")
}

/// What the doctor has found, or why it was not asked.
pub(super) fn examined(shell: &Shell, found: &Result<Vec<Finding>, String>) -> HttpResponse {
    let mut main = "<h2>Doctor</h2>".to_owned();
    match found {
        Ok(findings) => main += &listed(findings),
        Err(why) => main += &why_not(why),
    }
    signed_in(shell, &(main + "<p><a href=\"/admin\">Back to the live page</a></p>"), "")
}

fn listed(findings: &[Finding]) -> String {
    let of = |level| findings.iter().filter(|finding| finding.level == level).count();
    let verdict = match (of(Level::Fail), of(Level::Warn)) {
        (0, 0) => "Everything that was tried works.".to_owned(),
        (failed, warned) => format!("Checks that failed: {failed}. Warnings: {warned}."),
    };
    let rows = findings.iter().map(|Finding { level, check, found, remedy }| {
        let class = if *level == Level::Fail { " class=\"bad\"" } else { "" };
        let remedy = remedy.as_ref().map(|remedy| format!("<br>{}", with_code(remedy)));
        let (level, found, remedy) = (level.name(), escaped(found), remedy.unwrap_or_default());
        format!(
            "<tr{class}><th scope=\"row\">{check}</th><td>{level}</td><td>{found}{remedy}</td></tr>"
        )
    });
    let rows: String = rows.collect();
    format!(
        "<p role=\"status\"><strong>{verdict}</strong></p>{DOCTOR_HEAD}<tbody>{rows}</tbody></table>{DOCTOR_MORE}"
    )
}

/// What is known of a user agent, or why nothing is.
pub(super) fn inspection(shell: &Shell, found: &Result<Inspection, String>) -> HttpResponse {
    let mut main = "<h2>User agent</h2>".to_owned();
    match found {
        Ok(facts) => main += &inspected(&shell.form, facts),
        Err(why) => main += &why_not(why),
    }
    signed_in(shell, &main, "")
}

fn inspected(form: &str, facts: &Inspection) -> String {
    let findings = facts.findings.iter().map(|finding| format!("<li>{}</li>", escaped(finding)));
    let findings: String = findings.collect();
    let rows = text::lines(facts).into_iter().map(|(name, value)| {
        format!("<tr><th scope=\"row\">{name}</th><td>{}</td></tr>", escaped(&value))
    });
    let rows: String = rows.collect();
    let mut main = format!(
        "<ul class=\"why\">{findings}</ul><h3>What is known</h3><table class=\"facts\"><tbody>{rows}</tbody></table>"
    );
    if let Some(access) = facts.access.as_ref().filter(|access| !access.has_ended) {
        main += &revoke_button(form, &access.name, "Revoke its access token");
    }
    if facts.record.is_some() {
        let (uaid, name) = (facts.uaid.to_string(), format!("Drop {}", facts.uaid));
        main += &dropping(&[("uaid", &uaid)], &name).button(form, "Drop this user agent");
    }
    main
}

/// The access tokens, with a sentence about what was done.
pub(super) fn people(
    shell: &Shell,
    rows: Result<Vec<AccessRow>, String>,
    done: &str,
) -> HttpResponse {
    let mut main = "<h2>Access tokens</h2>".to_owned();
    if !done.is_empty() {
        main += &format!("<p role=\"status\"><strong>{}</strong></p>", escaped(done));
    }
    match rows {
        Err(why) => main += &why_not(&why),
        Ok(rows) if rows.is_empty() => {
            main += "<p>There is none yet.</p>";
        }
        Ok(rows) => main += &table(&shell.form, &rows),
    }
    main += &ADD.replace("{{form}}", &token(&shell.form));
    signed_in(shell, &main, "")
}

fn table(form: &str, rows: &[AccessRow]) -> String {
    let mut text = "<div class=\"wide\" role=\"region\" aria-label=\"Access tokens\" tabindex=\"0\"><table><thead><tr>"
        .to_owned();
    let heads = ["State", "Action", "Connected", "Pushes", "Created", "Expires"];
    for head in ["Name"].iter().chain(&heads) {
        text += &format!("<th scope=\"col\">{head}</th>");
    }
    text += "</tr></thead><tbody>";
    for row in rows.iter().take(ROWS_MAX) {
        let number = |count: Option<u64>| count.map_or("–".to_owned(), |count| count.to_string());
        let (name, state) = (escaped(&row.name), escaped(&row.state));
        let expires = row.expires_s.map_or("never".to_owned(), day);
        let (connected, pushes) = (number(row.connected), number(row.pushes));
        let action = match row.state.as_str() {
            "revoked" => String::new(),
            _ => revoke_button(form, &row.name, "Revoke"),
        };
        let cells = [state, action, connected, pushes, day(row.created_s), expires];
        text += &format!("<tr><th scope=\"row\">{name}</th>");
        for (head, cell) in heads.iter().zip(cells) {
            text += &format!("<td data-label=\"{head}\">{cell}</td>");
        }
        text += "</tr>";
    }
    text += "</tbody></table></div>";
    if rows.len() > ROWS_MAX {
        let more = rows.len() - ROWS_MAX;
        text += &format!("<p>{more} more: <code>kalends access list</code> prints them all.</p>");
    }
    text
}

fn revoke_button(form: &str, name: &str, text: &str) -> String {
    revoking(&[("name", name)], &format!("Revoke {name}")).button(form, text)
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

fn signed_in(shell: &Shell, main: &str, script: &str) -> HttpResponse {
    answer(StatusCode::OK, Some(shell), main, script)
}

/// A page. Strangers do not see which server it is.
fn answer(status: StatusCode, shell: Option<&Shell>, main: &str, script: &str) -> HttpResponse {
    let stranger = || "Kalends operator".to_owned();
    let title = shell.map_or_else(stranger, |shell| format!("{} · Kalends", shell.title));
    let node = shell.and_then(|shell| shell.node.as_deref()).map(escaped);
    let node = node.map(|node| format!(" <small>{node}</small>")).unwrap_or_default();
    let heading = shell.map_or_else(stranger, |shell| shell.host.clone());
    let bar = shell.map(|shell| BAR.replace("{{form}}", &token(&shell.form))).unwrap_or_default();
    let parts = [
        ("build", Build::TEXT),
        ("title", &escaped(&title)),
        ("script", script),
        ("heading", &(escaped(&heading) + &node)),
        ("nav", if shell.is_some() { NAV } else { "" }),
        ("bar", &bar),
        // The last one: what it contains is not replaced.
        ("main", main),
    ];
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

    const ALL: Can = Can { back_up: true, visit: true };

    const HOSTILE: &str = "<script>alert(1)</script>\"'&{{main}}";

    #[test]
    fn no_text_is_shown_unescaped() {
        let shell = Shell {
            title: HOSTILE.to_owned(),
            host: HOSTILE.to_owned(),
            node: Some(HOSTILE.to_owned()),
            form: HOSTILE.to_owned(),
        };
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
            inspection(&shell, &Err(HOSTILE.to_owned())),
            people(&shell, Ok(vec![row]), HOSTILE),
            people(&shell, Err(HOSTILE.to_owned()), HOSTILE),
            question(&shell, &revoking(&[("name", HOSTILE)], HOSTILE)),
            done(&shell, Ok(HOSTILE.to_owned())),
            done(&shell, Err(HOSTILE.to_owned())),
            live(&shell, ALL),
            examined(&shell, &Err(HOSTILE.to_owned())),
            examined(
                &shell,
                &Ok(vec![Finding {
                    level: Level::Fail,
                    check: "push",
                    found: HOSTILE.to_owned(),
                    remedy: Some(HOSTILE.to_owned()),
                }]),
            ),
        ] {
            let page = html(page);
            assert!(!page.contains("<script>") && !page.contains("alert(1)</script>"), "{page}");
            assert!(
                page.contains("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;"),
                "{page}"
            );
        }
        // What a stranger wrote is no code, what the doctor advises is.
        let finding = |found: &str, remedy: &str| Finding {
            level: Level::Fail,
            check: "push",
            found: found.to_owned(),
            remedy: Some(remedy.to_owned()),
        };
        let page = html(examined(&shell, &Ok(vec![finding("`theirs`", "run `ours`")])));
        assert!(page.contains("`theirs`") && page.contains("run <code>ours</code>"), "{page}");
        assert!(html(live(&shell, ALL)).contains(SCRIPT));
        let stranger = html(sign_in(StatusCode::OK, ""));
        assert!(stranger.contains("<h1>Kalends operator</h1>"), "{stranger}");
    }

    #[test]
    fn the_page_and_its_files_are_small_and_have_nothing_inline() {
        let text = || "x".repeat(43);
        let shell = Shell { title: text(), host: text(), node: Some(text()), form: text() };
        let page = html(live(&shell, ALL));
        let buttons = ["Back up now", "Run the doctor"];
        assert!(buttons.iter().all(|button| page.contains(button)), "{page}");
        let less = html(live(&shell, Can { back_up: false, visit: false }));
        assert!(!buttons.iter().any(|button| less.contains(button)), "{less}");
        let bytes: usize = FILES.iter().map(|(_, _, contents)| contents.len()).sum();
        assert!(page.len() + bytes <= 45 * 1024, "{}", page.len() + bytes);
        for inline in ["style=", "onclick", "<style", "javascript:", "<script>", "{{", "http://"] {
            assert!(!page.contains(inline), "{inline}");
        }
        assert_eq!(day(1_700_000_000), "14 Nov 2023");
    }
}
