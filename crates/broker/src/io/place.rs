//! The place of one connection among those of its node: taken before the client is heard, and given back with it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::broker::Broker;
use crate::door::{Knock, Number};
use crate::logins::Address;
use crate::metrics::Metrics;

/// One connection's place, until it is dropped.
pub(crate) struct Place {
    broker: Arc<Broker>,
    address: Address,
    number: Number,
}

impl Place {
    /// Waits until there is room: see `door`. None: there is none, and there will be none soon. With it comes what
    /// tells the connection to go.
    pub(crate) async fn take(
        broker: &Arc<Broker>,
        peer: SocketAddr,
    ) -> Option<(Self, oneshot::Receiver<()>)> {
        let address = Address::of(peer.ip());
        loop {
            let wait = match Self::try_take(broker, address) {
                Ok(place) => return place,
                Err(wait) => wait,
            };
            // Whichever comes first: both only mean that it is worth another look.
            let _ = tokio::time::timeout(wait, broker.places.changed.notified()).await;
        }
    }

    fn try_take(
        broker: &Arc<Broker>,
        address: Address,
    ) -> Result<Option<(Self, oneshot::Receiver<()>)>, Duration> {
        let places = &broker.places;
        let is_slow = broker.credentials.is_slow(address);
        let now = places.now();
        let mut inside = places.lock();
        let knock = inside.door.knock(now, address, is_slow);
        if let Knock::Wait(wait) = knock {
            return Err(wait);
        }
        if knock == Knock::Full {
            let open = inside.door.open();
            drop(inside);
            Metrics::count(&broker.metrics.limit_connections);
            places.tell_full(address, open);
            return Ok(None);
        }
        let mut pushed_out = None;
        if let Knock::InsteadOf(whose, oldest) = knock {
            pushed_out = Some((whose, inside.door.stranger_count()));
            // Its place is free at once; its task gives the socket back in a moment.
            inside.door.known(whose, oldest);
            if let Some(go) = inside.strangers.remove(&oldest) {
                let _ = go.send(());
            }
        }
        let number = inside.door.enter(now, address);
        let (go, told) = oneshot::channel();
        inside.strangers.insert(number, go);
        drop(inside);
        if let Some((whose, strangers)) = pushed_out {
            Metrics::count(&broker.metrics.limit_connections);
            places.tell_crowded(whose, strangers);
        }
        Ok(Some((Self { broker: Arc::clone(broker), address, number }, told)))
    }

    /// The password or token of this connection is being checked, or is not any more.
    pub(crate) fn checked(&self, is_checked: bool) {
        self.broker.places.lock().door.checked(self.address, self.number, is_checked);
    }

    /// The user is known.
    pub(crate) fn known(&self) {
        let mut inside = self.broker.places.lock();
        inside.door.known(self.address, self.number);
        inside.strangers.remove(&self.number);
        drop(inside);
        self.broker.places.changed.notify_one();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inside = self.broker.places.lock();
        inside.door.leave(self.address, self.number);
        inside.strangers.remove(&self.number);
        drop(inside);
        self.broker.places.changed.notify_one();
        Metrics::count(&self.broker.metrics.connections_closed);
    }
}
