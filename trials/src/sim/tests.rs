use super::*;
use crate::checker::Verdict;

/// Short: what a seed does is then seen soon, and there can be many.
fn short(nodes: usize) -> Size {
    Size { nodes, load_ms: 1_500, healed_ms: 700 }
}

fn holds(seeds: std::ops::Range<u64>, size: Size) -> Counts {
    let mut counts = Counts::default();
    for seed in seeds {
        let outcome = run(seed, size);
        let story = outcome.lines.join("\n");
        assert_eq!(
            outcome.report.verdict(),
            Verdict::Valid,
            "seed {seed} of {size:?}: {}\n{story}",
            outcome.report
        );
        counts.crashes += outcome.counts.crashes;
        counts.power_cuts += outcome.counts.power_cuts;
        counts.checkpoints += outcome.counts.checkpoints;
        counts.snapshots += outcome.counts.snapshots;
        counts.elections += outcome.counts.elections;
        counts.lost += outcome.counts.lost;
    }
    counts
}

/// The faults happened: a trial without any proves nothing.
fn bites(seeds: std::ops::Range<u64>) {
    let count = seeds.end - seeds.start;
    let counts = holds(seeds, short(3));
    assert!(counts.crashes > 3 * count && counts.power_cuts > 2 * count, "{counts:?}");
    assert!(counts.elections > 5 * count && counts.lost > 10 * count, "{counts:?}");
    assert!(counts.checkpoints > 10 * count, "{counts:?}");
}

#[test]
fn three_nodes_hold_their_promises_through_everything_first_part() {
    bites(1..51);
}

#[test]
fn three_nodes_hold_their_promises_through_everything_second_part() {
    bites(51..101);
}

#[test]
fn three_nodes_hold_their_promises_through_everything_third_part() {
    bites(101..151);
}

#[test]
fn three_nodes_hold_their_promises_through_everything_fourth_part() {
    bites(151..201);
}

#[test]
fn a_replica_that_is_far_behind_gets_a_snapshot() {
    let counts = holds(2..8, Size::default());
    assert!(counts.snapshots > 0, "{counts:?}");
}

#[test]
fn five_nodes_hold_their_promises() {
    holds(1..5, short(5));
}

#[test]
fn one_node_keeps_what_it_confirmed_through_crashes_and_power_cuts() {
    let counts = holds(1..21, Size { load_ms: 8_000, ..short(1) });
    assert!(counts.crashes > 40 && counts.power_cuts > 20, "{counts:?}");
    assert!(counts.checkpoints > 20, "{counts:?}");
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for (nodes, seeds) in [(1, 1..4), (3, 1..6), (5, 1..2)] {
        for seed in seeds {
            let (one, two) = (run(seed, short(nodes)), run(seed, short(nodes)));
            assert_eq!(one.hash, two.hash, "seed {seed} of {nodes} nodes");
            assert_eq!(one.events, two.events, "seed {seed} of {nodes} nodes");
        }
    }
}

// Seeds that once failed.

#[test]
fn a_node_that_starts_in_a_minority_serves_when_it_is_over() {
    holds(7..8, Size::default());
}

#[test]
fn a_leader_that_is_cut_off_answers_its_publishers() {
    holds(41..42, Size::default());
}

#[test]
fn a_follower_that_catches_up_writes_what_fits_the_log() {
    holds(12..14, Size::default());
}

#[test]
fn a_slow_leader_that_is_deposed_keeps_the_credit_of_its_consumers() {
    holds(1110..1111, Size { load_ms: 2_500, ..short(3) });
}

#[test]
fn many_dead_letters_at_once_are_more_than_one_batch() {
    holds(700_279..700_280, Size::default());
}
