use super::*;
use crate::checker::Verdict;

fn holds(seeds: std::ops::Range<u64>, size: Size) -> Counts {
    let mut counts = Counts::default();
    for seed in seeds {
        let outcome = run(seed, size);
        let story = outcome.lines.join("\n");
        assert_eq!(
            outcome.report.verdict(),
            Verdict::Valid,
            "seed {seed} of {} nodes: {}\n{story}",
            size.nodes,
            outcome.report
        );
        counts.crashes += outcome.counts.crashes;
        counts.power_cuts += outcome.counts.power_cuts;
        counts.checkpoints += outcome.counts.checkpoints;
        counts.elections += outcome.counts.elections;
    }
    counts
}

#[test]
fn one_node_keeps_what_it_confirmed_through_crashes_and_power_cuts() {
    let size = Size { nodes: 1, load_ms: 8_000 };
    let counts = holds(1..21, size);
    assert!(counts.crashes > 40 && counts.power_cuts > 20, "{counts:?}");
    assert!(counts.checkpoints > 20, "{counts:?}");
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for nodes in [1] {
        for seed in 1..4 {
            let size = Size { nodes, load_ms: 3_000 };
            let (one, two) = (run(seed, size), run(seed, size));
            assert_eq!(one.hash, two.hash, "seed {seed} of {nodes} nodes");
            assert_eq!(one.events, two.events, "seed {seed} of {nodes} nodes");
        }
    }
}
