//! The order of folders and crates in `docs/architecture.md`, held against the sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// One `use` or path of a source file, as segments below the crate.
type Import = Vec<String>;

#[test]
fn every_import_in_src_leads_to_the_same_folder_or_a_lower_one() {
    let order = listed("### Folders of src");
    let modules = modules_of(&read("src/lib.rs"));
    let tops: BTreeSet<_> = order.iter().map(|name| name.split('/').next().unwrap()).collect();
    assert_eq!(
        tops,
        modules.iter().map(String::as_str).collect(),
        "the list has every module of src/lib.rs"
    );
    let mut upward = Vec::new();
    for (path, text) in crate::rules::sources()
        .iter()
        .filter(|(path, _)| path.starts_with(Path::new(ROOT).join("src")))
    {
        let module = module_of(path);
        let Some(from) = place(&order, &module) else { continue };
        for import in imports(&module, text) {
            match place(&order, &import) {
                Some(to) if to < from => {
                    upward.push(format!("{}: {}", path.display(), import.join("::")));
                }
                Some(_) => {}
                None => {
                    upward.push(format!("{}: no folder has {}", path.display(), import.join("::")));
                }
            }
        }
    }
    assert!(
        upward.is_empty(),
        "imports against the order of docs/architecture.md:\n{}",
        upward.join("\n")
    );
}

#[test]
fn every_crate_depends_on_lower_crates_only() {
    let order = listed("### Crates");
    for (at, name) in order.iter().enumerate() {
        let folder = if name == "kalends" { "." } else { name };
        let manifest: toml::Table =
            read(&format!("{folder}/Cargo.toml")).parse().expect("a manifest is TOML");
        let needs = manifest["dependencies"].as_table().expect("dependencies are a table");
        for other in &order[..at] {
            let package = other.rsplit('/').next().unwrap();
            assert!(!needs.contains_key(package), "{name} depends on {other}");
        }
    }
    let workspace: toml::Table = read("Cargo.toml").parse().expect("a manifest is TOML");
    let members = workspace["workspace"]["members"].as_array().expect("members are a list").iter();
    let members: BTreeSet<_> =
        members.map(|name| name.as_str().unwrap()).chain(["kalends"]).collect();
    assert_eq!(members, order.iter().map(String::as_str).collect(), "the list has every member");
}

#[test]
fn imports_are_found_in_groups_in_paths_and_through_super() {
    let text = "use crate::{a, b::{self, c}};\nuse super::d::E;\n// use crate::comment;\nfn f() { crate::g::h() }\n\
                mod tests {\n    use super::i;\n}\n";
    let found = imports(&["x".to_owned(), "y".to_owned()], text);
    let found: BTreeSet<_> = found.iter().map(|import| import.join("::")).collect();
    assert_eq!(found, ["a", "b", "b::c", "g::h", "x::d::E", "x::y::i"].map(str::to_owned).into());
}

/// The backticked names that begin the items of the list below a heading, from top to bottom.
fn listed(heading: &str) -> Vec<String> {
    let page = read("docs/architecture.md");
    let (_, list) =
        page.split_once(heading).unwrap_or_else(|| panic!("docs/architecture.md has {heading}"));
    let list = list.split("\n#").next().unwrap_or_default();
    let names = list.lines().filter_map(|line| line.split_once(". `")?.1.split('`').next());
    names.map(str::to_owned).collect()
}

/// The place of the folder that a module belongs to: the longest listed one.
fn place(order: &[String], module: &[String]) -> Option<usize> {
    let at = |length: usize| {
        let name = module.get(..length)?.join("/");
        order.iter().position(|listed| *listed == name)
    };
    at(2).or_else(|| at(1))
}

fn module_of(path: &Path) -> Vec<String> {
    let path =
        path.strip_prefix(Path::new(ROOT).join("src")).expect("a file of src").with_extension("");
    let parts = path.iter().map(|part| part.to_str().expect("names are ASCII").to_owned());
    parts.filter(|part| part != "mod").collect()
}

fn modules_of(lib: &str) -> Vec<String> {
    let declared = lib.lines().filter_map(|line| line.split_once("mod ")?.1.strip_suffix(';'));
    declared.map(str::to_owned).collect()
}

/// All imports of a file. What its inline modules, which are at its end, import from `super` is its own.
fn imports(module: &[String], text: &str) -> Vec<Import> {
    let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let code = code.collect::<Vec<_>>().join("\n");
    let inline = code.find("\nmod tests {").unwrap_or(code.len());
    let mut found = Vec::new();
    for (start, skipped) in [("crate::", module.len()), ("super::", 1)] {
        for (at, _) in code.match_indices(start) {
            let before = |sign: char| sign.is_alphanumeric() || "_:".contains(sign);
            if !code[..at].ends_with(before) {
                let is_inline = start == "super::" && at > inline;
                let kept = module.len() - if is_inline { 0 } else { skipped };
                expand(module[..kept].to_vec(), &code[at + start.len()..], &mut found);
            }
        }
    }
    found
}

/// Reads a path, or a group of them; gives what is behind it.
fn expand<'a>(mut path: Import, text: &'a str, found: &mut Vec<Import>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut group) = text.strip_prefix('{') {
        loop {
            group = group.trim_start();
            if group.is_empty() || group.starts_with('}') {
                return group.strip_prefix('}').unwrap_or(group);
            }
            group = expand(path.clone(), group, found).trim_start();
            group = group.strip_prefix(',').unwrap_or(group);
        }
    }
    let end =
        text.find(|sign: char| !(sign.is_alphanumeric() || sign == '_')).unwrap_or(text.len());
    let (name, mut behind) = text.split_at(end);
    match name {
        "super" => drop(path.pop()),
        "self" | "" => {}
        name => path.push(name.to_owned()),
    }
    if let Some(next) = behind.strip_prefix("::") {
        return expand(path, next, found);
    }
    if let Some(alias) = behind.strip_prefix(" as ") {
        behind = alias.trim_start_matches(|sign: char| sign.is_alphanumeric() || sign == '_');
    }
    if name.is_empty() {
        // `*`, or what is no path at all: reading goes on behind it.
        behind = behind.get(1..).unwrap_or_default();
    }
    if !path.is_empty() {
        found.push(path);
    }
    behind
}

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}
