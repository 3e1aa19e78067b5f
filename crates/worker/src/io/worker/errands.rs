//! What a worker does beside executing jobs: schedules, shared rates, batches. Each is a task that ends with the
//! worker's stop.

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::cron::Cron;
use crate::error::Error;
use crate::io::coord::{Broker, batches, cron, shares};

/// What a worker does beside executing jobs.
#[derive(Default)]
pub struct Errands {
    pub schedules: Vec<(Cron, Broker)>,
    pub batches: Vec<(batches::Settings, Broker)>,
    /// By the place of the target.
    pub shares: Vec<(usize, String, shares::Settings, Broker)>,
}

/// Errands that run.
pub(super) struct Running {
    tasks: JoinSet<()>,
    /// Shares of targets, by their places: each change, in order.
    shares: mpsc::UnboundedReceiver<(usize, f64)>,
}

impl Errands {
    /// Begins all of them.
    pub(super) fn begin(self, stop: &watch::Receiver<bool>) -> Running {
        let mut tasks = JoinSet::new();
        for (schedules, broker) in self.schedules {
            let stop = stop.clone();
            tasks.spawn(async move { told(cron::run(schedules, broker, stop).await) });
        }
        for (settings, broker) in self.batches {
            let stop = stop.clone();
            tasks.spawn(async move {
                if let Err(error) = batches::declare(&broker).await {
                    tracing::warn!(%error, "the queue of batches is not declared yet; trying again");
                }
                told(batches::run(settings, broker, stop).await);
            });
        }
        // Bounded by the pace of shares: each target's changes once a second.
        let (tell, granted) = mpsc::unbounded_channel();
        for (at, name, settings, broker) in self.shares {
            let (stop, tell) = (stop.clone(), tell.clone());
            tasks.spawn(async move {
                // Nobody says less: a share is asked for in full.
                let (_wishes, wish) = watch::channel(settings.rate);
                let (share, mut changes) = watch::channel(0.0);
                let forward = async {
                    while changes.changed().await.is_ok() {
                        let rate = *changes.borrow_and_update();
                        let _ = tell.send((at, rate));
                    }
                };
                let run = shares::run(&name, &settings, broker, wish, share, stop);
                let (ended, ()) = tokio::join!(run, forward);
                told(ended);
            });
        }
        Running { tasks, shares: granted }
    }
}

fn told(ended: Result<(), Error>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a schedule, batch or share cannot go on; correct the settings and start again");
    }
}

impl Running {
    /// The next change of a share.
    pub(super) async fn share(&mut self) -> (usize, f64) {
        match self.shares.recv().await {
            Some(change) => change,
            // No share, or all have ended.
            None => std::future::pending().await,
        }
    }

    /// Waits until all have ended: they were told to stop.
    pub(super) async fn end(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}
