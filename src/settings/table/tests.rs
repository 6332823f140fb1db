//! What holds for every setting.

use super::super::value::TomlKind;
use super::*;

#[test]
fn every_default_is_within_its_range() {
    for setting in Setting::all() {
        let Some(range) = &setting.range else { continue };
        let default: u64 = (setting.default)().parse().unwrap();
        assert!(range.contains(&default), "{}", setting.name);
    }
}

#[test]
fn every_number_has_a_range_and_a_unit_which_its_name_ends_in_where_it_is_a_time() {
    for setting in Setting::all().filter(|setting| setting.toml_kind == TomlKind::Number) {
        assert!(setting.range.is_some(), "{}", setting.name);
        let unit = setting.unit.unwrap();
        if matches!(unit, "ms" | "s" | "days") {
            assert!(setting.name.ends_with(&format!("_{unit}")), "{}", setting.name);
        }
        if unit == "bytes" {
            let is_bound = setting.name.ends_with("_bytes_max");
            assert!(is_bound || setting.name == "disk_free_min", "{}", setting.name);
        }
    }
}

#[test]
fn no_name_is_given_twice() {
    let mut names: Vec<_> = Setting::all().map(|setting| setting.name).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
}
