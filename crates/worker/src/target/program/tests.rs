use super::*;
use crate::job::Header;
use crate::outcome::Scope;

fn settings(text: &str) -> Settings {
    toml::from_str(text).unwrap()
}

fn job() -> Message {
    Message {
        id: "j".into(),
        kind: "mail".into(),
        attempt: 2,
        body: "hi".into(),
        ..Message::default()
    }
}

#[test]
fn every_end_has_its_outcome() {
    let set = settings("command = ['x']\nreject_exits = [65, 3]");
    let rows = [
        (End::Exit(0), "done"),
        (End::Exit(1), "retry"),
        (End::Exit(3), "reject"),
        (End::Exit(65), "reject"),
        (End::Exit(75), "retry"),
        (End::Exit(127), "retry"),
        (End::Signal(9), "retry"),
        (End::Flood, "retry"),
        (End::Late, "retry"),
    ];
    for (end, expected) in rows {
        assert_eq!(judge(&set, &end, b"").name(), expected, "{end:?}");
    }
    let Outcome::Retry { why, .. } = judge(&set, &End::Exit(1), b"a\nb\n") else { panic!() };
    assert_eq!(why, "exit 1: a b");
}

#[test]
fn a_job_cannot_name_a_variable() {
    let mut job = job();
    job.headers.push(Header { name: "LD_PRELOAD".into(), value: "evil.so".into() });
    let variables = variables(&job, Duration::from_secs(1)).unwrap();
    assert!(variables.iter().all(|(name, _)| name.starts_with("MILLRACE_JOB_")));
    assert!(variables.contains(&("MILLRACE_JOB_HEADERS", r#"{"LD_PRELOAD":"evil.so"}"#.into())));
    job.id = "a\0b".into();
    assert!(super::variables(&job, Duration::ZERO).is_err());
    job.id = "x".repeat(200_000);
    assert!(super::variables(&job, Duration::ZERO).is_err());
}

#[test]
fn a_body_that_is_no_text_is_sent_in_base64() {
    let line = lines::request(&job(), Duration::from_millis(1500));
    assert_eq!(
        String::from_utf8(line).unwrap(),
        "{\"id\":\"j\",\"type\":\"mail\",\"attempt\":2,\"timeout_ms\":1500,\"headers\":{},\"body\":\"hi\"}\n"
    );
    let job = Message { body: vec![0xff, 0, b'\n'].into(), ..job() };
    let line = String::from_utf8(lines::request(&job, Duration::ZERO)).unwrap();
    assert!(line.contains("\"body_base64\":\"/wAK\""), "{line}");
    assert_eq!(line.matches('\n').count(), 1);
}

#[test]
fn answers_are_outcomes() {
    let read = |line: &str| lines::answer(line.as_bytes()).map(|(_, outcome)| outcome);
    assert_eq!(read(r#"{"id":"j","outcome":"done"}"#), Ok(Outcome::done()));
    let retry = read(r#"{"id":"j","outcome":"retry","after_ms":5000,"why":"full"}"#).unwrap();
    let after = Some(Duration::from_secs(5));
    let why = "full".to_owned();
    assert_eq!(retry, Outcome::Retry { after, why, rest: None, publishes: Vec::new() });
    let throttle = read(r#"{"id":"j","outcome":"throttle","scope":"key","after_ms":7}"#).unwrap();
    let until = Duration::from_millis(7);
    assert_eq!(throttle, Outcome::Throttle { scope: Scope::Key, until, why: String::new() });
    let long = read(r#"{"id":"j","outcome":"retry","after_ms":18446744073709551615}"#).unwrap();
    assert!(
        matches!(long, Outcome::Retry { after: Some(after), .. } if after == crate::limits::DELAY_MAX)
    );
    let done = read(
        r#"{"id":"j","outcome":"done","publishes":[{"routing_key":"q","body":"x","delay_ms":1}]}"#,
    );
    let Ok(Outcome::Done { publishes }) = done else { panic!("{done:?}") };
    assert_eq!(
        (publishes[0].message.id.as_str(), &publishes[0].message.body[..]),
        ("j-0", &b"x"[..])
    );
    for nonsense in [
        "",
        "{}",
        "done",
        "{\"id\":1,\"outcome\":\"done\"}",
        "{\"id\":\"j\",\"outcome\":\"maybe\"}",
    ] {
        assert!(read(nonsense).is_err(), "{nonsense}");
    }
}

#[test]
fn wrong_settings_are_all_named() {
    let set = settings(
        "command = []\nprocesses = 0\nin_flight = 2\ntimeout = '1ms'\nstop_grace = '1h'\n\
         output_bytes_max = 1\nreject_exits = [0]\n[set]\nMILLRACE_JOB_ID = 'x'",
    );
    assert_eq!(set.problems().len(), 8, "{:?}", set.problems());
    let set = settings("command = ['x']\nmemory_bytes_max = 1000\nfiles_max = 5");
    assert_eq!(set.problems(), Vec::<String>::new());
    assert_eq!(set.limits(), ["--as=1000:1000", "--nofile=5:5"]);
}
