//! What passed through traced vhosts, on its way to the exchanges of traces: a bounded queue, between the sessions and the
//! one task that publishes it. No session waits: what finds no room is dropped and counted.

use std::sync::Arc;

use tokio::sync::{Mutex, MutexGuard, OwnedSemaphorePermit, Semaphore, mpsc};

use crate::limits::{TRACES_WAITING_BYTES_MAX, TRACES_WAITING_MAX};
use crate::own::Own;

/// What is taken to be a trace's own weight, beside its bytes.
const TRACE_BYTES: usize = 256;

/// The traces that wait.
#[derive(Debug)]
pub(crate) struct Traces {
    sender: mpsc::Sender<Held>,
    receiver: Mutex<mpsc::Receiver<Held>>,
    room: Arc<Semaphore>,
}

/// A trace and the room that it takes.
#[derive(Debug)]
pub(super) struct Held {
    own: Own,
    weight: u32,
    _room: OwnedSemaphorePermit,
}

impl Default for Traces {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(TRACES_WAITING_MAX);
        let room = Arc::new(Semaphore::new(TRACES_WAITING_BYTES_MAX));
        Self { sender, receiver: Mutex::new(receiver), room }
    }
}

impl Traces {
    /// False: there is no room.
    pub(crate) fn push(&self, own: Own) -> bool {
        let bytes = TRACE_BYTES + own.properties.len() + own.body.len();
        let Ok(weight) = u32::try_from(bytes) else { return false };
        let Ok(room) = Arc::clone(&self.room).try_acquire_many_owned(weight) else { return false };
        self.sender.try_send(Held { own, weight, _room: room }).is_ok()
    }

    /// For the one task that publishes them.
    pub(super) async fn waiting(&self) -> Waiting<'_> {
        Waiting(self.receiver.lock().await)
    }
}

/// The end where traces are taken.
pub(super) struct Waiting<'t>(MutexGuard<'t, mpsc::Receiver<Held>>);

impl Waiting<'_> {
    /// Waits for some. Gives so many at most, and no more once they have that many bytes.
    pub(super) async fn next(&mut self, most: usize, bytes: usize) -> Vec<Own> {
        let (mut taken, mut weight) = (Vec::new(), 0);
        // The sender lives as long as the queue: there is always a next one.
        let mut next = self.0.recv().await;
        while let Some(Held { own, weight: one, .. }) = next {
            taken.push(own);
            weight += one as usize;
            if taken.len() >= most || weight >= bytes {
                break;
            }
            next = self.0.try_recv().ok();
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};

    use super::*;

    fn trace(bytes: usize) -> Own {
        Own {
            vhost: "/".to_owned(),
            exchange: machine::Exchange::TRACES,
            key: "publish.".to_owned(),
            properties: BytesMut::new(),
            body: Bytes::from(vec![b'x'; bytes]),
        }
    }

    #[tokio::test]
    async fn what_finds_no_room_is_dropped_and_there_is_room_again_for_what_was_taken() {
        let traces = Traces::default();
        assert!((0..TRACES_WAITING_MAX).all(|_| traces.push(trace(1))));
        assert!(!traces.push(trace(1)), "so many wait already");
        let mut waiting = traces.waiting().await;
        assert_eq!(waiting.next(100, usize::MAX).await.len(), 100);
        assert!(traces.push(trace(1)));
        while waiting.0.try_recv().is_ok() {}
        assert!(!traces.push(trace(TRACES_WAITING_BYTES_MAX)), "it is larger than all the room");
        let half = TRACES_WAITING_BYTES_MAX / 2;
        assert!(traces.push(trace(half)) && !traces.push(trace(half)));
        assert_eq!(waiting.next(2, 1).await.len(), 1);
        assert!(traces.push(trace(half)));
    }
}
