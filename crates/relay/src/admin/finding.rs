//! What a check found, as data; and how it is shown.

use std::fmt;

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    Ok,
    /// It works, and will cost something or fail under some condition.
    Warn,
    /// It does not work, or loses something.
    Fail,
}

impl fmt::Display for Grade {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::Ok => "OK",
            Self::Warn => "WARN",
            Self::Fail => "FAIL",
        })
    }
}

/// One finding of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check's name, as the runbook in `docs/relay.md` has it.
    pub check: &'static str,
    pub grade: Grade,
    /// What is so.
    pub what: String,
    /// What to do now. None: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    /// All is well with it.
    pub fn ok(check: &'static str, what: impl Into<String>) -> Self {
        Self { check, grade: Grade::Ok, what: what.into(), advice: None }
    }

    /// It works, for now.
    pub fn warn(check: &'static str, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, grade: Grade::Warn, what: what.into(), advice: Some(advice.into()) }
    }

    /// It does not work.
    pub fn fail(check: &'static str, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, grade: Grade::Fail, what: what.into(), advice: Some(advice.into()) }
    }
}

/// All findings of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    pub findings: Vec<Finding>,
}

impl Report {
    /// The worst of them.
    pub fn grade(&self) -> Grade {
        self.findings.iter().map(|finding| finding.grade).max().unwrap_or(Grade::Ok)
    }

    /// How many have this grade.
    pub fn count(&self, grade: Grade) -> usize {
        self.findings.iter().filter(|finding| finding.grade == grade).count()
    }

    /// Findings of the check `name`.
    pub fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Finding> {
        self.findings.iter().filter(move |finding| finding.check == name)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Finding { check, grade, what, advice } in &self.findings {
            writeln!(out, "{grade:<4}  {check:<16} {what}")?;
            if let Some(advice) = advice {
                for line in advice.lines() {
                    writeln!(out, "{:24}{line}", "")?;
                }
            }
        }
        let (warn, fail) = (self.count(Grade::Warn), self.count(Grade::Fail));
        writeln!(out, "{} checks, {warn} warnings, {fail} failures", self.findings.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_as_bad_as_its_worst_finding() {
        let mut report = Report::default();
        assert_eq!(report.grade(), Grade::Ok);
        report.findings.push(Finding::warn("index", "none", "make one"));
        report.findings.push(Finding::ok("clock", "the same"));
        assert_eq!(report.grade(), Grade::Warn);
        let text = report.to_string();
        assert!(
            text.contains("WARN  index            none\n                        make one\n"),
            "{text}"
        );
        assert!(text.ends_with("2 checks, 1 warnings, 0 failures\n"), "{text}");
    }
}
