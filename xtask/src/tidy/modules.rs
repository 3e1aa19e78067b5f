//! The files of one package as modules, and which file a path leads to.
//!
//! A name that a file only imports leads to the file that defines it: whoever names `crate::A`
//! depends on the file of `A`, and not on `lib.rs`, which says where it is.

use std::collections::BTreeMap;

use super::paths::{Named, named};
use super::source::Source;

/// How many imports of imports are followed. The compiler refuses those that lead in a circle.
const HOPS_MAX: usize = 16;

/// The files of a package that are not tests.
pub(super) struct Package<'a> {
    /// From the root of the repository: `crates/wal`.
    pub(super) folder: String,
    pub(super) files: Vec<File<'a>>,
    places: BTreeMap<Vec<String>, usize>,
}

/// A file and what it says.
pub(super) struct File<'a> {
    pub(super) source: &'a Source,
    /// From the root of the package: `["io", "files"]`.
    module: Vec<String>,
    named: Vec<Named>,
}

impl<'a> Package<'a> {
    pub(super) fn new(folder: &str, sources: &'a [Source]) -> Package<'a> {
        let mut files: Vec<File> = Vec::new();
        for source in sources.iter().filter(|source| !source.is_test) {
            if let Some(module) = module(folder, &source.path.to_string_lossy()) {
                files.push(File { source, module, named: named(source.product_lines()) });
            }
        }
        let place = |(index, file): (usize, &File)| (file.module.clone(), index);
        // Backwards, so that of two roots the first stays: nobody can import from `main.rs`.
        let places = files.iter().enumerate().rev().map(place).collect();
        Package { folder: folder.to_string(), files, places }
    }

    /// As lists and messages call a file: `io/files`.
    pub(super) fn name(&self, file: usize) -> String {
        let File { source, module, .. } = &self.files[file];
        let stem = source.path.file_stem().unwrap_or_default().to_string_lossy();
        if module.is_empty() { stem.into_owned() } else { module.join("/") }
    }

    /// The files that each file imports from. Itself and its folder are left out: a file may use the
    /// parts that lie below it, and they use it; the reader begins at the top.
    pub(super) fn arrows(&self) -> Vec<Vec<usize>> {
        let from = |from: usize| {
            let File { module, named, .. } = &self.files[from];
            let to = named.iter().filter_map(|named| self.target(from, &named.path));
            let mut to: Vec<usize> =
                to.filter(|to| !self.files[*to].module.starts_with(module)).collect();
            to.sort_unstable();
            to.dedup();
            to
        };
        (0..self.files.len()).map(from).collect()
    }

    /// The file that a path in the file `from` leads to, if it is one of this package.
    pub(super) fn target(&self, from: usize, path: &[String]) -> Option<usize> {
        let (mut file, mut rest) = self.walk(from, path)?;
        for _ in 0..HOPS_MAX {
            let Some(import) = rest.first().and_then(|name| self.import(file, name)) else { break };
            // A name that comes from another package is lent by the file that imports it.
            let Some((next, mut further)) = self.walk(file, import) else { break };
            further.extend_from_slice(&rest[1..]);
            (file, rest) = (next, further);
        }
        Some(file)
    }

    /// What a `use` of this file calls by this name.
    pub(super) fn import(&self, file: usize, name: &str) -> Option<&[String]> {
        let mut named = self.files[file].named.iter();
        let named = named.find(|named| named.alias.as_deref() == Some(name))?;
        Some(&named.path)
    }

    /// Goes from module to module as far as there are files. What is left of the path are items.
    fn walk(&self, from: usize, path: &[String]) -> Option<(usize, Vec<String>)> {
        let own = &self.files[from].module;
        let (first, mut rest) = path.split_first()?;
        let mut module = match first.as_str() {
            "crate" => Vec::new(),
            "self" => own.clone(),
            "super" => own.split_last()?.1.to_vec(),
            child => self.below(own, child)?,
        };
        while let Some((next, after)) = rest.split_first() {
            if next == "super" {
                module.pop();
            } else if let Some(below) = self.below(&module, next) {
                module = below;
            } else {
                break;
            }
            rest = after;
        }
        Some((*self.places.get(&module)?, rest.to_vec()))
    }

    /// The module of this name below another, if it has a file.
    fn below(&self, module: &[String], name: &str) -> Option<Vec<String>> {
        let below = [module, &[name.to_string()]].concat();
        self.places.contains_key(&below).then_some(below)
    }
}

/// The place of a file in its package: of `crates/wal/src/io/files.rs`, `["io", "files"]`.
fn module(folder: &str, path: &str) -> Option<Vec<String>> {
    let inside = path.strip_prefix(folder)?.strip_prefix("/src/")?.strip_suffix(".rs")?;
    match inside {
        "lib" | "main" => Some(Vec::new()),
        inside => Some(inside.split('/').map(String::from).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `from > to` for every arrow.
    fn arrows(files: &[(&str, &str)]) -> Vec<String> {
        let sources = Source::samples(files);
        let package = Package::new("crates/a", &sources);
        let arrows = package.arrows().into_iter().enumerate();
        let arrows = arrows.flat_map(|(from, to)| to.into_iter().map(move |to| (from, to)));
        arrows.map(|(from, to)| format!("{} > {}", package.name(from), package.name(to))).collect()
    }

    #[test]
    fn arrows_lead_to_files_from_anywhere_in_the_tree() {
        let files = [
            ("b", "mod c;\nuse std::fmt;\n"),
            ("b/c", "use super::super::e::F;\nuse super::H;\n"),
            ("e", "pub struct F;\nfn g() { crate::b::c::d(); self::i() }\n"),
            ("lib", "mod b;\nmod e;\n"),
        ];
        assert_eq!(arrows(&files), ["b/c > b", "b/c > e", "e > b/c"]);
    }

    #[test]
    fn a_file_and_its_folder_are_one_from_above() {
        let files = [
            ("b", "mod c;\nuse c::D;\npub struct E;\n"),
            ("b/c", "use super::E;\npub struct D;\n"),
            ("lib", "mod b;\nuse b::E;\n"),
        ];
        assert_eq!(arrows(&files), ["b/c > b"]);
    }

    #[test]
    fn an_arrow_leads_past_files_that_only_pass_a_name_on() {
        let files = [
            ("b", "use crate::Renamed;\nfn f() { crate::Outer::new() }\n"),
            ("c", "pub struct D;\nuse bytes::Bytes;\n"),
            ("e", "pub use crate::c::Bytes as Outer;\n"),
            ("lib", "pub use c::D as Renamed;\npub use e::Outer;\n"),
        ];
        assert_eq!(arrows(&files), ["b > c", "e > c"]);
    }

    #[test]
    fn tests_have_no_arrows() {
        let files = [
            ("b", "#[cfg(test)]\nmod tests {\n    use crate::c::D;\n}\n"),
            ("b/tests", "use crate::c::D;\n"),
            ("c", "use crate::b::E;\n"),
        ];
        assert_eq!(arrows(&files), ["c > b"]);
    }
}
