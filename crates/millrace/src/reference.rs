//! The page of all settings, `docs/operating/settings.md`, and what holds for every row of every table.

use std::collections::BTreeSet;
use std::path::Path;

use service::settings::{Setting, page};

use crate::cmd::RELAY_RUN;
use crate::config::SETTINGS;

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
         [its options](../inbox.md). Templates, presets and orders: [the relay](../relay.md).",
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

fn text() -> String {
    let part = |(heading, about, table): &(&str, &str, &[Setting])| {
        format!("\n{heading}\n\n{about}\n\n{}", page(table))
    };
    PARTS.iter().map(part).fold(HEAD.to_owned(), |text, part| text + &part)
}

fn all() -> impl Iterator<Item = &'static Setting> {
    PARTS.iter().flat_map(|(_, _, table)| table.iter())
}

#[test]
#[allow(clippy::disallowed_methods, reason = "`cargo xtask settings` has the page written")]
fn the_page_of_settings_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
    if std::env::var_os("MILLRACE_WRITE_SETTINGS").is_some() {
        std::fs::write(&path, text()).expect("the page can be written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == text(), "{PAGE} is stale: run `cargo xtask settings`");
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
