//! What every page of the server must be: accessible, usable by keyboard, without errors, and whole on a phone.

use std::fs;

use serde_json::{Value, json};

use super::firefox::Firefox;
use crate::harness::node_modules;

pub(super) const TAB: &str = "\u{E004}";
pub(super) const ENTER: &str = "\u{E007}";

/// Widths of a small phone and of a desktop, in CSS pixels.
const WIDTHS: [(&str, u32); 2] = [("phone", 360), ("desktop", 1280)];

const SCHEMES: [&str; 2] = ["light", "dark"];

/// Examines the page that Firefox shows with everything below, in both color schemes and at both widths. Each of these
/// is written to `target/screenshots` as `NAME-SCHEME-WIDTH.png`.
pub(super) fn assert_page(firefox: &mut Firefox, name: &str) {
    for (size, width) in WIDTHS {
        for scheme in SCHEMES {
            firefox.show(width, scheme);
            firefox.screenshot(&format!("{name}-{scheme}-{size}"));
            assert_accessible(firefox);
            assert_fits(firefox, width);
        }
    }
    assert_keyboard(firefox);
    assert_no_errors(firefox);
}

/// Writes pictures of the page at both widths into `target/screenshots`.
pub(super) fn picture(firefox: &mut Firefox, name: &str) {
    for (size, width) in WIDTHS {
        firefox.show(width, "light");
        firefox.screenshot(&format!("{name}-{size}"));
    }
}

/// axe-core has no finding: all rules that it enables by default, at the present width and color scheme.
pub(super) fn assert_accessible(firefox: &mut Firefox) {
    let axe = fs::read_to_string(node_modules().join("axe-core/axe.min.js"));
    let axe = axe.expect("the package has this file");
    // A script of the remote control is not subject to the policy of the page.
    let script = format!("if (!window.axe) {{ {axe} }}\n{FINDINGS}");
    let findings = firefox.run(&script, &json!([]));
    assert_eq!(findings["found"], json!([]), "axe-core has findings");
    let passed = findings["passed"].as_u64().expect("it counts the rules");
    assert!(passed >= 10, "axe-core examined the page: {passed} rules passed");
}

const FINDINGS: &str = "
    const results = await window.axe.run(document);
    const found = results.violations.map(({ id, help, nodes }) =>
        `${id}: ${help}: ${nodes.map(node => node.html + ' ' + node.failureSummary).join('; ')}`);
    return { found, passed: results.passes.length };";

/// The page is as wide as its window at most, and as Firefox was asked to show it.
pub(super) fn assert_fits(firefox: &mut Firefox, width: u32) {
    let sizes = firefox.run(
        "const cut = [...document.querySelectorAll('body *')].filter(element => {
             const box = element.getBoundingClientRect();
             return box.width > 0 && box.right > window.innerWidth + 0.5;
         });
         const sideways = [...document.querySelectorAll('.wide')].filter(wide => wide.scrollWidth > wide.clientWidth);
         if (window.innerWidth < 640 && sideways.length) return 'a table of rows scrolls sideways';
         const scrolls = document.documentElement.scrollWidth > window.innerWidth;
         return { width: window.innerWidth, cut: scrolls ? cut.map(element => element.outerHTML.slice(0, 200)) : [], scrolls };",
        &json!([]),
    );
    assert_eq!(sizes, json!({ "width": width, "cut": [], "scrolls": false }));
}

/// The tabulator reaches every element that can be used, in the order of the page, and each shows its focus.
pub(super) fn assert_keyboard(firefox: &mut Firefox) {
    // A live page may get an element meanwhile.
    assert!((0..5).any(|_| reaches_all(firefox)), "the page has other elements each time");
    firefox.run("document.activeElement.blur(); delete window.usable;", &json!([]));
}

/// False if the page has other elements at the end than at the beginning.
fn reaches_all(firefox: &mut Firefox) -> bool {
    let expected = firefox.run(START_AND_LIST, &json!([]));
    let expected = expected.as_array().expect("it is a list");
    let mut reached = Vec::new();
    for _ in expected {
        firefox.press(TAB);
        let mut focused = firefox.run(FOCUSED, &json!([]));
        assert_eq!(focused["is_visible"], true, "the focus is seen: {focused}");
        reached.push(focused["index"].take());
    }
    let all: Vec<_> = (0..expected.len()).map(Value::from).collect();
    let is_same = firefox.run(IS_SAME, &json!([])) == true;
    assert!(!is_same || reached == all, "the keyboard reaches {reached:?} of {expected:?}");
    is_same
}

/// Begins before the first element, and lists all that can be used with how they look without the focus.
const START_AND_LIST: &str = "
    const selector = 'a[href], button, input, select, textarea, summary, [tabindex]';
    window.looks = (element) => {
        const { outlineStyle, outlineWidth, outlineColor, boxShadow, borderColor } = getComputedStyle(element);
        return outlineStyle === 'none' ? `${boxShadow} ${borderColor}` : `${outlineStyle} ${outlineWidth} ${outlineColor} ${boxShadow}`;
    };
    window.list = () => [...document.querySelectorAll(selector)].filter(element =>
        element.checkVisibility({ visibilityProperty: true }) && !element.disabled && element.tabIndex >= 0);
    window.usable = window.list();
    document.activeElement.blur();
    window.scrollTo(0, 0);
    document.body.tabIndex = -1;
    document.body.focus();
    document.body.removeAttribute('tabindex');
    window.usable_looks = window.usable.map(window.looks);
    return window.usable.map(element => element.outerHTML.slice(0, 120));";

const IS_SAME: &str = "
    const now = window.list();
    return now.length === window.usable.length && now.every((element, at) => element === window.usable[at]);";

const FOCUSED: &str = "
    const element = document.activeElement;
    const index = window.usable.indexOf(element);
    return { index, html: element.outerHTML.slice(0, 120), is_visible: window.looks(element) !== window.usable_looks[index] };";

/// The console of Firefox has no error of a page and no violation of its policy, since the last call.
pub(super) fn assert_no_errors(firefox: &mut Firefox) {
    let errors = firefox.take_errors();
    assert!(errors.is_empty(), "{errors:#?}");
}
