//! Rows of deliveries, and ids for messages that have none.

use std::hash::{BuildHasher, RandomState};

use client::Delivery;

use crate::inbox::{Key, Route, Row};

/// Makes rows, and ids for messages that have none.
pub(super) struct Ids {
    key: Key,
    state: RandomState,
    next: u64,
    has_warned: bool,
}

impl Ids {
    /// For messages whose key is this part of them.
    pub(super) fn new(key: Key) -> Self {
        Self { key, state: RandomState::new(), next: 0, has_warned: false }
    }

    pub(super) fn row(&mut self, delivery: &Delivery) -> Row {
        let key = self.key.clone();
        let (exchange, routing_key) = (delivery.exchange(), delivery.routing_key());
        let route = Route { exchange, routing_key, key: &key };
        let body = delivery.body.clone();
        let row = match delivery.properties() {
            Ok(properties) => Row::new(route, &properties, body, || self.new_id()),
            Err(error) => Row::unreadable(route, body, &error.to_string(), || self.new_id()),
        };
        if row.is_without_id && !self.has_warned {
            self.has_warned = true;
            tracing::warn!(
                "a message has no message-id: it is kept, and kept again whenever it is delivered again"
            );
        }
        row
    }

    /// A random UUID (RFC 9562, version 4): a keyed hash of a counter, under a key of this process.
    fn new_id(&mut self) -> String {
        self.next += 1;
        let half = |which: u8| u128::from(self.state.hash_one((self.next, which)));
        let bits = (half(0) << 64 | half(1)) & !(0xf << 76) & !(0x3 << 62) | 4 << 76 | 2 << 62;
        let hex = format!("{bits:032x}");
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        parts.join("-")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_ids_are_uuids_that_do_not_repeat() {
        let mut ids = Ids::new(Key::default());
        let made: std::collections::BTreeSet<String> = (0..1000).map(|_| ids.new_id()).collect();
        assert_eq!(made.len(), 1000);
        for id in made {
            assert_eq!((id.len(), &id[14..15]), (36, "4"), "{id}");
            assert!("89ab".contains(&id[19..20]), "{id}");
        }
    }
}
