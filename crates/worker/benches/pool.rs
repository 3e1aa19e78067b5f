//! What the pool costs per job: `cargo bench -p worker --bench pool`. Prints nanoseconds, checks nothing.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(clippy::print_stdout, reason = "a benchmark prints")]
#![allow(clippy::unwrap_used, reason = "a benchmark stops where it is wrong")]

use std::time::{Duration, Instant};

use bytes::Bytes;
use worker::pool::{
    Effect, Input, Order, PipelineId, PipelineSettings, Pool, RunId, Settings, TargetSettings,
};
use worker::{Job, Message, Outcome, Receipt};

/// Jobs that a source takes at once.
const BATCH: u64 = 200;
const ROUNDS: u64 = 2000;

fn job(receipt: u64, keys: u64, lease_until: Option<Instant>) -> Job {
    Job {
        receipt: Receipt(receipt),
        message: Message {
            id: format!("0190f2c4-0000-7000-8000-{receipt:012}"),
            kind: "mail.send".into(),
            body: Bytes::from_static(b"{\"to\":\"somebody\"}"),
            attempt: 1,
            ..Message::default()
        },
        key: (keys > 0).then_some(receipt % keys.max(1)),
        group: None,
        lease_until,
        published_ms: None,
    }
}

/// Takes, runs and settles jobs, as the shell does with a target that answers at once.
fn measure(
    what: &str,
    keys: u64,
    has_lease: bool,
    set: impl Fn(&mut PipelineSettings, &mut TargetSettings),
) {
    let mut best = f64::MAX;
    for _ in 0..5 {
        let mut pipeline = PipelineSettings::new("mail", "web");
        let mut target = TargetSettings::new("web");
        (pipeline.concurrency, target.concurrency) = (1000, 1000);
        pipeline.buffer = Some(4000);
        set(&mut pipeline, &mut target);
        let settings =
            Settings { pipelines: vec![pipeline], targets: vec![target], buffer_bytes: 0 };
        let mut pool = Pool::new(settings, 1);
        let mut now = Instant::now();
        let mut receipts = 0;
        let mut spent = Duration::ZERO;
        let mut effects = Vec::new();
        let mut runs: Vec<RunId> = Vec::new();
        for _ in 0..ROUNDS {
            now += Duration::from_millis(2);
            let lease_until = has_lease.then(|| now + Duration::from_secs(30));
            let jobs = (0..BATCH).map(|at| job(receipts + at + 1, keys, lease_until)).collect();
            receipts += BATCH;
            let start = Instant::now();
            pool.step(now, Input::Took { pipeline: PipelineId(0), jobs }, &mut effects);
            loop {
                let mut settled = Vec::new();
                for effect in effects.drain(..) {
                    match effect {
                        Effect::Start { run, .. } => runs.push(run),
                        Effect::Settle { settled: some, .. } => {
                            settled.extend(some.iter().map(|one| one.receipt));
                        }
                        Effect::Cancel { .. }
                        | Effect::Room { .. }
                        | Effect::Renew { .. }
                        | Effect::Notice(_)
                        | Effect::Stopped => {}
                    }
                }
                if !settled.is_empty() {
                    let pipeline = PipelineId(0);
                    pool.step(now, Input::Settled { pipeline, receipts: settled }, &mut effects);
                } else if runs.is_empty() {
                    break;
                }
                // One outcome a step would be the worst; the shell takes what has come.
                for some in runs.chunks(16) {
                    let inputs = some
                        .iter()
                        .map(|run| Input::Finished { run: *run, outcomes: vec![Outcome::done()] });
                    pool.step_all(now, inputs, &mut effects);
                }
                runs.clear();
            }
            spent += start.elapsed();
        }
        assert_eq!(pool.proof().done, receipts);
        best = best.min(spent.as_nanos() as f64 / receipts as f64);
    }
    println!("{what:<60} {best:>8.1} ns/job");
}

fn main() {
    measure("no key, no limits", 0, false, |_, _| {});
    measure("no key, a lease", 0, true, |_, _| {});
    measure("a rate that does not bind", 0, true, |_, target| target.rate = Some(1e6));
    measure("order by key, 1,000 keys", 1000, true, |pipeline, _| pipeline.order = Order::Key);
    measure("order by key, 10 keys", 10, true, |pipeline, _| pipeline.order = Order::Key);
    measure("a rate per key, 1,000 keys", 1000, true, |pipeline, _| {
        pipeline.key_rate = Some(1e6);
    });
}
