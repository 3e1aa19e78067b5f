//! Executes runs. Most in-process handlers end at their first poll, so the runs of one step share a task that polls
//! each once; a run that waits gets a task of its own. That is one wake-up for a batch of jobs, not one for each.
//!
//! A handler that panics fails its run alone where the program unwinds. A program built with `panic = "abort"` (as
//! the `millrace` binary is) ends, and its jobs come back from their broker.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;

use crate::io::source::BoxFuture;
use crate::io::target::{Run, Target};
use crate::job::Message;
use crate::outcome::Outcome;
use crate::pool::RunId;

/// Runs that share one task at most.
pub(super) const BATCH_MAX: usize = 64;
/// A batch whose handlers used so much time gives each of the rest a task of its own: handlers that compute for long
/// do not stand in each other's way.
const SHARED_MAX: Duration = Duration::from_millis(1);

/// A run that shall begin.
pub(super) struct Start {
    pub run: RunId,
    pub target: Arc<dyn Target>,
    pub jobs: Vec<Message>,
    pub deadline: Instant,
}

/// A run that is over.
pub(super) struct Ended {
    pub run: RunId,
    /// One for each job, in their order.
    pub outcomes: Vec<Outcome>,
    pub took: Duration,
}

/// What a task of runs tells.
#[derive(Default)]
pub(super) struct Report {
    pub ended: Vec<Ended>,
    /// Runs that have a task of their own now, and how to end it.
    pub waiting: Vec<(RunId, AbortHandle)>,
}

/// Begins all of these.
pub(super) fn execute(starts: Vec<Start>, reports: &UnboundedSender<Report>) {
    let mut starts = starts.into_iter();
    loop {
        let batch: Vec<Start> = starts.by_ref().take(BATCH_MAX).collect();
        if batch.is_empty() {
            return;
        }
        tokio::spawn(share(batch, reports.clone()));
    }
}

async fn share(starts: Vec<Start>, reports: UnboundedSender<Report>) {
    let begun = Instant::now();
    let mut report = Report { ended: Vec::with_capacity(starts.len()), waiting: Vec::new() };
    let mut now = begun;
    for start in starts {
        let Start { run, target, jobs, deadline } = start;
        let jobs_count = jobs.len();
        let mut future = Caught { future: target.run(Run { jobs, deadline }), jobs: jobs_count };
        let is_shared = now - begun < SHARED_MAX;
        let polled = match is_shared {
            true => std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut future).poll(cx))).await,
            false => Poll::Pending,
        };
        let at = now;
        if is_shared {
            now = Instant::now();
        }
        match polled {
            Poll::Ready(outcomes) => report.ended.push(Ended { run, outcomes, took: now - at }),
            Poll::Pending => {
                let task = tokio::spawn(alone(run, future, at, reports.clone()));
                report.waiting.push((run, task.abort_handle()));
            }
        }
    }
    // The worker may have ended meanwhile: then nobody waits for this.
    let _ = reports.send(report);
}

async fn alone(run: RunId, future: Caught, begun: Instant, reports: UnboundedSender<Report>) {
    let outcomes = future.await;
    let ended = vec![Ended { run, outcomes, took: begun.elapsed() }];
    let _ = reports.send(Report { ended, waiting: Vec::new() });
}

/// A run whose panic is an outcome, and whose outcomes are as many as its jobs.
struct Caught {
    future: BoxFuture<Vec<Outcome>>,
    jobs: usize,
}

impl Future for Caught {
    type Output = Vec<Outcome>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Vec<Outcome>> {
        let jobs = self.jobs;
        let polled = catch_unwind(AssertUnwindSafe(|| self.future.as_mut().poll(cx)));
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(mut outcomes)) => {
                let given = outcomes.len();
                outcomes.resize_with(jobs, || {
                    Outcome::retry(format!("the target answered {given} of {jobs} jobs"))
                });
                Poll::Ready(outcomes)
            }
            Err(panic) => {
                let why = format!("the handler panicked: {}", words(panic.as_ref()));
                Poll::Ready(vec![Outcome::retry(why); jobs])
            }
        }
    }
}

fn words(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no words")
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::Error;

    /// Does what the job's type says.
    struct Actor;

    impl Target for Actor {
        fn run(self: Arc<Self>, run: Run) -> BoxFuture<Vec<Outcome>> {
            Box::pin(async move {
                match run.jobs[0].kind.as_str() {
                    "panics" => panic!("planned"),
                    "waits" => tokio::task::yield_now().await,
                    "hangs" => std::future::pending().await,
                    "computes" => std::thread::sleep(SHARED_MAX * 2),
                    "forgets" => return Vec::new(),
                    _ => (),
                }
                vec![Outcome::done(); run.jobs.len()]
            })
        }

        fn check(self: Arc<Self>) -> BoxFuture<Result<String, Error>> {
            Box::pin(async { Ok(String::new()) })
        }
    }

    fn start(run: u64, kind: &str) -> Start {
        let jobs = vec![Message { kind: kind.into(), ..Message::default() }];
        let target: Arc<dyn Target> = Arc::new(Actor);
        Start { run: RunId(run), target, jobs, deadline: Instant::now() }
    }

    async fn ended(kinds: &[&str]) -> (Vec<(u64, &'static str)>, usize) {
        let (reports, mut told) = mpsc::unbounded_channel();
        let starts = kinds.iter().enumerate().map(|(at, kind)| start(at as u64, kind)).collect();
        execute(starts, &reports);
        let (mut list, mut waiting) = (Vec::new(), 0);
        while list.len() < kinds.len() {
            let report: Report = told.recv().await.unwrap();
            waiting += report.waiting.len();
            list.extend(report.ended.iter().map(|end| (end.run.0, end.outcomes[0].name())));
        }
        list.sort_unstable();
        (list, waiting)
    }

    #[tokio::test]
    async fn runs_that_do_not_wait_need_no_task_of_their_own() {
        let (list, waiting) = ended(&["", "", ""]).await;
        assert_eq!(list, [(0, "done"), (1, "done"), (2, "done")]);
        assert_eq!(waiting, 0);
    }

    #[tokio::test]
    async fn a_panic_and_a_missing_answer_fail_their_own_run_alone() {
        let (list, _) = ended(&["", "panics", "waits", "forgets", ""]).await;
        assert_eq!(list, [(0, "done"), (1, "retry"), (2, "done"), (3, "retry"), (4, "done")]);
    }

    #[tokio::test]
    async fn handlers_that_compute_do_not_stand_in_each_others_way() {
        let (_, waiting) = ended(&["computes", "computes", "computes"]).await;
        assert_eq!(waiting, 2, "all but the first have their own task");
    }

    #[tokio::test]
    async fn a_run_that_waits_can_be_ended() {
        let (reports, mut told) = mpsc::unbounded_channel();
        execute(vec![start(7, "hangs")], &reports);
        let report: Report = told.recv().await.unwrap();
        let (run, handle) = &report.waiting[0];
        assert_eq!(*run, RunId(7));
        handle.abort();
        drop(reports);
        assert!(told.recv().await.is_none(), "the task is gone, with its end of the mailbox");
    }
}
