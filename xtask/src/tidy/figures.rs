//! `figures`: what of the code can be counted, a row for each package, for tables of before and after.
//!
//! A line counts if code stands on it: comments and empty lines do not, and neither does what is generated.

use std::collections::BTreeSet;

use super::circles::circles;
use super::modules::Package;
use super::source::Source;
use super::{packages, read_sources};
use crate::Outcome;
use crate::process::root;

/// A function of more lines is long.
const LONG_LINES: usize = 70;

const ASSERTS: &[&str] = &["assert!(", "assert_eq!(", "assert_ne!("];

const HEAD: &str = "package            code   tests  circles  files   _ =>  of all  asserts  /1000  functions  long   share  longest";

/// What is counted of one package, or of all.
#[derive(Default)]
struct Figures {
    code: usize,
    tests: usize,
    circles: usize,
    /// In circles.
    files: usize,
    /// Arms `_ =>` beside an arm of an enum of ours.
    own_wildcards: usize,
    wildcards: usize,
    asserts: usize,
    functions: usize,
    long: usize,
    longest: usize,
}

/// `cargo xtask figures`
pub(crate) fn run(_: &[String]) -> Outcome {
    let root = root();
    let mut sources = read_sources(&root)?;
    sources.retain(|source| !source.path.ends_with("generated.rs"));
    let enums: BTreeSet<&str> = sources.iter().flat_map(enums).collect();
    let mut all = Figures::default();
    println!("{HEAD}");
    for folder in packages(&root)? {
        let figures = count(&folder, &sources, &enums);
        println!("{}", row(&folder, &figures));
        all.add(&figures);
    }
    println!("{}", row("all", &all));
    let lock = root.join("Cargo.lock");
    let lock =
        std::fs::read_to_string(&lock).map_err(|error| format!("{}: {error}", lock.display()))?;
    let packages = lock.lines().filter(|line| *line == "[[package]]").count();
    println!("locked packages: {packages}");
    Ok(())
}

fn count(folder: &str, sources: &[Source], enums: &BTreeSet<&str>) -> Figures {
    let mut figures = Figures::default();
    for circle in circles(&Package::new(folder, sources)) {
        figures.circles += 1;
        figures.files += circle.len();
    }
    for source in sources.iter().filter(|source| source.path.starts_with(folder)) {
        let lines: Vec<&str> = match source.is_test {
            true => Vec::new(),
            false => source.product_lines().map(|(_, line)| line).collect(),
        };
        let code = lines.iter().filter(|line| holds_code(line)).count();
        figures.code += code;
        figures.tests += source.lines().filter(|(_, line)| holds_code(line)).count() - code;
        figures.asserts += lines.iter().map(|line| asserts(line)).sum::<usize>();
        for place in (0..lines.len()).filter(|place| is_wildcard(lines[*place])) {
            figures.wildcards += 1;
            figures.own_wildcards += usize::from(is_of_ours(&lines, place, enums));
        }
        for function in source.functions() {
            figures.functions += 1;
            figures.long += usize::from(function.lines > LONG_LINES);
            figures.longest = figures.longest.max(function.lines);
        }
    }
    figures
}

impl Figures {
    fn add(&mut self, other: &Figures) {
        self.code += other.code;
        self.tests += other.tests;
        self.circles += other.circles;
        self.files += other.files;
        self.own_wildcards += other.own_wildcards;
        self.wildcards += other.wildcards;
        self.asserts += other.asserts;
        self.functions += other.functions;
        self.long += other.long;
        self.longest = self.longest.max(other.longest);
    }
}

/// Under `HEAD`.
fn row(name: &str, figures: &Figures) -> String {
    let Figures { code, tests, circles, files, own_wildcards, wildcards, .. } = figures;
    let Figures { asserts, functions, long, longest, .. } = figures;
    let per_thousand = *asserts as f64 * 1000.0 / (*code).max(1) as f64;
    let share = *long as f64 * 100.0 / (*functions).max(1) as f64;
    format!(
        "{name:<16} {code:>6}  {tests:>6}  {circles:>7}  {files:>5}  {own_wildcards:>5}  {wildcards:>6}  \
         {asserts:>7}  {per_thousand:>5.1}  {functions:>9}  {long:>4}  {share:>4.2} %  {longest:>7}"
    )
}

fn holds_code(line: &str) -> bool {
    !line.trim().is_empty()
}

/// How many checks of a release begin on this line.
fn asserts(line: &str) -> usize {
    let starts = ASSERTS.iter().flat_map(|word| line.match_indices(word));
    starts.filter(|(at, _)| !line[..*at].ends_with('_')).count()
}

/// The enums that a file defines.
fn enums(source: &Source) -> impl Iterator<Item = &str> {
    source.product_lines().filter_map(|(_, line)| {
        let (before, after) = line.split_once("enum ")?;
        let is_item = before.split_whitespace().all(|word| word.starts_with("pub"));
        is_item.then(|| after.split(|c: char| !c.is_alphanumeric()).next())?
    })
}

fn is_wildcard(line: &str) -> bool {
    line.trim_start().starts_with("_ =>")
}

/// Whether an arm of the same `match` names an enum of ours. Arms stand at one indent, their `match` at less.
fn is_of_ours(lines: &[&str], wildcard: usize, enums: &BTreeSet<&str>) -> bool {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let own = indent(lines[wildcard]);
    let before = lines[..wildcard].iter().rev().filter(|line| holds_code(line));
    let arms = before.take_while(|line| indent(line) >= own).filter(|line| indent(line) == own);
    arms.flat_map(|arm| arm.split("::").zip(arm.split("::").skip(1))).any(|(before, _)| {
        let name = before.rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        name == "Self" || enums.contains(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source::new(path.into(), text.to_string())
    }

    const TEXT: &str = "//! Charter.\n\nenum Fruit {\n    Apple,\n    Pear,\n}\n\
        fn f(fruit: Fruit, text: &str) {\n    assert!(text.len() > 1);\n    debug_assert!(true);\n\
        \x20   match fruit {\n        Fruit::Apple => {}\n        _ => {}\n    }\n\
        \x20   match text {\n        \"Fruit::Apple\" => {}\n        _ => {}\n    }\n}\n\
        #[cfg(test)]\nmod tests {\n    // Words.\n    use super::*;\n}\n";

    #[test]
    fn code_tests_asserts_and_wildcards_are_counted_apart() {
        let sources = [
            source("crates/a/src/b.rs", TEXT),
            source("crates/a/tests/c.rs", "//! Charter.\nfn g() {}\n"),
            source("crates/d/src/e.rs", TEXT),
        ];
        let figures = count("crates/a", &sources, &sources.iter().flat_map(enums).collect());
        assert_eq!((figures.code, figures.tests), (16, 5));
        assert_eq!((figures.asserts, figures.functions, figures.long), (1, 1, 0));
        assert_eq!((figures.own_wildcards, figures.wildcards), (1, 2));
    }

    #[test]
    fn columns_stand_under_their_names() {
        assert_eq!(row("crates/a", &Figures::default()).len(), HEAD.len());
    }
}
