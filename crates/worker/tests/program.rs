//! The worker's program target against programs that misbehave.
#![allow(clippy::disallowed_methods, reason = "a test has a clock")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use worker::io::target::program::Program;
use worker::io::target::{Run, Target};
use worker::{Message, Outcome};

/// For whatever must happen on a slow machine.
const TIMEOUT: Duration = Duration::from_secs(60);

fn program(text: &str) -> Arc<Program> {
    let settings = toml::from_str(text).expect("settings");
    Arc::new(Program::new(settings).expect("a target"))
}

/// A shell script for each job.
fn once(script: &str, more: &str) -> Arc<Program> {
    program(&format!("command = ['/bin/sh', '-c', '''{script}''']\n{more}"))
}

/// A Python program that stays.
fn lines(script: &str, more: &str) -> Arc<Program> {
    let head = "import sys,json,os,time,signal\n";
    program(&format!("mode = 'lines'\ncommand = ['python3', '-c', '''{head}{script}''']\n{more}"))
}

const ECHO: &str = "
for line in sys.stdin:
    job = json.loads(line)
    print(json.dumps({'id': job['id'], 'outcome': 'done'}), flush=True)
";

fn job(id: &str, body: &str) -> Message {
    Message {
        id: id.into(),
        kind: "mail".into(),
        attempt: 1,
        body: body.to_owned().into(),
        ..Message::default()
    }
}

async fn within(target: &Arc<Program>, job: Message, time: Duration) -> Outcome {
    let run = Run { jobs: vec![job], deadline: Instant::now() + time };
    let outcomes = tokio::time::timeout(TIMEOUT, Arc::clone(target).run(run)).await;
    outcomes.expect("an outcome").pop().expect("one outcome")
}

async fn run(target: &Arc<Program>, body: &str) -> Outcome {
    within(target, job("j1", body), TIMEOUT).await
}

fn why(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Done { .. } => "",
        Outcome::Retry { why, .. }
        | Outcome::Throttle { why, .. }
        | Outcome::TokenDead { why, .. }
        | Outcome::Reject { why }
        | Outcome::Config { why } => why,
    }
}

/// A place that a script may write to.
fn place(name: &str) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("millrace-program-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path.display().to_string()
}

async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Whether a process is there and no zombie.
fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

/// Process ids that a script has written, as many as it should.
async fn pids(path: &str, count: usize) -> Vec<String> {
    let read = || std::fs::read_to_string(path).unwrap_or_default();
    eventually("the script's process ids", || read().split_whitespace().count() >= count).await;
    read().split_whitespace().map(String::from).collect()
}

#[tokio::test]
async fn a_job_is_on_stdin_and_in_the_environment() {
    let check = r#"test "$(cat)" = hello && test "$MILLRACE_JOB_ID" = j1 && test "$MILLRACE_JOB_TYPE" = mail"#;
    assert_eq!(run(&once(check, ""), "hello").await, Outcome::done());
}

#[tokio::test]
async fn the_environment_is_only_what_is_allowed() {
    // A long PATH would push the others out of what is kept of the output.
    let target =
        once("env | cut -c1-40 >&2; exit 1", "environment = ['PATH']\nset = { TOKEN = 'shown' }");
    let outcome = run(&target, "").await;
    let text = why(&outcome);
    assert!(text.contains("TOKEN=shown") && text.contains("PATH="), "{text}");
    assert!(!text.contains("HOME=") && !text.contains("CARGO"), "{text}");
}

#[tokio::test]
async fn an_exit_status_says_what_becomes_of_the_job() {
    for (status, expected) in [(0, "done"), (1, "retry"), (75, "retry"), (65, "reject")] {
        let target = once(&format!("exit {status}"), "");
        assert_eq!(run(&target, "").await.name(), expected, "{status}");
    }
}

#[tokio::test]
async fn a_program_that_reads_nothing_is_not_waited_for() {
    let body = "x".repeat(4 << 20);
    assert_eq!(run(&once("exit 0", ""), &body).await, Outcome::done());
}

#[tokio::test]
async fn a_crash_is_tried_again() {
    let outcome = run(&once("echo oops >&2; kill -SEGV $$", ""), "").await;
    assert!(why(&outcome).contains("signal 11: oops"), "{outcome:?}");
}

#[tokio::test]
async fn a_gigabyte_of_output_ends_its_program() {
    let outcome = run(&once("head -c 1073741824 /dev/zero; sleep 1000", ""), "").await;
    assert!(why(&outcome).contains("printed more"), "{outcome:?}");
}

#[tokio::test]
async fn too_much_memory_is_refused_to_a_program() {
    let script = "exec python3 -c 'x = bytearray(1 << 30)'";
    let target = once(&script.replace('\'', "\""), "memory_bytes_max = 300000000");
    let outcome = run(&target, "").await;
    assert!(outcome.name() == "retry" && why(&outcome).contains("MemoryError"), "{outcome:?}");
}

#[tokio::test]
async fn too_much_cpu_ends_a_program() {
    let outcome = run(&once("while :; do :; done", "cpu_seconds_max = 1"), "").await;
    assert!(
        why(&outcome).contains("signal 9") || why(&outcome).contains("signal 24"),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_program_that_ignores_sigterm_is_killed_with_its_children() {
    let file = place("ignores");
    let script = format!("trap '' TERM; sleep 1000 & echo $$ $! >{file}; wait; sleep 1000");
    let target =
        program(&format!("command = ['/bin/sh', '-c', \"{script}\"]\nstop_grace = '50ms'"));
    let running = tokio::spawn({
        let target = Arc::clone(&target);
        async move { within(&target, job("j1", ""), Duration::from_secs(5)).await }
    });
    let pids = pids(&file, 2).await;
    let outcome = running.await.expect("it ran");
    assert!(why(&outcome).contains("did not end in time"), "{outcome:?}");
    eventually("both are gone", || !pids.iter().any(|pid| is_alive(pid))).await;
}

#[tokio::test]
async fn what_a_program_leaves_behind_is_killed() {
    let file = place("leaves");
    let target = once(&format!("sleep 1000 & echo $! >{file}"), "");
    assert_eq!(run(&target, "").await, Outcome::done());
    let pids = pids(&file, 1).await;
    eventually("the child is gone", || !is_alive(&pids[0])).await;
}

#[tokio::test]
async fn a_dropped_run_ends_its_program() {
    let file = place("dropped");
    let target = once(&format!("sleep 1000 & echo $$ $! >{file}; wait"), "stop_grace = '1s'");
    let running = tokio::spawn({
        let target = Arc::clone(&target);
        async move { run(&target, "").await }
    });
    let pids = pids(&file, 2).await;
    running.abort();
    eventually("both are gone", || !pids.iter().any(|pid| is_alive(pid))).await;
}

#[tokio::test]
async fn lines_are_answered_by_a_program_that_stays() {
    let target = lines(ECHO, "processes = 2");
    for at in 0..100 {
        let outcome = within(&target, job(&format!("j{at}"), "hi"), TIMEOUT).await;
        assert_eq!(outcome, Outcome::done());
    }
}

#[tokio::test]
async fn one_process_takes_several_jobs_and_answers_in_any_order() {
    let script = "
jobs = []
for line in sys.stdin:
    jobs.append(json.loads(line))
    if len(jobs) == 3:
        for job in reversed(jobs):
            print(json.dumps({'id': job['id'], 'outcome': 'reject', 'why': job['body']}), flush=True)
        jobs = []
";
    let target = lines(script, "processes = 1\nin_flight = 3");
    let runs = (0..3).map(|at| {
        let target = Arc::clone(&target);
        let job = job(&format!("j{at}"), &format!("body {at}"));
        tokio::spawn(async move { within(&target, job, TIMEOUT).await })
    });
    for (at, running) in runs.collect::<Vec<_>>().into_iter().enumerate() {
        let outcome = running.await.expect("it ran");
        assert_eq!(outcome, Outcome::reject(format!("body {at}")));
    }
}

/// Misbehaves on the first job, and echoes in the next process.
fn misbehaves_once(name: &str, deed: &str) -> (Arc<Program>, String) {
    let file = place(name);
    let script = format!(
        "
if not os.path.exists('{file}'):
    line = sys.stdin.readline()
    open('{file}', 'w').write(str(os.getpid()) + ' ')
    {deed}
{ECHO}"
    );
    (lines(&script, "processes = 1\nstop_grace = '50ms'\noutput_bytes_max = 65536"), file)
}

async fn misbehaves(name: &str, deed: &str, expected: &str) {
    let (target, file) = misbehaves_once(name, deed);
    let time = if expected.contains("in time") { Duration::from_secs(10) } else { TIMEOUT };
    let outcome = within(&target, job("j1", ""), time).await;
    assert!(outcome.name() == "retry" && why(&outcome).contains(expected), "{outcome:?}");
    let pids = pids(&file, 1).await;
    eventually("it is gone", || !pids.iter().any(|pid| is_alive(pid))).await;
    // While the next process starts, jobs are sent back uncharged.
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let outcome = run(&target, "").await;
        if outcome == Outcome::done() {
            break;
        }
        assert_eq!(outcome.name(), "throttle", "{outcome:?}");
        assert!(Instant::now() < deadline, "no other process answers");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_program_that_dies_over_a_job_is_started_again() {
    misbehaves("dies", "os.kill(os.getpid(), signal.SIGKILL)", "signal 9").await;
}

#[tokio::test]
async fn a_program_that_exits_without_an_answer_is_started_again() {
    misbehaves("exits", "print('bye', file=sys.stderr); sys.exit(0)", "bye").await;
}

#[tokio::test]
async fn a_program_that_answers_nonsense_is_killed() {
    misbehaves("nonsense", "print('hello world', flush=True); time.sleep(1000)", "no answer").await;
}

#[tokio::test]
async fn a_program_that_answers_another_job_is_killed() {
    let deed = r#"print('{"id":"other","outcome":"done"}', flush=True); time.sleep(1000)"#;
    misbehaves("other", deed, "does not have").await;
}

#[tokio::test]
async fn a_line_without_an_end_is_killed() {
    let deed = "[sys.stdout.write('x' * 65536) for _ in range(16384)]; time.sleep(1000)";
    misbehaves("endless", deed, "line of more than").await;
}

#[tokio::test]
async fn a_program_that_hangs_and_ignores_sigterm_is_killed() {
    let deed = "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)";
    misbehaves("hangs", deed, "in time").await;
}

#[tokio::test]
async fn a_program_that_forks_is_killed_with_its_children() {
    let deed = "[os._exit(0) if False else time.sleep(1000) for _ in [0] if os.fork() == 0]; \
                os.kill(os.getpid(), signal.SIGKILL)";
    misbehaves("forks", deed, "signal 9").await;
}

#[tokio::test]
async fn a_program_that_is_not_there_is_said_at_the_start() {
    let settings = toml::from_str("command = ['/nowhere/at/all']").expect("settings");
    let error = Program::new(settings).expect_err("there is no such program");
    assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
}

/// The other half of `nothing_outlives_a_killed_worker`: a worker in a process of its own.
#[tokio::test]
async fn a_worker_to_be_killed() {
    let Ok(file) = std::env::var("MILLRACE_TEST_KILLED") else { return };
    let stays = lines(
        &format!(
            "
if os.fork() == 0:
    time.sleep(1000)
line = sys.stdin.readline()
with open('{file}.lines', 'w') as out:
    out.write(f'{{os.getpid()}} {{os.getppid()}} ')
time.sleep(1000)
"
        ),
        "processes = 1",
    );
    let once = once(&format!("sleep 1000 & echo $$ $! >{file}.once; wait"), "");
    tokio::join!(run(&once, ""), run(&stays, ""));
}

#[tokio::test]
async fn nothing_outlives_a_killed_worker() {
    let file = place("killed");
    let own = std::env::current_exe().expect("this test's program");
    let mut worker = std::process::Command::new(own)
        .args(["a_worker_to_be_killed", "--exact", "--test-threads=1"])
        .env("MILLRACE_TEST_KILLED", &file)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("a worker");
    let once = pids(&format!("{file}.once"), 2).await;
    let stays = pids(&format!("{file}.lines"), 2).await;
    let group = group_of(&stays[0]);
    assert!(is_alive(&once[0]) && is_alive(&once[1]) && is_alive(&stays[0]));
    worker.kill().expect("SIGKILL");
    worker.wait().expect("it was killed");
    eventually("what it started is gone", || {
        let alone = once.iter().chain(&stays[..1]).any(|pid| is_alive(pid));
        !alone && members(group) == 0
    })
    .await;
}

fn group_of(pid: &str) -> i32 {
    field(Path::new("/proc").join(pid).join("stat").as_path()).expect("it lives")
}

/// The process group in a `stat` file of a process that lives.
fn field(stat: &Path) -> Option<i32> {
    let text = std::fs::read_to_string(stat).ok()?;
    let mut fields = text.rsplit(')').next()?.split_whitespace();
    let state = fields.next()?;
    let group = fields.nth(1)?.parse().ok()?;
    (state != "Z").then_some(group)
}

fn members(group: i32) -> usize {
    let all = std::fs::read_dir("/proc").expect("Linux").flatten();
    all.filter(|entry| field(&entry.path().join("stat")) == Some(group)).count()
}
