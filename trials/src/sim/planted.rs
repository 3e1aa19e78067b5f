//! Bugs planted on purpose in what the simulator runs, each of which it must find: a suite that misses
//! one is no evidence.
//!
//! This program has the bugs if it was built with `--cfg planted`: `cargo xtask sim --planted` does that. Every seed
//! runs in a process of its own, because a bug is chosen once in the life of a process and may end it.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "runs programs on several threads, and has a terminal"
)]

use std::io;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

/// A bug, words of what is seen where it is found, and where it is looked for.
struct Planted {
    name: &'static str,
    words: &'static [&'static str],
    seeds: Seeds,
    /// A seed of those that finds it, which is tried first. None: no seed is known.
    pin: Option<u64>,
}

/// The first, from one to the next, how many, and how they run.
#[derive(Clone, Copy)]
struct Seeds {
    first: u64,
    step: u64,
    count: u64,
    load_ms: u64,
    options: &'static [&'static str],
}

/// What one seed showed.
enum Shown {
    Nothing,
    /// A line that has the words.
    Bug(String),
    /// Something is wrong, and said in other words.
    Other,
}

/// What the seeds of a bug showed.
#[derive(Default)]
struct Found {
    tried: u64,
    by: Vec<u64>,
    failed_otherwise: u64,
    said: Option<String>,
}

/// All is seen long before the end, which is short.
const SHORT: &[&str] = &["--calm-ms", "300"];
const SEEDS: Seeds = Seeds { first: 1, step: 1, count: 40, load_ms: 4_000, options: SHORT };
/// Sessions hold more, and for longer, before a node fails in the calm.
const CALM_SEEDS: Seeds = Seeds { options: &[], ..SEEDS };
const MANY_SEEDS: Seeds = Seeds { count: 120, ..SEEDS };
/// Those alone in which clocks jump, and in each more than once.
const CLOCK_SEEDS: Seeds = Seeds { first: 2, step: 2, load_ms: 10_000, ..SEEDS };
/// Those alone that fill disks.
const FULL_SEEDS: Seeds = Seeds { first: 2, step: 3, ..CALM_SEEDS };
/// Those alone that have purges and transactions.
const CHANGED_SEEDS: Seeds = Seeds { first: 2, step: 7, ..CALM_SEEDS };
const REFUSED_SEEDS: Seeds =
    Seeds { count: 120, options: &["--aimed", "--calm-ms", "300"], ..CHANGED_SEEDS };
/// Nodes die behind a cut link.
const AIMED_SEEDS: Seeds = Seeds { load_ms: 8_000, ..Seeds { step: 1, ..REFUSED_SEEDS } };
/// Two nodes fail at once, and the others are a majority.
const TWO_FAIL_SEEDS: Seeds =
    Seeds { options: &["--aimed", "--nodes", "5", "--calm-ms", "300"], ..MANY_SEEDS };
/// Groups get new replicas, and with them snapshots.
const MEMBERS_SEEDS: Seeds =
    Seeds { options: &["--members", "--damage", "--calm-ms", "300"], ..SEEDS };

/// Clients speak AMQP.
const SESSION_SEEDS: Seeds = Seeds { options: &["--sessions", "--calm-ms", "300"], ..SEEDS };
/// Somebody changes policies and rights.
const POLICY_SEEDS: Seeds = Seeds { options: &["--policies", "--calm-ms", "300"], ..SEEDS };
/// Somebody pauses queues, and somebody sends dead letters on.
const OPERATION_SEEDS: Seeds = Seeds { options: &["--operations", "--calm-ms", "300"], ..SEEDS };
/// Somebody purges queues, and undoes it.
const UNDO_SEEDS: Seeds = Seeds { options: &["--undo", "--calm-ms", "300"], ..SEEDS };
/// There are streams.
const STREAM_SEEDS: Seeds = Seeds { options: &["--streams", "--calm-ms", "300"], ..SEEDS };
/// Some want locks. There are faults enough for leaders to change while leases run, and clocks that jump.
const LOCK_SEEDS: Seeds = Seeds { options: &["--locks", "--calm-ms", "300"], ..CLOCK_SEEDS };
/// A leader must change while a lease runs, and its clock must differ from that of the one before: that takes long runs.
const LOCK_TERM_SEEDS: Seeds = Seeds { load_ms: 20_000, ..LOCK_SEEDS };
/// There are queues with rates.
const RATED_SEEDS: Seeds = Seeds { options: &["--rated", "--calm-ms", "300"], ..SEEDS };
/// As well as AMQP sessions, and nodes refuse what they are asked.
const REFUSED_SESSION_SEEDS: Seeds =
    Seeds { options: &["--sessions", "--aimed", "--calm-ms", "300"], ..MANY_SEEDS };

/// A process of the hunt for each.
const PROCESSES_MAX: usize = 8;

const fn planted(
    name: &'static str,
    words: &'static [&'static str],
    seeds: Seeds,
    pin: Option<u64>,
) -> Planted {
    Planted { name, words, seeds, pin }
}

/// A message of a session that lives is given away, or what it settled comes back.
const GIVEN_AWAY: &[&str] = &["is held by", "and comes back"];
/// Seeds in which somebody looks at messages.
const PEEK_SEEDS: Seeds = Seeds { first: 4, step: 7, ..SEEDS };
const PAUSED: &[&str] = &["after it was paused"];
/// A reader goes on behind what it should get, and that is kept.
const GAP: &[&str] = &["with a gap behind", "went on at", "a gap before"];
/// A queue gives out more than its rate allows.
const RATE: &[&str] = &["beside the rate"];
/// A stream has lost its first messages, or some in the middle.
const HOLES: &[&str] = &["and a replica has none before", "are not where they should be"];
const FULL: &[&str] =
    &["still says that its disk is full", "not every publisher is served", "nodes do not serve"];

/// Two have a lock at a time, or one loses it too soon.
const LEASE_RUNS: &[&str] = &[" ms more"];

const PLANTED: &[Planted] = &[
    planted("vote_not_synced", &["before the sync"], SEEDS, Some(1)),
    planted("confirm_before_majority", &["was confirmed, and synced in group"], SEEDS, Some(1)),
    planted("expire_by_own_clock", &[" differ in group "], SEEDS, Some(1)),
    // It takes a crash in the moment between.
    planted("dead_letter_settled_first", &["never delivered"], MANY_SEEDS, Some(34)),
    planted("delay_forgotten", &["came after"], SEEDS, Some(1)),
    planted("dispatch_before_joins", GIVEN_AWAY, CALM_SEEDS, Some(2)),
    planted("young_leader_hurries", GIVEN_AWAY, TWO_FAIL_SEEDS, Some(10)),
    planted("held_not_told", GIVEN_AWAY, SEEDS, Some(1)),
    planted("settles_not_told", GIVEN_AWAY, CALM_SEEDS, Some(2)),
    planted("own_settles_not_awaited", GIVEN_AWAY, AIMED_SEEDS, Some(54)),
    planted("join_before_settles", GIVEN_AWAY, SEEDS, Some(1)),
    planted("leader_clock", &["the time of group"], CLOCK_SEEDS, Some(8)),
    planted("purge_forgotten", &["P1 purged", "purged by answers"], CHANGED_SEEDS, Some(2)),
    planted("purge_dropped", &["P1 purged"], REFUSED_SEEDS, Some(254)),
    planted("tx_torn", &["X2 half"], REFUSED_SEEDS, Some(9)),
    planted("full_not_told", FULL, FULL_SEEDS, Some(8)),
    planted("snapshot_first_extent", &["lies nowhere"], MEMBERS_SEEDS, Some(1)),
    planted("peek_beside", &[" has "], PEEK_SEEDS, Some(4)),
    planted("multiple_takes_next", &["unknown delivery tag"], SESSION_SEEDS, Some(1)),
    planted(
        "refused_confirmed",
        &["is safe, and an append has no answer"],
        REFUSED_SESSION_SEEDS,
        Some(3),
    ),
    planted(
        "policy_not_restored",
        &[", which is Queue", "and policies make it", "sessions of node"],
        POLICY_SEEDS,
        Some(1),
    ),
    planted(
        "deleted_policy_stays",
        &[" differ in group ", ", which is Queue"],
        POLICY_SEEDS,
        Some(1),
    ),
    planted("limit_admits_one_more", &["Refused(530) } comes to Done"], POLICY_SEEDS, Some(1)),
    planted(
        "withheld_not_restored",
        &[" differ in group ", "comes back", "is held by"],
        UNDO_SEEDS,
        Some(5),
    ),
    planted("leader_forgets_pause", PAUSED, OPERATION_SEEDS, Some(2)),
    planted("get_from_paused", PAUSED, OPERATION_SEEDS, Some(2)),
    planted(
        "pause_not_restored",
        &[" differ in group ", ", which is Queue", "after it was paused"],
        OPERATION_SEEDS,
        Some(16),
    ),
    planted("retry_settled_first", &["let go of first"], OPERATION_SEEDS, Some(1)),
    // A leader must change before a reader is sent its first message.
    planted("stream_next_again", GAP, STREAM_SEEDS, Some(47)),
    planted("stream_place_forgotten", &["has all before"], STREAM_SEEDS, Some(1)),
    planted("stream_reader_not_rejoined", &["stalls"], STREAM_SEEDS, Some(2)),
    planted("subscription_not_held", &["has not settled", "lie nowhere"], STREAM_SEEDS, Some(1)),
    planted("subscription_not_linked", &["never got", "has not settled"], STREAM_SEEDS, Some(14)),
    planted("seek_old_answers", &["never got"], STREAM_SEEDS, Some(14)),
    planted(
        "partition_not_drained",
        &["while another consumer holds", "both unflagged"],
        STREAM_SEEDS,
        Some(1),
    ),
    planted("key_freed_by_nack", &["is not done", " behind "], STREAM_SEEDS, Some(1)),
    planted("filter_settles_matching", &["never got"], STREAM_SEEDS, Some(1)),
    planted("stream_next_beyond", &["is before that"], STREAM_SEEDS, Some(1)),
    planted("stream_trims_too_much", &["less than 100000 bytes"], STREAM_SEEDS, Some(1)),
    planted("stream_ages_too_soon", &["ms after it was published"], STREAM_SEEDS, Some(1)),
    planted("stream_settle_trims", HOLES, STREAM_SEEDS, Some(1)),
    planted("tail_skips_fetched", GAP, STREAM_SEEDS, Some(1)),
    planted("tail_reads_beside", &["are both at", "is there twice"], STREAM_SEEDS, Some(1)),
    planted("timeline_not_restored", &[" differ in group "], STREAM_SEEDS, Some(1)),
    planted("lock_by_own_clock", LEASE_RUNS, LOCK_SEEDS, Some(26)),
    planted("lock_term_unnoticed", LEASE_RUNS, LOCK_TERM_SEEDS, Some(98)),
    planted("lock_token_reused", &["both hold lock", ", and got "], LOCK_SEEDS, Some(2)),
    planted("replica_settles_less", &["says that its replica of group"], SEEDS, Some(1)),
    planted("leader_has_tokens", RATE, RATED_SEEDS, Some(1)),
    planted("requeue_uncharged", RATE, RATED_SEEDS, Some(1)),
    planted("intake_uncharged", RATE, RATED_SEEDS, Some(1)),
    planted("loan_uncharged", RATE, RATED_SEEDS, Some(1)),
    planted("loan_used_twice", RATE, RATED_SEEDS, Some(5)),
    planted("lender_has_tokens", RATE, RATED_SEEDS, Some(1)),
    planted("loan_asked_once", &["starves"], RATED_SEEDS, Some(20)),
    planted("all_are_elected", &["which is there"], RATED_SEEDS, Some(1)),
    planted("founders_for_ever", &["was confirmed, and synced in group"], MEMBERS_SEEDS, Some(1)),
];

/// Whether a bug of this name is one that is looked for here.
pub(super) fn is_known(name: &str) -> bool {
    PLANTED.iter().any(|planted| planted.name == name)
}

/// Looks for those whose name holds `word`: until one seed has found a bug, the pinned one first, or through all of
/// its seeds, to say how many find it. True if every bug was caught, and its pinned seed is green without it.
pub(super) fn hunt(word: &str, goes_through_all: bool) -> io::Result<bool> {
    if !::planted::choose("") {
        println!("this program has no bugs: `cargo xtask sim --planted` builds one that does");
        return Ok(false);
    }
    let chosen: Vec<&Planted> = PLANTED.iter().filter(|it| it.name.contains(word)).collect();
    let mut all = true;
    for planted in chosen {
        let found = planted.hunt(goes_through_all)?;
        let Some(first) = found.by.first() else {
            all = false;
            let Found { tried, failed_otherwise, .. } = found;
            println!(
                "{}: NOT CAUGHT in {tried} seeds ({failed_otherwise} failed otherwise)",
                planted.name
            );
            continue;
        };
        let is_green = matches!(planted.run(*first, None)?, Shown::Nothing);
        all &= is_green;
        println!("{}: {found}", planted.name);
        if !is_green {
            println!("  seed {first} is NOT GREEN without the bug");
        }
        let is_pinned = planted.pin.is_some_and(|pin| found.by.contains(&pin));
        if !is_pinned && !goes_through_all {
            println!("  its pin {:?} does not find it: pin {first}", planted.pin);
        }
    }
    Ok(all)
}

impl Planted {
    fn hunt(&self, goes_through_all: bool) -> io::Result<Found> {
        let Seeds { first, step, count, .. } = self.seeds;
        let mut seeds: Vec<u64> = (0..count).map(|nth| first + nth * step).collect();
        if !goes_through_all {
            self.pin.into_iter().for_each(|pin| seeds.insert(0, pin));
        }
        seeds.reverse();
        let left = Mutex::new((seeds, Found::default()));
        let work = || -> io::Result<()> {
            loop {
                let next = {
                    let (seeds, found) = &mut *left.lock().expect("nobody panics who has it");
                    let is_enough = !goes_through_all && !found.by.is_empty();
                    seeds.pop().filter(|_| !is_enough)
                };
                let Some(seed) = next else { return Ok(()) };
                let shown = self.run(seed, Some(self.name))?;
                left.lock().expect("nobody panics who has it").1.add(seed, shown);
            }
        };
        let processes = thread::available_parallelism()?.get().min(PROCESSES_MAX);
        thread::scope(|scope| {
            let workers: Vec<_> = (0..processes).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| worker.join().expect("a worker only runs"))
        })?;
        let (_, mut found) = left.into_inner().expect("nobody panics who has it");
        found.by.sort_unstable();
        Ok(found)
    }

    /// Runs a seed, with the bug or without.
    fn run(&self, seed: u64, bug: Option<&str>) -> io::Result<Shown> {
        let mut program = Command::new(std::env::current_exe()?);
        program
            .args(["sim", "--seeds", "1", "--healed-ms", "1000", "--seed"])
            .arg(seed.to_string());
        program.arg("--load-ms").arg(self.seeds.load_ms.to_string()).args(self.seeds.options);
        program.args(bug.map(|bug| ["--bug", bug]).into_iter().flatten());
        let output = program.output()?;
        if output.status.success() {
            return Ok(Shown::Nothing);
        }
        // What breaks an assertion is said on the other stream.
        let told = [&output.stdout[..], &output.stderr[..]].concat();
        let told = String::from_utf8_lossy(&told);
        let has_words = |line: &&str| self.words.iter().any(|words| line.contains(words));
        let line = told.lines().find(has_words);
        Ok(line.map_or(Shown::Other, |line| Shown::Bug(line.trim().to_owned())))
    }
}

impl Found {
    fn add(&mut self, seed: u64, shown: Shown) {
        self.tried += 1;
        match shown {
            Shown::Nothing => {}
            Shown::Other => self.failed_otherwise += 1,
            Shown::Bug(line) => {
                self.by.push(seed);
                self.said.get_or_insert(line);
            }
        }
    }
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { tried, by, failed_otherwise, said } = self;
        let said: String = said.iter().flat_map(|said| said.chars()).take(160).collect();
        write!(f, "caught in {} of {tried} seeds, ", by.len())?;
        if *failed_otherwise > 0 {
            write!(f, "{failed_otherwise} failed otherwise, ")?;
        }
        let first = by.first().copied().unwrap_or_default();
        write!(f, "first {first}: {said}")
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::PLANTED;
    use crate::chaos::planted::PLANTED as IN_PROCESSES;

    /// The names of the bugs in the sources below a folder.
    fn names_in(folder: &Path, names: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                names_in(&path, names);
            } else if path.extension().is_some_and(|it| it == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let parts = text.split("planted::is(\"").skip(1);
                names.extend(parts.filter_map(|part| Some(part.split_once('"')?.0.to_owned())));
            }
        }
    }

    #[test]
    fn every_bug_that_is_planted_is_hunted_and_every_bug_that_is_hunted_is_planted() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("crates");
        let mut planted = Vec::new();
        for entry in std::fs::read_dir(crates).unwrap() {
            names_in(&entry.unwrap().path().join("src"), &mut planted);
        }
        let mut hunted: Vec<&str> = PLANTED.iter().map(|it| it.name).collect();
        hunted.extend(IN_PROCESSES.iter().map(|it| it.name));
        hunted.extend(crate::relay_sim::PLANTED.iter().map(|it| it.name));
        hunted.sort_unstable();
        hunted.dedup();
        planted.sort_unstable();
        planted.dedup();
        assert_eq!(hunted, planted);
    }
}
