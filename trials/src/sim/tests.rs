use super::*;
use crate::checker::Verdict;

/// Short: what a seed does is then seen soon, and there can be many.
fn short(nodes: usize) -> Size {
    Size { nodes, load_ms: 1_500, healed_ms: 700, ..Size::default() }
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
        counts += outcome.counts;
    }
    counts
}

/// The faults happened: a trial without any proves nothing.
fn bites(seeds: std::ops::Range<u64>) {
    let count = seeds.end - seeds.start;
    let counts = holds(seeds, Size { versions: Versions::Newest, ..short(3) });
    assert!(counts.raised >= count, "{counts:?}");
    assert!(counts.crashes > 3 * count && counts.power_cuts > 2 * count, "{counts:?}");
    assert!(counts.elections > 5 * count && counts.lost > 10 * count, "{counts:?}");
    assert!(counts.checkpoints > 10 * count, "{counts:?}");
    assert!(counts.comparisons > count, "replicas compare what they did: {counts:?}");
}

#[test]
fn three_nodes_hold_their_promises_through_everything_first_part() {
    bites(1..16);
}

#[test]
fn three_nodes_hold_their_promises_through_everything_second_part() {
    bites(16..31);
}

#[test]
fn three_nodes_hold_their_promises_through_everything_third_part() {
    bites(31..46);
}

#[test]
fn three_nodes_hold_their_promises_through_everything_fourth_part() {
    bites(46..61);
}

#[test]
fn messages_are_looked_at_while_everything_fails() {
    let counts = (4..60)
        .step_by(7)
        .map(|seed| holds(seed..seed + 1, Size { versions: Versions::Newest, ..short(3) }));
    let counts = counts.fold(Counts::default(), |mut all, of_seed| {
        all += of_seed;
        all
    });
    assert!(counts.looks > 100, "{counts:?}");
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
fn a_node_whose_files_are_damaged_comes_back_by_the_others() {
    let mut damages = 0;
    for seed in (8..45).filter(|seed| matches!(seed % 9, 0 | 8)) {
        let size = if seed % 2 == 0 { Size { load_ms: 3_000, ..short(3) } } else { short(3) };
        let outcome = run(seed, size);
        assert_eq!(outcome.report.verdict(), Verdict::Valid, "seed {seed}: {}", outcome.report);
        damages += outcome.harms.get("damage").copied().unwrap_or(0);
    }
    assert!(damages > 0);
}

/// How often something was done in these seeds, which are all valid.
fn done(seeds: impl Iterator<Item = u64>, size: Size, what: &[&str]) -> (u64, Counts) {
    let (mut done, mut all) = (0, Counts::default());
    for seed in seeds {
        let Outcome { report, harms, counts, lines, .. } = run(seed, size);
        let story = lines.join("\n");
        assert_eq!(report.verdict(), Verdict::Valid, "seed {seed} of {size:?}: {report}\n{story}");
        done += what.iter().filter_map(|what| harms.get(what)).sum::<u64>();
        all += counts;
    }
    (done, all)
}

#[test]
fn a_cluster_is_upgraded_node_by_node_and_agrees_on_the_new_version_when_all_can_read_it() {
    for nodes in [1, 3] {
        let counts = holds(1..13, Size { versions: Versions::Upgrade, ..short(nodes) });
        assert_eq!(counts.raised, 12, "{counts:?}");
    }
    let size = Size { versions: Versions::Upgrade, changes_members: true, ..Size::default() };
    assert!(holds(1..4, size).raised >= 3);
}

#[test]
fn a_node_that_meets_a_newer_command_after_a_forced_raise_stops_and_goes_on_after_its_upgrade() {
    // Few seeds raise the version while a node still runs the old program.
    let (mut counts, mut seeds) = (Counts::default(), 1..100);
    while counts.outdated == 0 {
        let seed = seeds.next().expect("a seed in which a node was too old");
        let of_seed = holds(seed..seed + 1, Size { versions: Versions::Trial, ..short(3) });
        assert_eq!(of_seed.raised, 2, "to the newest, and to the one to come: {of_seed:?}");
        counts += of_seed;
    }
}

#[test]
fn what_is_new_is_used_once_all_nodes_have_agreed_on_it() {
    let counts = holds(1..9, Size { versions: Versions::Trial, ..short(1) });
    assert_eq!((counts.raised, counts.outdated), (16, 0), "{counts:?}");
    let size = Size { versions: Versions::Trial, changes_members: true, ..Size::default() };
    assert!(holds(1..3, size).raised >= 4);
}

#[test]
fn full_disks_hold_everything_back_and_end_nothing() {
    let size = Size { load_ms: 4_000, ..short(3) };
    let what = ["full disk", "full disks", "full disks of all"];
    let (count, counts) = done((2..53).step_by(3), size, &what);
    assert!(count > 4 && counts.refused > 20, "{count} times, {counts:?}");
}

#[test]
fn settles_dead_letters_and_times_are_judged() {
    let mut judged = (0, 0, 0);
    for seed in 1..17 {
        let Outcome { report, counts, .. } = run(seed, short(3));
        judged.0 += report.counts.settled_for_good;
        judged.1 += counts.watched;
        judged.2 += counts.times;
    }
    assert!(judged.0 > 300 && judged.1 > 500 && judged.2 > 40, "{judged:?}");
}

#[test]
fn purges_and_transactions_are_judged() {
    let mut judged = (0, 0);
    for seed in [2, 9, 16] {
        let Outcome { report, counts, .. } = run(seed, Size { load_ms: 3_000, ..short(3) });
        assert_eq!(report.verdict(), Verdict::Valid, "seed {seed}: {report}");
        assert!(report.counts.transactions >= counts.transactions, "{counts:?}");
        judged.0 += report.counts.purged;
        judged.1 += counts.transactions;
    }
    assert!(judged.0 > 100 && judged.1 > 50, "{judged:?}");
}

#[test]
fn amqp_sessions_hold_their_promises_through_crashes() {
    for (nodes, seeds) in [(1, 1..5), (3, 1..9)] {
        let count = seeds.end - seeds.start;
        let counts = holds(seeds, Size { has_sessions: true, ..short(nodes) });
        let amqp = counts.amqp;
        assert!(amqp.connections > 3 * count && amqp.confirmed > 200 * count, "{amqp:?}");
        assert!(amqp.delivered > 200 * count && amqp.fetched > 5 * count, "{amqp:?}");
        assert!(amqp.returned > 5 * count && amqp.multiples > 20 * count, "{amqp:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_history_of_amqp_sessions() {
    for nodes in [1, 3] {
        let size = Size { has_sessions: true, ..short(nodes) };
        let (one, two) = (run(9, size), run(9, size));
        assert_eq!(one.hash, two.hash, "{nodes} nodes");
        assert_eq!(one.events, two.events, "{nodes} nodes");
    }
}

#[test]
fn policies_rights_and_limits_hold_through_crashes() {
    let size = |nodes, has_sessions| {
        let (has_policies, versions) = (true, Versions::Newest);
        Size { has_policies, has_sessions, versions, load_ms: 3_000, ..short(nodes) }
    };
    for (nodes, seeds, has_sessions) in [(1, 1..4, false), (3, 1..5, false), (3, 5..7, true)] {
        let count = seeds.end - seeds.start;
        let counts = holds(seeds, size(nodes, has_sessions));
        assert!(counts.administered > 20 * count, "{counts:?}");
        assert!(counts.examined > 20 * count, "{counts:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_history_of_policies() {
    let (has_policies, versions) = (true, Versions::Newest);
    let size = Size { has_policies, versions, ..short(3) };
    let (one, two) = (run(9, size), run(9, size));
    assert_eq!(one.hash, two.hash);
    assert_eq!(one.events, two.events);
}

fn operated(nodes: usize) -> Size {
    let (has_operations, versions) = (true, Versions::Newest);
    Size { has_operations, versions, load_ms: 3_000, ..short(nodes) }
}

#[test]
fn pauses_and_dead_letters_that_are_sent_on_hold_through_crashes() {
    for (nodes, seeds) in [(1, 1..4), (3, 1..7), (5, 7..8)] {
        let count = seeds.end - seeds.start;
        let counts = holds(seeds, operated(nodes));
        assert!(counts.pauses > count && counts.retried > 20 * count, "{counts:?}");
    }
}

fn wavering(nodes: usize) -> Size {
    let (has_undo, versions) = (true, Versions::Newest);
    Size { has_undo, versions, load_ms: 3_000, ..short(nodes) }
}

#[test]
fn purges_that_are_undone_lose_nothing_through_crashes() {
    for (nodes, seeds) in [(1, 1..4), (3, 1..9), (5, 9..11)] {
        let count = seeds.end - seeds.start;
        let counts = holds(seeds, wavering(nodes));
        assert!(counts.brought_back > 10 * count, "{counts:?}");
    }
}

fn with_streams(nodes: usize) -> Size {
    let (has_streams, versions) = (true, Versions::Newest);
    Size { has_streams, versions, load_ms: 3_000, ..short(nodes) }
}

#[test]
fn streams_hold_through_crashes() {
    for (nodes, seeds) in [(1, 1..4), (3, 1..9), (5, 9..11)] {
        let count = seeds.end - seeds.start;
        let streams = holds(seeds, with_streams(nodes)).streams;
        assert!(streams.confirmed > 200 * count && streams.read > 1_000 * count, "{streams:?}");
        assert!(streams.attached > 20 * count && streams.trims > count, "{streams:?}");
    }
    let upgraded = Size { versions: Versions::Upgrade, ..with_streams(3) };
    // There may be no stream before the load is over: they wait for the version.
    holds(3..4, upgraded);
}

fn with_rates(nodes: usize) -> Size {
    let (has_rates, versions) = (true, Versions::Newest);
    Size { has_rates, versions, load_ms: 3_000, ..short(nodes) }
}

#[test]
fn rates_are_kept_through_crashes() {
    for (nodes, seeds) in [(1, 1..3), (3, 1..7), (5, 7..8)] {
        let count = seeds.end - seeds.start;
        let RatedCounts { went, published } = holds(seeds, with_rates(nodes)).rated;
        assert!(went > 600 * count && published > 300 * count, "{went} of {published}");
    }
    let upgraded = Size { versions: Versions::Upgrade, ..with_rates(3) };
    // There may be no such queue before all is drained: they wait for the version.
    holds(3..4, upgraded);
}

#[test]
fn the_same_seed_gives_the_same_history_of_streams() {
    let (one, two) = (run(9, with_streams(3)), run(9, with_streams(3)));
    assert_eq!(one.hash, two.hash);
    assert_eq!(one.events, two.events);
}

fn with_locks(nodes: usize) -> Size {
    let (has_locks, versions) = (true, Versions::Newest);
    Size { has_locks, versions, load_ms: 6_000, ..short(nodes) }
}

#[test]
fn locks_hold_through_crashes_and_jumps_of_clocks() {
    for (nodes, seeds) in [(1, 1..4), (3, 1..9), (5, 9..11)] {
        let count = seeds.end - seeds.start;
        let locks = holds(seeds, with_locks(nodes)).locks;
        assert!(locks.acquired > 5 * count && locks.renewed > 3 * count, "{locks:?}");
        assert!(locks.held > 2 * count && locks.written > 3 * count, "{locks:?}");
        assert!(locks.judged > 10 * count, "{locks:?}");
    }
    let upgraded = Size { versions: Versions::Upgrade, ..with_locks(3) };
    holds(3..4, upgraded);
}

#[test]
fn the_same_seed_gives_the_same_history_of_locks() {
    let (one, two) = (run(8, with_locks(3)), run(8, with_locks(3)));
    assert_eq!((one.hash, one.events), (two.hash, two.events));
}

#[test]
fn pauses_and_dead_letters_that_are_sent_on_are_judged() {
    let mut judged = (0, 0);
    for seed in 11..17 {
        let Outcome { report, .. } = run(seed, operated(3));
        assert_eq!(report.verdict(), Verdict::Valid, "seed {seed}: {report}");
        judged.0 += report.counts.pauses;
        judged.1 += report.counts.retried;
    }
    assert!(judged.0 > 20 && judged.1 > 100, "{judged:?}");
}

#[test]
fn queues_are_paused_while_policies_change_and_clients_speak_amqp() {
    let size = Size { has_policies: true, has_sessions: true, ..operated(3) };
    let counts = holds(1..3, size);
    assert!(counts.administered > 40 && counts.pauses > 20, "{counts:?}");
}

#[test]
fn the_same_seed_gives_the_same_history_of_pauses_and_retries() {
    let (one, two) = (run(9, operated(3)), run(9, operated(3)));
    assert_eq!(one.hash, two.hash);
    assert_eq!(one.events, two.events);
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
fn who_waits_for_a_leader_that_leads_no_more_is_answered() {
    let size = Size { nodes: 5, damages: true, ..Size::default() };
    holds(20..21, size);
    holds(10_356..10_357, size);
    // There nodes go one after the other, each without a word.
    holds(100_236..100_237, size);
}

#[test]
fn a_damaged_node_on_a_full_disk_waits_for_room() {
    holds(113..114, Size { damages: true, ..Size::default() });
}

#[test]
fn a_leader_needs_the_old_voters_too_until_the_new_ones_are_alone() {
    let size = Size { nodes: 5, damages: true, changes_members: true, ..Size::default() };
    holds(20_077..20_078, size);
}

#[test]
fn a_young_group_waits_for_a_damaged_catalog_to_say_who_votes() {
    let size = Size { damages: true, changes_members: true, ..Size::default() };
    holds(21_000_197..21_000_198, size);
}

/// In the order of the seeds: a catalog of two voters lets one of them go, a removed node is elected, a node is removed
/// from a catalog of two, a new one starts beside it, a queue lies in the memory of one that is removed, a removed node
/// leads that never hears of it, and a consumer waits for the memory of one that is gone.
#[test]
fn nodes_join_and_go_and_are_replaced() {
    for seed in [4, 21, 37, 41, 73, 20_056, 20_084] {
        holds(seed..seed + 1, Size { changes_members: true, ..Size::default() });
    }
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

#[test]
fn dead_letters_of_a_priority_leave_where_another_delivers() {
    holds(4_000_282..4_000_283, Size::default());
}

#[test]
fn what_takes_the_place_of_entries_as_the_power_goes_is_no_loss() {
    holds(2_000_233..2_000_234, Size::default());
}

#[test]
fn a_process_that_has_died_answers_nobody() {
    holds(3_000_649..3_000_650, Size { nodes: 1, ..Size::default() });
}

#[test]
fn a_replica_that_was_set_aside_comes_up_while_nothing_else_happens() {
    holds(4_000_293..4_000_294, Size::default());
    holds(4_000_293..4_000_294, Size { damages: true, ..Size::default() });
}

#[test]
fn what_was_due_for_a_leader_is_not_given_out_again_by_the_next() {
    holds(50_056..50_057, Size { nodes: 5, ..Size::default() });
    holds(40_088..40_089, Size { damages: true, ..Size::default() });
}

#[test]
fn settled_messages_stay_settled_where_their_session_joins_again() {
    holds(40_062..40_063, Size { damages: true, ..Size::default() });
}

#[test]
fn queues_in_the_memory_of_an_earlier_life_do_not_come_back_with_the_log() {
    holds(30_105..30_106, Size::default());
}

#[test]
fn a_node_that_has_not_reached_most_since_its_start_refuses_its_publishers_soon() {
    holds(60_011..60_012, Size { nodes: 5, damages: true, ..Size::default() });
}

#[test]
fn power_that_goes_in_the_last_moment_of_harm_is_no_failure_of_a_whole_disk() {
    holds(402_005..402_006, Size { nodes: 1, damages: true, ..Size::default() });
}

#[test]
fn a_start_on_a_full_disk_that_fails_can_be_tried_again() {
    holds(403_019..403_020, Size { nodes: 1, damages: true, ..Size::default() });
}

#[test]
fn who_keeps_a_replica_that_nobody_counts_on_finds_the_leader_all_the_same() {
    holds(300_499..300_500, Size { nodes: 5, damages: true, ..Size::default() });
}

#[test]
fn what_waits_for_more_than_one_file_waits_for_a_full_disk() {
    holds(23..24, Size::default());
    holds(35..36, Size::default());
}

#[test]
fn a_removed_node_that_is_stopped_is_counted_on_by_no_group() {
    for seed in [21_000_057, 21_000_089] {
        let size = Size { nodes: 5, damages: true, changes_members: true, ..Size::default() };
        holds(seed..seed + 1, size);
    }
}

fn changing(seed: u64, nodes: usize) -> Size {
    let versions = Versions::of(seed);
    Size {
        nodes,
        healed_ms: 1_000,
        damages: true,
        changes_members: true,
        versions,
        ..Size::default()
    }
}

#[test]
fn a_removed_leader_is_asked_for_its_group_by_those_that_vote_there_already() {
    holds(25_000_415..25_000_416, changing(25_000_415, 3));
}

#[test]
fn a_snapshot_for_a_node_that_is_gone_keeps_no_other_waiting() {
    holds(25_000_417..25_000_418, changing(25_000_417, 3));
}

#[test]
fn no_disk_is_lost_while_a_group_needs_the_old_voters_too() {
    holds(31_004_532..31_004_533, changing(31_004_532, 3));
}

#[test]
fn who_reaches_too_few_of_those_that_keep_a_group_elsewhere_answers_its_publishers_soon() {
    for seed in [25_500_336, 25_500_356] {
        holds(seed..seed + 1, changing(seed, 5));
    }
}

/// Each once waited for longer than the README says.
#[test]
fn who_is_cut_off_from_most_answers_its_publishers_soon() {
    let five = Size { nodes: 5, load_ms: 5_000, healed_ms: 1_500, ..Size::default() };
    holds(2_000_400..2_000_401, Size { damages: true, ..Size::default() });
    for seed in [5_000_075, 5_000_114, 5_000_192, 5_000_214, 5_000_248] {
        holds(seed..seed + 1, Size { damages: true, ..five });
    }
}

#[test]
fn an_auto_delete_queue_outlives_a_link_that_breaks_while_its_consumer_is_attached() {
    holds(5_322..5_323, Size::default());
    holds(2_000_057..2_000_058, Size::default());
}

#[test]
fn a_process_ends_when_it_is_told_that_its_node_was_removed() {
    let size = Size {
        nodes: 5,
        healed_ms: 1000,
        damages: true,
        changes_members: true,
        versions: Versions::Newest,
        ..Size::default()
    };
    holds(25_500_306..25_500_307, size);
}

#[test]
fn what_is_asked_of_a_queue_in_the_memory_of_a_removed_node_is_answered_without_it() {
    let size = Size {
        nodes: 5,
        healed_ms: 1000,
        damages: true,
        changes_members: true,
        versions: Versions::Newest,
        ..Size::default()
    };
    holds(25_500_329..25_500_330, size);
}

#[test]
fn that_the_time_stood_still_under_one_leader_is_not_held_against_the_next() {
    let size = Size {
        load_ms: 5_000,
        healed_ms: 1_000,
        calm_ms: 300,
        damages: true,
        versions: Versions::Newest,
        ..Size::default()
    };
    holds(31_002_986..31_002_987, size);
}

/// What was delayed while the time stood still came sooner than it says, once the time went on.
#[test]
fn messages_that_came_while_the_time_stood_still_may_be_due_sooner() {
    let size = Size { nodes: 1, damages: true, ..Size::default() };
    for seed in [50_000_324, 50_000_616] {
        holds(seed..seed + 1, Size { versions: Versions::of(seed), ..size });
    }
}

#[test]
fn a_replica_that_two_leaders_send_a_snapshot_to_gets_one_soon() {
    let size = Size {
        load_ms: 5_000,
        healed_ms: 1_000,
        calm_ms: 300,
        damages: true,
        changes_members: true,
        versions: Versions::Newest,
        ..Size::default()
    };
    holds(31_003_872..31_003_873, size);
}

/// The group stood still, and what consumers had settled was proposed to the new leader and not applied.
#[test]
fn a_purge_counts_nothing_that_consumers_have_settled() {
    let seed = 50_002_682;
    let (damages, changes_members, versions) = (true, true, Versions::of(seed));
    let size = Size { load_ms: 5_000, healed_ms: 1_000, calm_ms: 300, ..Size::default() };
    holds(seed..seed + 1, Size { damages, changes_members, versions, ..size });
}

/// Its leader lost the lead before the purge was committed, and took it again. It was asked again, and the answer was
/// that of the first time: what was published after it was purged, too.
#[test]
fn a_purge_that_is_answered_takes_nothing_that_comes_later() {
    let seed = 70_003_768;
    let size = Size { nodes: 5, load_ms: 2_500, healed_ms: 1_000, ..Size::default() };
    let versions = Versions::of(seed);
    holds(seed..seed + 1, Size { calm_ms: 300, damages: true, versions, ..size });
}

/// What it had proposed before was written when the change was applied.
#[test]
fn a_leader_that_is_taken_out_of_its_group_outlives_what_its_disk_says_later() {
    let seed = 70_003_447;
    let size = Size { nodes: 5, load_ms: 5_000, healed_ms: 1_000, ..Size::default() };
    let (changes_members, versions) = (true, Versions::of(seed));
    holds(seed..seed + 1, Size { calm_ms: 300, damages: true, changes_members, versions, ..size });
}

/// It failed before the heal.
#[test]
fn a_node_may_hear_late_that_its_disk_has_failed() {
    let size = Size { nodes: 1, damages: true, changes_members: true, ..Size::default() };
    holds(50_001_017..50_001_018, Size { versions: Versions::of(50_001_017), ..size });
}

#[test]
fn settles_that_only_a_deposed_leader_has_logged_are_told_the_next_leader() {
    let seed = 31_004_264;
    let (damages, versions) = (true, Versions::of(seed));
    let size = Size { load_ms: 5_000, healed_ms: 1_000, calm_ms: 300, ..Size::default() };
    holds(seed..seed + 1, Size { damages, versions, ..size });
}
