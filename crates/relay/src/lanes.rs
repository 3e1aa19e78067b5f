//! Which lanes a worker should hold: a fair share, so that workers of all relays drain together.
//!
//! A pure policy over what the database's advisory locks say. A lane has one holder at a time, and a holder gives
//! one up between batches only, so rows of a lane are never published by two.

use std::collections::BTreeSet;

/// What to do about lanes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// To be unlocked.
    pub release: Vec<i32>,
    /// To be tried.
    pub take: Vec<i32>,
}

/// For a worker that holds `owned` of `total` lanes, while `held` are held by anybody and `workers` want some.
/// `start` is where it begins to look, so that workers do not all try the same ones.
pub fn plan(
    owned: &BTreeSet<i32>,
    held: &BTreeSet<i32>,
    total: u32,
    workers: u32,
    start: u32,
) -> Plan {
    let share = total.div_ceil(workers.max(1)) as usize;
    if owned.len() > share {
        let release = owned.iter().rev().take(owned.len() - share).copied().collect();
        return Plan { release, take: Vec::new() };
    }
    let from = (0..total).map(|step| ((start % total + step) % total) as i32);
    let free = from.filter(|lane| !held.contains(lane) && !owned.contains(lane));
    Plan { release: Vec::new(), take: free.take(share - owned.len()).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets `workers` plan in turn until nothing changes; the lanes of each.
    fn settled(mut all: Vec<BTreeSet<i32>>, total: u32) -> Vec<BTreeSet<i32>> {
        for _ in 0..100 {
            let mut has_changed = false;
            for index in 0..all.len() {
                let held: BTreeSet<i32> = all.iter().flatten().copied().collect();
                let plan = plan(&all[index], &held, total, all.len() as u32, index as u32 * 7);
                has_changed |= plan != Plan::default();
                plan.release.iter().for_each(|lane| assert!(all[index].remove(lane)));
                all[index].extend(plan.take.iter().filter(|lane| !held.contains(lane)));
            }
            if !has_changed {
                return all;
            }
        }
        panic!("the workers never agree");
    }

    #[test]
    fn every_lane_finds_a_holder_and_no_holder_has_more_than_its_share() {
        for workers in 1..=9 {
            let all = settled(vec![BTreeSet::new(); workers], 64);
            let held: BTreeSet<i32> = all.iter().flatten().copied().collect();
            assert_eq!(held.len(), 64, "{workers} workers");
            assert_eq!(all.iter().map(BTreeSet::len).sum::<usize>(), 64, "no lane twice");
            assert!(all.iter().all(|owned| owned.len() <= 64usize.div_ceil(workers)));
        }
    }

    #[test]
    fn a_newcomer_gets_its_share_and_the_lanes_of_the_dead_are_taken_over() {
        let mut all = settled(vec![BTreeSet::new(); 2], 64);
        all.push(BTreeSet::new());
        let mut all = settled(all, 64);
        assert!(all[2].len() >= 20);
        all.remove(0);
        let all = settled(all, 64);
        assert_eq!(all.iter().map(BTreeSet::len).sum::<usize>(), 64);
    }

    #[test]
    fn the_only_lane_has_one_holder_and_the_others_wait() {
        let all = settled(vec![BTreeSet::new(); 3], 1);
        assert_eq!(all.iter().map(BTreeSet::len).sum::<usize>(), 1);
    }
}
