//! Several sources of one relay: which a file may have, whether they fit beside each other, and what a change of them means.

use std::collections::BTreeMap;
use std::fmt;

use service::settings::Parts;

use crate::config::{Config, Source};
use crate::limits::{SOURCE_NAME_BYTES_MAX, SOURCES_MAX};
use crate::settings::SETTINGS;

/// The sources in a file: tables `[sources.NAME]`.
pub const SOURCES: Parts = Parts {
    key: "sources",
    tables: &[SETTINGS],
    count_max: SOURCES_MAX,
    name_bytes_max: SOURCE_NAME_BYTES_MAX,
    instead: &[&["database", "database_file"], &["url", "url_file"]],
};

/// Sources by their names.
pub type Sources = BTreeMap<String, Config>;

/// What two sources of one database must not have both, each in a sentence. Databases are told apart by their URLs.
pub fn clashes(sources: &Sources) -> Vec<String> {
    let mut problems = Vec::new();
    let mut taken: BTreeMap<(&str, String), &str> = BTreeMap::new();
    for (name, config) in sources {
        for (thing, advice) in things(config) {
            let first = *taken.entry((&config.database, thing.clone())).or_insert(name);
            if first != name {
                problems.push(format!(
                    "sources.{first} and sources.{name} both have {thing}: {advice}"
                ));
            }
        }
    }
    problems
}

/// What a source needs for itself, and what to do where another has it.
fn things(config: &Config) -> Vec<(String, &'static str)> {
    let rows = match (&config.source, &config.mapping.pending_where) {
        (Source::Messages { prefix, .. }, _) => format!("the messages with the prefix `{prefix}`"),
        (_, None) => format!("the table {}", config.mapping.table),
        (_, Some(condition)) => {
            format!("the rows of the table {} with {condition}", config.mapping.table)
        }
    };
    let mut things = vec![(rows, "each row has one source")];
    if let Source::Wal { slot, .. } | Source::Messages { slot, .. } = &config.source
        && !config.has_default_slot
    {
        things.push((format!("the slot `{slot}`"), "leave slot out, or name another"));
    }
    if let Source::Wal { publication, .. } = &config.source {
        let thing = format!("the publication `{publication}`");
        things.push((thing, "leave publication out, or name another"));
    }
    things
}

/// What is to be done so that the sources that are wanted run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Steps {
    /// These are told to end. One with other settings begins when it has ended.
    pub(crate) end: Vec<String>,
    pub(crate) begin: Vec<String>,
}

impl Steps {
    /// From those that run, or have not ended yet, to those that are wanted.
    pub(crate) fn between(running: &Sources, wanted: &Sources) -> Self {
        let stays = |(name, config): &(&String, &Config)| wanted.get(*name) == Some(*config);
        let end = running.iter().filter(|one| !stays(one)).map(|(name, _)| name.clone());
        let begin = wanted.keys().filter(|name| !running.contains_key(*name)).cloned();
        Self { end: end.collect(), begin: begin.collect() }
    }
}

/// What a file changes, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub added: Vec<String>,
    pub removed: Vec<String>,
    pub changed: Vec<String>,
}

impl Changes {
    /// From the sources of before to the new ones.
    pub fn between(before: &Sources, after: &Sources) -> Self {
        let Steps { end, begin } = Steps::between(before, after);
        let (changed, removed) = end.into_iter().partition(|name| after.contains_key(name));
        Self { added: begin, removed, changed }
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds =
            [("added", &self.added), ("removed", &self.removed), ("changed", &self.changed)];
        let words = kinds.iter().filter(|(_, names)| !names.is_empty());
        let words: Vec<String> =
            words.map(|(kind, names)| format!("{kind}: {}", names.join(", "))).collect();
        match words.is_empty() {
            true => out.write_str("no source changes"),
            false => out.write_str(&words.join("; ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{Mapping, Preset};

    fn config(database: &str, table: &str) -> Config {
        let mut mapping = Mapping::preset(Preset::OutboxMessages);
        mapping.table = table.parse().expect("a table");
        Config::new(database, "amqp://localhost".parse().expect("a URL"), mapping)
    }

    fn sources(all: &[(&str, Config)]) -> Sources {
        all.iter().map(|(name, config)| ((*name).to_owned(), config.clone())).collect()
    }

    fn wal(slot: &str, publication: &str, table: &str) -> Config {
        let (slot, publication) = (slot.to_owned(), publication.to_owned());
        let source = Source::Wal { slot, publication };
        Config { source, has_default_slot: false, ..config("postgres://h/d", table) }
    }

    #[test]
    fn what_stays_as_it_is_goes_on_and_what_has_changed_ends_before_it_begins_again() {
        let (a, b) = (config("postgres://h/a", "a"), config("postgres://h/b", "b"));
        let running = sources(&[("same", a.clone()), ("gone", a.clone()), ("other", a.clone())]);
        let wanted = sources(&[("same", a.clone()), ("other", b.clone()), ("new", b)]);
        let steps = Steps::between(&running, &wanted);
        assert_eq!(
            (steps.end.join(" "), steps.begin.join(" ")),
            ("gone other".into(), "new".into())
        );
        let changes = Changes::between(&running, &wanted);
        assert_eq!(changes.to_string(), "added: new; removed: gone; changed: other");
        assert_eq!(Changes::between(&wanted, &wanted).to_string(), "no source changes");
        assert_eq!(Steps::between(&wanted, &wanted), Steps::default());
    }

    #[test]
    fn no_two_sources_of_a_database_have_the_same_rows_slot_or_publication() {
        let one = config("postgres://h/d", "a");
        let told = |all: &[(&str, Config)]| clashes(&sources(all)).join("\n");
        let words = told(&[("x", one.clone()), ("y", one.clone())]);
        assert!(words.contains("sources.x and sources.y both have the table a"), "{words}");
        assert_eq!(told(&[("x", one.clone()), ("y", config("postgres://h/d", "b"))]), "");
        assert_eq!(told(&[("x", one.clone()), ("y", config("postgres://h/other", "a"))]), "");
        let mut tenant = one.clone();
        tenant.mapping.pending_where = Some("tenant = 7".into());
        assert_eq!(told(&[("x", one), ("y", tenant)]), "", "rows of their own");

        let words = told(&[("x", wal("s", "p", "a")), ("y", wal("s", "p", "b"))]);
        assert!(words.contains("the slot `s`") && words.contains("the publication `p`"), "{words}");
        assert_eq!(told(&[("x", wal("s", "p", "a")), ("y", wal("t", "q", "b"))]), "");
    }
}
