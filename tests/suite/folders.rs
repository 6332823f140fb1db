//! The order of folders and crates in `docs/architecture.md`, held against the sources, and the absence of circles.

use std::collections::{BTreeMap, BTreeSet};
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
    let src = Path::new(ROOT).join("src");
    for (path, text) in crate::rules::sources().iter().filter(|(path, _)| path.starts_with(&src)) {
        let module = module_of(path, &src);
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
fn the_picture_of_the_rooms_is_drawn_from_their_imports() {
    let order = listed("### Folders of src");
    let mut rows = vec![BTreeSet::new(); order.len()];
    for (from, to) in uses_of_production(".") {
        let at = |module: &Import| order.iter().position(|room| *room == module[0]);
        if let (Some(from), Some(to)) = (at(&from), at(&to))
            && from != to
        {
            rows[from].insert(to);
        }
    }
    let head: String = (2..order.len()).map(|number| format!("{number:>3}")).collect();
    let mut drawn = format!("{:14}{head}\n", "");
    for (at, name) in order[..order.len() - 1].iter().enumerate() {
        let cell = |to| if rows[at].contains(&to) { "  x" } else { "   " };
        let cells: String = (1..order.len() - 1).map(cell).collect();
        drawn += format!("{:>2} {name:11}{cells}", at + 1).trim_end();
        drawn.push('\n');
    }
    let page = read("docs/architecture.md");
    let (before, rest) =
        page.split_once("draws this from the imports:\n\n```\n").expect("the picture");
    let (there, after) = rest.split_once("```").expect("the picture has an end");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let page = format!("{before}draws this from the imports:\n\n```\n{drawn}```{after}");
        return fs::write(Path::new(ROOT).join("docs/architecture.md"), page)
            .expect("it is writable");
    }
    assert_eq!(there, drawn, "docs/architecture.md differs from the imports: UPDATE_DOCS=1");
}

/// Two files or folders of a folder that need each other are one, or what both need goes below them. A `mod.rs` is one
/// of them: what it uses takes nothing from it.
#[test]
fn no_files_or_folders_of_a_crate_need_each_other() {
    for (folder, least) in [
        (".", 1000),
        ("actors", 100),
        ("storage/dynamodb", 200),
        ("storage/postgresql", 50),
        ("storage/sqlite", 100),
        ("storage", 50),
        ("state_machine/harness", 100),
        ("state_machine", 200),
    ] {
        let uses = uses_of_production(folder);
        assert!(uses.len() > least, "the imports of {folder} are elsewhere: {}", uses.len());
        let circles = circles(&uses);
        assert!(circles.is_empty(), "these of {folder} need each other:\n{}", circles.join("\n"));
    }
}

#[test]
fn a_circle_is_found_between_files_folders_and_a_folder_and_its_mod() {
    let module = |text: &str| text.split('/').map(str::to_owned).collect::<Vec<_>>();
    let found = |uses: &[(&str, &str)]| {
        let uses = uses.iter().map(|(from, to)| (module(from), module(to)));
        circles(&uses.collect::<Vec<_>>()).len()
    };
    assert_eq!(found(&[("a/x", "b/y"), ("b/y", "c"), ("a/x", "c")]), 0);
    assert_eq!(found(&[("a/x", "a/y"), ("a/y", "a/x")]), 2);
    // The files are none, and the folders are.
    assert_eq!(found(&[("a/x", "b/y"), ("b/z", "a/w"), ("c", "a/x")]), 2);
    assert_eq!(found(&[("a", "a/x"), ("a/x", "a")]), 2);
    assert_eq!(found(&[("a/x", "a/y"), ("a/y", "b"), ("b", "a")]), 2);
}

#[test]
fn every_crate_depends_on_lower_crates_only() {
    let order = listed("### Crates");
    let manifest = |name: &String| -> toml::Table {
        let folder = if name == "kalends" { "." } else { name };
        read(&format!("{folder}/Cargo.toml")).parse().expect("a manifest is TOML")
    };
    let manifests: Vec<_> = order.iter().map(manifest).collect();
    for (at, name) in order.iter().enumerate() {
        let needs = manifests[at]["dependencies"].as_table().expect("dependencies are a table");
        for other in &manifests[..at] {
            let other = other["package"]["name"].as_str().expect("a package has a name");
            assert!(!needs.contains_key(other), "{name} depends on {other}");
        }
    }
    let workspace: toml::Table = read("Cargo.toml").parse().expect("a manifest is TOML");
    let members = workspace["workspace"]["members"].as_array().expect("members are a list").iter();
    let members: BTreeSet<_> =
        members.map(|name| name.as_str().unwrap()).chain(["kalends"]).collect();
    assert_eq!(members, order.iter().map(String::as_str).collect(), "the list has every member");
}

/// Which module of the crate in this folder uses which other one, tests left out.
fn uses_of_production(folder: &str) -> Vec<(Import, Import)> {
    let src = Path::new(ROOT).join(folder).join("src");
    let sources = crate::rules::sources();
    let of_production = |path: &&(std::path::PathBuf, String)| {
        let name = path.0.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        path.0.starts_with(&src) && !is_of_tests(name)
    };
    let sources: Vec<_> = sources.iter().filter(of_production).collect();
    let module = |path: &Path| module_of(path, &src);
    let modules: BTreeSet<_> = sources.iter().map(|(path, _)| module(path)).collect();
    let mut uses = Vec::new();
    for (path, text) in &sources {
        let from = module(path);
        for import in imports(&from, &without_tests(text)) {
            let known = (0..=import.len()).rev().find(|end| modules.contains(&import[..*end]));
            let to = import[..known.unwrap_or_default()].to_vec();
            if !from.is_empty() && !to.is_empty() && to != from {
                uses.push((from.clone(), to));
            }
        }
    }
    uses
}

/// The uses that are part of a circle of the parts of one folder.
fn circles(uses: &[(Import, Import)]) -> Vec<String> {
    let mut why = BTreeMap::new();
    for (from, to) in uses {
        let shared = from.iter().zip(to).take_while(|(from, to)| from == to).count();
        let part = |module: &'_ Import| {
            module.get(shared).map(String::as_str).unwrap_or("mod.rs").to_owned()
        };
        let pair = [part(from), part(to)];
        why.entry((from[..shared].to_vec(), pair))
            .or_insert_with(|| format!("{} -> {}", from.join("/"), to.join("/")));
    }
    let mut left: BTreeSet<_> = why.keys().cloned().collect();
    // What needs nothing of its folder that is left, or is needed by nothing, is in no circle.
    loop {
        let before = left.len();
        for end in [0, 1] {
            let ends: BTreeSet<_> =
                left.iter().map(|(folder, pair)| (folder.clone(), pair[end].clone())).collect();
            left.retain(|(folder, pair)| ends.contains(&(folder.clone(), pair[1 - end].clone())));
        }
        if left.len() == before {
            return left.iter().map(|use_| why[use_].clone()).collect();
        }
    }
}

#[test]
fn imports_are_found_in_groups_in_paths_and_through_super() {
    let text = "use crate::{a, b::{self, c}};\nuse super::d::E;\n// use crate::comment;\nfn f() { crate::g::h() }\n\
                pub(in crate::x) struct S;\nmod k;\npub use k::L;\nmod tests {\n    use super::i;\n}\n";
    let found = imports(&["x".to_owned(), "y".to_owned()], text);
    let found: BTreeSet<_> = found.iter().map(|import| import.join("::")).collect();
    assert_eq!(
        found,
        ["a", "b", "b::c", "g::h", "x::d::E", "x::y::i", "x::y::k::L"].map(str::to_owned).into()
    );
}

/// The backticked names that begin the items of the list below a heading, from top to bottom.
fn listed(heading: &str) -> Vec<String> {
    let page = read("docs/architecture.md");
    let (_, list) =
        page.split_once(heading).unwrap_or_else(|| panic!("docs/architecture.md has {heading}"));
    let list = list.split("\n#").next().unwrap_or_default();
    let items =
        list.lines().map(|line| line.trim_start_matches(|sign: char| sign.is_ascii_digit()));
    let names = items.filter_map(|item| item.strip_prefix(". `")?.split('`').next());
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

fn module_of(path: &Path, src: &Path) -> Vec<String> {
    let path = path.strip_prefix(src).expect("a file of src").with_extension("");
    let parts = path.iter().map(|part| part.to_str().expect("names are ASCII").to_owned());
    parts.filter(|part| part != "mod").collect()
}

fn modules_of(text: &str) -> Vec<String> {
    let declared = text.lines().filter_map(|line| line.split_once("mod ")?.1.strip_suffix(';'));
    declared.map(str::to_owned).collect()
}

pub(crate) fn is_of_tests(name: &str) -> bool {
    matches!(name, "tests.rs" | "fixture.rs") || name.ends_with("_tests.rs")
}

/// The text of a file without its items for tests, each of which ends where its indentation does.
pub(crate) fn without_tests(text: &str) -> String {
    let (mut kept, mut lines) = (String::new(), text.lines());
    while let Some(line) = lines.next() {
        if line.trim_start() != "#[cfg(test)]" {
            kept += line;
            kept.push('\n');
            continue;
        }
        let indent = &line[..line.len() - line.trim_start().len()];
        let is_end = |line: &&str| {
            let is_whole = line.ends_with(';') || line.ends_with('}');
            is_whole && line.strip_prefix(indent).is_some_and(|rest| !rest.starts_with(' '))
        };
        lines.by_ref().find(is_end);
    }
    kept
}

/// All imports of a file. What its inline modules, which are at its end, import from `super` is its own.
fn imports(module: &[String], text: &str) -> Vec<Import> {
    let code = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let code = code.collect::<Vec<_>>().join("\n");
    let inline = code.find("\nmod tests {").unwrap_or(code.len());
    let parent = &module[..module.len().saturating_sub(1)];
    let mut roots = vec![
        ("crate::".to_owned(), Vec::new()),
        ("super::".to_owned(), parent.to_vec()),
        ("self::".to_owned(), module.to_vec()),
    ];
    for child in modules_of(&code) {
        roots.push((format!("{child}::"), [module, &[child]].concat()));
    }
    let mut found = Vec::new();
    for (start, root) in roots {
        for (at, _) in code.match_indices(&start) {
            let before = |sign: char| sign.is_alphanumeric() || "_:".contains(sign);
            // Who may see an item is not what it needs.
            let is_visibility = code[..at].ends_with("pub(in ");
            if !code[..at].ends_with(before) && !is_visibility {
                let is_inline = start == "super::" && at > inline;
                let root = if is_inline { module.to_vec() } else { root.clone() };
                expand(root, &code[at + start.len()..], &mut found);
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
