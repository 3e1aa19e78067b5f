//! Drives the publishers of a node: of events, and of traces. Decides nothing: every decision is `own::OwnPublisher`'s.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cluster::{Answer, ClusterHandle};
use tokio::sync::watch;

use super::broker::Broker;
use crate::own::{Own, OwnPublisher};

/// Events that are published at a time.
const EVENTS_AT_ONCE: usize = 256;
/// Traces that are published at a time: so many, or the first that bring the bytes above that.
const TRACES_AT_ONCE: usize = 256;
const TRACES_AT_ONCE_BYTES: usize = 1 << 20;

/// Publishes events and traces until `stop` says true. To be run once on every node.
pub async fn run(broker: Arc<Broker>, mut stop: watch::Receiver<bool>) {
    let stopped = async {
        // Who could tell is gone: that is as good.
        let _ = stop.wait_for(|is_stopping| *is_stopping).await;
    };
    let published = async { tokio::join!(events(&broker), traces(&broker)) };
    tokio::select! {
        () = stopped => {}
        ((), ()) = published => {}
    }
}

async fn events(broker: &Broker) {
    let cluster = &broker.cluster;
    let mut publisher = OwnPublisher::new(cluster.node(), broker.seed());
    loop {
        let events = cluster.next_events(EVENTS_AT_ONCE).await;
        let messages: Vec<Own> = events.iter().filter_map(crate::events::message).collect();
        let unwritten = (events.len() - messages.len()) as u64;
        if publish(cluster, &mut publisher, messages).await.is_none() {
            return;
        }
        cluster.drop_events(unwritten + publisher.take_dropped());
    }
}

async fn traces(broker: &Broker) {
    let cluster = &broker.cluster;
    let mut publisher = OwnPublisher::new(cluster.node(), broker.seed());
    let mut waiting = broker.traces.waiting().await;
    loop {
        let messages = waiting.next(TRACES_AT_ONCE, TRACES_AT_ONCE_BYTES).await;
        if publish(cluster, &mut publisher, messages).await.is_none() {
            return;
        }
        broker.metrics.traces_dropped.fetch_add(publisher.take_dropped(), Ordering::Relaxed);
    }
}

/// Publishes some messages, and waits until all of it is answered. `None`: the node is stopping.
async fn publish(
    cluster: &ClusterHandle,
    publisher: &mut OwnPublisher,
    messages: Vec<Own>,
) -> Option<()> {
    // Dropping the receiver ends the session: none is open while nothing happens.
    let (session, mut answers) = cluster.open_session();
    let (mut answered, mut requests) = (Vec::new(), Vec::new());
    publisher.publish(&cluster.catalog(), messages, &mut requests);
    while !publisher.is_idle() {
        if !requests.is_empty() && !cluster.submit(session, &mut requests).await {
            return None;
        }
        if !answers.recv(&mut answered).await {
            return None;
        }
        for answer in answered.drain(..) {
            if matches!(answer, Answer::Stopping) {
                return None;
            }
            publisher.answered(&answer, &mut requests);
        }
    }
    Some(())
}
