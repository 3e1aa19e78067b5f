use super::*;
use crate::job::{Job, Message, Receipt};
use crate::outcome::{Outcome, Scope};
use crate::settlement::Settlement;
use crate::value::Time;

/// When a test begins.
#[allow(clippy::disallowed_methods, reason = "an instant can be made in no other way")]
pub(super) fn start() -> Instant {
    Instant::now()
}

const SECOND: Duration = Duration::from_secs(1);

/// A pool with one pipeline and one target, and its clock.
struct Stage {
    pool: Pool,
    now: Instant,
    receipts: u64,
}

impl Stage {
    fn new(set: impl FnOnce(&mut PipelineSettings, &mut TargetSettings)) -> Self {
        let mut pipeline = PipelineSettings::new("mail", "web");
        let mut target = TargetSettings::new("web");
        set(&mut pipeline, &mut target);
        let settings =
            Settings { pipelines: vec![pipeline], targets: vec![target], buffer_bytes: 0 };
        Self { pool: Pool::new(settings, 7), now: start(), receipts: 0 }
    }

    fn step(&mut self, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.pool.step(self.now, input, &mut effects);
        effects
    }

    fn job(&mut self, key: Option<u64>) -> Job {
        self.receipts += 1;
        Job {
            receipt: Receipt(self.receipts),
            message: Message { id: self.receipts.to_string(), attempt: 1, ..Message::default() },
            key,
            group: None,
            lease_until: None,
            published_ms: None,
        }
    }

    /// Takes jobs with these keys: what starts.
    fn take(&mut self, keys: &[Option<u64>]) -> Vec<(RunId, Vec<String>)> {
        let jobs = keys.iter().map(|key| self.job(*key)).collect();
        started(&self.took(jobs))
    }

    fn took(&mut self, jobs: Vec<Job>) -> Vec<Effect> {
        self.step(Input::Took { pipeline: PipelineId(0), jobs })
    }

    fn finish(&mut self, run: RunId, outcome: Outcome) -> Vec<Effect> {
        self.step(Input::Finished { run, outcomes: vec![outcome] })
    }

    fn wait(&mut self, time: Duration) -> Vec<Effect> {
        self.now += time;
        self.step(Input::Tick)
    }
}

fn started(effects: &[Effect]) -> Vec<(RunId, Vec<String>)> {
    let run = |effect: &Effect| match effect {
        Effect::Start { run, jobs, .. } => {
            Some((*run, jobs.iter().map(|job| job.id.clone()).collect()))
        }
        _ => None,
    };
    effects.iter().filter_map(run).collect()
}

fn settlements(effects: &[Effect]) -> Vec<(u64, Settlement)> {
    let mut all = Vec::new();
    for effect in effects {
        if let Effect::Settle { settled, .. } = effect {
            all.extend(settled.iter().map(|one| (one.receipt.0, one.settlement.clone())));
        }
    }
    all
}

fn room(effects: &[Effect]) -> usize {
    let jobs = |effect: &Effect| match effect {
        Effect::Room { jobs, .. } => Some(*jobs),
        _ => None,
    };
    effects.iter().filter_map(jobs).sum()
}

fn throttle(scope: Scope, until: Duration) -> Outcome {
    Outcome::Throttle { scope, until, why: "slow down".into() }
}

#[test]
fn the_first_step_gives_the_room_of_the_buffer() {
    let mut stage = Stage::new(|pipeline, _| pipeline.buffer = Some(40));
    assert_eq!(room(&stage.step(Input::Tick)), 40);
    assert_eq!(room(&stage.step(Input::Tick)), 0);
}

#[test]
fn a_job_counts_until_its_settlement_is_answered() {
    let mut stage = Stage::new(|pipeline, _| pipeline.buffer = Some(1));
    assert_eq!(room(&stage.step(Input::Tick)), 1);
    let runs = stage.take(&[None]);
    let effects = stage.finish(runs[0].0, Outcome::done());
    assert_eq!(settlements(&effects), [(1, Settlement::Done)]);
    assert_eq!(room(&effects), 0);
    let settled = Input::Settled { pipeline: PipelineId(0), receipts: vec![Receipt(1)] };
    assert_eq!(room(&stage.step(settled)), 1);
    assert_eq!(
        stage.pool.proof().to_string(),
        "taken 1 = done 1 + returned 0 + retried 0 + dead 0 + lost 0"
    );
}

#[test]
fn a_key_in_order_waits_for_its_retry_while_other_keys_go_on() {
    let mut stage = Stage::new(|pipeline, _| pipeline.order = Order::Key);
    let runs = stage.take(&[Some(1), Some(1), Some(2)]);
    assert_eq!(runs.iter().map(|run| run.1[0].as_str()).collect::<Vec<_>>(), ["1", "3"]);
    let effects = stage.finish(runs[0].0, Outcome::retry("no"));
    assert!(settlements(&effects).is_empty(), "it waits here");
    let again = started(&stage.wait(2 * SECOND));
    assert_eq!(again[0].1, ["1"]);
    assert_eq!(started(&stage.finish(again[0].0, Outcome::done()))[0].1, ["2"]);
}

#[test]
fn a_short_throttle_waits_here_and_a_long_one_at_the_source() {
    let mut stage = Stage::new(|pipeline, _| pipeline.concurrency = 1);
    let runs = stage.take(&[None, None]);
    let effects = stage.finish(runs[0].0, throttle(Scope::Target, SECOND));
    assert!(started(&effects).is_empty() && settlements(&effects).is_empty());
    let runs = started(&stage.wait(SECOND));
    assert_eq!(runs[0].1, ["1"]);
    let effects = stage.finish(runs[0].0, throttle(Scope::Target, 60 * SECOND));
    let settled = settlements(&effects);
    assert_eq!(settled.len(), 2);
    for (_, settlement) in settled {
        assert!(matches!(settlement, Settlement::Later { attempt: 1, .. }), "{settlement:?}");
    }
    assert_eq!(room(&stage.wait(SECOND)), 0);
}

#[test]
fn a_throttled_key_keeps_no_other_key_waiting() {
    let mut stage = Stage::new(|pipeline, _| pipeline.concurrency = 1);
    let runs = stage.take(&[Some(1), Some(1), Some(2)]);
    let runs = started(&stage.finish(runs[0].0, throttle(Scope::Key, SECOND)));
    assert_eq!(runs[0].1, ["3"]);
    assert!(started(&stage.finish(runs[0].0, Outcome::done())).is_empty());
    assert_eq!(started(&stage.wait(SECOND))[0].1, ["1"]);
}

#[test]
fn a_target_with_wrong_settings_stops_and_its_jobs_go_back() {
    let mut stage = Stage::new(|pipeline, _| pipeline.concurrency = 1);
    let runs = stage.take(&[None, None]);
    let effects = stage.finish(runs[0].0, Outcome::Config { why: "401".into() });
    let returned = [(2, Settlement::Return), (1, Settlement::Return)];
    assert_eq!(settlements(&effects), returned);
    assert!(
        effects.iter().any(|effect| matches!(effect, Effect::Notice(Notice::TargetStopped { .. })))
    );
    let job = stage.job(None);
    assert_eq!(settlements(&stage.took(vec![job])), [(3, Settlement::Return)]);
    stage.step(Input::Mended { target: TargetId(0) });
    assert_eq!(stage.take(&[None]).len(), 1);
}

#[test]
fn an_open_breaker_gives_no_room_and_one_run_tries() {
    let mut stage = Stage::new(|_, target| target.breaker.failures = 2);
    let runs = stage.take(&[None, None]);
    stage.finish(runs[0].0, Outcome::retry("no"));
    let effects = stage.finish(runs[1].0, Outcome::retry("no"));
    assert!(
        effects.iter().any(|effect| matches!(effect, Effect::Notice(Notice::BreakerOpened { .. })))
    );
    assert!(stage.take(&[None, None]).is_empty());
    let tries = started(&stage.wait(30 * SECOND));
    assert_eq!(tries.len(), 1);
    assert_eq!(started(&stage.finish(tries[0].0, Outcome::done())).len(), 1);
}

#[test]
fn an_open_breaker_with_nothing_waiting_asks_for_one_job_when_its_time_is_over() {
    let mut stage = Stage::new(|pipeline, target| {
        pipeline.buffer = Some(2);
        target.breaker.failures = 2;
    });
    stage.step(Input::Tick);
    let runs = stage.take(&[None, None]);
    for (run, _) in runs {
        stage.finish(run, Outcome::retry("no"));
    }
    let receipts = vec![Receipt(1), Receipt(2)];
    assert_eq!(room(&stage.step(Input::Settled { pipeline: PipelineId(0), receipts })), 0);
    let due = stage.pool.deadline().unwrap();
    assert_eq!(due, stage.now + 30 * SECOND);
    assert_eq!(room(&stage.wait(30 * SECOND)), 1);
}

#[test]
fn jobs_of_a_group_go_together_when_full_or_when_they_have_lingered() {
    let mut stage = Stage::new(|_, target| {
        target.run_jobs_max = 3;
        target.linger = Time(SECOND);
    });
    let jobs: Vec<Job> =
        (0..5).map(|at| Job { group: Some(at % 5 / 4), ..stage.job(None) }).collect();
    let runs = started(&stage.took(jobs));
    assert_eq!(runs[0].1, ["1", "2", "3"]);
    assert_eq!(runs.len(), 1);
    let later: Vec<_> = started(&stage.wait(SECOND)).into_iter().map(|run| run.1).collect();
    assert_eq!(later.len(), 2);
}

#[test]
fn a_higher_priority_goes_first_and_weights_share_the_rest() {
    let one = |name: &str, priority, weight| PipelineSettings {
        priority,
        weight,
        ..PipelineSettings::new(name, "web")
    };
    let settings = Settings {
        pipelines: vec![one("low", 0, 1), one("mid", 1, 1), one("more", 1, 3)],
        targets: vec![TargetSettings { concurrency: 1, ..TargetSettings::new("web") }],
        buffer_bytes: 0,
    };
    let mut stage = Stage { pool: Pool::new(settings, 1), now: start(), receipts: 0 };
    let mut effects = Vec::new();
    for pipeline in 0..3 {
        let jobs = (0..100).map(|_| stage.job(None)).collect();
        effects = stage.step(Input::Took { pipeline: PipelineId(pipeline), jobs });
        if pipeline == 0 {
            assert_eq!(started(&effects).len(), 1);
        }
    }
    let mut counts = [0; 3];
    let mut run = RunId(1);
    for _ in 0..80 {
        effects.clear();
        effects = stage.finish(run, Outcome::done());
        let Some(Effect::Start { run: next, pipeline, .. }) =
            effects.iter().find(|effect| matches!(effect, Effect::Start { .. }))
        else {
            panic!("the next one starts")
        };
        run = *next;
        counts[usize::from(pipeline.0)] += 1;
    }
    assert_eq!(counts, [0, 20, 60]);
}

#[test]
fn leases_are_renewed_at_half_time_and_what_has_expired_is_not_started() {
    let mut stage = Stage::new(|pipeline, _| pipeline.concurrency = 1);
    let until = stage.now + 10 * SECOND;
    let jobs = (0..2).map(|_| Job { lease_until: Some(until), ..stage.job(None) }).collect();
    let runs = started(&stage.took(jobs));
    assert_eq!(stage.pool.deadline(), Some(stage.now + 5 * SECOND));
    let effects = stage.wait(5 * SECOND);
    assert!(
        effects
            .iter()
            .any(|effect| matches!(effect, Effect::Renew { receipts, .. } if receipts.len() == 2)),
        "{effects:?}"
    );
    stage.wait(5 * SECOND);
    assert_eq!(stage.pool.proof().lost, 1);
    let effects = stage.finish(runs[0].0, Outcome::done());
    assert!(started(&effects).is_empty());
    assert_eq!(settlements(&effects), [(1, Settlement::Done)]);
}

#[test]
fn a_run_is_cancelled_once_when_its_time_is_over() {
    let mut stage = Stage::new(|pipeline, _| pipeline.timeout = Time(3 * SECOND));
    let runs = stage.take(&[None]);
    assert_eq!(stage.pool.deadline(), Some(stage.now + 3 * SECOND));
    let effects = stage.wait(3 * SECOND);
    assert!(matches!(effects[0], Effect::Cancel { run } if run == runs[0].0));
    assert!(!stage.wait(SECOND).iter().any(|effect| matches!(effect, Effect::Cancel { .. })));
    let settled = settlements(&stage.finish(runs[0].0, Outcome::retry("timed out")));
    assert!(matches!(settled[0].1, Settlement::Later { attempt: 2, .. }));
}

#[test]
fn a_stop_returns_what_waits_cuts_what_runs_and_ends_with_the_proof() {
    let mut stage = Stage::new(|pipeline, _| pipeline.concurrency = 2);
    let runs = stage.take(&[None, None, None]);
    let deadline = stage.now + 5 * SECOND;
    let effects = stage.step(Input::Stop { deadline });
    assert_eq!(settlements(&effects), [(3, Settlement::Return)]);
    stage.finish(runs[0].0, Outcome::done());
    let effects = stage.wait(5 * SECOND);
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Cancel { .. })));
    let effects = stage.finish(runs[1].0, Outcome::retry("cancelled"));
    assert_eq!(settlements(&effects), [(2, Settlement::Return)]);
    let receipts = vec![Receipt(1), Receipt(2), Receipt(3)];
    let effects = stage.step(Input::Settled { pipeline: PipelineId(0), receipts });
    assert!(matches!(effects[..], [Effect::Stopped]));
    assert_eq!(
        stage.pool.proof().to_string(),
        "taken 3 = done 1 + returned 2 + retried 0 + dead 0 + lost 0"
    );
}

#[test]
fn a_job_that_comes_out_again_and_again_is_dead() {
    let mut stage = Stage::new(|_, _| {});
    let mut job = stage.job(None);
    job.message.attempt = 21;
    let settled = settlements(&stage.took(vec![job]));
    assert!(matches!(settled[0].1, Settlement::Dead { cause: crate::Cause::Exhausted, .. }));
}

#[test]
fn bytes_limit_the_room() {
    let mut stage = Stage::new(|pipeline, _| pipeline.buffer = Some(1000));
    stage.pool.bytes_max = 10_000;
    stage.pool.pipelines[0].is_paused = true;
    let body = bytes::Bytes::from(vec![0; 1000]);
    let jobs = (0..9).map(|_| {
        let mut job = stage.job(None);
        job.message.body = body.clone();
        job
    });
    let jobs = jobs.collect();
    stage.took(jobs);
    stage.pool.pipelines[0].is_paused = false;
    let room = room(&stage.step(Input::Tick));
    assert!(room <= 3, "{room}");
}

#[test]
fn a_target_gets_its_rate_in_any_five_seconds_although_timers_are_late() {
    let mut stage = Stage::new(|pipeline, target| {
        pipeline.buffer = Some(10_000);
        (pipeline.concurrency, target.concurrency) = (10_000, 10_000);
        target.rate = Some(300.0);
    });
    let first = stage.now;
    let mut starts: Vec<Duration> = Vec::new();
    stage.take(&vec![None; 9_000]);
    while stage.now < first + 20 * SECOND {
        stage.now = stage.pool.deadline().unwrap() + Duration::from_millis(2);
        let count = started(&stage.step(Input::Tick)).len();
        starts.extend(vec![stage.now - first; count]);
    }
    for from in (1..15).map(|at| at * SECOND) {
        let within = from..from + 5 * SECOND;
        let count = starts.iter().filter(|at| within.contains(*at)).count();
        assert!((1485..=1515).contains(&count), "{count} runs in the five seconds from {from:?}");
    }
}

#[test]
fn a_long_throttle_sends_ordered_jobs_back_only_when_they_cannot_wait_here() {
    let mut stage = Stage::new(|pipeline, _| pipeline.order = Order::Key);
    let runs = stage.take(&[Some(1), Some(1)]);
    let effects = stage.finish(runs[0].0, throttle(Scope::Target, 600 * SECOND));
    assert!(settlements(&effects).is_empty());
    let runs = started(&stage.wait(600 * SECOND));
    assert_eq!(runs[0].1, ["1"]);
    let effects = stage.finish(runs[0].0, throttle(Scope::Target, 3600 * SECOND));
    assert_eq!(settlements(&effects).len(), 2);
}

#[test]
fn settings_change_while_it_runs_all_of_them_or_none() {
    let mut stage = Stage::new(|pipeline, _| pipeline.concurrency = 1);
    stage.take(&[None; 8]);
    let settings = |concurrency, target: &str| Settings {
        pipelines: vec![PipelineSettings { concurrency, ..PipelineSettings::new("mail", target) }],
        targets: vec![TargetSettings { rate: Some(2.0), ..TargetSettings::new(target) }],
        buffer_bytes: 0,
    };
    let mut effects = Vec::new();
    let now = stage.now;
    assert!(stage.pool.change(now, &settings(5, "other"), &mut effects).is_err());
    assert!(stage.pool.change(now, &settings(0, "web"), &mut effects).is_err());
    assert!(effects.is_empty());
    stage.pool.change(now, &settings(5, "web"), &mut effects).unwrap();
    assert_eq!(started(&effects).len(), 2, "four more may run, and the rate allows two at once");
    assert_eq!(started(&stage.wait(SECOND)).len(), 2);
}

#[test]
fn key_limits_change_while_jobs_of_the_key_wait() {
    let set = |pipeline: &mut PipelineSettings| pipeline.key_concurrency = 1;
    let mut stage = Stage::new(|pipeline, _| set(pipeline));
    assert_eq!(stage.take(&[Some(1); 6]).len(), 1);
    let mut settings = Settings {
        pipelines: vec![PipelineSettings::new("mail", "web")],
        targets: vec![TargetSettings::new("web")],
        buffer_bytes: 0,
    };
    let (mut effects, now) = (Vec::new(), stage.now);
    assert!(stage.pool.change(now, &settings, &mut effects).is_err(), "no limits at all");
    settings.pipelines[0].key_concurrency = 3;
    stage.pool.change(now, &settings, &mut effects).unwrap();
    assert_eq!(started(&effects).len(), 2);
    settings.pipelines[0].key_rate = Some(1.0);
    stage.pool.change(now, &settings, &mut effects).unwrap();
    settings.pipelines[0].key_rate = None;
    stage.pool.change(now, &settings, &mut effects).unwrap();
    let run = stage.finish(RunId(1), Outcome::done());
    assert_eq!(started(&run).len(), 1);
}

#[test]
fn without_a_share_nothing_starts_and_with_one_nothing_was_saved_up() {
    let mut stage = Stage::new(|_, target| target.rate = Some(100.0));
    stage.step(Input::Share { target: TargetId(0), rate: Some(0.0) });
    assert!(stage.take(&[None; 20]).is_empty());
    assert!(started(&stage.wait(100 * SECOND)).is_empty());
    let share = Input::Share { target: TargetId(0), rate: Some(50.0) };
    assert!(started(&stage.step(share)).is_empty());
    assert_eq!(started(&stage.wait(Duration::from_millis(40))).len(), 2);
}
