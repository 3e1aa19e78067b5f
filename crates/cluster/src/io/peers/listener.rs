//! The peer port. Whoever connects has two seconds to prove that it is a member; few may try at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::Shared;
use super::line::{Broken, name};
use super::{bulk, greet, join};
use crate::peer::handshake::Purpose;

/// Connections that have not proved anything yet.
const UNPROVED_MAX: usize = 64;

/// Snapshots that come in at once.
const BULK_MAX: usize = 8;

/// After an accept that failed (too many open files) the next one waits.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections for ever; to be dropped.
pub(super) async fn run(listener: TcpListener, shared: Arc<Shared>) {
    let unproved = Arc::new(Semaphore::new(UNPROVED_MAX));
    let bulk = Arc::new(Semaphore::new(BULK_MAX));
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    shared.counters.accepted.fetch_add(1, Ordering::Relaxed);
                    let Ok(permit) = Arc::clone(&unproved).try_acquire_owned() else {
                        shared.counters.turned_away.fetch_add(1, Ordering::Relaxed);
                        continue;
                    };
                    let (shared, bulk) = (Arc::clone(&shared), Arc::clone(&bulk));
                    tasks.spawn(async move { serve(stream, &shared, permit, bulk).await });
                }
                Err(error) => {
                    tracing::warn!(
                        "cannot accept a connection on the peer port: {error}. The node tries again; if it has too \
                         many open files, raise their limit (ulimit -n, LimitNOFILE)"
                    );
                    tokio::time::sleep(PAUSE).await;
                }
            },
            Some(_) = tasks.join_next() => {}
        }
    }
}

async fn serve(
    stream: TcpStream,
    shared: &Arc<Shared>,
    permit: tokio::sync::OwnedSemaphorePermit,
    bulk: Arc<Semaphore>,
) {
    let address = stream.peer_addr();
    let greeted = async {
        stream.set_nodelay(true)?;
        let mut line = shared.accepted(stream).await?;
        let hello = greet::acceptor(&mut line, shared).await?;
        Ok((line, hello))
    };
    let greeted = tokio::time::timeout(greet::GREETING, greeted).await;
    drop(permit);
    let (line, hello) = match greeted.unwrap_or(Err(Broken::Silent(greet::GREETING))) {
        Ok(greeted) => greeted,
        Err(why) => {
            shared.counters.refused.fetch_add(1, Ordering::Relaxed);
            let from = address.map_or_else(|_| "an address".to_owned(), |from| from.to_string());
            shared.warn_of_stranger(&format!(
                "refused a connection from {from} to the peer port: {why}"
            ));
            return;
        }
    };
    if hello.purpose == Purpose::Join {
        let mut line = line;
        if let Err(why) = join::serve(&mut line, &hello, shared).await {
            tracing::warn!("{} asked to join the cluster and was refused: {why}", name(hello.node));
        }
        return;
    }
    let Some(member) = shared.members().get(&hello.node).cloned() else { return };
    match hello.purpose {
        // Whoever is not to dial is dialed: two connections would replace each other for ever.
        Purpose::Data if member.is_dialed_by(shared) => {}
        // The task of a member that was removed takes none any more.
        Purpose::Data => drop(member.calls.send((line, hello)).await),
        Purpose::Knock => member.knocked.notify_one(),
        Purpose::Join => unreachable!("who wants to join was served"),
        Purpose::Bulk => {
            let Ok(_permit) = bulk.try_acquire() else {
                shared.counters.turned_away.fetch_add(1, Ordering::Relaxed);
                return;
            };
            let why = bulk::receive(line, hello.node, shared).await;
            tracing::debug!("bulk connection from {} ended: {why}", name(hello.node));
        }
    }
}
