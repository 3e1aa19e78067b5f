//! `trials sim`: seed after seed, as many as there is time for.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "the command line has a terminal and writes histories to files"
)]

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::{Args, ValueEnum as _};

use super::{
    AmqpCounts, Counts, LockCounts, Outcome, RatedCounts, Size, StreamCounts, Versions, planted,
    run,
};
use crate::checker::Verdict;

/// What to run.
#[derive(Args, Clone, Debug)]
pub struct Simulation {
    /// The first seed. Its number decides what is done besides crashes and cuts: slow nodes, wrong clocks, damage,
    /// full disks (one seed of three), nodes that are upgraded one after the other (one of four)
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds, one after the other
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// From one seed to the next: 7 beginning with 2 are those with purges and transactions
    #[arg(long, default_value_t = 1)]
    step: u64,
    /// Nodes that make the cluster
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    /// Milliseconds under load and harm, simulated
    #[arg(long, default_value_t = 10_000)]
    load_ms: u64,
    /// Milliseconds under load after all is healed
    #[arg(long, default_value_t = 3_000)]
    healed_ms: u64,
    /// Milliseconds between two single failures after that, simulated: a node, a node, a connection, a connection
    #[arg(long, default_value_t = 800)]
    calm_ms: u64,
    /// Damage files of a node that is down whatever the seed, not in two of nine seeds
    #[arg(long)]
    damage: bool,
    /// Let nodes join, go and be replaced whatever the seed, not in one of five. There must be three or more
    #[arg(long)]
    members: bool,
    /// Aim at rare moments, for planted bugs: cut nodes off until they refuse what they are asked, kill nodes behind a
    /// cut link; who purges asks again at once, and transactions stay in a group
    #[arg(long)]
    aimed: bool,
    /// Let some clients speak AMQP with the broker's own sessions, over connections that break
    #[arg(long)]
    sessions: bool,
    /// Let somebody change policies, users, what they may do, limits and vhosts all the time
    #[arg(long)]
    policies: bool,
    /// Let somebody pause queues and let them go on, and somebody send dead letters on, all the time
    #[arg(long)]
    operations: bool,
    /// Let somebody purge queues and undo it, all the time. There is no undo in versions below 10
    #[arg(long)]
    undo: bool,
    /// Let there be streams, which some publish to and some read. There are none in versions below 10
    #[arg(long)]
    streams: bool,
    /// Let some want locks, and write values beside them. There are none in versions below 10
    #[arg(long)]
    locks: bool,
    /// Let there be queues with rates. There are none in versions below 10
    #[arg(long)]
    rated: bool,
    /// What the nodes' programs read and write, if the seed's number does not decide it
    #[arg(long)]
    versions: Option<Versions>,
    /// Write the history of a failed seed, or of a single one, to this file
    #[arg(long)]
    history: Option<PathBuf>,
    /// Tell the story of a single seed
    #[arg(long)]
    story: bool,
    /// Show that each bug which is planted in what the simulator runs is found; only those whose name holds the word, if
    /// there is one. `cargo xtask sim --planted` builds the simulator for it
    #[arg(long, value_name = "WORD", num_args = 0..=1, default_missing_value = "")]
    planted: Option<String>,
    /// Go through all seeds of each planted bug, to say how many find it
    #[arg(long, requires = "planted")]
    rates: bool,
    /// Run with this planted bug at work
    #[arg(long, value_name = "NAME")]
    bug: Option<String>,
}

/// Every so many seeds, one is run twice and compared.
const REPEATED: u64 = 50;
/// A line of progress after so many seeds.
const PROGRESS: u64 = 100;
/// Lines of its story that are shown of a seed that failed.
const LINES_SHOWN: usize = 40;

/// Totals over all seeds.
#[derive(Default)]
struct Totals {
    counts: Counts,
    confirmed: u64,
    /// Settles and dead letters that were judged.
    settles: u64,
    letters: u64,
    /// Pauses that were judged, and copies of dead letters that were sent on.
    pauses: u64,
    copies: u64,
    failed: Vec<u64>,
    harms: BTreeMap<&'static str, u64>,
    /// Over everything that happened in all seeds: a change of shape that changes no behaviour leaves it as it is.
    hasher: DefaultHasher,
}

impl Simulation {
    /// Runs seed after seed, some of them twice. True if all were valid.
    pub fn run(&self) -> std::io::Result<bool> {
        if let Some(word) = &self.planted {
            return planted::hunt(word, self.rates);
        }
        if let Some(bug) = &self.bug
            && !(planted::is_known(bug) && ::planted::choose(bug))
        {
            println!("no bug {bug} is planted in this program");
            return Ok(false);
        }
        // A broken assertion ends the process: its seed must be known then.
        let current = Arc::new(AtomicU64::new(self.seed));
        let (told, usual, of) = (Arc::clone(&current), std::panic::take_hook(), self.clone());
        std::panic::set_hook(Box::new(move |panic| {
            let seed = told.load(Ordering::Relaxed);
            println!("seed {seed} panicked: {}", of.again(seed));
            usual(panic);
        }));
        let mut totals = Totals::default();
        for done in 1..=self.seeds {
            let seed = self.seed + (done - 1) * self.step;
            current.store(seed, Ordering::Relaxed);
            let size = self.size(seed);
            let outcome = run(seed, size);
            let is_valid = self.judge(&outcome)?;
            if !is_valid {
                totals.failed.push(seed);
            }
            totals.add(&outcome);
            if done % REPEATED == 1 && self.bug.is_none() && run(seed, size).hash != outcome.hash {
                totals.failed.push(seed);
                println!("seed {seed} does not repeat");
            }
            if done.is_multiple_of(PROGRESS) && done < self.seeds {
                println!("{done} seeds, {} failed", totals.failed.len());
            }
        }
        totals.print(self.seeds, self.nodes);
        Ok(totals.failed.is_empty())
    }

    /// What is run with this seed.
    fn size(&self, seed: u64) -> Size {
        let Self { nodes, load_ms, healed_ms, calm_ms, damage: damages, .. } = *self;
        let versions = self.versions.unwrap_or(Versions::of(seed));
        let changes_members = self.members || seed % 5 == 2;
        let (is_aimed, has_sessions, has_policies) = (self.aimed, self.sessions, self.policies);
        let size = Size { nodes, load_ms, healed_ms, calm_ms, has_policies, ..Size::default() };
        let (has_operations, has_streams) = (self.operations, self.streams);
        let (has_locks, has_rates) = (self.locks, self.rated);
        let has_undo = self.undo;
        let size = Size { has_operations, has_undo, has_streams, has_locks, has_rates, ..size };
        Size { damages, changes_members, is_aimed, has_sessions, versions, ..size }
    }

    fn judge(&self, outcome: &Outcome) -> std::io::Result<bool> {
        let is_valid = outcome.report.verdict() == Verdict::Valid;
        if !is_valid {
            println!("seed {}: {}", outcome.seed, outcome.report);
        }
        if !is_valid || (self.story && self.seeds == 1) {
            let shown = if self.story { outcome.lines.len() } else { LINES_SHOWN };
            for line in &outcome.lines[outcome.lines.len().saturating_sub(shown)..] {
                println!("  {line}");
            }
        }
        if !is_valid {
            println!("  again: {}", self.again(outcome.seed));
        }
        if let Some(path) = self.history.as_ref().filter(|_| !is_valid || self.seeds == 1) {
            let lines = outcome.events.iter().map(serde_json::to_string);
            let lines = lines.collect::<Result<Vec<_>, _>>()?;
            std::fs::write(path, lines.join("\n"))?;
        }
        Ok(is_valid)
    }

    fn again(&self, seed: u64) -> String {
        let Self { nodes, load_ms, healed_ms, calm_ms, damage, versions, .. } = self;
        let damage = if *damage { " --damage" } else { "" };
        let members = if self.size(seed).changes_members { " --members" } else { "" };
        let versions = versions.and_then(|versions| versions.to_possible_value());
        let versions = versions.map(|word| format!(" --versions {}", word.get_name()));
        let versions = versions.unwrap_or_default();
        let aimed = if self.aimed { " --aimed" } else { "" };
        let sessions = if self.sessions { " --sessions" } else { "" };
        let policies = if self.policies { " --policies" } else { "" };
        let operations = if self.operations { " --operations" } else { "" };
        let streams = if self.streams { " --streams" } else { "" };
        let locks = if self.locks { " --locks" } else { "" };
        let rated = if self.rated { " --rated" } else { "" };
        let bug = self.bug.as_ref().map(|bug| format!(" --bug {bug}")).unwrap_or_default();
        format!(
            "trials sim --nodes {nodes} --seed {seed} --seeds 1 --load-ms {load_ms} \
             --healed-ms {healed_ms} --calm-ms {calm_ms}{damage}{members}{aimed}{sessions}{policies}{operations}{streams}{locks}{rated}{versions}{bug} --story"
        )
    }
}

impl Totals {
    fn add(&mut self, outcome: &Outcome) {
        self.hasher.write_u64(outcome.hash);
        self.counts += outcome.counts;
        self.confirmed += outcome.report.counts.confirmed;
        self.settles += outcome.report.counts.settled_for_good;
        self.letters += outcome.report.counts.letters;
        self.pauses += outcome.report.counts.pauses;
        self.copies += outcome.report.counts.retried;
        for (harm, count) in &outcome.harms {
            *self.harms.entry(harm).or_default() += count;
        }
    }

    fn print(&self, seeds: u64, nodes: usize) {
        let Counts { events, crashes, power_cuts, checkpoints, elections, .. } = self.counts;
        let Counts { messages, lost, breaks, ms, visits, snapshots, refused, .. } = self.counts;
        println!(
            "sim: {seeds} seeds of {nodes} nodes, {} failed {:?}; {} confirmed in {} simulated \
             seconds, {events} events",
            self.failed.len(),
            self.failed,
            self.confirmed,
            ms / 1000,
        );
        println!(
            "  {crashes} crashes, {power_cuts} of them power cuts; {elections} leaders elected; \
             {checkpoints} checkpoints, {refused} turns on full disks, {snapshots} snapshots installed; {visits} queues came and went; {messages} messages, {lost} lost with {breaks} connections"
        );
        let Counts { watched, times, purges, transactions, looks, .. } = self.counts;
        println!(
            "  judged: {} settles, {} dead letters, {times} leaders by their time, {watched} deliveries and \
             settles while single nodes failed; {purges} purges, {transactions} transactions, {looks} messages looked at",
            self.settles, self.letters,
        );
        let AmqpCounts { connections, confirmed, returned, delivered, fetched, multiples } =
            self.counts.amqp;
        if connections > 0 {
            println!(
                "  AMQP: {connections} connections, {confirmed} confirmed, {returned} returned, \
                 {delivered} delivered, {fetched} fetched, {multiples} settles of several at once"
            );
        }
        let Counts { administered, examined, .. } = self.counts;
        if administered > 0 {
            println!(
                "  policies: {administered} changes of policies, rights, limits and vhosts; {examined} requests of \
                 sessions held against them"
            );
        }
        let Counts { pauses, retried, .. } = self.counts;
        if pauses + retried > 0 {
            println!(
                "  operations: {pauses} pauses that began or ended, {retried} dead letters sent on; judged: {} pauses, \
                 {} copies",
                self.pauses, self.copies,
            );
        }
        if self.counts.brought_back > 0 {
            println!("  undo: {} messages were purged, and came back", self.counts.brought_back);
        }
        let StreamCounts { confirmed, read, attached, jumps, trims, subscribed, flagged, seeks } =
            self.counts.streams;
        if confirmed > 0 {
            println!(
                "  streams: {confirmed} confirmed, {read} read by readers that began {attached} times, {jumps} went on \
                 behind what was gone; {trims} times something was gone; subscriptions: {subscribed} came, {flagged} of \
                 them flagged, {seeks} times set to another place"
            );
        }
        let LockCounts { acquired, renewed, released, held, lost, written, judged } =
            self.counts.locks;
        if acquired > 0 {
            println!(
                "  locks: {acquired} acquired, {renewed} renewed, {released} released, {lost} lost, {held} times another \
                 had it; {written} values written; judged: {judged} pairs of leases"
            );
        }
        let RatedCounts { went, published } = self.counts.rated;
        if went > 0 {
            println!("  rates: {went} messages went through one, of {published} published");
        }
        let Counts { raised, outdated, .. } = self.counts;
        if raised > 0 {
            println!(
                "  versions: {raised} times raised, {outdated} starts of nodes that were too old"
            );
        }
        let harms: Vec<String> =
            self.harms.iter().map(|(harm, count)| format!("{harm} {count}")).collect();
        println!("  {}", harms.join(", "));
        println!("  hash {:016x}", self.hasher.finish());
    }
}
