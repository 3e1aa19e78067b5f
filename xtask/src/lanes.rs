//! Several things at a time: most of what installs and tests do is to wait.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Does `work` for all items, so many at a time, beginning in their order. What it gave for each
/// stands where the item stood.
pub(crate) fn in_lanes<T: Sync, R: Send>(
    items: &[T],
    lanes: usize,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    assert!(lanes > 0, "nothing is ever done in no lane");
    let next = AtomicUsize::new(0);
    let done = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..lanes.min(items.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { return };
                    let result = work(item);
                    done.lock().expect("no lane panics with the lock").insert(index, result);
                }
            });
        }
    });
    done.into_inner().expect("no lane panics with the lock").into_values().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn results_stand_where_their_items_stood_however_long_each_took() {
        // The first item waits for the last, so they are done in another order.
        let meet = Barrier::new(2);
        let results = in_lanes(&[1, 2, 3], 2, |item| {
            if *item != 2 {
                meet.wait();
            }
            item * 10
        });
        assert_eq!(results, [10, 20, 30]);
    }

    #[test]
    fn nothing_to_do_is_done() {
        assert_eq!(in_lanes(&[], 3, |item: &u32| *item), []);
    }
}
