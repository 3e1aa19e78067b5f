//! Import circles: files of a package that can only be understood together, because each of them
//! imports from the next and the last from the first.

use std::collections::BTreeSet;

use super::modules::Package;

/// The circles of a package: the files of each, in the order of their names.
pub(super) fn circles(package: &Package) -> Vec<BTreeSet<String>> {
    let arrows = package.arrows();
    let reached: Vec<BTreeSet<usize>> =
        (0..arrows.len()).map(|file| reached(file, &arrows)).collect();
    let mut circles = BTreeSet::new();
    for (file, reached_from_it) in reached.iter().enumerate() {
        if reached_from_it.contains(&file) {
            let circle = reached_from_it.iter().filter(|other| reached[**other].contains(&file));
            circles.insert(circle.map(|file| package.name(*file)).collect());
        }
    }
    circles.into_iter().collect()
}

/// The files that one file leads to over any number of arrows.
fn reached(from: usize, arrows: &[Vec<usize>]) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut ahead = vec![from];
    while let Some(file) = ahead.pop() {
        ahead.extend(arrows[file].iter().filter(|to| reached.insert(**to)));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::super::source::Source;
    use super::*;

    fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
        let sources = Source::samples(files);
        let circles = circles(&Package::new("crates/a", &sources));
        let words = |circle: BTreeSet<String>| circle.into_iter().collect::<Vec<_>>().join(" ");
        circles.into_iter().map(words).collect()
    }

    #[test]
    fn files_that_lead_back_to_each_other_are_one_circle() {
        let files = [
            ("b", "use crate::c::C;"),
            ("c", "use crate::d::D;"),
            ("d", "use crate::b::B;\nuse crate::e::E;"),
            ("e", "use crate::f::F;"),
            ("f", "use super::e::E;\nuse super::g::G;"),
            ("g", "pub struct G;"),
        ];
        assert_eq!(circles_of(&files), ["b c d", "e f"]);
    }

    #[test]
    fn arrows_in_one_direction_are_no_circle() {
        let files = [("b", "use crate::{c::C, d::D};"), ("c", "use crate::d::D;"), ("d", "")];
        assert_eq!(circles_of(&files), [] as [&str; 0]);
    }
}
