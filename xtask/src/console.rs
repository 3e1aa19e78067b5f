//! `console`: the web console's own checks and tests, and a browser that uses it as a node serves it.
//!
//! The node embeds `console/dist`, which is committed: nobody needs Node.js to build Millrace. Here it is built again, to
//! see that the committed files are what the sources give.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Outcome;
use crate::brokers::{Broker, Build, HTTP_ABOVE, Kind};
use crate::process::{cargo, command, has, root, run, target};
use crate::tally::Tally;

/// Where the node of the browser test takes clients.
const PORT: u16 = 5697;

/// What the browser test starts if nobody says otherwise.
const BROWSER: &str = "/usr/bin/chromium";

/// What is installed, checked, tested, built and looked at counts as so many.
const STEPS: u64 = 5;

/// What the browser takes a picture of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pictures {
    /// Everything, for people to look at.
    All,
    /// What has a fault.
    OfFaults,
}

/// `cargo xtask console`
pub(crate) fn command_line(words: &[String]) -> Outcome {
    if !words.is_empty() {
        return Err("usage: cargo xtask console".into());
    }
    run(&mut cargo(&["build", "--quiet", "--package", "millrace"]))?;
    let Tally { passed, skipped, .. } = tried(Pictures::All)?;
    println!("{passed} passed, {skipped} skipped");
    Ok(())
}

/// All of it, with the node that `target/debug` has. What fails ends it.
pub(crate) fn tried(pictures: Pictures) -> Result<Tally, String> {
    let is_there = has("node") && has("npm") && Path::new(BROWSER).exists();
    if !is_there {
        println!("the console is not tested: node, npm or {BROWSER} is missing; see `setup`");
        return Ok(Tally { skipped: STEPS, ..Tally::default() });
    }
    run(&mut npm(&["ci", "--no-audit", "--no-fund"]))?;
    run(&mut npm(&["run", "--silent", "check"]))?;
    run(&mut npm(&["test", "--silent"]))?;
    built_as_committed()?;
    in_a_browser(pictures)?;
    Ok(Tally { passed: STEPS, ..Tally::default() })
}

fn folder() -> PathBuf {
    root().join("console")
}

fn npm(words: &[&str]) -> Command {
    let mut npm = command("npm", words);
    npm.current_dir(folder());
    npm
}

/// The sources give the files that the node embeds.
fn built_as_committed() -> Outcome {
    let dist = folder().join("dist");
    let before = files(&dist)?;
    run(&mut npm(&["run", "--silent", "build"]))?;
    match files(&dist)? == before {
        true => Ok(()),
        false => Err("console/dist was not what console/src gives. It is now: commit it".into()),
    }
}

/// What a folder holds, by name.
fn files(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let told = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).map_err(told)? {
        let entry = entry.map_err(told)?;
        let contents = std::fs::read(entry.path()).map_err(told)?;
        files.insert(entry.file_name().to_string_lossy().into_owned(), contents);
    }
    Ok(files)
}

/// Every page, and what operators do, against a node that serves the console itself.
fn in_a_browser(pictures: Pictures) -> Outcome {
    let data = target().join("console");
    let node = Broker::start_build(Kind::Millrace, Build::Tested, &data, PORT, None)?;
    let address = format!("http://127.0.0.1:{}", PORT + HTTP_ABOVE);
    let shots = target().join("console-shots");
    // Those of an earlier run would be taken for what is wrong now.
    let _ = std::fs::remove_dir_all(&shots);
    let mut test = npm(&["run", "--silent", "test:browser", "--", &address, "--shots"]);
    test.arg(&shots);
    if pictures == Pictures::All {
        test.arg("--all-shots");
    }
    let tested = run(&mut test);
    let stopped = node.stop();
    tested.map_err(|why| format!("{why}; pictures are in {}", shots.display())).and(stopped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_more_or_another_byte_is_another_folder() {
        let folder = std::env::temp_dir().join(format!("xtask-console-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("a"), "1").unwrap();
        let first = files(&folder).unwrap();
        assert_eq!(first, files(&folder).unwrap());
        std::fs::write(folder.join("a"), "2").unwrap();
        assert_ne!(first, files(&folder).unwrap());
        std::fs::write(folder.join("a"), "1").unwrap();
        std::fs::write(folder.join("b"), "").unwrap();
        assert_ne!(first, files(&folder).unwrap());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
