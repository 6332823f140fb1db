//! The page of `GET /errors`: what the numbers of errors mean, with an anchor for each. The table of errors enters, HTML
//! leaves.

use std::sync::LazyLock;

use super::html::with_code;
use crate::system::build::Build;
use crate::system::errno::{ALL, ErrorText};

pub(super) static PAGE: LazyLock<String> = LazyLock::new(|| {
    let sections: String = ALL.iter().map(section).collect();
    include_str!("errors.html").replace("{{version}}", Build::TEXT).replace("{{errors}}", &sections)
});

fn section(error: &ErrorText) -> String {
    let (number, statuses, title) = (error.errno.number(), error.statuses(), error.title);
    let (meaning, advice) = (with_code(error.meaning), with_code(error.advice));
    format!(
        "<section id=\"{number}\" aria-labelledby=\"t{number}\">\n<h2 id=\"t{number}\"><a href=\"#{number}\">{number}</a> \
         {title} <span class=\"version\">HTTP {statuses}</span></h2>\n<p>{meaning}</p>\n<p><strong>What to do:</strong> \
         {advice}</p>\n</section>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_an_anchor_for_each_error_and_loads_nothing_from_elsewhere() {
        for ErrorText { errno, title, meaning, advice, .. } in ALL {
            assert!(PAGE.contains(&format!("<section id=\"{}\"", errno.number())));
            assert!(
                ![title, meaning, advice].iter().any(|text| text.contains(['<', '>', '&', '"']))
            );
        }
        assert!(!PAGE.contains("://") && !PAGE.contains("{{"), "{}", *PAGE);
        assert_eq!(PAGE.matches("<code>").count(), PAGE.matches("</code>").count());
        assert!(PAGE.len() < 25_000, "{}", PAGE.len());
    }
}
