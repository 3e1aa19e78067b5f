//! A file with parts: tables `[KEY.NAME]` whose settings are otherwise those of the file's top.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};

use super::load::{Said, Tables, Values, check, parse, read_table, read_variables_and_flags};

/// Which parts a file may have.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// The table that holds them.
    pub key: &'static str,
    /// What a part may set. The whole knows these, too.
    pub tables: Tables<'static>,
    /// As many as there may be.
    pub count_max: usize,
    /// Bytes of a name.
    pub name_bytes_max: usize,
    /// Settings that stand for each other: whoever says one of them does not inherit the others.
    pub instead: &'static [&'static [&'static str]],
}

/// What was read.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub whole: Values,
    /// By their names. `None`: the file does not speak of parts.
    pub parts: Option<BTreeMap<String, Values>>,
    pub problems: Vec<String>,
}

/// Reads the settings and those of the parts. The command line wins over a part, a part over the environment, and that over
/// the top of the file.
pub fn load_with_parts(tables: Tables, parts: &Parts, said: Said) -> Loaded {
    let mut problems = Vec::new();
    let mut whole = Values::defaults(tables);
    let file = said.file.unwrap_or_default();
    let mut sections = None;
    match parse(file) {
        Ok(mut table) => {
            sections = table.remove(parts.key);
            read_table(tables, file, table, &mut whole, &mut problems);
        }
        Err(problem) => problems.push(problem),
    }
    read_variables_and_flags(tables, said, &mut whole);
    check(tables, &mut whole, &mut problems);
    let reading = Reading { parts, said, file, whole: &whole };
    let parts = sections.map(|it| reading.sections(it.into_inner(), &mut problems));
    Loaded { whole, parts, problems }
}

struct Reading<'a> {
    parts: &'a Parts,
    said: Said<'a>,
    file: (&'a str, &'a str),
    whole: &'a Values,
}

impl Reading<'_> {
    fn sections(&self, value: DeValue, problems: &mut Vec<String>) -> BTreeMap<String, Values> {
        let (name, key, most) = (self.file.0, self.parts.key, self.parts.count_max);
        let sections = match value {
            DeValue::Table(sections) => sections,
            other => {
                problems.push(format!(
                    "{name}: {key} is of type {}: each part is a table with a name, as [{key}.orders]",
                    other.type_str()
                ));
                return BTreeMap::new();
            }
        };
        if sections.is_empty() || sections.len() > most {
            problems.push(format!(
                "{name}: there are {} tables [{key}.NAME]: there must be 1 to {most}, or {key} is left out",
                sections.len()
            ));
        }
        let mut read = BTreeMap::new();
        for (part, value) in sections {
            let part = part.into_inner();
            let values = self.section(&part, value.into_inner());
            let values = values.map_err(|why| {
                problems.extend(why.into_iter().map(|why| format!("{key}.{part}: {why}")));
            });
            if let Ok(values) = values {
                read.insert(part.into_owned(), values);
            }
        }
        read
    }

    fn section(&self, name: &str, value: DeValue) -> Result<Values, Vec<String>> {
        check_name(name, self.parts.name_bytes_max)
            .map_err(|why| vec![format!("{}: {why}", self.file.0)])?;
        let DeValue::Table(section) = value else {
            return Err(vec![format!("{}: it must be a table", self.file.0)]);
        };
        self.values(section)
    }

    fn values(&self, section: DeTable) -> Result<Values, Vec<String>> {
        let mut problems = Vec::new();
        let mut own = Values::defaults(self.parts.tables);
        read_table(self.parts.tables, self.file, section, &mut own, &mut problems);
        check(self.parts.tables, &mut own, &mut problems);
        let mut values = self.whole.clone();
        let of_file: Vec<&'static str> = own.given_keys().collect();
        self.lay(&mut values, &own, &of_file);
        let of_flags: Vec<&'static str> = self.said.flags.iter().map(|flag| flag.key()).collect();
        self.lay(&mut values, self.whole, &of_flags);
        if problems.is_empty() { Ok(values) } else { Err(problems) }
    }

    /// Lays what `from` has under these keys over `values`.
    fn lay(&self, values: &mut Values, from: &Values, keys: &[&'static str]) {
        for instead in self.parts.instead {
            if instead.iter().any(|key| keys.contains(key)) {
                instead.iter().for_each(|key| values.forget(key));
            }
        }
        keys.iter().for_each(|key| values.take(from, key));
    }
}

/// A name goes into the names of other things, and into paths: it is short and plain.
fn check_name(name: &str, bytes_max: usize) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
    if begins && name.chars().all(is_plain) && name.len() <= bytes_max {
        return Ok(());
    }
    Err(format!(
        "this name cannot be used: a name is 1 to {bytes_max} characters long, a letter (a to z) first, then letters, \
         digits and _"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Flag, Kind, setting};

    crate::settings! {
        const PART in None;
        /// Rows of one batch
        batch: Kind::Count(1..=100, "rows"), default("10"), flag;
        /// Where the rows are
        place: Kind::Any("URL"), otherwise("nowhere"), flag, variable("PLACE");
        /// The file that says it
        place_file: Kind::Any("FILE"), otherwise("none"), flag, variable("PLACE_FILE");
    }
    crate::settings! {
        const WHOLE in None;
        /// Whether to say so
        json: Kind::Switch, default("false"), flag;
    }
    const PARTS: Parts = Parts {
        key: "sources",
        tables: &[PART],
        count_max: 3,
        name_bytes_max: 6,
        instead: &[&["place", "place_file"]],
    };

    fn read(file: &str, variables: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Loaded {
        let variables: BTreeMap<String, String> =
            variables.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        let flag = |(key, text): &(&str, &str)| Flag::named(setting(PART, key), (*text).to_owned());
        let flags: Vec<Flag> = flags.iter().map(flag).collect();
        let said = Said { file: Some(("t.toml", file)), variables: &variables, flags: &flags };
        load_with_parts(&[PART, WHOLE], &PARTS, said)
    }

    /// What a part has, where nothing is wrong.
    fn part(loaded: &Loaded, name: &str) -> (u32, Option<String>, Option<String>) {
        assert_eq!(loaded.problems, Vec::<String>::new());
        let values = &loaded.parts.as_ref().expect("there are parts")[name];
        let text = |key| values.given(key).map(str::to_owned);
        (values.number("batch"), text("place"), text("place_file"))
    }

    #[test]
    fn a_part_has_its_own_settings_and_otherwise_those_of_the_top() {
        let file = "batch = 2\nplace = \"top\"\n[sources.a]\nbatch = 3\n[sources.b]\nplace = \"b\"";
        let loaded = read(file, &[], &[]);
        assert_eq!(part(&loaded, "a"), (3, Some("top".into()), None));
        assert_eq!(part(&loaded, "b"), (2, Some("b".into()), None));
        assert_eq!(loaded.whole.number::<u32>("batch"), 2);
        assert!(read("batch = 2", &[], &[]).parts.is_none());
    }

    #[test]
    fn a_flag_wins_over_a_part_and_that_over_the_environment() {
        let file = "[sources.a]\nplace = \"a\"\n[sources.b]\n";
        let loaded = read(file, &[("PLACE", "env")], &[]);
        assert_eq!(part(&loaded, "a").1.as_deref(), Some("a"));
        assert_eq!(part(&loaded, "b").1.as_deref(), Some("env"));
        let loaded = read(file, &[("PLACE", "env")], &[("place", "flag")]);
        assert_eq!(part(&loaded, "a").1.as_deref(), Some("flag"));
    }

    #[test]
    fn whoever_says_one_of_two_does_not_inherit_the_other() {
        let file = "place = \"top\"\n[sources.a]\nplace_file = \"f\"\n";
        assert_eq!(part(&read(file, &[], &[]), "a"), (10, None, Some("f".into())));
        let loaded = read("[sources.a]\nplace = \"a\"\n", &[], &[("place_file", "f")]);
        assert_eq!(part(&loaded, "a"), (10, None, Some("f".into())));
    }

    #[test]
    fn what_is_wrong_is_told_with_the_name_of_its_part_and_its_line() {
        let file = "batch = 0\n[sources.a]\nbatch = 101\n[sources.b]\njson = true\n[sources.A]\n";
        let problems = read(file, &[], &[]).problems.join("\n");
        for words in [
            "t.toml:1: batch is \"0\"",
            "sources.a: t.toml:3: batch is \"101\": it must be",
            "sources.b: t.toml:5: there is no setting json",
            "sources.A: t.toml: this name cannot be used",
        ] {
            assert!(problems.contains(words), "{words} is not in {problems}");
        }
    }

    #[test]
    fn names_are_plain_and_there_are_one_to_as_many_as_may_be() {
        for name in ["a", "a_1", "abcdef"] {
            assert_eq!(read(&format!("[sources.{name}]"), &[], &[]).problems.len(), 0, "{name}");
        }
        for name in ["1", "_a", "a-b", "abcdefg", "\"\"", "\"a.b\"", "\"ä\"", "\"a/b\""] {
            assert_eq!(read(&format!("[sources.{name}]"), &[], &[]).problems.len(), 1, "{name}");
        }
        let of =
            |count: usize| (0..count).map(|at| format!("[sources.s{at}]\n")).collect::<String>();
        assert_eq!(read(&of(3), &[], &[]).problems.len(), 0);
        for file in [of(4), "[sources]".into(), "sources = 1".into(), "sources.a = 1".into()] {
            assert_eq!(read(&file, &[], &[]).problems.len(), 1, "{file}");
        }
        assert_eq!(read("[sources.a]\n[sources.a]\n", &[], &[]).problems.len(), 1, "twice");
    }
}
