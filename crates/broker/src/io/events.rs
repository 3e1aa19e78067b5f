//! Drives the publisher of events of a node. Decides nothing: every decision is `events::Publisher`'s.

use std::sync::Arc;

use cluster::{Answer, ClusterHandle};
use machine::Happened;
use tokio::sync::watch;

use super::broker::Broker;
use crate::events::Publisher;

/// Events that are published at a time.
const AT_ONCE: usize = 256;

/// Publishes events until `stop` says true. To be run once on every node.
pub async fn run(broker: Arc<Broker>, mut stop: watch::Receiver<bool>) {
    let cluster = &broker.cluster;
    let mut publisher = Publisher::new(cluster.node(), broker.seed());
    let stopped = async {
        // Who could tell is gone: that is as good.
        let _ = stop.wait_for(|is_stopping| *is_stopping).await;
    };
    let published = async {
        loop {
            let events = cluster.next_events(AT_ONCE).await;
            if publish(cluster, &mut publisher, &events).await.is_none() {
                return;
            }
            cluster.drop_events(publisher.take_dropped());
        }
    };
    tokio::select! {
        () = stopped => {}
        () = published => {}
    }
}

/// Publishes some events, and waits until all of it is answered. `None`: the node is stopping.
async fn publish(
    cluster: &ClusterHandle,
    publisher: &mut Publisher,
    events: &[Happened],
) -> Option<()> {
    // Dropping the receiver ends the session: none is open while nothing happens.
    let (session, mut answers) = cluster.open_session();
    let (mut answered, mut requests) = (Vec::new(), Vec::new());
    publisher.publish(&cluster.catalog(), events, &mut requests);
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
