//! Suites and parts of suites, each on a broker and in a network of its own, several at a time.
//!
//! In networks of their own all of them have port 5672, and no part sees what another leaves. The
//! command inside leaves what it was told in a file for the one outside.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::suite::{Case, Pace, Suite, Verdict};
use super::{Options, SUITES};
use crate::brokers::Build;
use crate::lanes::in_lanes;
use crate::{Outcome, namespace};

/// How many parts run at a time on Millrace: they wait more than they work, for what is not to come.
const LANES: usize = 4;
/// What RabbitMQ does is written down as the truth: it is not to depend on how busy the machine is.
const REFERENCE_LANES: usize = 1;
/// What a part was told, in its folder.
const TOLD: &str = "told.txt";

/// What runs on one broker.
pub(super) struct Part {
    pub(super) suite: &'static Suite,
    /// Empty for the whole suite.
    pub(super) name: String,
}

/// What a suite told, or why it could not.
pub(super) type Told = Result<Vec<Case>, String>;

impl Part {
    /// Where it writes, below the folder of all.
    pub(super) fn folder(&self, all: &Path) -> PathBuf {
        let folder = all.join(self.suite.name);
        if self.name.is_empty() { folder } else { folder.join(&self.name) }
    }

    fn title(&self) -> String {
        format!("{} {} {}", self.suite.name, self.suite.version, self.name).trim_end().to_string()
    }
}

/// The parts that are asked for: the longest first, and at the end those that want to be alone.
pub(super) fn wanted(options: &Options) -> Result<Vec<Part>, String> {
    let is_wanted = |suite: &&Suite| {
        options.clients.is_empty() || options.clients.iter().any(|name| name == suite.name)
    };
    let mut parts = Vec::new();
    for suite in SUITES.iter().filter(is_wanted) {
        let names = (suite.parts)()?.into_iter();
        let names = names.filter(|name| options.part.as_ref().is_none_or(|part| part == name));
        parts.extend(names.map(|name| Part { suite, name }));
    }
    parts.sort_by_key(|part| match part.suite.pace {
        Pace::Seconds(seconds) => (false, std::cmp::Reverse(seconds)),
        Pace::Alone => (true, std::cmp::Reverse(0)),
    });
    Ok(parts)
}

/// Runs all parts by `run`, and gives back what each suite told.
pub(super) fn run_all(
    parts: &[Part],
    is_reference: bool,
    run: impl Fn(&Part) -> Told + Sync,
) -> BTreeMap<&'static str, Told> {
    let lanes = if is_reference { REFERENCE_LANES } else { LANES };
    let timed = |part: &Part| {
        let begin = Instant::now();
        let told = run(part);
        let count = told.as_ref().map_or(0, Vec::len);
        println!("-- {}: {count} cases in {:.0} s", part.title(), begin.elapsed().as_secs_f64());
        (part.suite.name, told)
    };
    let alone = parts.partition_point(|part| part.suite.pace != Pace::Alone);
    let together = in_lanes(&parts[..alone], lanes, timed);
    let mut suites: BTreeMap<&'static str, Told> = BTreeMap::new();
    for (name, told) in together.into_iter().chain(in_lanes(&parts[alone..], 1, timed)) {
        let before = suites.entry(name).or_insert(Ok(Vec::new()));
        match (before, told) {
            (Ok(cases), Ok(more)) => cases.extend(more),
            (before @ Ok(_), Err(trouble)) => *before = Err(trouble),
            (Err(_), _) => {}
        }
    }
    suites
}

/// Runs a part in a network of its own, by this program started again in it.
pub(super) fn run_inside(part: &Part, options: &Options, all: &Path) -> Told {
    let path = part.folder(all).join(TOLD);
    let _ = std::fs::remove_file(&path);
    let mut words = vec!["conformance", part.suite.name, "--part", &part.name];
    words.extend(options.is_reference.then_some("--reference"));
    words.extend(options.is_bless.then_some("--bless"));
    words.extend((options.build == Build::Tested).then_some("--tested"));
    let outcome = namespace::run_inside(&words);
    match std::fs::read_to_string(&path) {
        Ok(text) => read(&text),
        // It did not get that far.
        Err(error) => Err(outcome.err().unwrap_or(format!("{}: {error}", path.display()))),
    }
}

/// Leaves what a part told for the command outside.
pub(super) fn leave(part: &Part, all: &Path, told: &Told) -> Outcome {
    let folder = part.folder(all);
    let path = folder.join(TOLD);
    // A part that could not even begin has no folder.
    let written =
        std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, write(told)));
    written.map_err(|error| format!("{}: {error}", path.display()))
}

/// A line for each case: verdict, name, note; or the trouble.
fn write(told: &Told) -> String {
    let line = |text: &str| text.replace(['\n', '\t'], " ");
    match told {
        Err(trouble) => format!("trouble\t{}\n", line(trouble)),
        Ok(cases) => {
            let words = |case: &Case| {
                format!("{}\t{}\t{}\n", word(case.verdict), line(&case.name), line(&case.note))
            };
            cases.iter().map(words).collect()
        }
    }
}

fn read(text: &str) -> Told {
    let mut cases = Vec::new();
    for line in text.lines() {
        let mut words = line.splitn(3, '\t');
        let [verdict, name, note] = [(); 3].map(|()| words.next().unwrap_or_default());
        let verdicts = [Verdict::Passed, Verdict::Skipped, Verdict::Failed];
        match verdicts.into_iter().find(|known| word(*known) == verdict) {
            Some(verdict) => cases.push(Case { name: name.into(), verdict, note: note.into() }),
            None => return Err(name.into()),
        }
    }
    Ok(cases)
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Passed => "passed",
        Verdict::Skipped => "skipped",
        Verdict::Failed => "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(name: &str, verdict: Verdict, note: &str) -> Case {
        Case { name: name.into(), verdict, note: note.into() }
    }

    #[test]
    fn what_was_told_inside_is_read_outside() {
        let cases =
            vec![case("a b[x]", Verdict::Passed, ""), case("c", Verdict::Failed, "1 not 2: why")];
        assert_eq!(read(&write(&Ok(cases.clone()))), Ok(cases));
        let trouble: Told = Err("the broker died: see its log".into());
        assert_eq!(read(&write(&trouble)), trouble);
        assert_eq!(read(&write(&Ok(Vec::new()))), Ok(Vec::new()));
    }

    #[test]
    fn a_note_of_several_lines_is_no_second_case() {
        let told = Ok(vec![case("a", Verdict::Failed, "one\npassed\tb\t")]);
        let expected = vec![case("a", Verdict::Failed, "one passed b ")];
        assert_eq!(read(&write(&told)), Ok(expected));
    }

    #[test]
    fn a_suite_has_the_cases_of_all_its_parts_and_the_trouble_of_any() {
        let options = Options::default();
        let mut parts = wanted(&options).expect("the repository is here");
        assert!(parts.last().is_some_and(|part| part.suite.pace == Pace::Alone));
        parts.retain(|part| part.suite.name == "answers");
        assert!(parts.len() > 1, "the conversations are in several files");
        let each = |part: &Part| Ok(vec![case(&part.name, Verdict::Passed, "")]);
        let told = run_all(&parts, false, each);
        assert_eq!(told["answers"].as_ref().map(Vec::len), Ok(parts.len()));
        let one_fails = |part: &Part| match part.name.as_str() {
            "expiry" => Err("it died".to_string()),
            _ => each(part),
        };
        assert_eq!(run_all(&parts, true, one_fails)["answers"], Err("it died".to_string()));
    }
}
