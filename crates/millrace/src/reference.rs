//! What is written from the tables of settings: the page of all of them, `docs/operating/settings.md`, and the example of
//! a file that the Debian package installs. And what holds for every row of every table.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use service::settings::{Flag, Setting, example, page};

use crate::cmd::RELAY_RUN;
use crate::config::{self, SETTINGS};

const PAGE: &str = "docs/operating/settings.md";

/// A program, or a part of its file: its heading, what is said below it, its table.
const PARTS: &[(&str, &str, &[Setting])] = &[
    (
        "## `millrace serve`",
        "The file is that of `--config` (`MILLRACE_CONFIG`). `--set KEY=VALUE` sets any of these. `--print-config` prints a \
         file with all defaults. [Run a node](run.md) says more.",
        SETTINGS,
    ),
    (
        "## `millrace relay`",
        "The file is that of `--config` (`MILLRACE_RELAY_CONFIG`). Every command of the relay takes these, but `inbox`: \
         [its options](../inbox.md). They may stand in `[sources.NAME]`, too: [several sources](../relay.md#several-sources). \
         Templates, presets and orders: [the relay](../relay.md).",
        relay::SETTINGS,
    ),
    (
        "## `millrace relay run`",
        "These are options of `run` alone. The file may have them for all commands.",
        RELAY_RUN,
    ),
    (
        "## `millrace work`: `[worker]`",
        "The file is that of `--config` (`MILLRACE_WORK_CONFIG`). What `[source.NAME]` and `[target.NAME]` hold depends on \
         their `kind`: [the worker](../work.md#the-file). `MILLRACE_WORK_SOURCE_NAME_URL` is the `url` of \
         `[source.name]`.",
        worker::config::WORKER,
    ),
    (
        "### `[[pipeline]]`",
        "One source, one target, and what holds between them.",
        worker::config::PIPELINE,
    ),
    (
        "### `[target.NAME.limits]`",
        "How much a target takes, by all of its pipelines together.",
        worker::config::LIMITS,
    ),
    (
        "### `[target.NAME.limits]`: `breaker`",
        "`breaker = { failures = 20, open_for = \"30s\" }`: after so many failed runs in a row nothing is started for a \
         while, then one run tries.",
        worker::config::BREAKER,
    ),
];

const HEAD: &str = "\
# Settings

Where a setting has a variable, the environment wins over the file (TOML); where it has an option, the command line wins
over both. An unknown key, or a value out of its bounds, ends the start; all problems are told together, each with its
place. `--check-config` only checks.

Sizes are numbers of bytes, or have a unit: `64MiB`, `2GB`. Times: `250ms`, `5s`, `10m`, `12h`, `7d`. \"Change takes\"
says what brings a changed setting into effect: a `reload` (SIGHUP), or a `restart`.

`cargo xtask settings` writes this page from the tables in the code.
";

/// The configuration that the Debian package installs.
const EXAMPLE: &str = "deploy/debian/millrace.toml";

/// What is otherwise there than by default.
const EXAMPLE_SET: &[(&str, &str)] = &[("data_dir", "/var/lib/millrace")];

const EXAMPLE_HEAD: &str = "\
# Configuration of `millrace serve`, TOML.
#
# Every setting is here. One behind a # has no effect and shows its default: take the # away to change it.
# The environment (MILLRACE_...) wins over this file; a unit's drop-in can set it.
#
#   check a change:   millrace serve --config /etc/millrace/millrace.toml --check-config
#   let it count:     systemctl restart millrace    (for `log` and renewed certificates: systemctl reload millrace)
#
# Only root and the group millrace may read this file. It may hold secrets.
# A data directory elsewhere must belong to the user millrace, and the unit must be allowed to write there:
#   systemctl edit millrace    [Service] ReadWritePaths=/srv/millrace
#
# `cargo xtask settings` writes this file from the table in the code.

";

fn text() -> String {
    let part = |(heading, about, table): &(&str, &str, &[Setting])| {
        format!("\n{heading}\n\n{about}\n\n{}", page(table))
    };
    PARTS.iter().map(part).fold(HEAD.to_owned(), |text, part| text + &part)
}

fn all() -> impl Iterator<Item = &'static Setting> {
    PARTS.iter().flat_map(|(_, _, table)| table.iter())
}

fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Compares a file with what it is to hold. `cargo xtask settings` has it written.
#[allow(clippy::disallowed_methods, reason = "`cargo xtask settings` has the file written")]
fn must_hold(name: &str, text: &str) {
    let path = in_repository(name);
    if std::env::var_os("MILLRACE_WRITE_SETTINGS").is_some() {
        std::fs::write(&path, text).expect("the file can be written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == text, "{name} is stale: run `cargo xtask settings`");
}

fn example_text() -> String {
    EXAMPLE_HEAD.to_owned() + &example(SETTINGS, EXAMPLE_SET)
}

#[test]
fn the_page_of_settings_and_the_example_are_current() {
    must_hold(PAGE, &text());
    must_hold(EXAMPLE, &example_text());
}

/// The settings that a file changes.
fn changed_by(text: &str) -> Vec<&'static str> {
    let load =
        |text: &str| config::load(Some(("m.toml", text)), std::iter::empty(), &[] as &[Flag]);
    let read = load(text).unwrap_or_else(|problems| panic!("{problems:?}"));
    let plain = load("").expect("an empty file is right");
    read.differences(&plain).map(|setting| setting.key).collect()
}

#[test]
fn the_example_changes_nothing_but_the_data_directory_with_and_without_its_marks() {
    let text = example_text();
    assert_eq!(changed_by(&text), ["data_dir"]);
    let bared = |line: &str| match line.strip_prefix('#') {
        Some(rest) if rest.starts_with(|first: char| first.is_ascii_lowercase()) => rest.to_owned(),
        Some(_) | None => line.to_owned(),
    };
    let bare: Vec<String> = text.lines().map(bared).collect();
    let count = bare.iter().filter(|line| !line.starts_with('#') && line.contains(" = ")).count();
    assert_eq!(count, SETTINGS.len(), "a setting is missing, or is not a line of its own");
    assert_eq!(changed_by(&bare.join("\n")), ["data_dir"]);
}

/// Files that name variables of the node beside the documentation.
fn deployed(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("the folder can be read").path();
        match path.is_dir() {
            true => deployed(&path, files),
            false => files.push(path),
        }
    }
}

#[test]
fn every_variable_that_a_unit_a_container_or_a_chart_sets_is_a_setting() {
    let mut files = Vec::new();
    deployed(&in_repository("deploy"), &mut files);
    let known: BTreeSet<String> = SETTINGS.iter().filter_map(Setting::variable_name).collect();
    let mut found = 0;
    for path in files {
        let text = std::fs::read_to_string(&path).expect("it is text");
        let is_part =
            |letter: char| letter.is_ascii_uppercase() || letter == '_' || letter.is_ascii_digit();
        for word in text.split(|letter: char| !is_part(letter)) {
            // `MILLRACE_` alone stands for all of them.
            if word.len() > "MILLRACE_".len() && word.starts_with("MILLRACE_") {
                let is_known = known.contains(word) || word == "MILLRACE_CONFIG";
                assert!(is_known, "{}: {word} is no setting", path.display());
                found += 1;
            }
        }
    }
    assert!(found > 20, "{found} variables: the files were not read");
}

#[test]
fn every_default_is_inside_its_bounds() {
    for setting in all() {
        let checked = setting.default.map_or(Ok(()), |default| setting.check(default));
        assert_eq!(checked, Ok(()), "{}", setting.key);
        let has_words = setting.default_words().is_some() || setting.key == "database";
        assert!(has_words, "{}: what holds if nobody says anything?", setting.key);
    }
}

#[test]
fn every_setting_has_a_sentence() {
    for setting in all() {
        let (key, about) = (setting.key, setting.about());
        let is_sentence = about.starts_with(char::is_uppercase) && about.contains(' ');
        assert!(is_sentence && !about.ends_with('.'), "{key}: {about:?}");
    }
}

#[test]
fn no_program_has_a_key_or_a_variable_twice() {
    let relay = [relay::SETTINGS, RELAY_RUN].concat();
    for table in [SETTINGS, &relay, worker::config::PIPELINE, worker::config::LIMITS] {
        let keys: BTreeSet<&str> = table.iter().map(|setting| setting.key).collect();
        let variables: Vec<String> = table.iter().filter_map(Setting::variable_name).collect();
        assert_eq!(keys.len(), table.len());
        assert_eq!(variables.iter().collect::<BTreeSet<_>>().len(), variables.len());
    }
}
