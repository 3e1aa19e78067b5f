//! What is counted is in the text and in the status.

use super::*;

#[test]
fn counters_are_in_the_text_and_in_the_status() {
    let metrics = Metrics::default();
    let mail = metrics.pipeline("mail", "jobs", "hook");
    let hook = metrics.target("hook", "webhook");
    mail.away(None);
    mail.took(3);
    mail.started(3);
    hook.started();
    let outcomes = [
        Outcome::done(),
        Outcome::done(),
        Outcome::retry("HTTP 503 from 127.0.0.1:8080 for 1234567"),
    ];
    mail.ended(&outcomes);
    hook.ended(&outcomes, Duration::from_millis(3));
    mail.settled(&Settlement::Done);
    let text = metrics.text();
    for line in [
        "millrace_work_taken_total{pipeline=\"mail\"} 3",
        "millrace_work_jobs_total{pipeline=\"mail\",outcome=\"done\"} 2",
        "millrace_work_jobs_total{pipeline=\"mail\",outcome=\"retry\"} 1",
        "millrace_work_settled_total{pipeline=\"mail\",settlement=\"done\"} 1",
        "millrace_work_in_hand{pipeline=\"mail\"} 2",
        "millrace_work_run_seconds_count{target=\"hook\"} 1",
        "millrace_work_source_up{pipeline=\"mail\"} 1",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    let status = metrics.status();
    assert_eq!(status.targets[0].errors[0].why, "HTTP 503 from 127.0.0.1:8080 for #");
    assert_eq!((status.pipelines[0].in_hand, status.pipelines[0].running), (2, 0));
}

#[test]
fn it_is_not_ready_while_a_source_is_away_or_a_target_has_stopped_and_says_why() {
    let metrics = Metrics::default();
    let (mail, hook) = (metrics.pipeline("mail", "jobs", "hook"), metrics.target("hook", "apns"));
    assert_eq!(
        metrics.problem().unwrap(),
        "pipeline mail: its source jobs is away: it is connecting"
    );
    mail.away(None);
    assert_eq!(metrics.problem(), None);
    mail.away(Some("refused".into()));
    hook.stopped(Some("bad key".into()));
    let problem = metrics.problem().unwrap();
    assert_eq!(
        problem,
        "pipeline mail: its source jobs is away: refused; target hook has stopped: bad key"
    );
    mail.away(None);
    hook.stopped(None);
    assert_eq!(metrics.problem(), None);
}

#[test]
fn a_target_keeps_few_errors_and_the_frequent_ones() {
    let metrics = Metrics::default();
    let hook = metrics.target("hook", "webhook");
    for round in 0..100_u8 {
        let rare = Outcome::retry(format!("error {}", "x".repeat(usize::from(round))));
        hook.ended(&[Outcome::retry("frequent"), rare], Duration::ZERO);
    }
    let errors = metrics.status().targets.remove(0).errors;
    assert_eq!(errors.len(), ERRORS_MAX);
    assert_eq!((errors[0].why.as_str(), errors[0].count), ("frequent", 100));
}
