//! Several workers: who has which row, and what one that is held up does to the others.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::*;
use crate::inbox::{Key, OnRefused, Route};

fn config(workers: u32, order: Order) -> Config {
    let url = "amqp://localhost".parse().expect("it is a URL");
    let config = Config::new("postgres://localhost/shop", url, "orders", "billing");
    Config { workers, order, batch: 2, on_refused: OnRefused::Wait, ..config }
}

fn ready(workers: u32, order: Order) -> Workers {
    let mut all = Workers::new(&config(workers, order));
    let mut out = Vec::new();
    all.step_all(&Input::DatabaseReady, &mut out);
    assert_eq!(out, []);
    all
}

fn row(key: &str, id: &str) -> Row {
    with_body(key, id, Bytes::from_static(b"{}"))
}

fn with_body(key: &str, id: &str, body: Bytes) -> Row {
    let properties = amqp::Properties { message_id: Some(id), ..Default::default() };
    let route = Route { exchange: "", routing_key: key, key: &Key::RoutingKey };
    Row::new(route, &properties, body, || unreachable!("it has an id"))
}

fn keys() -> Vec<String> {
    (0..40).map(|key| format!("key-{key}")).collect()
}

#[test]
fn all_rows_of_a_key_go_to_one_worker_and_all_workers_have_keys() {
    let mut all = ready(4, Order::Key);
    let rows: Vec<Row> = (0..5)
        .flat_map(|number| keys().into_iter().map(move |key| row(&key, &format!("{key}.{number}"))))
        .collect();
    let mut out = Vec::new();
    let owners = all.deliver(rows.clone(), &mut out);
    let mut of_key: BTreeMap<&str, usize> = BTreeMap::new();
    for (row, owner) in rows.iter().zip(&owners) {
        let key = row.key.as_deref().expect("it has a key");
        assert_eq!(of_key.entry(key).or_insert(*owner), owner, "{key}");
    }
    assert!((0..4).all(|worker| owners.contains(&worker)), "{owners:?}");
    assert_eq!(all.held(), rows.len());
}

#[test]
fn without_an_order_rows_go_to_whoever_has_least() {
    let mut all = ready(3, Order::None);
    let mut out = Vec::new();
    assert_eq!(all.deliver(vec![row("k", "1"), row("k", "2")], &mut out), [0, 1]);
    assert_eq!(all.deliver(vec![row("k", "3"), row("k", "4")], &mut out), [2, 0]);
}

#[test]
fn a_row_that_cannot_be_stored_holds_up_its_key_and_no_other_worker() {
    let mut all = ready(4, Order::Key);
    let mut out = Vec::new();
    let owners = all.deliver(keys().iter().map(|key| row(key, key)).collect(), &mut out);
    let stuck = owners[0];
    let mut stored: Vec<String> = Vec::new();
    let mut is_mended = false;
    let mut are_held_up = Vec::new();
    while let Some((worker, output)) = out.pop() {
        match output {
            Output::Store(batch)
                if worker == stuck && !is_mended && batch[0].message_id == "key-0" =>
            {
                let why = "a check of the table".to_owned();
                all.step(worker, Input::Refused { why }, &mut out);
            }
            Output::Store(batch) => {
                stored.extend(batch.iter().map(|row| row.message_id.clone()));
                all.step(worker, Input::Stored { new: batch.len() as u64 }, &mut out);
            }
            Output::Stuck { message_id, .. } => {
                assert_eq!(message_id, "key-0");
                are_held_up.push(worker);
            }
            Output::Settle(_) => {}
            other => panic!("{other:?}"),
        }
        if out.is_empty() && !is_mended {
            assert_eq!(are_held_up, [stuck]);
            let passed = owners.iter().filter(|owner| **owner != stuck).count();
            assert_eq!(stored.len(), passed, "others go on, and nothing passes the stuck row");
            is_mended = true;
            all.step(stuck, Input::DatabaseReady, &mut out);
        }
    }
    let behind: Vec<&String> =
        stored.iter().filter(|id| all_of(&owners, stuck).contains(id)).collect();
    assert_eq!(behind, all_of(&owners, stuck).iter().collect::<Vec<_>>());
    assert_eq!((stored.len(), all.held()), (keys().len(), 0));
}

/// The ids that this worker has, in the order of delivery.
fn all_of(owners: &[usize], worker: usize) -> Vec<String> {
    let own = keys().into_iter().zip(owners).filter(|(_, owner)| **owner == worker);
    own.map(|(key, _)| key).collect()
}

#[test]
fn a_stop_ends_when_the_last_worker_has_stored_what_it_has() {
    let mut all = ready(2, Order::None);
    let mut out = Vec::new();
    all.deliver(vec![row("k", "1"), row("k", "2")], &mut out);
    out.clear();
    all.step_all(&Input::Stop, &mut out);
    assert_eq!(out, []);
    all.step(0, Input::Stored { new: 1 }, &mut out);
    assert_eq!(out, [(0, Output::Settle(1))]);
    all.step(1, Input::Stored { new: 1 }, &mut out);
    assert_eq!(out[1..], [(1, Output::Settle(1)), (1, Output::Stopped)]);
    let mut idle = ready(3, Order::Key);
    let mut out = Vec::new();
    idle.step_all(&Input::Stop, &mut out);
    assert_eq!(out, [(2, Output::Stopped)]);
}

fn held_bytes(all: &mut Workers, bytes: usize, id: &str) -> Vec<Output> {
    let mut out = Vec::new();
    all.deliver(vec![with_body(id, id, Bytes::from(vec![0; bytes]))], &mut out);
    out.into_iter().map(|(_, output)| output).collect()
}

#[test]
fn more_than_the_memory_may_hold_is_left_with_the_broker() {
    for workers in [1, 3] {
        let mut all = Workers::new(&config(workers, Order::Key));
        for id in ["a", "b", "c"] {
            assert_eq!(held_bytes(&mut all, HELD_BYTES_MAX / 4, id), []);
        }
        assert_eq!(held_bytes(&mut all, HELD_BYTES_MAX / 4, "d"), [Output::TakeLess]);
        all.step_all(&Input::BrokerLost, &mut Vec::new());
        assert_eq!(all.held(), 0, "nothing was being stored");
        // One that is larger than all of it still comes through.
        assert_eq!(held_bytes(&mut all, HELD_BYTES_MAX + 1, "e"), []);
    }
}

#[test]
fn a_large_row_that_comes_again_while_it_is_being_stored_is_not_left_again_and_again() {
    let mut all = ready(1, Order::Key);
    let large = HELD_BYTES_MAX - 100;
    assert!(matches!(held_bytes(&mut all, large, "a")[..], [Output::Store(_)]));
    all.step(0, Input::DatabaseLost, &mut Vec::new());
    for _ in 0..3 {
        all.step_all(&Input::BrokerLost, &mut Vec::new());
        assert_eq!(held_bytes(&mut all, large, "a"), []);
    }
    let more = held_bytes(&mut all, large, "a");
    assert_eq!(more, [Output::TakeLess], "of what it may leave it has too much");
}
