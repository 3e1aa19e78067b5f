//! A TOML document that is read table by table, and collects what is wrong with it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::Problem;

/// Problems of one table that are told at most.
const PROBLEMS_MAX: usize = 32;

/// A document.
pub(super) struct Document<'a> {
    text: &'a str,
    root: DeTable<'a>,
    problems: Vec<(usize, Problem)>,
    asked: BTreeSet<String>,
}

/// A table of it.
#[derive(Clone)]
pub(super) struct Table<'a> {
    pub(super) path: String,
    span: Range<usize>,
    table: DeTable<'a>,
    /// Keys that a variable of the environment replaced, and its name.
    replaced: Vec<(String, String)>,
}

impl Default for Table<'_> {
    fn default() -> Self {
        let (path, span) = ("worker".to_owned(), 0..0);
        Self { path, span, table: DeTable::new(), replaced: Vec::new() }
    }
}

impl<'a> Table<'a> {
    /// Sets a key to what a variable says: a string, as all of these keys are.
    pub(super) fn set(&mut self, key: &str, value: &str, variable: &str) {
        self.replaced.push((key.to_owned(), variable.to_owned()));
        let value = DeValue::String(Cow::Owned(value.to_owned()));
        self.table.remove(key);
        let key = Cow::Owned(key.to_owned());
        self.table
            .insert(Spanned::new(self.span.clone(), key), Spanned::new(self.span.clone(), value));
    }

    /// The text of a key, taken out.
    pub(super) fn take_text(&mut self, key: &str) -> Option<String> {
        let text = self.text(key)?.to_owned();
        self.table.remove(key);
        Some(text)
    }

    /// The text of a key.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.table.get(key)?.get_ref().as_str()
    }

    /// Where a key and its value stand.
    fn place(&self, key: &str) -> Option<Range<usize>> {
        self.table.get_key_value(key).map(|(key, _)| key.span())
    }
}

impl<'a> Document<'a> {
    /// Reads the syntax. What is wrong with it is a problem, and the rest is read all the same.
    pub(super) fn parse(text: &'a str) -> Self {
        let (root, errors) = DeTable::parse_recoverable(text);
        let root = root.into_inner();
        let mut document = Self { text, root, problems: Vec::new(), asked: BTreeSet::new() };
        for error in errors.iter().take(PROBLEMS_MAX) {
            let at = error.span().map_or(0, |span| span.start);
            document.problem(at, "", error.message());
        }
        document
    }

    /// The problems, in the order of the text.
    pub(super) fn into_problems(mut self) -> Vec<Problem> {
        self.problems.sort_by_key(|(at, _)| *at);
        self.problems.dedup();
        self.problems.into_iter().map(|(_, problem)| problem).collect()
    }

    fn problem(&mut self, at: usize, path: &str, what: &str) {
        let before = &self.text[..self.text.floor_char_boundary(at)];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        let what = what.trim_end().replace('\n', "; ");
        self.problems.push((at, Problem { line, column, path: path.to_owned(), what }));
    }

    /// `[key]`.
    pub(super) fn table(&mut self, key: &str) -> Option<Table<'a>> {
        self.asked.insert(key.to_owned());
        let value = self.root.get(key)?.clone();
        self.as_table(key.to_owned(), value)
    }

    /// `[key.NAME]`, all of them.
    pub(super) fn tables(&mut self, key: &str) -> Vec<(String, Table<'a>)> {
        let Some(all) = self.table(key) else { return Vec::new() };
        let tables = all.table.into_iter().filter_map(|(name, value)| {
            let name = name.into_inner().into_owned();
            let table = self.as_table(format!("{key}.{name}"), value)?;
            Some((name, table))
        });
        tables.collect()
    }

    /// `[[key]]`, all of them.
    pub(super) fn list(&mut self, key: &str) -> Vec<Table<'a>> {
        self.asked.insert(key.to_owned());
        let Some(value) = self.root.get(key).cloned() else { return Vec::new() };
        let at = value.span().start;
        let DeValue::Array(list) = value.into_inner() else {
            self.problem(at, key, &format!("it is a list: write [[{key}]]"));
            return Vec::new();
        };
        let values = list.into_iter().enumerate();
        values.filter_map(|(n, value)| self.as_table(format!("{key}[{}]", n + 1), value)).collect()
    }

    /// A table within a table, taken out.
    pub(super) fn inner(&mut self, table: &mut Table<'a>, key: &str) -> Option<Table<'a>> {
        let value = table.table.remove(key)?;
        self.as_table(format!("{}.{key}", table.path), value)
    }

    /// Whether there is `[key.NAME]`.
    pub(super) fn has(&self, key: &str, name: &str) -> bool {
        let tables = self.root.get(key).and_then(|value| value.get_ref().as_table());
        tables.is_some_and(|tables| tables.contains_key(name))
    }

    fn as_table(&mut self, path: String, value: Spanned<DeValue<'a>>) -> Option<Table<'a>> {
        let span = value.span();
        match value.into_inner() {
            DeValue::Table(table) => Some(Table { path, span, table, replaced: Vec::new() }),
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_) => {
                self.problem(span.start, &path, &format!("it is a table: write [{path}]"));
                None
            }
        }
    }

    /// The settings of a table. Each key that is wrong is told, and left out for the sake of the others.
    pub(super) fn read<T: DeserializeOwned>(&mut self, table: &Table<'a>) -> Option<T> {
        let mut rest = table.table.clone();
        let mut is_whole = true;
        for _ in 0..PROBLEMS_MAX {
            let whole = Spanned::new(table.span.clone(), rest.clone());
            let error = match T::deserialize(Deserializer::from(whole)) {
                Ok(value) => return is_whole.then_some(value),
                Err(error) => error,
            };
            is_whole = false;
            let span = error.span().unwrap_or_else(|| table.span.clone());
            let guilty = rest.iter().find_map(|(key, value)| {
                let is_here = |part: Range<usize>| part.contains(&span.start) && span != table.span;
                (is_here(key.span()) || is_here(value.span())).then(|| key.get_ref().to_string())
            });
            let guilty = guilty.or_else(|| replaced(table, &rest));
            let what = without_values(error.message());
            let Some(key) = guilty else {
                self.problem(span.start, &table.path, &what);
                return None;
            };
            let path = format!("{}.{key}", table.path);
            let variable = table.replaced.iter().find(|(replaced, _)| *replaced == key);
            let what = match variable {
                Some((_, variable)) => format!("{what} (from the variable {variable})"),
                None => what,
            };
            self.problem(span.start, &path, &what);
            rest.remove(key.as_str());
        }
        None
    }

    /// What somebody found wrong with a table. A sentence that begins with a key is about that key.
    pub(super) fn judge(&mut self, table: &Table<'a>, sentences: Vec<String>) {
        for sentence in sentences {
            let word = sentence.split([' ', ':', '.', '`']).find(|word| !word.is_empty());
            let word = word.unwrap_or_default();
            match table.place(word) {
                Some(place) => {
                    let path = format!("{}.{word}", table.path);
                    let what = sentence.strip_prefix(word).unwrap_or(&sentence);
                    self.problem(place.start, &path, what.trim_start_matches([':', ' ']));
                }
                None => self.problem(table.span.start, &table.path, &sentence),
            }
        }
    }

    /// A problem that stands nowhere.
    pub(super) fn refuse(&mut self, path: &str, what: &str) {
        self.problem(0, path, what);
    }

    /// Tables and keys that nobody has asked for.
    pub(super) fn refuse_others(&mut self) {
        let known: Vec<String> = self.asked.iter().cloned().collect();
        let unknown: Vec<(usize, String)> = self
            .root
            .keys()
            .filter(|key| !self.asked.contains(key.get_ref().as_ref()))
            .map(|key| (key.span().start, key.get_ref().to_string()))
            .collect();
        for (at, key) in unknown {
            let what = format!("there is no such table; there are: {}", known.join(", "));
            self.problem(at, &key, &what);
        }
    }
}

/// A replaced key that is still there: its value has no place of its own.
fn replaced(table: &Table, rest: &DeTable) -> Option<String> {
    let mut keys = table.replaced.iter().map(|(key, _)| key);
    keys.find(|key| rest.contains_key(key.as_str())).cloned()
}

/// What serde says, without the text of a value: it may be a secret in the wrong place.
fn without_values(message: &str) -> String {
    let Some((before, rest)) = message.split_once("string \"") else { return message.to_owned() };
    match rest.rfind("\", expected") {
        Some(end) => format!("{before}string{}", &rest[end + 1..]),
        None => message.to_owned(),
    }
}
