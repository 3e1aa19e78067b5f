//! What the server says is wrong, read for a terminal. The server judges: `GET /api/millrace/problems`.

use serde_json::{Value, json};

use crate::table::shown;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    Warning,
    Critical,
}

impl Severity {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// Something that is wrong. Both sentences may go to a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) severity: Severity,
    pub(crate) what: String,
    pub(crate) remedy: String,
    /// Milliseconds since 1970.
    pub(crate) since_ms: Option<u64>,
}

impl Problem {
    pub(crate) fn as_json(&self) -> Value {
        json!({
            "severity": self.severity.word(),
            "what": self.what,
            "remedy": self.remedy,
            "since": self.since_ms,
        })
    }
}

/// All that is wrong, the worst first. `None`: the server does not say.
pub(crate) fn problems(told: Option<&Value>) -> Vec<Problem> {
    let Some(told) = told else {
        return vec![warning(
            "this server does not say what is wrong with it: it is another one, or runs an older program",
            "look at `millrace check` and at its log",
        )];
    };
    let listed = told["problems"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut problems: Vec<Problem> = listed.iter().map(read).collect();
    let silent = told["silent"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !silent.is_empty() {
        let names: Vec<String> =
            silent.iter().map(|name| shown(name.as_str().unwrap_or("a node"))).collect();
        problems.push(warning(
            &format!("{} did not say in time what is wrong there", names.join(", ")),
            "ask again; a node that runs an older program does not know the question",
        ));
    }
    if let Some(count) = told["left_out"].as_u64().filter(|count| *count > 0) {
        problems.push(warning(
            &format!("{count} more queues have problems like these"),
            "`millrace queues --sort messages_ready --reverse --limit 20` shows the fullest",
        ));
    }
    problems.sort_by_key(|problem| std::cmp::Reverse(problem.severity));
    problems
}

fn read(problem: &Value) -> Problem {
    let text = |field: &str| shown(problem[field].as_str().unwrap_or("-"));
    // A severity that is not known yet is no reason to be calm.
    let severity = match problem["severity"].as_str() {
        Some("warning") => Severity::Warning,
        Some(_) | None => Severity::Critical,
    };
    let since_ms = problem["since"].as_u64();
    Problem { severity, what: text("what"), remedy: text("remedy"), since_ms }
}

fn warning(what: &str, remedy: &str) -> Problem {
    Problem {
        severity: Severity::Warning,
        what: what.to_owned(),
        remedy: remedy.to_owned(),
        since_ms: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_well_has_no_problems() {
        let told = json!({ "verdict": "ok", "problems": [], "left_out": 0, "silent": [] });
        assert_eq!(problems(Some(&told)), []);
    }

    #[test]
    fn the_worst_comes_first_and_nothing_acts_on_the_terminal() {
        let told = json!({
            "problems": [
                { "severity": "warning", "what": "a\u{1b}b waits", "remedy": "wait", "since": 7 },
                { "severity": "critical", "what": "it burns", "remedy": "run" },
            ],
            "silent": ["millrace@3"],
            "left_out": 4,
        });
        let found = problems(Some(&told));
        let words: Vec<&str> = found.iter().map(|problem| problem.what.as_str()).collect();
        let silent = "millrace@3 did not say in time what is wrong there";
        let more = "4 more queues have problems like these";
        assert_eq!(words, ["it burns", "a\\u{1b}b waits", silent, more]);
        assert_eq!((found[0].severity, found[1].since_ms), (Severity::Critical, Some(7)));
    }

    #[test]
    fn a_server_that_does_not_say_is_not_well() {
        assert_eq!(problems(None).len(), 1);
    }
}
