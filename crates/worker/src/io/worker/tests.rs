//! The shell with sources in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, mpsc, watch};

use super::*;
use crate::io::handlers::Failure;
use crate::io::source::{BoxFuture, Link, Source};
use crate::job::Message;
use crate::pool::PipelineSettings;
use crate::settlement::Settlement;

/// Gives these jobs, as fast as it may, and tells what became of them.
struct Memory {
    jobs: Vec<&'static str>,
    told: mpsc::UnboundedSender<Settled>,
    /// Ends with this error after its last job.
    error: Option<Error>,
}

impl Source for Memory {
    fn run(self: Box<Self>, mut link: Link) -> BoxFuture<Result<(), Error>> {
        Box::pin(async move {
            let mut jobs = self.jobs.into_iter().zip(1..);
            while let Some(order) = link.orders.recv().await {
                match order {
                    Order::Room { jobs: room } => {
                        let taken: Vec<Job> = jobs.by_ref().take(room).map(job).collect();
                        if !taken.is_empty() {
                            let _ = link.news.send(News::Took(taken)).await;
                        } else if let Some(error) = &self.error {
                            return Err(error.clone());
                        }
                    }
                    Order::Settle(settled) => {
                        let receipts = settled.iter().map(|one| one.receipt).collect();
                        settled.into_iter().for_each(|one| self.told.send(one).unwrap());
                        let _ = link.news.send(News::Settled(receipts)).await;
                    }
                    Order::Renew(_) | Order::Drain => (),
                    Order::Close => return Ok(()),
                }
            }
            Ok(())
        })
    }
}

fn job((kind, receipt): (&'static str, u64)) -> Job {
    let id = receipt.to_string();
    let message = Message { id, kind: kind.to_owned(), attempt: 1, ..Message::default() };
    let (receipt, key, group) = (Receipt(receipt), None, None);
    Job { receipt, message, key, group, lease_until: None, published_ms: None }
}

/// Gives a job whenever it is sent one.
struct Fed {
    jobs: mpsc::UnboundedReceiver<u64>,
    told: mpsc::UnboundedSender<Settled>,
}

impl Source for Fed {
    fn run(mut self: Box<Self>, mut link: Link) -> BoxFuture<Result<(), Error>> {
        Box::pin(async move {
            loop {
                tokio::select! {
                    order = link.orders.recv() => match order {
                        Some(Order::Settle(settled)) => {
                            let receipts = settled.iter().map(|one| one.receipt).collect();
                            settled.into_iter().for_each(|one| self.told.send(one).unwrap());
                            let _ = link.news.send(News::Settled(receipts)).await;
                        }
                        Some(Order::Room { .. } | Order::Renew(_) | Order::Drain) => (),
                        Some(Order::Close) | None => return Ok(()),
                    },
                    Some(receipt) = self.jobs.recv() => {
                        let _ = link.news.send(News::Took(vec![job(("ok", receipt))])).await;
                    }
                }
            }
        })
    }
}

fn memory(jobs: Vec<&'static str>) -> (Memory, mpsc::UnboundedReceiver<Settled>) {
    let (told, settled) = mpsc::unbounded_channel();
    (Memory { jobs, told, error: None }, settled)
}

#[tokio::test]
async fn every_job_is_executed_and_settled_and_the_proof_adds_up() {
    let (source, mut settled) = memory(vec!["ok"; 1000]);
    let (stop, stopped) = watch::channel(false);
    let worker = Worker::builder().source(source).handler("ok", async |(): ()| Ok(())).build();
    let worker = worker.unwrap();
    let metrics = worker.metrics();
    let running = tokio::spawn(worker.run_until(stopped));
    for _ in 0..1000 {
        assert_eq!(settled.recv().await.unwrap().settlement, Settlement::Done);
    }
    stop.send_replace(true);
    let proof = running.await.unwrap().unwrap();
    assert_eq!((proof.taken, proof.done), (1000, 1000));
    let status = metrics.status().pipelines.remove(0);
    assert_eq!((status.taken, status.in_hand, status.running), (1000, 0, 0));
}

#[tokio::test]
async fn a_stop_waits_for_what_runs() {
    let (source, mut settled) = memory(vec!["slow"]);
    let (stop, stopped) = watch::channel(false);
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let handler = {
        let (begun, go_on) = (Arc::clone(&begun), Arc::clone(&go_on));
        move |(): ()| {
            let (begun, go_on) = (Arc::clone(&begun), Arc::clone(&go_on));
            async move {
                begun.notify_one();
                go_on.notified().await;
                Ok(())
            }
        }
    };
    let worker = Worker::builder().source(source).handler("slow", handler).build().unwrap();
    let running = tokio::spawn(worker.run_until(stopped));
    begun.notified().await;
    stop.send_replace(true);
    assert!(settled.try_recv().is_err(), "it runs");
    go_on.notify_one();
    assert_eq!(settled.recv().await.unwrap().settlement, Settlement::Done);
    assert_eq!(running.await.unwrap().unwrap().done, 1);
}

#[tokio::test]
async fn a_change_holds_whole_or_not_at_all_while_jobs_run() {
    use crate::io::handlers::Handlers;
    let (source, mut settled) = memory(vec!["ok"; 3]);
    let (stop, stopped) = watch::channel(false);
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let (opened, peak, running) =
        (Arc::clone(&gate), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = (Arc::clone(&peak), Arc::clone(&running));
    let worker = Worker::builder()
        .source(source)
        .handler("ok", move |(): ()| {
            let (opened, (peak, running)) = (Arc::clone(&opened), seen.clone());
            async move {
                peak.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                opened.acquire().await.unwrap().forget();
                running.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }
        })
        .settings(|pipeline| (pipeline.concurrency, pipeline.buffer) = (1, Some(8)))
        .build()
        .unwrap();
    let (control, plan) = (worker.control(), worker.plan.settings.clone());
    let targets = || -> Vec<PlanTarget> {
        let target: Arc<dyn Target> = Arc::new(Handlers::default());
        vec![PlanTarget { target, kind: "handlers".to_owned() }]
    };
    let ended = tokio::spawn(worker.run_until(stopped));
    gate.add_permits(1);
    settled.recv().await.unwrap();
    assert_eq!(peak.load(Ordering::SeqCst), 1, "one at a time");
    let mut other = plan.clone();
    other.pipelines[0].name = "another".to_owned();
    let refused = control.change(other, targets()).await.unwrap_err();
    assert!(refused[0].contains("pipelines cannot come"), "{refused:?}");
    let mut wider = plan.clone();
    wider.pipelines[0].concurrency = 2;
    control.change(wider, targets()).await.unwrap();
    // The third job is the new target's, which knows no handler; the second one finishes with the old.
    let third = settled.recv().await.unwrap();
    assert!(matches!(third.settlement, Settlement::Dead { .. }), "{third:?}");
    gate.add_permits(1);
    assert_eq!(settled.recv().await.unwrap().settlement, Settlement::Done);
    stop.send_replace(true);
    let proof = ended.await.unwrap().unwrap();
    assert_eq!((proof.taken, proof.done, proof.dead), (3, 2, 1));
}

#[tokio::test]
async fn one_pipeline_rests_while_others_work_and_while_all_of_the_worker_does() {
    let fed = || {
        let (feed, jobs) = mpsc::unbounded_channel();
        let (told, settled) = mpsc::unbounded_channel();
        (feed, settled, Fed { jobs, told })
    };
    let ((mail, mut mailed, mails), (sms, mut texted, texts)) = (fed(), fed());
    let worker = Worker::builder()
        .pipeline(PipelineSettings::new("mail", "main"), mails)
        .pipeline(PipelineSettings::new("sms", "main"), texts)
        .handler("ok", async |(): ()| Ok(()))
        .build()
        .unwrap();
    let (stop, stopped) = watch::channel(false);
    let (control, metrics) = (worker.control(), worker.metrics());
    let running = tokio::spawn(worker.run_until(stopped));
    let paused = || {
        let status = metrics.status();
        let each: Vec<bool> = status.pipelines.iter().map(|one| one.is_paused).collect();
        (status.is_paused, each)
    };
    control.pause_pipeline("mail", true).await;
    assert_eq!(paused(), (false, vec![true, false]));
    mail.send(1).unwrap();
    while metrics.status().pipelines[0].taken == 0 {
        tokio::task::yield_now().await;
    }
    sms.send(1).unwrap();
    assert_eq!(texted.recv().await.unwrap().settlement, Settlement::Done);
    let resting = metrics.status().pipelines.remove(0);
    assert_eq!((resting.in_hand, resting.running), (1, 0), "the job waits here");

    control.pause(true).await;
    control.pause_pipeline("mail", false).await;
    assert_eq!(paused(), (true, vec![true, true]), "it rests with the worker");
    control.pause_pipeline("mail", true).await;
    control.pause(false).await;
    assert_eq!(paused(), (false, vec![true, false]), "it was paused by itself");
    assert!(mailed.try_recv().is_err());
    control.pause_pipeline("fax", true).await;
    control.pause_pipeline("mail", false).await;
    assert_eq!(mailed.recv().await.unwrap().settlement, Settlement::Done);
    assert_eq!(paused(), (false, vec![false, false]));
    stop.send_replace(true);
    assert_eq!(running.await.unwrap().unwrap().done, 2);
}

#[tokio::test]
async fn a_handler_that_fails_or_panics_has_its_job_tried_again() {
    let (source, mut settled) = memory(vec!["fails", "panics"]);
    let (stop, stopped) = watch::channel(false);
    let worker = Worker::builder()
        .source(source)
        .handler("fails", async |(): ()| Err(Failure::retry("not yet")))
        .handler("panics", async |(): ()| panic!("planned"))
        .settings(|pipeline| pipeline.order = crate::pool::Order::None)
        .build();
    let running = tokio::spawn(worker.unwrap().run_until(stopped));
    for _ in 0..2 {
        let settled = settled.recv().await.unwrap().settlement;
        assert!(matches!(settled, Settlement::Later { .. }), "{settled:?}");
    }
    stop.send_replace(true);
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_worker_whose_only_source_cannot_go_on_ends_with_its_words() {
    let (mut source, _settled) = memory(Vec::new());
    source.error = Some(Error::setup("there is no queue `jobs`"));
    let worker = Worker::builder().source(source).handler("ok", async |(): ()| Ok(())).build();
    let (_stop, stopped) = watch::channel(false);
    let ended = worker.unwrap().run_until(stopped).await;
    assert_eq!(ended.unwrap_err().to_string(), "there is no queue `jobs`");
}

#[tokio::test]
async fn middleware_sees_every_job() {
    struct Counts(Arc<AtomicUsize>);
    impl crate::io::handlers::Middleware for Counts {
        fn around(&self, job: Message, next: crate::io::handlers::Next) -> BoxFuture<Outcome> {
            self.0.fetch_add(1, Ordering::Relaxed);
            next.run(job)
        }
    }
    let (source, mut settled) = memory(vec!["ok"; 10]);
    let seen = Arc::new(AtomicUsize::new(0));
    let (stop, stopped) = watch::channel(false);
    let worker = Worker::builder()
        .source(source)
        .handler("ok", async |(): ()| Ok(()))
        .middleware(Counts(Arc::clone(&seen)))
        .build();
    let running = tokio::spawn(worker.unwrap().run_until(stopped));
    for _ in 0..10 {
        settled.recv().await.unwrap();
    }
    stop.send_replace(true);
    running.await.unwrap().unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), 10);
}

#[test]
fn a_worker_without_anything_to_do_is_refused() {
    let Err(error) = Worker::builder().build() else { panic!("it is built") };
    assert!(error.to_string().contains("there is no pipeline"), "{error}");
}
