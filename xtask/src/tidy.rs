//! `tidy`: what the compiler and clippy cannot see.
//!
//! Arrows between crates point down; clocks, files, sockets, threads and `async` stay under `io`;
//! every file opens with its charter; nothing unfinished is left over; no mailbox is unbounded; files
//! do not import each other in a circle, and a type's methods stand in few files, except where `known`
//! says why. The longest files and functions are printed and never fail. Rules look at code without
//! comments and strings, and most of them leave tests alone.

mod arrows;
mod circles;
pub(crate) mod figures;
mod known;
mod modules;
mod paths;
mod source;
mod spread;

use std::path::{Path, PathBuf};

use crate::Outcome;
use crate::process::root;
pub(crate) use arrows::packages;
use modules::Package;
use source::Source;

/// How many of the longest files and functions are shown.
const LONGEST_COUNT: usize = 5;

/// What only `io` may do (invariant I1). Clippy bans the calls it can resolve; these are the rest.
const IO_WORDS: &[(&str, &str)] = &[
    ("Instant::now", "a clock"),
    ("SystemTime::now", "a clock"),
    ("std::fs", "a file"),
    ("std::net::Tcp", "a socket"),
    ("std::net::Udp", "a socket"),
    ("tokio::net", "a socket"),
    ("tokio::fs", "a file"),
    ("thread::spawn", "a thread"),
    ("thread::Builder", "a thread"),
    ("thread::sleep", "waiting"),
    ("tokio::spawn", "a task"),
    ("time::sleep", "waiting"),
    ("thread_rng", "chance"),
    ("rand::random", "chance"),
    ("RandomState", "chance"),
    ("getrandom", "chance"),
];

/// What never lands.
const LEFTOVERS: &[&str] = &["dbg!(", "todo!(", "unimplemented!(", "#[ignore", "#[allow(unused"];

/// Words that open a comment about what is not done.
const NOTES: &[&str] = &["FIXME", "TODO", "XXX", "HACK"];

/// Mailboxes without a bound (invariant I9).
const UNBOUNDED: &[&str] = &["unbounded_channel", "mpsc::unbounded", "std::sync::mpsc::channel"];

/// A mailbox on the way back never waits (invariant I10). The comment above it says what bounds it.
const BOUNDED_BY: &str = "// Bounded by ";

/// One broken rule at one place.
struct Finding {
    path: PathBuf,
    line: usize,
    message: String,
}

/// `cargo xtask tidy`
pub(crate) fn run(_: &[String]) -> Outcome {
    let root = root();
    let mut findings = arrows::findings(&root)?;
    let sources = read_sources(&root)?;
    sources.iter().for_each(|source| check(source, &mut findings));
    for package in packages(&root)? {
        known::check(&Package::new(&package, &sources), &mut findings);
    }
    show_longest(&sources);
    for Finding { path, line, message } in &findings {
        println!("{}:{line}: {message}", path.display());
    }
    match findings.len() {
        0 => Ok(()),
        count => Err(format!("{count} findings")),
    }
}

/// Every Rust file of the workspace, read.
fn read_sources(root: &Path) -> Result<Vec<Source>, String> {
    let read = |path: PathBuf| match std::fs::read_to_string(root.join(&path)) {
        Ok(text) => Ok(Source::new(path, text)),
        Err(error) => Err(format!("{}: {error}", path.display())),
    };
    rust_files(root)?.into_iter().map(read).collect()
}

/// Every Rust file of the workspace, by path from its root.
fn rust_files(root: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let full = root.join(&folder);
        let entries =
            std::fs::read_dir(&full).map_err(|error| format!("{}: {error}", full.display()))?;
        for entry in entries {
            let entry = entry.map_err(|error| error.to_string())?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = folder.join(&name);
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            // Cargo marks the folder that it builds in. Others may be called `target` as well.
            let is_built = is_folder && full.join(&name).join("CACHEDIR.TAG").exists();
            if is_folder && !is_built && !name.starts_with('.') && name != "node_modules" {
                folders.push(path);
            } else if name.ends_with(".rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

fn check(source: &Source, findings: &mut Vec<Finding>) {
    let mut find = |line: usize, message: String| {
        findings.push(Finding { path: source.path.clone(), line, message });
    };
    // A file of tests is explained by the file it tests.
    if !source.text.starts_with("//!") && !source.path.ends_with("tests.rs") {
        find(1, "a file opens with `//!`: what it is, and what it leaves to others".into());
    }
    if source.path.ends_with("mod.rs") {
        find(1, "no `mod.rs`: name the file for its idea, beside its folder".into());
    }
    for (number, line) in source.lines() {
        for word in LEFTOVERS {
            if line.contains(word) {
                find(number, format!("`{word}` does not land"));
            }
        }
    }
    for (index, line) in source.text.lines().enumerate() {
        if NOTES.iter().any(|note| line.contains(&format!("// {note}"))) {
            find(index + 1, "a known gap is an issue and a test, not a note".into());
        }
    }
    if source.is_test {
        return;
    }
    for (number, line) in source.product_lines() {
        if source.comment_above(number).starts_with(BOUNDED_BY) {
            continue;
        }
        for word in UNBOUNDED.iter().filter(|word| line.contains(**word)) {
            find(number, format!("`{word}` has no bound (I9)"));
        }
    }
    if source.may_do_io() {
        return;
    }
    for (number, line) in source.product_lines() {
        for (word, what) in IO_WORDS {
            if line.contains(word) {
                find(number, format!("`{word}`: {what} belongs into `io` (I1)"));
            }
        }
        if line.contains("async ") || awaits(line) {
            find(number, "a core never waits: `async` belongs into `io` (I3)".into());
        }
        if line.contains("(clippy::disallowed") {
            find(number, "the bans are lifted at the head of `io.rs` and nowhere else (I1)".into());
        }
    }
}

/// Whether a future is awaited in the line: a field or method may be named so that it begins alike.
fn awaits(line: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_');
    line.split(".await").skip(1).any(ends)
}

fn show_longest(sources: &[Source]) {
    let written = |source: &&Source| !source.path.ends_with("generated.rs");
    let sources: Vec<_> = sources.iter().filter(written).collect();
    let mut files: Vec<_> =
        sources.iter().filter(|s| !s.is_test).map(|s| (s.product_lines().count(), s)).collect();
    files.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let mut functions: Vec<_> =
        sources.iter().flat_map(|source| source.functions().map(move |f| (f, source))).collect();
    functions.sort_by_key(|(function, _)| std::cmp::Reverse(function.lines));
    for (count, source) in files.iter().take(LONGEST_COUNT) {
        println!("{count:5} lines  {}", source.path.display());
    }
    for (function, source) in functions.iter().take(LONGEST_COUNT) {
        let place = format!("{}:{}", source.path.display(), function.line);
        println!("{:5} lines  fn {}  {place}", function.lines, function.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        check(&Source::new(path.into(), text.into()), &mut findings);
        findings.into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_core_that_reads_a_clock_is_found_and_a_shell_is_not() {
        let text = "//! Charter.\nfn f() { std::time::Instant::now(); }\n";
        assert_eq!(messages("crates/wal/src/batch.rs", text).len(), 1);
        assert_eq!(messages("crates/wal/src/io/files.rs", text).len(), 0);
    }

    #[test]
    fn a_core_that_awaits_is_found_and_one_with_a_name_like_it_is_not() {
        let found = |line| {
            let text = format!("//! Charter.\nfn f() {{ {line} }}\n");
            messages("crates/wal/src/batch.rs", &text).len()
        };
        assert_eq!(found("a().await;"), 1);
        assert_eq!(found("a.awaiting(); b().await?;"), 1);
        assert_eq!(found("a.awaiting();"), 0);
    }

    #[test]
    fn comments_strings_and_tests_may_name_what_code_may_not() {
        let text = "//! Charter.\n// std::fs\nconst A: &str = \"tokio::net\";\n\
                    #[cfg(test)]\nmod tests {\n    fn f() { std::fs::read(\"x\"); }\n}\n";
        assert_eq!(messages("crates/wal/src/batch.rs", text), Vec::<String>::new());
    }

    #[test]
    fn a_file_without_a_charter_is_found() {
        assert_eq!(messages("crates/wal/src/batch.rs", "fn f() {}\n").len(), 1);
    }
}
