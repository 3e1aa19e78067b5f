//! Drives the dead-letter worker of a node: what leaves the queues that the node leads, as long as the node runs.
//! Decides nothing: every decision is `DeadLetterWorker::step`'s.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::Request;
use machine::Outcome;
use tokio::sync::watch;

use super::broker::Broker;
use crate::dead_letter::{DeadLetterWorker, Fate, Input, Notice, Outputs, limits};
use crate::limits::APPEND_BYTES;

/// How long it sleeps with nothing to wait for.
const IDLE: Duration = Duration::from_secs(3600);

/// Carries dead messages until `stop` says true or the node is gone. To be run once on every node.
pub async fn run(broker: Arc<Broker>, mut stop: watch::Receiver<bool>) {
    let cluster = &broker.cluster;
    let (session, mut answers) = cluster.open_dead_letter_worker();
    let started = Instant::now();
    let chance = std::process::id().into();
    let mut worker = DeadLetterWorker::new(session, cluster.node(), chance, APPEND_BYTES);
    let mut out = Outputs::default();
    let mut answered = Vec::new();
    let mut stop_by = None;
    let (mut held, mut letting_go) = (cluster.dead_letters_held(), Vec::new());
    if *stop.borrow_and_update() {
        return;
    }
    loop {
        let held_until = *held.borrow_and_update();
        let held_until = held_until.map(|(_, until)| until.saturating_duration_since(started));
        let release = held_until.filter(|_| !letting_go.is_empty());
        let wanted = [worker.deadline(), stop_by, release].into_iter().flatten().min();
        let wanted = started + wanted.unwrap_or_else(|| started.elapsed() + IDLE);
        let input = tokio::select! {
            is_open = answers.recv(&mut answered), if letting_go.len() < limits::LET_GO_HELD => match is_open {
                true => Input::Answered(&mut answered),
                false => return,
            },
            _ = held.changed() => Input::DeadlinePassed,
            _ = stop.changed(), if stop_by.is_none() => {
                stop_by = Some(started.elapsed() + limits::STOP);
                Input::Stop
            }
            () = tokio::time::sleep_until(wanted.into()) => Input::DeadlinePassed,
        };
        let now = started.elapsed();
        {
            let catalog = cluster.catalog();
            worker.step(now, &catalog, input, &mut out);
        }
        broker.dead_letters.add(&worker.take_counts());
        out.notices.drain(..).for_each(|notice| tell(&notice));
        // Looked at after the step: what was stored before the hold may be let go.
        let is_held = held.borrow().is_some_and(|(_, until)| Instant::now() < until);
        if is_held {
            letting_go.extend(out.requests.extract_if(.., |request| lets_go(request)));
        } else {
            letting_go.append(&mut out.requests);
            std::mem::swap(&mut letting_go, &mut out.requests);
        }
        if !out.requests.is_empty() && !cluster.submit(session, &mut out.requests).await {
            return;
        }
        if worker.is_done() || stop_by.is_some_and(|at| now >= at) {
            tracing::debug!(seconds = now.as_secs(), "dead-letter worker stopped");
            return;
        }
    }
}

/// Whether a letter is gone from its source with this.
fn lets_go(request: &Request) -> bool {
    matches!(request, Request::Settle { outcome: Outcome::DeadLettered, .. })
}

fn tell(notice: &Notice) {
    let Notice { fate, count, vhost, queue } = notice;
    match fate {
        Fate::Routed => {}
        Fate::Aside => tracing::warn!(
            vhost,
            queue,
            count,
            "delivery limit reached, and the queue has no dead-letter exchange: messages kept in QUEUE.dead. \
             Consume or purge that queue, or set a dead-letter exchange"
        ),
        Fate::Unroutable => {
            tracing::warn!(
                vhost,
                queue,
                count,
                "dead letters dropped: the dead-letter exchange routes them to no queue. Bind a queue to it"
            );
        }
        Fate::NoExchange => {
            tracing::warn!(
                vhost,
                queue,
                count,
                "dead letters dropped: the dead-letter exchange does not exist. Declare it"
            );
        }
        Fate::Cycle => {
            tracing::warn!(
                vhost,
                queue,
                count,
                "dead letters dropped: they would go round a cycle of queues for ever. Route the dead letters of one \
                 of these queues elsewhere"
            );
        }
    }
}
