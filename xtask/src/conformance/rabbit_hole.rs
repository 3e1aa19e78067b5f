//! rabbit-hole: the HTTP API's client for Go, on which RabbitMQ's Terraform provider stands, with its own specs.

use std::path::{Path, PathBuf};

use super::go::{download, fetch_go};
use super::own_copy::place;
use super::suite::{Case, Installer, Judge, Pace, Suite, Target, Verdict, record, whole};
use crate::Outcome;
use crate::process::{command, root, run_logged, tools};

const VERSION: &str = "2.12.0";

pub(super) const RABBIT_HOLE: Suite = Suite {
    name: "rabbit-hole",
    version: VERSION,
    is_installed: || binary().exists(),
    install,
    installer: Installer::Go,
    run,
    parts: whole,
    judge: Judge::RabbitMq,
    pace: Pace::Seconds(90),
    wants_port_5672: true,
};

fn source() -> PathBuf {
    tools().join("src").join(format!("rabbit-hole-{VERSION}"))
}

fn binary() -> PathBuf {
    source().join("rabbit-hole.test")
}

/// The specs wait after each change. How long is said by our own beginning of the suite.
const PAUSE: &str = "s/time.Sleep(5000 \\* time.Millisecond)/time.Sleep(eventPropagation())/";

fn install(log: &Path) -> Outcome {
    let go = fetch_go(log)?;
    let folder = download(&go, &format!("github.com/michaelklishin/rabbit-hole/v2@v{VERSION}"))?;
    let _ = std::fs::remove_dir_all(source());
    place(Path::new(&folder), &source(), log)?;
    let beginning = root().join("conformance/rabbit-hole/rabbithole_suite_test.go");
    run_logged(command("cp", &[]).args([beginning, source()]), log)?;
    let mut shorten = command("sed", &["-i", PAUSE, "rabbithole_test.go"]);
    run_logged(shorten.current_dir(source()), log)?;
    let mut build = command(&go, &["test", "-c", "-o", "rabbit-hole.test", "."]);
    run_logged(build.current_dir(source()).env("GOTOOLCHAIN", "local"), log)
}

fn run(target: &Target) -> Result<Vec<Case>, String> {
    let verdicts = target.folder.join("verdicts.xml");
    let is_rabbitmq = !target.control.is_empty();
    let mut test = target.command(900, binary());
    test.current_dir(source()).args([
        "-test.timeout",
        "840s",
        "-ginkgo.noColor",
        "-ginkgo.seed",
        "1",
    ]);
    if !target.skips.is_empty() {
        test.args(["-ginkgo.skip", &pattern(&target.skips)]);
    }
    test.env("VERDICTS", &verdicts);
    test.env("EVENT_PROPAGATION", if is_rabbitmq { "5s" } else { "1s" });
    // The status says whether a spec failed, which the verdicts say better.
    let outcome = run_logged(&mut test, &target.log());
    match std::fs::read_to_string(&verdicts) {
        Ok(text) => Ok(cases(&text)),
        Err(error) => outcome.and(Err(format!("{}: {error}", verdicts.display()))),
    }
}

/// Names have braces and slashes. Before a name ginkgo puts that of the suite.
fn pattern(names: &[String]) -> String {
    let quoted = |name: &String| {
        let mut quoted = String::new();
        for c in name.chars() {
            if !c.is_alphanumeric() && c != ' ' && c != '/' {
                quoted.push('\\');
            }
            quoted.push(c);
        }
        quoted + "$"
    };
    names.iter().map(quoted).collect::<Vec<_>>().join("|")
}

/// Reads what ginkgo writes in JUnit's form, of which it writes one attribute of a case after the other.
fn cases(xml: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for case in xml.split("<testcase ").skip(1) {
        let case = case.split("</testcase>").next().unwrap_or(case);
        let Some(name) = case.split("name=\"").nth(1).and_then(|rest| rest.split('"').next())
        else {
            continue;
        };
        let verdict = if case.contains("<failure") {
            Verdict::Failed
        } else if case.contains("<skipped") {
            Verdict::Skipped
        } else {
            Verdict::Passed
        };
        let note = case.split("<failure").nth(1).and_then(|rest| rest.split_once('>'));
        let note = note.and_then(|(_, text)| text.split('<').next()).unwrap_or_default();
        let note: String = plain(note).chars().take(300).collect();
        record(&mut cases, &plain(name), verdict, &note);
    }
    cases
}

fn plain(text: &str) -> String {
    let marks = [("&lt;", "<"), ("&gt;", ">"), ("&#34;", "\""), ("&#39;", "'"), ("&#xA;", " ")];
    let unmarked =
        marks.iter().fold(text.to_owned(), |text, (mark, plain)| text.replace(mark, plain));
    unmarked.replace("&amp;", "&").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_read() {
        let xml = r#"<testsuite><testcase name="GET /a returns &#34;x&#34;" classname="s" time="1"></testcase>
            <testcase name="PUT /{b}" classname="s"><failure type="Failure">no&#xA;way</failure></testcase>
            <testcase name="c" classname="s"><skipped></skipped></testcase></testsuite>"#;
        let read: Vec<_> =
            cases(xml).into_iter().map(|it| (it.name, it.verdict, it.note)).collect();
        let case = |name: &str, verdict, note: &str| (name.to_owned(), verdict, note.to_owned());
        let first = case("GET /a returns \"x\"", Verdict::Passed, "");
        let second = case("PUT /{b}", Verdict::Failed, "no way");
        assert_eq!(read, [first, second, case("c", Verdict::Skipped, "")]);
    }

    #[test]
    fn a_name_is_skipped_to_the_letter() {
        assert_eq!(pattern(&["a {b}/c".into(), "d".into()]), r"a \{b\}/c$|d$");
    }
}
