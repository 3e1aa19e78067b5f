//! Types whose methods stand in many files: nobody can read such a type in one go.
//!
//! Implementations of traits are left out: a conversion may stand where it is used.

use std::collections::{BTreeMap, BTreeSet};

use super::modules::Package;

/// The files in which the methods of a type may stand without an entry in the list.
pub(super) const FILES_MAX: usize = 3;

/// Each type of the package whose methods stand in more files than that: `shard::Shard`, and its files.
pub(super) fn spread(package: &Package) -> BTreeMap<String, BTreeSet<String>> {
    let mut types: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (index, file) in package.files.iter().enumerate() {
        for (_, line) in file.source.product_lines() {
            let Some(path) = implemented(line) else { continue };
            let (home, name) = home(package, index, path);
            let name = format!("{}::{name}", package.name(home));
            types.entry(name).or_default().insert(package.name(index));
        }
    }
    types.retain(|_, files| files.len() > FILES_MAX);
    types
}

/// The file that defines the type that is called so here, and its name there.
fn home(package: &Package, file: usize, path: Vec<String>) -> (usize, String) {
    let imported = path.first().and_then(|first| package.import(file, first));
    let path = imported.map_or_else(|| path.clone(), |import| [import, &path[1..]].concat());
    let home = package.target(file, &path).unwrap_or(file);
    (home, path.last().cloned().unwrap_or_default())
}

/// The type that a line `impl<'a, T> super::Type<'a, T> {` begins to implement, without a trait.
fn implemented(line: &str) -> Option<Vec<String>> {
    let rest = line.trim_start().strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        Some(rest) => past_generics(rest),
        None => rest.strip_prefix(' ')?,
    };
    if rest.contains(" for ") {
        return None;
    }
    let end = rest.trim_start().find(|c: char| !c.is_alphanumeric() && !"_:".contains(c));
    let path = &rest.trim_start()[..end.unwrap_or(rest.trim_start().len())];
    Some(path.split("::").map(String::from).collect())
}

/// What follows the `>` that closes a `<` before `rest`.
fn past_generics(rest: &str) -> &str {
    let mut depth = 1;
    for (at, c) in rest.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if !rest[..at].ends_with('-') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &rest[at + 1..];
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::super::source::Source;
    use super::*;

    #[test]
    fn a_type_in_four_files_is_found_under_any_name_and_one_in_three_is_not() {
        let files = [
            ("b", "pub struct B;\nimpl B {\n}\npub struct C;\nimpl C {\n}\n"),
            ("b/d", "use super::{B, C};\nimpl B {\n}\nimpl C {\n}\n"),
            ("e", "use crate::b::{B as E, C};\nimpl E {\n}\nimpl C {\n}\n"),
            ("f", "impl crate::b::B {\n}\nstruct C;\nimpl C {\n}\n"),
        ];
        let sources = Source::samples(&files);
        let spread = spread(&Package::new("crates/a", &sources));
        let found: Vec<String> = spread.keys().cloned().collect();
        assert_eq!(found, ["b::B"]);
        assert_eq!(spread["b::B"].len(), 4);
    }

    #[test]
    fn the_implemented_type_is_named_without_its_generics_and_traits_are_left_out() {
        let name = |line| implemented(line).map(|path| path.join("::"));
        assert_eq!(name("impl A {").as_deref(), Some("A"));
        assert_eq!(name("impl<'a, T: Into<u8>> super::A<'a, T> {").as_deref(), Some("super::A"));
        assert_eq!(name("impl<T> Drop for A<T> {"), None);
        assert_eq!(name("implement();"), None);
    }
}
