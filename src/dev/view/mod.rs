//! `kalends dev view`: a page that plays scripts step by step, from the same recordings that `dev replay --json` prints.
//! Scripts enter; one HTML file leaves.
//!
//! The page is one file and loads nothing. Every text of a script is JSON in it, which its script shows as text.

mod diagram;

use std::env;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use storage::durable;
use uuid::Uuid;

use super::files::{FileError, print};
use super::replay::{self, Recording};
use crate::command::{Command, Commands, Failure};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

#[derive(Debug, Args)]
pub struct View {
    /// Scripts as for `replay`; the page lets the reader choose among several
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The page [default: a new file in the directory for temporary files]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Command for View {
    const NAME: &'static str = "dev view";
    const ABOUT: &'static str =
        "Write a page that plays scripts step by step, with the diagram of their machines";
    const HELP: &'static str = "\
The page is one file without requests to other servers. It shows where a script fails: the expected effects and the
real ones. The command prints the path of the page, and ends with 0 also if a script fails.

Examples:
  kalends dev view fixtures/sessions/direct_push_acked.session
  xargs kalends dev view --output machine.html < fixtures/shown.txt";

    fn run(self, _commands: Commands) -> Result<(), Failure> {
        let recordings = self.files.iter().map(|file| replay::record(file));
        let recordings: Vec<Recording> = recordings.collect::<Result<_, _>>()?;
        let path = write(&page(&recordings), self.output.as_deref())?;
        Ok(print(&[path.display().to_string()])?)
    }
}

fn write(page: &str, output: Option<&Path>) -> Result<PathBuf, FileError> {
    let written = match output {
        Some(path) => durable::replace_with_mode(path, 0o666, page).map(|()| path.to_owned()),
        None => {
            let path = env::temp_dir().join(format!("kalends-{}.html", Uuid::new_v4().simple()));
            durable::create(&path, page).map(|()| path)
        }
    };
    written.map_err(|error| FileError::Unwritable {
        path: output.map_or_else(env::temp_dir, Path::to_owned),
        error,
    })
}

fn page(recordings: &[Recording]) -> String {
    let json = serde_json::to_string(recordings).expect("a recording always serialises");
    let policy = format!(
        "default-src 'none'; style-src {}; script-src {}; img-src data:; base-uri 'none'; form-action 'none'",
        hash(STYLE),
        hash(SCRIPT)
    );
    // The recordings are last: a script may contain the name of another place.
    [
        ("{{policy}}", &*policy),
        ("{{style}}", STYLE),
        ("{{script}}", SCRIPT),
        ("{{diagrams}}", &diagram::templates()),
        // In JSON this is the same text, and no tag can begin in it.
        ("{{recordings}}", &json.replace('<', "\\u003c")),
    ]
    .into_iter()
    .fold(PAGE.to_owned(), |page, (place, text)| page.replacen(place, text, 1))
}

/// What a policy allows an inline text by.
fn hash(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(digest(&SHA256, text.as_bytes())))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;

    fn recorded(name: &str, text: &str) -> Recording {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(name);
        fs::write(&file, text).unwrap();
        replay::record(&file).unwrap()
    }

    /// The JSON in a page.
    fn data(page: &str) -> serde_json::Value {
        let (_, behind) = page.split_once("id=\"recordings\">").unwrap();
        serde_json::from_str(behind.split_once("</script>").unwrap().0).unwrap()
    }

    #[test]
    fn no_text_of_a_script_becomes_a_part_of_the_page() {
        let title = "</script><script>alert(1)</script> {{script}} <!-- & \" '";
        let text = format!(
            "# {title}\nat 2026-11-03T10:00:00Z\nlimits hello_timeout=5s\nnode <img/src=x>\n\
             agent> {{\"messageType\":\"</script><b>\"}}\nclose< <i>wrong</i>\n"
        );
        let page = page(&[recorded("a.session", &text)]);
        let shown = &data(&page)[0];
        assert_eq!(shown["title"], title);
        assert_eq!(shown["steps"][0]["event"], "agent> {\"messageType\":\"</script><b>\"}");
        assert_eq!(shown["steps"][0]["expected"][0], "close< <i>wrong</i>");
        for tag in ["<b>", "<i>", "<img", "alert(1)<"] {
            assert!(!page.contains(tag), "{tag}");
        }
        assert_eq!(page.matches("<script").count(), 2);
    }

    #[test]
    fn the_policy_allows_the_style_and_the_script_of_the_page_and_no_request() {
        let page = page(&[]);
        for text in [STYLE, SCRIPT] {
            assert!(page.contains(&hash(text)) && page.contains(text));
        }
        assert_eq!(
            hash("alert('Hello, world.');"),
            "'sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng='"
        );
        assert!(page.contains("default-src 'none'") && !page.contains("unsafe-inline"));
        for outside in ["http://", "https://", "style=", "onclick", "innerHTML", "{{"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn the_script_of_the_page_is_short() {
        let lines = SCRIPT.lines().count();
        assert!(lines < 250, "{lines} lines");
        assert!(page(&[]).len() < 40_000, "{}", page(&[]).len());
    }

    #[test]
    fn an_impossible_input_is_shown_with_its_reason() {
        let text = "# Late.\nat 2026-11-03T10:00:00Z\nagent> <closes>\nclose< socket closed\nstore> 7 deleted\n";
        let page = page(&[recorded("a.session", text)]);
        let failed = &data(&page)[0]["failed"];
        assert_eq!(failed["line"], 5);
        assert_eq!(failed["event"], "store> 7 deleted");
        assert_eq!(failed["report"], "no operation 7 waits for an answer");
    }

    #[test]
    fn the_page_is_written_where_it_is_asked_for_or_into_a_new_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        assert_eq!(write("one", Some(&path)).unwrap(), path);
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        let new = write("two", None).unwrap();
        assert_eq!(fs::read_to_string(&new).unwrap(), "two");
        fs::remove_file(new).unwrap();
        let error = write("three", Some(Path::new("/nowhere/at.html"))).unwrap_err().to_string();
        assert!(error.starts_with("cannot write /nowhere/at.html: "), "{error}");
    }

    #[test]
    fn the_scripts_of_the_site_are_there_and_right() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let names = fs::read_to_string(root.join("fixtures/shown.txt")).unwrap();
        let recordings: Vec<Recording> =
            names.lines().map(|name| replay::record(&root.join(name)).unwrap()).collect();
        assert!((20..=40).contains(&recordings.len()), "{}", recordings.len());
        assert!(recordings.iter().all(|recording| recording.failed.is_none()));
        let languages: BTreeSet<_> =
            recordings.iter().map(|recording| recording.language).collect();
        assert_eq!(languages.len(), 4);
        assert!(page(&recordings).len() < 1_000_000, "{}", page(&recordings).len());
    }

    #[test]
    fn a_file_that_is_no_script_is_an_error_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let bad = folder.path().join("bad.agent");
        fs::write(&bad, "# Bad.\nat yesterday\n").unwrap();
        let error = replay::record(&bad).unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "{}:2: expected 2026-11-03T10:00:00Z after `at`, got `yesterday`",
                bad.display()
            )
        );
        assert!(replay::record(&folder.path().join("none.session")).is_err());
    }
}
