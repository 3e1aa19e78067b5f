//! Drives one retry of dead letters until it is over. Decides nothing: every decision is `Retrier::step`'s.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use super::broker::Broker;
use crate::dead_letter::limits;
use crate::dead_letter::retry::{Input, Plan, Progress, Retrier, State};
use crate::limits::APPEND_BYTES;

/// How long it sleeps with nothing to wait for.
const IDLE: Duration = Duration::from_secs(3600);

/// Carries out `plan`, and says how far it has come, until it is over, `stop` says true, or the node is gone.
pub async fn run(
    broker: Arc<Broker>,
    plan: Plan,
    progress: watch::Sender<Progress>,
    mut stop: watch::Receiver<bool>,
) {
    let cluster = &broker.cluster;
    // Dropping the receiver ends the session, and gives back what it holds.
    let (session, mut answers) = cluster.open_session();
    let started = Instant::now();
    let began_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let began_ms = u64::try_from(began_ms).unwrap_or(u64::MAX);
    let mut retrier = Retrier::new(session, plan, began_ms, cluster.alarms(), APPEND_BYTES);
    let (mut answered, mut requests) = (Vec::new(), Vec::new());
    let mut stop_by = None;
    let mut input = Input::DeadlinePassed;
    loop {
        let now = started.elapsed();
        {
            let catalog = cluster.catalog();
            retrier.step(now, &catalog, input, &mut requests);
        }
        progress.send_replace(retrier.progress().clone());
        if !requests.is_empty() && !cluster.submit(session, &mut requests).await {
            return;
        }
        if retrier.is_over() || stop_by.is_some_and(|at| now >= at) {
            return;
        }
        if retrier.progress().state != State::Running && stop_by.is_none() {
            stop_by = Some(now + limits::STOP);
        }
        let wanted = [retrier.deadline(), stop_by].into_iter().flatten().min();
        let wanted = started + wanted.unwrap_or_else(|| started.elapsed() + IDLE);
        input = tokio::select! {
            is_open = answers.recv(&mut answered) => match is_open {
                true => Input::Answered(&mut answered),
                false => return,
            },
            // Also if nobody is left who could say so.
            _ = stop.changed(), if stop_by.is_none() => Input::Stop,
            () = tokio::time::sleep_until(wanted.into()) => Input::DeadlinePassed,
        };
    }
}
