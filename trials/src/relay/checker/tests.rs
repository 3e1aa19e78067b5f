#![allow(clippy::unwrap_used, reason = "tests")]

use super::super::history::{Delivery, Failed, Row, Transaction};
use super::*;

/// Twelve rows of three keys in transactions of two, all committed but the third (rows 4 and 5); the
/// sixth (10 and 11) commits before the fifth. Row 3 cannot be routed: it and 9 are of the key that
/// nothing else has, and 9 is delivered where nothing blocks it.
fn good(rules: Rules) -> History {
    let key = |row: usize| match row {
        3 | 9 => 2,
        _ => row as u32 % 2,
    };
    let kind = |row| if row == 3 { Kind::Unroutable } else { Kind::Fine };
    let rows: Vec<Row> = (0..12)
        .map(|row| Row {
            id: Id(row as u128 + 100),
            key: key(row),
            kind: kind(row),
            body: row as u32,
            dress: 7,
        })
        .collect();
    let transactions = (0..6).map(|at| Transaction {
        rows: vec![at * 2, at * 2 + 1],
        ending: if at == 2 { Ending::RolledBack } else { Ending::Committed },
    });
    let transactions: Vec<_> = transactions.collect();
    let commits = vec![0, 1, 3, 5, 4];
    let delivered =
        [0, 1, 2, 6, 7, 10, 11, 8, 9].into_iter().filter(|row| *row != 9 || !rules.blocks);
    let deliveries = delivered.map(|row: usize| Delivery {
        row: Some(row),
        id: Some(rows[row].id),
        body: rows[row].body,
        dress: 7,
    });
    let failed = Failed { id: Id(103), reason: "unroutable".into(), attempts: 1, is_dead: false };
    let deliveries = deliveries.collect();
    History { rows, transactions, commits, deliveries, failed: vec![failed], unmarked: vec![] }
}

const STRICT: Rules = Rules { order: Order::Commits, blocks: false, marks: true };
const KEYS: Rules = Rules { order: Order::Key, blocks: true, ..STRICT };

/// The promises that are found broken after a fault was planted into a good history.
#[track_caller]
fn planted(rules: Rules, fault: impl FnOnce(&mut History)) -> BTreeSet<&'static str> {
    let mut history = good(rules);
    assert!(check(&history, rules).is_valid(), "{}", check(&history, rules));
    fault(&mut history);
    let report = check(&history, rules);
    report.violations.iter().map(|violation| violation.promise).collect()
}

#[test]
fn a_good_history_is_valid_and_counted() {
    let report = check(&good(KEYS), KEYS);
    assert!(report.is_valid(), "{report}");
    assert_eq!((report.committed, report.rolled_back), (10, 2));
    assert_eq!((report.due, report.delivered, report.duplicates), (8, 8, 0));
    assert_eq!((report.parked, report.charged), (1, 0));
}

#[test]
fn a_row_that_is_missing_is_found() {
    assert_eq!(planted(KEYS, |history| history.deliveries.truncate(3)), ["B1"].into());
    let last = |history: &mut History| history.deliveries.truncate(7);
    assert_eq!(planted(KEYS, last), ["B1"].into());
}

#[test]
fn a_fine_row_that_was_given_up_is_found() {
    let broken = planted(KEYS, |history| {
        let gone = history.deliveries.remove(3).id.unwrap();
        let failed = Failed { id: gone, reason: "refused".into(), attempts: 20, is_dead: true };
        history.failed.push(failed);
    });
    assert_eq!(broken, ["B1"].into());
}

#[test]
fn a_row_that_was_rolled_back_is_found() {
    let broken = planted(KEYS, |history| {
        let delivery = Delivery { row: Some(4), id: Some(Id(104)), body: 4, dress: 7 };
        history.deliveries.push(delivery);
    });
    assert_eq!(broken, ["B2"].into());
    let parked = |history: &mut History| history.failed[0].id = Id(104);
    assert_eq!(planted(KEYS, parked), ["B1", "B2"].into());
}

#[test]
fn a_message_that_nobody_wrote_is_found() {
    let stranger = |row| Delivery { row, id: Some(Id(9)), body: 0, dress: 0 };
    for row in [None, Some(12)] {
        let broken = planted(KEYS, |history| history.deliveries.push(stranger(row)));
        assert_eq!(broken, ["B2"].into());
    }
}

#[test]
fn two_rows_of_a_key_that_are_swapped_are_found_and_of_two_keys_only_where_all_have_an_order() {
    let same_key = |history: &mut History| history.deliveries.swap(0, 2);
    assert_eq!(planted(KEYS, same_key), ["B3"].into());
    let two_keys = |history: &mut History| history.deliveries.swap(3, 4);
    assert_eq!(planted(KEYS, two_keys), [].into());
    assert_eq!(planted(STRICT, two_keys), ["B3"].into());
    let none = Rules { order: Order::None, ..STRICT };
    assert_eq!(planted(none, |history| history.deliveries.reverse()), [].into());
}

#[test]
fn the_order_of_writing_is_wrong_where_commits_had_another() {
    let by_number = |history: &mut History| history.deliveries.sort_by_key(|one| one.row);
    assert_eq!(planted(STRICT, by_number), ["B3"].into());
}

#[test]
fn a_second_delivery_is_fine_unless_it_has_another_id_body_or_header() {
    let again = |change: fn(&mut Delivery)| {
        planted(KEYS, |history| {
            let mut copy = history.deliveries[2].clone();
            change(&mut copy);
            history.deliveries.push(copy);
        })
    };
    assert_eq!(again(|_| ()), [].into());
    assert_eq!(again(|copy| copy.id = Some(Id(1))), ["B4"].into());
    assert_eq!(again(|copy| copy.id = None), ["B4"].into());
    assert_eq!(again(|copy| copy.body = 77), ["B4"].into());
    assert_eq!(again(|copy| copy.dress = 77), ["B4"].into());
}

#[test]
fn a_parked_row_needs_the_right_reason_and_stops_its_key_where_that_was_asked_for() {
    let wrong = |history: &mut History| history.failed[0].reason = "refused".into();
    assert_eq!(planted(KEYS, wrong), ["B1"].into());
    let nowhere = |history: &mut History| history.failed.clear();
    assert_eq!(planted(KEYS, nowhere), ["B1"].into());
    let passed = |history: &mut History| {
        let delivery = Delivery { row: Some(9), id: Some(Id(109)), body: 9, dress: 7 };
        history.deliveries.push(delivery);
    };
    assert_eq!(planted(KEYS, passed), ["B3"].into());
    let skips = Rules { blocks: false, ..KEYS };
    let mut history = good(KEYS);
    assert!(check(&history, skips).breaks("B1"), "the row behind is due");
    passed(&mut history);
    assert!(check(&history, skips).is_valid());
}

#[test]
fn a_parked_row_stops_everything_behind_it_where_all_have_one_order() {
    let rules = Rules { blocks: true, ..STRICT };
    let mut history = good(KEYS);
    let report = check(&history, rules);
    assert_eq!(report.due, 3, "{report}");
    assert!(report.breaks("B3"));
    history.deliveries.truncate(3);
    assert!(check(&history, rules).is_valid());
}

#[test]
fn a_delivered_row_that_is_not_marked_is_found() {
    let unmarked = |history: &mut History| history.unmarked.push(Id(100));
    assert_eq!(planted(KEYS, unmarked), ["B5"].into());
}

#[test]
fn a_trial_that_contradicts_itself_says_so() {
    let lost = |history: &mut History| history.commits.truncate(4);
    assert!(planted(KEYS, lost).contains("harness"));
    let kept = |history: &mut History| history.commits.insert(2, 2);
    assert!(planted(KEYS, kept).contains("harness"));
}
