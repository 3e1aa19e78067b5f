//! The rows of one batch: which may be published next, and how each ended.
//!
//! Under an order, at most a window of one key's rows is unconfirmed, so that no row can overtake one of its key
//! that fails. After a failure the rest of its key is held: neither published nor charged.

use std::collections::{BTreeMap, VecDeque};

use crate::attempts::{Fault, Reason};
use crate::config::Order;
use crate::fields::Fields;

/// A row of the outbox that this batch has locked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutboxRow {
    /// Its place in the table (`ctid`), packed: block and offset.
    pub place: u64,
    pub fields: Fields,
}

/// What became of a row in this batch.
///
/// ```text
///   Waiting ──published──> Unconfirmed ──> Confirmed
///      │                      │ └────────> Failed ──an outage refused all──┐
///      │ its key has failed,  │ time is up, or the broker is lost          │
///      v or publishing ends   v                                            v
///    Held                   Held: given back, uncharged                  Held
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Unconfirmed,
    Confirmed,
    Failed,
    Held,
}

/// Rows that wait behind others of their key.
#[derive(Debug, Default)]
struct Key {
    waiting: VecDeque<u32>,
    has_failed: bool,
}

/// One batch. Rows are named by their place in it.
#[derive(Debug, Default)]
pub struct Batch {
    rows: Vec<OutboxRow>,
    states: Vec<State>,
    /// Key of each row; empty without an order.
    key_of: Vec<u32>,
    keys: Vec<Key>,
    ready: VecDeque<u32>,
    faults: Vec<(usize, Fault)>,
    /// A row was proved guilty: no outage explains its fault.
    has_convict: bool,
    unconfirmed: usize,
    confirmed: usize,
    open: usize,
}

impl Batch {
    /// `key` tells a row's key; unused without an order.
    pub fn new(
        rows: Vec<OutboxRow>,
        order: Order,
        order_window: u32,
        key: impl Fn(&Fields) -> Vec<u8>,
    ) -> Self {
        let count = rows.len();
        let mut batch =
            Self { states: vec![State::Waiting; count], open: count, ..Self::default() };
        match order {
            Order::None => batch.ready.extend(0..count as u32),
            Order::Key | Order::Strict => {
                let mut places: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
                for (index, row) in rows.iter().enumerate() {
                    let name = if order == Order::Strict { Vec::new() } else { key(&row.fields) };
                    let next = places.len() as u32;
                    let place = *places.entry(name).or_insert(next);
                    if place == next {
                        batch.keys.push(Key::default());
                    }
                    batch.key_of.push(place);
                    batch.keys[place as usize].waiting.push_back(index as u32);
                }
                for key in &mut batch.keys {
                    let first = key.waiting.len().min(order_window as usize);
                    batch.ready.extend(key.waiting.drain(..first));
                }
                // The window is of a key; over all keys, rows keep the order they were read in.
                batch.ready.make_contiguous().sort_unstable();
            }
        }
        batch.rows = rows;
        batch
    }

    /// The rows, by their place.
    pub fn rows(&self) -> &[OutboxRow] {
        &self.rows
    }

    /// How many are published and have no verdict.
    pub fn unconfirmed(&self) -> usize {
        self.unconfirmed
    }

    /// How many are confirmed.
    pub fn confirmed_count(&self) -> usize {
        self.confirmed
    }

    /// The next row that may be published; it counts as unconfirmed from here on.
    pub fn take_next(&mut self) -> Option<usize> {
        let row = self.ready.pop_front()? as usize;
        self.states[row] = State::Unconfirmed;
        self.unconfirmed += 1;
        Some(row)
    }

    /// The row that [`Batch::take_next`] would give.
    pub fn next(&self) -> Option<usize> {
        self.ready.front().map(|&row| row as usize)
    }

    /// Of the rows that may be published now, those of a higher rank come later; never before one of their own key.
    pub fn put_last(&mut self, rank: impl Fn(usize) -> u8) {
        let mut rank_of_key = vec![0; self.keys.len()];
        let mut ranked: Vec<(u8, u32)> = Vec::with_capacity(self.ready.len());
        for &row in &self.ready {
            let mut rank = rank(row as usize);
            if let Some(&key) = self.key_of.get(row as usize) {
                let of_key = &mut rank_of_key[key as usize];
                *of_key = rank.max(*of_key);
                rank = *of_key;
            }
            ranked.push((rank, row));
        }
        ranked.sort_by_key(|&(rank, _)| rank);
        self.ready = ranked.into_iter().map(|(_, row)| row).collect();
    }

    /// The unconfirmed `row` failed, and others passed where it did not.
    pub fn convict(&mut self, row: usize, fault: Fault) {
        self.has_convict = true;
        self.settle(row, Err(fault));
    }

    /// The verdict on an unconfirmed row. What is not unconfirmed (any more) is passed over.
    pub fn settle(&mut self, row: usize, verdict: Result<(), Fault>) {
        if self.states.get(row) != Some(&State::Unconfirmed) {
            return;
        }
        self.unconfirmed -= 1;
        self.open -= 1;
        let key = self.key_of.get(row).map(|&key| key as usize);
        match verdict {
            Ok(()) => {
                self.states[row] = State::Confirmed;
                self.confirmed += 1;
                if let Some(key) = key.map(|key| &mut self.keys[key])
                    && !key.has_failed
                    && let Some(next) = key.waiting.pop_front()
                {
                    self.ready.push_back(next);
                }
            }
            Err(fault) => {
                self.states[row] = State::Failed;
                self.faults.push((row, fault));
                if let Some(key) = key {
                    self.keys[key].has_failed = true;
                    let waiting = std::mem::take(&mut self.keys[key].waiting);
                    waiting.into_iter().for_each(|row| self.hold(row as usize));
                    // With a window above 1 some of the key may be ready already.
                    let ready = std::mem::take(&mut self.ready);
                    for next in ready {
                        match self.key_of[next as usize] as usize == key {
                            true => self.hold(next as usize),
                            false => self.ready.push_back(next),
                        }
                    }
                }
            }
        }
    }

    /// Gives up on what has no verdict: it goes back untouched and uncharged.
    pub fn hold_rest(&mut self) {
        self.hold_unpublished();
        for row in 0..self.states.len() {
            if self.states[row] == State::Unconfirmed {
                self.unconfirmed -= 1;
                self.hold(row);
            }
        }
    }

    /// Publishes nothing more; what is published may still be confirmed.
    pub fn hold_unpublished(&mut self) {
        self.ready.clear();
        self.keys.iter_mut().for_each(|key| key.waiting.clear());
        for row in 0..self.states.len() {
            if self.states[row] == State::Waiting {
                self.hold(row);
            }
        }
    }

    fn hold(&mut self, row: usize) {
        self.states[row] = State::Held;
        self.open -= 1;
    }

    /// The row was not taken: it is among the faults.
    pub fn has_failed(&self, row: usize) -> bool {
        self.states.get(row) == Some(&State::Failed)
    }

    /// Every row has ended, one way or the other.
    pub fn is_settled(&self) -> bool {
        self.open == 0
    }

    /// Rows without a verdict, in order.
    pub fn all_unconfirmed(&self) -> impl Iterator<Item = usize> {
        (0..self.states.len()).filter(|&row| self.states[row] == State::Unconfirmed)
    }

    /// The only row without a verdict, if there is exactly one.
    pub fn sole_unconfirmed(&self) -> Option<usize> {
        let mut rows = self.all_unconfirmed();
        let first = rows.next();
        rows.next().is_none().then_some(first).flatten()
    }

    /// Something was confirmed, or somebody is proved guilty: what was refused beside it was not refused by an outage.
    pub fn has_proof(&self) -> bool {
        self.confirmed > 0 || self.has_convict
    }

    /// The broker took nothing, and refused this: more likely an outage than these rows' fault, whatever else is wrong
    /// with others.
    pub fn is_refused_whole(&self) -> bool {
        !self.has_proof() && self.faults.iter().any(|(_, fault)| fault.reason == Reason::Refused)
    }

    /// Gives back what was refused, untouched and uncharged.
    pub fn hold_refused(&mut self) {
        for (row, _) in self.faults.extract_if(.., |(_, fault)| fault.reason == Reason::Refused) {
            self.states[row] = State::Held;
        }
    }

    /// What has no verdict by now is unanswered: it waits, uncharged, and holds the rest of its key.
    /// Rows that were never handed over (`is_sent` tells) are held instead.
    pub fn leave_unanswered(&mut self, text: &str, is_sent: impl Fn(usize) -> bool) {
        self.hold_unpublished();
        for row in 0..self.states.len() {
            if self.states[row] == State::Unconfirmed && !is_sent(row) {
                self.unconfirmed -= 1;
                self.hold(row);
            } else if self.states[row] == State::Unconfirmed {
                self.settle(row, Err(Fault { reason: Reason::Unanswered, text: text.into() }));
            }
        }
    }

    /// Confirmed rows, in order.
    pub fn confirmed(&self) -> impl Iterator<Item = usize> {
        (0..self.states.len()).filter(|&row| self.states[row] == State::Confirmed)
    }

    /// Rows that were not taken, and why.
    pub fn faults(&self) -> &[(usize, Fault)] {
        &self.faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(keys: &[&str], order: Order, window: u32) -> Batch {
        let row = |key: &&str| OutboxRow {
            place: 0,
            fields: [Some(key.as_bytes())].into_iter().collect(),
        };
        let rows = keys.iter().map(row).collect();
        Batch::new(rows, order, window, |fields| fields.get(0).unwrap_or_default().to_vec())
    }

    fn ready(batch: &mut Batch) -> Vec<usize> {
        std::iter::from_fn(|| batch.take_next()).collect()
    }

    fn fault(reason: Reason) -> Result<(), Fault> {
        Err(Fault { reason, text: "no".into() })
    }

    #[test]
    fn without_an_order_everything_goes_out_at_once_and_failures_stand_alone() {
        let mut batch = batch(&["a", "a", "b"], Order::None, 1);
        assert_eq!(ready(&mut batch), [0, 1, 2]);
        batch.settle(0, fault(Reason::Unroutable));
        batch.settle(2, Ok(()));
        batch.settle(1, Ok(()));
        assert!(batch.is_settled());
        assert_eq!(batch.confirmed().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(batch.faults().len(), 1);
    }

    #[test]
    fn a_row_waits_for_the_confirm_of_the_one_before_it_of_its_key() {
        let mut batch = batch(&["a", "a", "b", "a"], Order::Key, 1);
        assert_eq!(ready(&mut batch), [0, 2]);
        batch.settle(0, Ok(()));
        assert_eq!(ready(&mut batch), [1]);
        batch.settle(1, Ok(()));
        batch.settle(2, Ok(()));
        assert_eq!(ready(&mut batch), [3]);
        assert!(!batch.is_settled());
        batch.settle(3, Ok(()));
        assert!(batch.is_settled());
    }

    #[test]
    fn a_failed_key_holds_its_later_rows_and_no_other() {
        let mut batch = batch(&["a", "b", "a", "b", "a"], Order::Key, 2);
        assert_eq!(batch.take_next(), Some(0));
        batch.settle(0, fault(Reason::Unroutable));
        assert_eq!(ready(&mut batch), [1, 3]);
        batch.settle(1, Ok(()));
        batch.settle(3, Ok(()));
        assert!(batch.is_settled());
        assert_eq!(batch.confirmed().collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn a_strict_order_lets_nothing_pass_a_failure() {
        let mut batch = batch(&["a", "b", "c"], Order::Strict, 1);
        assert_eq!(ready(&mut batch), [0]);
        batch.settle(0, fault(Reason::Broken));
        assert!(batch.is_settled());
        assert_eq!(batch.confirmed().count(), 0);
    }

    #[test]
    fn what_is_given_up_is_neither_confirmed_nor_charged_even_if_a_verdict_comes_late() {
        let mut batch = batch(&["a", "b", "c"], Order::None, 1);
        ready(&mut batch);
        batch.settle(0, Ok(()));
        assert_eq!(batch.sole_unconfirmed(), None);
        batch.settle(1, Ok(()));
        assert_eq!(batch.sole_unconfirmed(), Some(2));
        batch.hold_rest();
        batch.settle(2, Ok(()));
        assert!(batch.is_settled());
        assert_eq!(batch.unconfirmed(), 0);
        assert_eq!(batch.confirmed().collect::<Vec<_>>(), [0, 1]);
        assert!(batch.faults().is_empty());
    }

    #[test]
    fn only_a_batch_of_which_nothing_is_taken_is_refused_by_an_outage() {
        let mut all = batch(&["a", "b", "c", "d"], Order::None, 1);
        ready(&mut all);
        all.settle(0, fault(Reason::Refused));
        all.settle(1, fault(Reason::Broken));
        all.settle(2, fault(Reason::Unroutable));
        all.settle(3, fault(Reason::Refused));
        assert!(all.is_refused_whole(), "what is wrong with others proves nothing");
        all.hold_refused();
        let rest: Vec<usize> = all.faults().iter().map(|(row, _)| *row).collect();
        assert_eq!(rest, [1, 2]);
        let mut some = batch(&["a", "b"], Order::None, 1);
        ready(&mut some);
        some.settle(0, fault(Reason::Refused));
        some.settle(1, Ok(()));
        assert!(!some.is_refused_whole());
        let mut one = batch(&["a"], Order::None, 1);
        ready(&mut one);
        one.convict(0, Fault { reason: Reason::Refused, text: "no".into() });
        assert!(!one.is_refused_whole(), "others passed where it did not");
    }

    #[test]
    fn what_is_put_last_stays_before_what_follows_it_of_its_key() {
        let mut all = batch(&["a", "b", "c", "d"], Order::None, 1);
        all.put_last(|row| u8::from(row < 2));
        assert_eq!(all.next(), Some(2));
        assert_eq!(ready(&mut all), [2, 3, 0, 1]);
        let mut keys = batch(&["a", "a", "b", "b"], Order::Key, 2);
        keys.put_last(|row| u8::from(row == 0));
        assert_eq!(ready(&mut keys), [2, 3, 0, 1]);
    }
}
