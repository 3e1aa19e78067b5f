//! What a file, the environment and the command line say of settings: the last of them wins.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use toml::de::{DeInteger, DeTable, DeValue};

use super::kind::bytes;
use super::{Kind, Setting};
use crate::duration::duration;

/// The settings of several tables.
pub(super) type Tables<'a> = &'a [&'static [Setting]];

/// A setting that the command line gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    key: &'static str,
    text: String,
    /// As it was written, for messages.
    place: String,
}

impl Flag {
    /// The setting has an option of its own.
    pub fn named(setting: &'static Setting, text: String) -> Self {
        let place = format!("command line, --{}", setting.flag_name());
        Self { key: setting.key, text, place }
    }

    /// The setting.
    pub(super) fn key(&self) -> &'static str {
        self.key
    }

    /// What stands behind `--set`: KEY=VALUE.
    ///
    /// # Errors
    /// A sentence that says what it should be.
    pub fn set(tables: Tables, text: &str) -> Result<Self, String> {
        let Some((key, value)) = text.split_once('=') else {
            return Err(format!(
                "command line, --set {text}: it must be KEY=VALUE, for example groups=8"
            ));
        };
        let place = format!("command line, --set {key}");
        let setting = known(tables, key).map_err(|why| format!("{place}: {why}"))?;
        Ok(Self { key: setting.key, text: value.to_owned(), place })
    }
}

/// Where settings are said.
#[derive(Clone, Copy)]
pub struct Said<'a> {
    /// The file's name, for messages, and its text.
    pub file: Option<(&'a str, &'a str)>,
    /// Variables of the environment that are no settings are passed over.
    pub variables: &'a BTreeMap<String, String>,
    pub flags: &'a [Flag],
}

/// Reads the settings, and what is wrong with them, each problem with its place. What is wrong has its default.
pub fn load(tables: Tables, said: Said) -> (Values, Vec<String>) {
    let mut problems = Vec::new();
    let mut values = Values::defaults(tables);
    let file = said.file.unwrap_or_default();
    match parse(file) {
        Ok(table) => read_table(tables, file, table, &mut values, &mut problems),
        Err(problem) => problems.push(problem),
    }
    read_variables_and_flags(tables, said, &mut values);
    check(tables, &mut values, &mut problems);
    (values, problems)
}

/// The environment wins over what was read before, and the command line over both.
pub(super) fn read_variables_and_flags(tables: Tables, said: Said, values: &mut Values) {
    let Values(found) = values;
    for setting in all(tables) {
        let Some(name) = setting.variable_name() else { continue };
        if let Some(text) = said.variables.get(&name) {
            let found = found.get_mut(setting.key).expect("all settings have a place");
            found.is(text.clone(), format!("environment, {name}"));
        }
    }
    for Flag { key, text, place } in said.flags {
        if let Some(found) = found.get_mut(key) {
            found.is(text.clone(), place.clone());
        }
    }
}

/// Judges what was said. What is wrong has its default from here on.
pub(super) fn check(tables: Tables, values: &mut Values, problems: &mut Vec<String>) {
    for setting in all(tables) {
        let found = values.0.get_mut(setting.key).expect("all settings have a place");
        let Some(text) = found.given.as_ref() else { continue };
        if setting.default == Some(text) {
            continue;
        }
        if let Err(why) = setting.check(text) {
            problems.push(found.problem(setting.key, &why));
            found.given = None;
        }
    }
}

fn all(tables: Tables) -> impl Iterator<Item = &'static Setting> {
    tables.iter().flat_map(|table| table.iter())
}

fn known(tables: Tables, key: &str) -> Result<&'static Setting, String> {
    all(tables).find(|setting| setting.key == key).ok_or_else(|| {
        let known: Vec<&str> = all(tables).map(|setting| setting.key).collect();
        format!("there is no setting {key}. The settings are: {}", known.join(", "))
    })
}

/// The file's line at an offset.
fn line_of(text: &str, offset: usize) -> usize {
    text[..offset.min(text.len())].matches('\n').count() + 1
}

/// The file as TOML; its name is for the problem.
pub(super) fn parse<'a>((name, text): (&str, &'a str)) -> Result<DeTable<'a>, String> {
    let parsed = DeTable::parse(text).map(toml::Spanned::into_inner);
    parsed.map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(text, span.start));
        format!("{name}:{line}: {}", error.message())
    })
}

/// Reads one table of a file.
pub(super) fn read_table(
    tables: Tables,
    (name, text): (&str, &str),
    table: DeTable,
    values: &mut Values,
    problems: &mut Vec<String>,
) {
    let Values(found) = values;
    for (key, value) in table {
        let place = format!("{name}:{}", line_of(text, key.span().start));
        let setting = match known(tables, key.get_ref()) {
            Ok(setting) => setting,
            Err(why) => {
                problems.push(format!("{place}: {why}"));
                continue;
            }
        };
        let text = match (value.get_ref(), &setting.kind) {
            (DeValue::String(text), _) => text.to_string(),
            (DeValue::Integer(number), _) => decimal(number),
            (DeValue::Float(number), Kind::Rate(..)) => number.as_str().to_owned(),
            (DeValue::Boolean(is_on), Kind::Switch) => is_on.to_string(),
            (other, _) => {
                problems.push(format!(
                    "{place}: {} is of type {}: it must be {}",
                    setting.key,
                    other.type_str(),
                    setting.kind.wanted()
                ));
                continue;
            }
        };
        found.get_mut(setting.key).expect("all settings have a place").is(text, place);
    }
}

/// A number as if it were written in decimal: settings are read from their text. One that is too large stays as it is,
/// and is refused like any other text.
fn decimal(number: &DeInteger<'_>) -> String {
    let value = i128::from_str_radix(number.as_str(), number.radix());
    value.map_or_else(|_| number.to_string(), |value| value.to_string())
}

/// Where a setting stands.
#[derive(Clone)]
struct Found {
    setting: &'static Setting,
    given: Option<String>,
    place: String,
}

impl Found {
    fn is(&mut self, text: String, place: String) {
        (self.given, self.place) = (Some(text), place);
    }

    fn text(&self) -> Option<&str> {
        self.given.as_deref().or(self.setting.default)
    }

    fn problem(&self, key: &str, why: &str) -> String {
        let place = &self.place;
        match self.text() {
            Some(text) if !self.setting.is_secret => format!("{place}: {key} is \"{text}\": {why}"),
            Some(_) | None => format!("{place}: {key}: {why}"),
        }
    }
}

/// The settings in force. The keys that are asked for must be in the tables.
#[derive(Clone)]
pub struct Values(BTreeMap<&'static str, Found>);

impl fmt::Debug for Values {
    /// Without the values: there may be secrets among them.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.0.keys()).finish()
    }
}

impl Values {
    /// Nobody has said anything.
    pub fn defaults(tables: Tables) -> Self {
        let place = || "default".to_owned();
        let found = |setting| Found { setting, given: None, place: place() };
        Self(all(tables).map(|setting| (setting.key, found(setting))).collect())
    }

    /// The settings that somebody said.
    pub(super) fn given_keys(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().filter(|(_, found)| found.given.is_some()).map(|(key, _)| *key)
    }

    /// As if nobody had said it.
    pub(super) fn forget(&mut self, key: &str) {
        if let Some(found) = self.0.get_mut(key) {
            found.given = None;
        }
    }

    /// Takes a setting as `from` has it, if both know it.
    pub(super) fn take(&mut self, from: &Self, key: &str) {
        if let Some((found, of_other)) = self.0.get_mut(key).zip(from.0.get(key)) {
            found.clone_from(of_other);
        }
    }

    fn found(&self, key: &str) -> &Found {
        self.0.get(key).expect("the tables have a row for each key that is asked for")
    }

    /// What somebody said, as it was written.
    pub fn given(&self, key: &str) -> Option<&str> {
        self.found(key).given.as_deref()
    }

    /// What holds. `None`: nothing, or the word for it.
    pub fn text(&self, key: &str) -> Option<&str> {
        let found = self.found(key);
        found.text().filter(|text| found.setting.word != Some(text))
    }

    /// What holds, of a setting that always has a value.
    pub fn words(&self, key: &str) -> String {
        self.text(key).expect("it has a default").to_owned()
    }

    /// A number of things or of bytes; `None` as in [`text`](Self::text).
    pub fn count<T: TryFrom<u64>>(&self, key: &str) -> Option<T> {
        let count = self.text(key).and_then(bytes)?;
        Some(T::try_from(count).ok().expect("the setting's bounds fit its type"))
    }

    /// The same, of a setting that always has a value.
    pub fn number<T: TryFrom<u64>>(&self, key: &str) -> T {
        self.count(key).expect("it has a default that is a number")
    }

    /// A length of time.
    pub fn time(&self, key: &str) -> Duration {
        duration(&self.words(key)).expect("it was checked, or is the default")
    }

    /// Whether a switch is on.
    pub fn is_on(&self, key: &str) -> bool {
        self.text(key) == Some("true")
    }

    /// What somebody said, parsed by whoever knows how.
    pub fn parsed<T: FromStr<Err: fmt::Display>>(
        &self,
        key: &str,
        problems: &mut Vec<String>,
    ) -> Option<T> {
        let parsed = self.given(key)?.parse::<T>();
        parsed.map_err(|error| problems.push(self.problem(key, &error.to_string()))).ok()
    }

    /// What is wrong with a setting, with its place and what it is.
    pub fn problem(&self, key: &str, why: &str) -> String {
        self.found(key).problem(key, why)
    }

    /// Where a setting was said.
    pub fn place(&self, key: &str) -> &str {
        &self.found(key).place
    }

    /// The settings that are otherwise in `other`, in the order of their keys.
    pub fn differences<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'static Setting> {
        let differs = |found: &&Found| found.text() != other.found(found.setting.key).text();
        self.0.values().filter(differs).map(|found| found.setting)
    }
}
