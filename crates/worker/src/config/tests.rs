//! Rows of wrong files: each is refused with its place, its key and what is accepted.

use super::*;

const GOOD: &str = r#"
[worker]
grace = "10s"

[source.jobs]
kind = "amqp"
url = "amqp://guest:hunter2@localhost"
queue = "jobs"

[target.hook]
kind = "webhook"
url = "https://example.com/hook"

[target.hook.limits]
rate = 100.0

[[pipeline]]
name = "mail"
source = "jobs"
target = "hook"
concurrency = 10
"#;

fn parse(text: &str) -> Result<Config, Vec<Problem>> {
    Config::parse(text, &BTreeMap::new())
}

/// What is told of the good file with this change.
#[track_caller]
fn told(from: &str, to: &str) -> Vec<String> {
    assert!(GOOD.contains(from), "{from}");
    let problems = parse(&GOOD.replacen(from, to, 1)).expect_err(to);
    problems.iter().map(Problem::to_string).collect()
}

#[test]
fn a_good_file_is_read() {
    let config = parse(GOOD).unwrap();
    assert_eq!(config.worker.grace.0, Duration::from_secs(10));
    assert_eq!(config.pool.pipelines[0].concurrency, 10);
    assert_eq!(config.pool.targets[0].rate, Some(100.0));
    assert_eq!(config.kinds().count(), 1);
}

#[test]
fn what_holds_can_be_shown_without_its_secrets() {
    let shown = parse(GOOD).unwrap().to_string();
    assert!(shown.contains("concurrency: 10") && shown.contains("attempts_max: 10"), "{shown}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn each_wrong_file_is_refused_with_its_place() {
    let rows = [
        ("concurrency = 10", "concurency = 10", "21:1: pipeline[1].concurency: unknown field"),
        (
            "concurrency = 10",
            "concurrency = 0",
            "21:1: pipeline[1].concurrency: is 0, and may be 1 to 65535",
        ),
        ("concurrency = 10", "concurrency = -1", "21:15: pipeline[1].concurrency: invalid value"),
        ("concurrency = 10", "concurrency = 1e9999", "21:15: pipeline[1].concurrency: "),
        (
            "concurrency = 10",
            "concurrency = 70000",
            "21:1: pipeline[1].concurrency: is 70000, and may be",
        ),
        (
            "concurrency = 10",
            "concurrency = \"ten\"",
            "21:15: pipeline[1].concurrency: invalid type: string, expected",
        ),
        ("concurrency = 10", "concurrency = 10\nconcurrency = 11", "22:1: duplicate key"),
        (
            "rate = 100.0",
            "rate = -5.0",
            "15:1: target.hook.limits.rate: is -5, and may be 0.001 to 1000000",
        ),
        (
            "grace = \"10s\"",
            "grace = \"10sec\"",
            "3:9: worker.grace: `10sec` is not a duration: write 250ms, 5s, 10m, 12h or 7d",
        ),
        ("grace = \"10s\"", "grace = \"2h\"", "3:1: worker.grace: is 2h, and may be 0s to 1h"),
        ("grace = \"10s\"", "grace = 10", "3:9: worker.grace: "),
        (
            "grace = \"10s\"",
            "metrics = \"localhost\"",
            "3:1: worker.metrics: is `localhost`, and may be an address",
        ),
        (
            "kind = \"amqp\"",
            "kind = \"amqq\"",
            "6:1: source.jobs.kind: is `amqq`, and may be one of: amqp",
        ),
        ("kind = \"webhook\"", "", "10:1: target.hook: kind has to be one of: "),
        (
            "source = \"jobs\"",
            "source = \"job\"",
            "19:1: pipeline[1].source: `job` is not there; there are: jobs",
        ),
        (
            "target = \"hook\"",
            "target = \"hock\"",
            "20:1: pipeline[1].target: `hock` is not there; there are: hook",
        ),
        (
            "[worker]",
            "[workers]",
            "2:2: workers: there is no such table; there are: batches, pipeline, schedule, source, target, worker",
        ),
        ("[worker]", "[worker", "2:8: "),
        ("[[pipeline]]", "[pipeline]", "pipeline: it is a list: write [[pipeline]]"),
        ("queue = \"jobs\"", "", "5:1: source.jobs: missing field `queue`"),
    ];
    for (from, to, expected) in rows {
        let told = told(from, to);
        assert!(
            told.iter().any(|one| one.contains(expected)),
            "{to}: {expected}\nis not in {told:#?}"
        );
    }
}

#[test]
fn all_problems_are_told_together_in_the_order_of_the_file() {
    let text = GOOD
        .replace("10s", "10")
        .replace("queue =", "kwueue =")
        .replace("rate = 100.0", "rate = 0.0\nburts = 3")
        .replace("concurrency = 10", "concurrency = \"x\"\nbackof = \"1s\"");
    let told: Vec<String> = parse(&text).unwrap_err().iter().map(Problem::to_string).collect();
    let paths =
        ["worker.grace", "source.jobs.kwueue", "limits.burts", "[1].concurrency", "[1].backof"];
    for path in paths {
        assert!(told.iter().any(|one| one.contains(path)), "{path} is not in {told:#?}");
    }
    let lines: Vec<usize> = parse(&text).unwrap_err().iter().map(|one| one.line).collect();
    assert!(lines.is_sorted(), "{told:#?}");
}

#[test]
fn two_pipelines_of_one_queue_are_refused() {
    let second = "[[pipeline]]\nname = \"other\"\nsource = \"jobs\"\ntarget = \"hook\"\n";
    let told = parse(&format!("{GOOD}{second}")).unwrap_err();
    assert!(told[0].what.contains("taken by pipeline `mail` already"), "{told:?}");
    let copy = GOOD.replace("[target.hook]", "[source.again]\nkind = \"amqp\"\nurl = \"amqp://guest:hunter2@localhost\"\nqueue = \"jobs\"\n[target.hook]");
    let told = parse(&copy).unwrap_err();
    assert!(told[0].what.contains("takes from the same queue as [source."), "{told:?}");
}

#[test]
fn the_text_of_a_value_is_never_told() {
    let text =
        GOOD.replace("concurrency = 10", "concurrency = \"hunter3\"\nattempts_max = \"hunter3\"");
    let told = format!("{:?}", parse(&text).unwrap_err());
    assert!(!told.contains("hunter"), "{told}");
}

#[test]
fn variables_win_over_the_file_and_are_named_when_they_are_wrong() {
    let set = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
    let config = Config::parse(GOOD, &set("MILLRACE_WORK_GRACE", "1s")).unwrap();
    assert_eq!(config.worker.grace.0, Duration::from_secs(1));
    let told = Config::parse(GOOD, &set("MILLRACE_WORK_GRACE", "soon")).unwrap_err();
    assert!(told[0].to_string().contains("worker.grace: `soon` is not a duration"), "{told:?}");
    assert!(told[0].to_string().contains("from the variable MILLRACE_WORK_GRACE"), "{told:?}");
    let url = set("MILLRACE_WORK_SOURCE_JOBS_URL", "amqp://elsewhere");
    assert!(Config::parse(GOOD, &url).is_ok());
}

#[test]
fn an_empty_file_is_told_what_it_needs() {
    let told = parse("").unwrap_err();
    assert!(told[0].to_string().contains("pipeline: there is none: add [[pipeline]]"), "{told:?}");
}

#[test]
fn a_new_file_may_change_targets_and_limits_but_not_where_jobs_come_from() {
    let old = parse(GOOD).unwrap();
    let fixed = |from: &str, to: &str| old.fixed(&parse(&GOOD.replacen(from, to, 1)).unwrap());
    assert_eq!(fixed("example.com", "example.org"), Vec::<String>::new());
    assert_eq!(fixed("= 10\n", "= 11\n"), Vec::<String>::new());
    assert_eq!(fixed("rate = 100.0", "rate = 99.0"), Vec::<String>::new());
    assert_eq!(fixed("hunter2", "hunter3"), ["source has changed: that needs a restart"]);
    assert_eq!(
        fixed("name = \"mail\"", "name = \"post\""),
        ["pipelines were added, removed or moved to another source: that needs a restart"]
    );
}

#[test]
fn schedules_shares_and_batches_are_read_and_judged() {
    let more = "[target.hook.share]\nrate = 50.0\n[batches]\n\
                [[schedule]]\nname = \"nightly\"\ncron = \"0 30 2 * * *\"\nrouting_key = \"jobs\"\n";
    let config = parse(&format!("{GOOD}{more}")).unwrap();
    assert_eq!(config.schedules[0].source.as_deref(), Some("jobs"), "the only one");
    assert!(config.batches.is_some() && config.shares.contains_key("hook"));
    let told = parse(&format!("{GOOD}{}", more.replace("30 2", "99 2"))).unwrap_err();
    assert!(told[0].path.starts_with("schedule[1]"), "{told:?}");
    let told = parse(&format!("{GOOD}{}", more.replace("50.0", "500.0"))).unwrap_err();
    assert!(told[0].path.starts_with("target.hook.share"), "{told:?}");
}
