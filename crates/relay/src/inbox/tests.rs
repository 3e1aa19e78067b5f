//! The inbox against a database and a broker that do as they are told.

use bytes::Bytes;

use super::*;

fn row(id: &str) -> Row {
    with_body(id, Bytes::from_static(b"{}"))
}

fn with_body(id: &str, body: Bytes) -> Row {
    let properties = amqp::Properties { message_id: Some(id), ..Default::default() };
    let route = Route { exchange: "", routing_key: "key", key: &Key::RoutingKey };
    Row::new(route, &properties, body, || unreachable!("it has an id"))
}

fn rows(ids: &[&str]) -> Vec<Row> {
    ids.iter().map(|id| row(id)).collect()
}

fn step(inbox: &mut Inbox, input: Input) -> Vec<Output> {
    let mut out = Vec::new();
    inbox.step(input, &mut out);
    out
}

fn ready(batch_rows: usize) -> Inbox {
    let mut inbox = Inbox::new(batch_rows, OnRefused::Wait);
    assert_eq!(step(&mut inbox, Input::DatabaseReady), []);
    inbox
}

/// The ids of the one batch that is to be stored.
fn ids(out: &[Output]) -> Vec<&str> {
    let [Output::Store(batch)] = out else { panic!("not one batch: {out:?}") };
    batch.iter().map(|row| row.message_id.as_str()).collect()
}

#[test]
fn what_comes_to_an_idle_database_is_stored_at_once_and_what_comes_meanwhile_is_the_next_batch() {
    let mut inbox = ready(100);
    assert_eq!(ids(&step(&mut inbox, Input::Delivered(rows(&["a"])))), ["a"]);
    assert_eq!(step(&mut inbox, Input::Delivered(rows(&["b"]))), []);
    assert_eq!(step(&mut inbox, Input::Delivered(rows(&["c", "d"]))), []);
    let out = step(&mut inbox, Input::Stored { new: 1 });
    assert_eq!(out[0], Output::Settle(1));
    assert_eq!(ids(&out[1..]), ["b", "c", "d"]);
    assert_eq!(step(&mut inbox, Input::Stored { new: 2 }), [Output::Settle(3)]);
    let counts = inbox.counts();
    assert_eq!((counts.stored, counts.duplicates, counts.batches), (3, 1, 2));
}

#[test]
fn a_batch_has_no_more_rows_and_bytes_than_it_may() {
    let mut inbox = ready(2);
    assert_eq!(ids(&step(&mut inbox, Input::Delivered(rows(&["a", "b", "c"])))), ["a", "b"]);
    let out = step(&mut inbox, Input::Stored { new: 2 });
    assert_eq!(ids(&out[1..]), ["c"]);

    let mut inbox = ready(100);
    let large = |id: &str| with_body(id, Bytes::from(vec![0; BATCH_BYTES / 2]));
    let three = vec![large("a"), large("b"), large("c")];
    assert_eq!(ids(&step(&mut inbox, Input::Delivered(three))), ["a"]);
}

#[test]
fn a_batch_whose_database_was_lost_is_stored_again_as_it_was_before_anything_else() {
    let mut inbox = ready(10);
    step(&mut inbox, Input::Delivered(rows(&["a", "b"])));
    assert_eq!(step(&mut inbox, Input::DatabaseLost), []);
    assert_eq!(step(&mut inbox, Input::Delivered(rows(&["c"]))), [], "nothing is acknowledged");
    assert_eq!(ids(&step(&mut inbox, Input::DatabaseReady)), ["a", "b"]);
    // The first attempt had been committed after all.
    let out = step(&mut inbox, Input::Stored { new: 0 });
    assert_eq!(out[0], Output::Settle(2));
    assert_eq!(ids(&out[1..]), ["c"]);
    assert_eq!(inbox.counts().duplicates, 2);
}

#[test]
fn what_came_on_a_lost_connection_is_stored_if_it_was_begun_and_never_acknowledged() {
    let mut inbox = ready(2);
    step(&mut inbox, Input::Delivered(rows(&["a", "b", "c"])));
    assert_eq!(step(&mut inbox, Input::BrokerLost), []);
    assert_eq!(inbox.held(), 2, "what waited comes again");
    // All three come again on the next connection.
    assert_eq!(step(&mut inbox, Input::Delivered(rows(&["a", "b", "c"]))), []);
    let out = step(&mut inbox, Input::Stored { new: 2 });
    assert_eq!(ids(&out), ["a", "b"], "no ack for the first two");
    let out = step(&mut inbox, Input::Stored { new: 0 });
    assert_eq!(out[0], Output::Settle(2));
    assert_eq!(ids(&out[1..]), ["c"]);
}

#[test]
fn a_row_that_the_database_refuses_is_found_and_stored_without_what_is_wrong_with_it() {
    let names: Vec<String> = (0..100).map(|number| number.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut inbox = ready(100);
    let mut out = step(&mut inbox, Input::Delivered(rows(&names)));
    let (mut stored, mut settled, mut refusals) = (Vec::new(), 0, 0);
    while let Some(Output::Store(batch)) = out.iter().find(|o| matches!(o, Output::Store(_))) {
        let is_bad = |row: &Row| row.message_id == "37" && row.error.is_none();
        let input = if batch.iter().any(is_bad) {
            refusals += 1;
            Input::Refused { why: "no such character".into() }
        } else {
            stored.extend(batch.iter().cloned());
            Input::Stored { new: batch.len() as u64 }
        };
        out = step(&mut inbox, input);
        for output in &out {
            if let Output::Settle(count) = output {
                settled += count;
            }
        }
    }
    let order: Vec<&str> = stored.iter().map(|row| row.message_id.as_str()).collect();
    assert_eq!(order, names, "in the order of delivery, each once");
    assert_eq!((settled, inbox.counts().flawed), (100, 1));
    assert_eq!(stored[37].error.as_deref(), Some("no such character"));
    assert_eq!(stored[37].payload, row("37").payload, "the payload is whole");
    assert!(refusals < 15, "{refusals} refusals to find one of a hundred");
}

#[test]
fn a_row_that_cannot_be_stored_at_all_is_told_and_tried_again_and_nothing_overtakes_it() {
    let mut inbox = ready(10);
    step(&mut inbox, Input::Delivered(rows(&["a"])));
    let why = || "a check of the table".to_owned();
    assert_eq!(ids(&step(&mut inbox, Input::Refused { why: why() })), ["a"]);
    step(&mut inbox, Input::Delivered(rows(&["b"])));
    let out = step(&mut inbox, Input::Refused { why: why() });
    assert_eq!(out, [Output::Stuck { message_id: "a".into(), why: why() }]);
    assert_eq!(ids(&step(&mut inbox, Input::DatabaseReady)), ["a"]);
    let out = step(&mut inbox, Input::Stored { new: 1 });
    assert_eq!(ids(&out[1..]), ["b"]);
}

#[test]
fn a_row_that_cannot_be_stored_at_all_is_rejected_where_that_was_asked_for_and_others_go_on() {
    let mut inbox = Inbox::new(10, OnRefused::Reject);
    step(&mut inbox, Input::DatabaseReady);
    step(&mut inbox, Input::Delivered(rows(&["a"])));
    let why = || "a check of the table".to_owned();
    assert_eq!(ids(&step(&mut inbox, Input::Refused { why: why() })), ["a"], "without its flaws");
    step(&mut inbox, Input::Delivered(rows(&["b"])));
    let out = step(&mut inbox, Input::Refused { why: why() });
    assert_eq!(out[0], Output::Reject { message_id: "a".into(), why: why() });
    assert_eq!(ids(&out[1..]), ["b"]);
    assert_eq!(step(&mut inbox, Input::Stored { new: 1 }), [Output::Settle(1)]);
    let counts = inbox.counts();
    assert_eq!((counts.stored, counts.rejected, counts.flawed), (1, 1, 0));
}

#[test]
fn a_refused_row_of_a_lost_connection_is_not_rejected_in_the_place_of_another() {
    let mut inbox = Inbox::new(10, OnRefused::Reject);
    step(&mut inbox, Input::DatabaseReady);
    step(&mut inbox, Input::Delivered(rows(&["a"])));
    assert_eq!(step(&mut inbox, Input::BrokerLost), []);
    // It comes again, as the first of the next connection.
    step(&mut inbox, Input::Delivered(rows(&["a", "b"])));
    let why = || "a check of the table".to_owned();
    step(&mut inbox, Input::Refused { why: why() });
    let out = step(&mut inbox, Input::Refused { why: why() });
    assert_eq!(ids(&out), ["a"], "nobody waits for the first one's end");
    assert_eq!(inbox.counts().rejected, 0);
    step(&mut inbox, Input::Refused { why: why() });
    let out = step(&mut inbox, Input::Refused { why: why() });
    assert_eq!(out[0], Output::Reject { message_id: "a".into(), why: why() });
    assert_eq!(ids(&out[1..]), ["b"]);
}

#[test]
fn a_stop_waits_for_what_is_here() {
    let mut inbox = ready(1);
    assert_eq!(step(&mut ready(1), Input::Stop), [Output::Stopped]);
    step(&mut inbox, Input::Delivered(rows(&["a", "b"])));
    assert_eq!(step(&mut inbox, Input::Stop), []);
    let out = step(&mut inbox, Input::Stored { new: 1 });
    assert_eq!(ids(&out[1..]), ["b"]);
    let out = step(&mut inbox, Input::Stored { new: 1 });
    assert_eq!(out, [Output::Settle(1), Output::Stopped]);
}

#[test]
fn whatever_happens_each_delivery_is_settled_at_most_once_and_only_when_it_is_stored() {
    let mut chance = client::Chance::new(7);
    for _ in 0..200 {
        let mut inbox = ready(5);
        let (mut next, mut stored) = (0_u64, std::collections::BTreeSet::new());
        // What the broker waits for, oldest first.
        let mut unsettled: VecDeque<String> = VecDeque::new();
        let mut backlog: VecDeque<String> = VecDeque::new();
        let mut storing: Option<Arc<Vec<Row>>> = None;
        let mut has_database = true;
        for _ in 0..300 {
            let input = match chance.next_bits() % 8 {
                0..=2 => {
                    let count = 1 + chance.next_bits() % 4;
                    let mut names = Vec::new();
                    for _ in 0..count {
                        names.push(backlog.pop_front().unwrap_or_else(|| {
                            next += 1;
                            next.to_string()
                        }));
                    }
                    unsettled.extend(names.iter().cloned());
                    Input::Delivered(names.iter().map(|name| row(name)).collect())
                }
                3 => {
                    for name in unsettled.drain(..).rev() {
                        backlog.push_front(name);
                    }
                    Input::BrokerLost
                }
                4 if storing.is_some() => {
                    storing = None;
                    has_database = false;
                    Input::DatabaseLost
                }
                _ if !has_database => {
                    has_database = true;
                    Input::DatabaseReady
                }
                _ => match storing.take() {
                    Some(batch) => {
                        let is_new = |row: &&Row| stored.insert(row.message_id.clone());
                        let new = batch.iter().filter(is_new).count() as u64;
                        Input::Stored { new }
                    }
                    None => continue,
                },
            };
            for output in step(&mut inbox, input) {
                match output {
                    Output::Store(batch) => storing = Some(batch),
                    Output::Settle(count) => {
                        for name in unsettled.drain(..count) {
                            assert!(
                                stored.contains(&name),
                                "{name} was settled before it was stored"
                            );
                        }
                    }
                    Output::Stuck { .. }
                    | Output::Reject { .. }
                    | Output::Stopped
                    | Output::TakeLess => {
                        panic!("{output:?}")
                    }
                }
            }
        }
        assert!(next > 50 && stored.len() as u64 <= next);
    }
}
