//! Random changes of a catalog against a naive one: sets of names and bindings. What is there, where
//! messages may and must go, and that a snapshot makes no difference.

use std::collections::{BTreeMap, BTreeSet};

use crate::world::{KINDS, World};
use machine::{
    Catalog, CatalogCommand, CatalogEffect, CatalogReply, Destination, ExchangeKind, Headers,
    QueueId, Value, ValueView, Version,
};
use proptest::prelude::*;

/// Two weights, which are keys like others elsewhere, and two that are none.
const KEYS: [&str; 4] = ["1", "20", "a.b", "#"];

#[derive(Clone, Debug)]
enum Op {
    DeclareExchange { name: u8, kind: usize, auto_delete: bool },
    DeleteExchange { name: u8 },
    DeclareQueue { name: u8, argument: u8 },
    DeleteQueue { name: u8 },
    Bind { source: u8, to: (bool, u8), key: usize },
    Unbind { source: u8, to: (bool, u8), key: usize },
}

fn op() -> impl Strategy<Value = Op> {
    let name = || 0u8..4;
    let ends = || (name(), (any::<bool>(), name()), 0usize..KEYS.len());
    prop_oneof![
        3 => (name(), 0..KINDS.len(), any::<bool>())
            .prop_map(|(name, kind, auto_delete)| Op::DeclareExchange { name, kind, auto_delete }),
        1 => name().prop_map(|name| Op::DeleteExchange { name }),
        3 => (name(), 0u8..5).prop_map(|(name, argument)| Op::DeclareQueue { name, argument }),
        1 => name().prop_map(|name| Op::DeleteQueue { name }),
        8 => ends().prop_map(|(source, to, key)| Op::Bind { source, to, key }),
        3 => ends().prop_map(|(source, to, key)| Op::Unbind { source, to, key }),
    ]
}

fn exchange_name(number: u8) -> String {
    format!("e{number}")
}

fn destination((is_queue, number): (bool, u8)) -> Destination {
    match is_queue {
        true => Destination::Queue(format!("q{number}")),
        false => Destination::Exchange(exchange_name(number)),
    }
}

fn declare_exchange(name: &str, kind: ExchangeKind, is_auto_delete: bool) -> CatalogCommand {
    let world = World::new();
    let mut command = world.exchange(name, kind, true);
    if let CatalogCommand::DeclareExchange { auto_delete, .. } = &mut command {
        *auto_delete = is_auto_delete;
    }
    match kind {
        ExchangeKind::DelayedMessage => {
            world.with_argument(command, "x-delayed-type", Value::LongStr(b"fanout".to_vec()))
        }
        _ => command,
    }
}

fn declare_queue(name: u8, argument: u8) -> CatalogCommand {
    let world = World::new();
    let command = world.declare(&format!("q{name}"));
    match argument {
        0 => command,
        1 => world.with_argument(command, "x-max-priority", Value::U8(9)),
        2 => world.with_argument(command, "x-message-deduplication", Value::Bool(true)),
        3 => world.with_argument(command, "x-message-ttl", Value::I32(5)),
        _ => world.with_argument(command, "x-queue-type", Value::LongStr(b"quorum".to_vec())),
    }
}

/// A catalog as a child would keep it.
#[derive(Debug, Default)]
struct Naive {
    exchanges: BTreeMap<String, (ExchangeKind, bool)>,
    queues: BTreeSet<String>,
    bindings: BTreeSet<(String, Destination, String)>,
}

impl Naive {
    fn apply(&mut self, op: &Op) {
        match *op {
            Op::DeclareExchange { name, kind, auto_delete } => {
                self.exchanges.entry(exchange_name(name)).or_insert((KINDS[kind], auto_delete));
            }
            Op::DeleteExchange { name } => self.delete(Destination::Exchange(exchange_name(name))),
            Op::DeclareQueue { name, .. } => {
                self.queues.insert(format!("q{name}"));
            }
            Op::DeleteQueue { name } => self.delete(Destination::Queue(format!("q{name}"))),
            Op::Bind { source, to, key } => {
                let (source, to) = (exchange_name(source), destination(to));
                let Some((kind, _)) = self.exchanges.get(&source) else { return };
                let is_there = match &to {
                    Destination::Queue(name) => self.queues.contains(name),
                    Destination::Exchange(name) => self.exchanges.contains_key(name),
                };
                let is_weight = KEYS[key].parse::<u32>().is_ok();
                if is_there && (*kind != ExchangeKind::ConsistentHash || is_weight) {
                    self.bindings.insert((source, to, KEYS[key].to_owned()));
                }
            }
            Op::Unbind { source, to, key } => {
                let (source, to) = (exchange_name(source), destination(to));
                if self.bindings.remove(&(source.clone(), to, KEYS[key].to_owned())) {
                    self.delete_if_unused(source);
                }
            }
        }
    }

    fn delete(&mut self, gone: Destination) {
        let was_there = match &gone {
            Destination::Queue(name) => self.queues.remove(name),
            Destination::Exchange(name) => self.exchanges.remove(name).is_some(),
        };
        if !was_there {
            return;
        }
        if let Destination::Exchange(name) = &gone {
            self.bindings.retain(|(source, _, _)| source != name);
        }
        let (to_it, others) =
            std::mem::take(&mut self.bindings).into_iter().partition(|(_, to, _)| *to == gone);
        self.bindings = others;
        let sources: BTreeSet<(String, Destination, String)> = to_it;
        sources.into_iter().for_each(|(source, _, _)| self.delete_if_unused(source));
    }

    fn delete_if_unused(&mut self, source: String) {
        let is_auto_delete = self.exchanges.get(&source).is_some_and(|(_, auto)| *auto);
        if is_auto_delete && !self.bindings.iter().any(|(from, _, _)| *from == source) {
            self.delete(Destination::Exchange(source));
        }
    }

    /// Queues that a message may come to, and those of them that it must come to.
    fn route(&self, exchange: &str, key: &str) -> (BTreeSet<&str>, BTreeSet<&str>) {
        let (mut may, mut must) = (BTreeSet::new(), BTreeSet::new());
        let mut left = vec![(exchange, true)];
        let mut seen = BTreeSet::new();
        while let Some((name, is_certain)) = left.pop() {
            if !seen.insert((name, is_certain)) {
                continue;
            }
            let (kind, _) = self.exchanges[name];
            for (_, to, bound) in self.bindings.iter().filter(|(source, _, _)| source == name) {
                let is_taken = match kind {
                    ExchangeKind::Direct => bound == key,
                    // The only wildcard among the keys takes everything.
                    ExchangeKind::Topic => bound == key || bound == "#",
                    _ => true,
                };
                let chooses = matches!(
                    kind,
                    ExchangeKind::ConsistentHash | ExchangeKind::Random | ExchangeKind::ModulusHash
                );
                let is_certain = is_certain && !chooses;
                match to {
                    _ if !is_taken => {}
                    Destination::Queue(queue) => {
                        may.insert(queue.as_str());
                        if is_certain {
                            must.insert(queue.as_str());
                        }
                    }
                    Destination::Exchange(next) => left.push((next, is_certain)),
                }
            }
        }
        (may, must)
    }
}

struct Chance(u64);

impl Headers for Chance {
    fn find(&self, _name: &str) -> Option<ValueView<'_>> {
        None
    }

    fn each<'m>(&'m self, _show: &mut dyn FnMut(&'m str, ValueView<'m>)) {}

    fn chance(&self) -> u64 {
        self.0
    }
}

fn command_of(op: &Op) -> CatalogCommand {
    match *op {
        Op::DeclareExchange { name, kind, auto_delete } => {
            declare_exchange(&exchange_name(name), KINDS[kind], auto_delete)
        }
        Op::DeleteExchange { name } => World::delete_exchange(&exchange_name(name), false),
        Op::DeclareQueue { name, argument } => declare_queue(name, argument),
        Op::DeleteQueue { name } => World::new().delete(&format!("q{name}")),
        Op::Bind { source, to, key } => {
            World::bind(&exchange_name(source), destination(to), KEYS[key])
        }
        Op::Unbind { source, to, key } => {
            World::unbind(&exchange_name(source), destination(to), KEYS[key])
        }
    }
}

/// Names of the queues that a message comes to, and whether a history does.
fn route(catalog: &Catalog, exchange: &str, key: &str, chance: u64) -> (BTreeSet<String>, bool) {
    let mut targets = Vec::new();
    let routed = catalog.route("/", exchange, key, &Chance(chance), &mut targets);
    assert_eq!(routed, Ok(()));
    assert!(targets.is_sorted_by(|one, next| one.queue < next.queue), "each once");
    let mut names = BTreeSet::new();
    let mut is_kept = false;
    for target in targets {
        let queue = catalog.queue_by_id(target.queue).expect("a queue");
        assert_eq!(queue.target(), target);
        let features = queue.features().cloned().unwrap_or_default();
        assert_eq!(target.max_priority, features.max_priority);
        assert_eq!(target.dedups, features.dedup.is_some());
        match target.is_history {
            true => is_kept = true,
            false => assert!(names.insert(queue.name.clone())),
        }
    }
    (names, is_kept)
}

fn check(world: &World, naive: &Naive, created: &BTreeSet<QueueId>) {
    let vhost = world.catalog.vhost("/").expect("it stays");
    let own = |name: &&str| !name.is_empty() && !name.starts_with("amq.");
    let exchanges: Vec<&str> =
        vhost.exchanges().map(|exchange| exchange.name.as_str()).filter(own).collect();
    assert_eq!(exchanges, naive.exchanges.keys().collect::<Vec<_>>());
    let queues: Vec<&str> = vhost.queues().map(|queue| queue.name.as_str()).filter(own).collect();
    assert_eq!(queues, naive.queues.iter().collect::<Vec<_>>());
    let bindings: BTreeSet<_> = vhost
        .bindings()
        .map(|it| (it.source.clone(), it.destination.clone(), it.key.clone()))
        .collect();
    assert_eq!(bindings, naive.bindings);
    // One history for each exchange that has one, and nothing is left behind.
    let histories = vhost.exchanges().filter_map(|exchange| exchange.history());
    let histories: BTreeSet<QueueId> = histories.map(|target| target.queue).collect();
    let wanted = naive.exchanges.values().filter(|(kind, _)| *kind == ExchangeKind::RecentHistory);
    assert_eq!(histories.len(), wanted.count());
    assert_eq!(vhost.queues().count(), queues.len() + histories.len());
    let ids: BTreeSet<QueueId> = world.catalog.queues().map(|queue| queue.id).collect();
    assert_eq!(ids, *created, "what was told to be created and not deleted");

    let restored = Catalog::restore(&world.catalog.snapshot()).expect("our own snapshot");
    assert_eq!(restored.digest(), world.catalog.digest());
    for (exchange, (kind, _)) in &naive.exchanges {
        for key in KEYS {
            let (may, must) = naive.route(exchange, key);
            for chance in [0, 7, u64::MAX] {
                let (found, is_kept) = route(&world.catalog, exchange, key, chance);
                assert_eq!(route(&restored, exchange, key, chance), (found.clone(), is_kept));
                let found: BTreeSet<&str> = found.iter().map(String::as_str).collect();
                assert!(found.is_subset(&may), "{exchange} {key}: {found:?} of {may:?}");
                assert!(found.is_superset(&must), "{exchange} {key}: {found:?} for {must:?}");
                assert!(is_kept || *kind != ExchangeKind::RecentHistory);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_catalog_is_its_naive_twin(ops in proptest::collection::vec(op(), 1..60)) {
        let mut world = World::new();
        let mut naive = Naive::default();
        let mut created = BTreeSet::new();
        for op in &ops {
            world.effects.clear();
            let reply = world.apply_unchecked(command_of(op));
            naive.apply(op);
            if matches!(reply, CatalogReply::Refused(_)) {
                prop_assert!(world.effects.is_empty());
            }
            for effect in &world.effects {
                match effect {
                    CatalogEffect::QueueCreated { queue, .. } => {
                        prop_assert!(created.insert(*queue));
                    }
                    CatalogEffect::QueueChanged { queue, .. } => {
                        prop_assert!(created.contains(queue));
                    }
                    CatalogEffect::QueueDeleted { queue, .. } => {
                        prop_assert!(created.remove(queue));
                    }
                }
            }
        }
        check(&world, &naive, &created);
        // What arguments meant is now in specs.
        for version in [Version::SPECS, Version::POLICIES] {
            world.apply_unchecked(CatalogCommand::RaiseVersion { to: version });
            check(&world, &naive, &created);
        }
    }
}
