use super::*;

/// Connections, what they asked for, and a clock.
struct Rig {
    connections: Connections,
    now: Instant,
    effects: Vec<Effect>,
    tickets: u64,
}

impl Rig {
    fn new(connections: usize) -> Self {
        let settings = Settings {
            connections,
            ping_after: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(10),
            idle_close: Duration::from_secs(3600),
        };
        #[allow(clippy::disallowed_methods, reason = "a test begins somewhere")]
        let now = Instant::now();
        Self { connections: Connections::new(settings), now, effects: Vec::new(), tickets: 0 }
    }

    fn ask(&mut self, trust: Trust) -> Result<Place, Ticket> {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.connections.ask(ticket, trust, self.now, &mut self.effects).ok_or(ticket)
    }

    fn effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// The connections that are to be opened now.
    fn opens(&mut self) -> Vec<Place> {
        let opens = |effect: Effect| match effect {
            Effect::Open(place) => Some(place),
            Effect::Grant { .. } | Effect::Refuse { .. } => None,
        };
        self.effects().into_iter().filter_map(opens).collect()
    }

    fn opened(&mut self, place: Place, limit: usize) {
        self.connections.opened(place, limit, self.now, &mut self.effects);
    }

    fn limited(&mut self, place: Place, limit: usize) {
        self.connections.limited(place, limit, self.now, &mut self.effects);
    }

    fn finished(&mut self, place: Place, ending: Ending) {
        self.connections.finished(place, ending, self.now, &mut self.effects);
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    /// A first connection that is open.
    fn open_first(&mut self, limit: usize) -> Place {
        let ticket = self.ask(Trust::Good).expect_err("none is open");
        let [place] = self.opens()[..] else { panic!("one is opened") };
        self.opened(place, limit);
        assert!(self.effects().contains(&Effect::Grant { ticket, place }));
        self.finished(place, Ending::Accepted);
        place
    }
}

#[test]
fn connections_are_opened_as_they_are_needed_and_one_at_a_time() {
    let mut rig = Rig::new(3);
    assert!(rig.opens().is_empty(), "nobody has asked");
    for _ in 0..5 {
        rig.ask(Trust::Unknown).expect_err("none is open");
    }
    let [first] = rig.opens()[..] else { panic!("one is opened") };
    rig.opened(first, 2);
    let grants = rig.effects();
    assert_eq!(grants.len(), 3, "two of five, and a second connection: {grants:?}");
    assert!(matches!(grants[2], Effect::Open(Place { slot: 1, .. })));
}

#[test]
fn no_connection_is_over_the_peers_limit_as_it_is_now() {
    let mut rig = Rig::new(1);
    let place = rig.open_first(3);
    for _ in 0..3 {
        rig.ask(Trust::Good).expect("there is room");
    }
    let waiting = rig.ask(Trust::Good).expect_err("it is full");
    rig.limited(place, 1);
    rig.finished(place, Ending::Accepted);
    rig.finished(place, Ending::Accepted);
    assert!(rig.effects().is_empty(), "one is under way, and one is allowed");
    rig.finished(place, Ending::Accepted);
    assert_eq!(rig.effects(), [Effect::Grant { ticket: waiting, place }]);
    rig.limited(place, 2);
    rig.ask(Trust::Good).expect("the limit has grown");
}

#[test]
fn the_least_busy_connection_is_taken() {
    let mut rig = Rig::new(2);
    let first = rig.open_first(4);
    for _ in 0..3 {
        rig.ask(Trust::Good).expect("there is room");
    }
    let [second] = rig.opens()[..] else { panic!("another is opened before the first is full") };
    rig.opened(second, 4);
    assert_eq!(rig.ask(Trust::Good), Ok(second));
    rig.finished(first, Ending::Accepted);
    rig.finished(first, Ending::Accepted);
    rig.finished(first, Ending::Accepted);
    assert_eq!(rig.ask(Trust::Good), Ok(first));
}

#[test]
fn suspects_never_touch_the_good_connections() {
    let mut rig = Rig::new(1);
    let first = rig.open_first(10);
    let suspect = rig.ask(Trust::Suspect).expect_err("the quarantine is closed");
    let [quarantine] = rig.opens()[..] else { panic!("the quarantine is opened") };
    assert_ne!(quarantine.slot, first.slot);
    rig.opened(quarantine, 1);
    assert_eq!(rig.effects(), [Effect::Grant { ticket: suspect, place: quarantine }]);
    rig.ask(Trust::Suspect).expect_err("the quarantine takes one");
    assert_eq!(rig.ask(Trust::Good), Ok(first));
    assert_eq!(rig.ask(Trust::Unknown), Ok(first));
}

#[test]
fn on_a_throttled_connection_the_good_ones_go_first_and_unknown_ones_use_the_quarantine() {
    let mut rig = Rig::new(1);
    let first = rig.open_first(100);
    let bad = rig.ask(Trust::Unknown).expect("there is room");
    rig.finished(bad, Ending::TokenRefused);
    rig.limited(first, 1);
    rig.ask(Trust::Good).expect("one is allowed");
    let unknown = rig.ask(Trust::Unknown).expect_err("it is full");
    let good = rig.ask(Trust::Good).expect_err("it is full");
    let [quarantine] = rig.opens()[..] else { panic!("the quarantine is opened") };
    rig.finished(first, Ending::Answered);
    assert_eq!(rig.effects(), [Effect::Grant { ticket: good, place: first }]);
    rig.opened(quarantine, 1);
    assert_eq!(rig.effects(), [Effect::Grant { ticket: unknown, place: quarantine }]);
    rig.finished(first, Ending::Accepted);
    rig.limited(first, 100);
    assert_eq!(rig.ask(Trust::Unknown), Ok(first), "the throttling has ended");
}

#[test]
fn unknown_tokens_still_move_when_every_connection_is_throttled() {
    let mut rig = Rig::new(1);
    let first = rig.open_first(100);
    rig.limited(first, 1);
    assert_eq!(rig.ask(Trust::Unknown), Ok(first));
}

#[test]
fn a_fresh_connection_that_begins_with_one_stream_is_not_taken_for_throttled() {
    let mut rig = Rig::new(1);
    rig.ask(Trust::Unknown).expect_err("none is open");
    rig.ask(Trust::Unknown).expect_err("none is open");
    let [first] = rig.opens()[..] else { panic!("one is opened") };
    rig.opened(first, 1);
    assert!(rig.opens().is_empty(), "no quarantine");
}

#[test]
fn after_a_goaway_nothing_new_goes_there_and_its_endings_count_nowhere() {
    let mut rig = Rig::new(1);
    let old = rig.open_first(2);
    rig.ask(Trust::Good).expect("there is room");
    rig.connections.going_away(old, rig.now, &mut rig.effects);
    rig.effects();
    let ticket = rig.ask(Trust::Good).expect_err("the old one takes nothing");
    let [new] = rig.opens()[..] else { panic!("a new one is opened") };
    assert_eq!((new.slot, new.epoch), (old.slot, old.epoch + 1));
    rig.opened(new, 2);
    assert_eq!(rig.effects(), [Effect::Grant { ticket, place: new }]);
    rig.finished(old, Ending::Accepted);
    rig.opened(old, 100);
    rig.limited(old, 100);
    assert_eq!(rig.connections.check(old, rig.now), Check::Leave);
    rig.ask(Trust::Good).expect("the second of two");
    rig.ask(Trust::Good).expect_err("the old one's news changed nothing");
}

#[test]
fn who_waits_is_refused_when_no_connection_can_be_had_and_the_rest_grows() {
    let mut rig = Rig::new(2);
    let mut rests = Vec::new();
    for _ in 0..12 {
        let ticket = rig.ask(Trust::Good).expect_err("none is open");
        let [place] = rig.opens()[..] else { panic!("one is opened") };
        let until = rig.connections.failed(place, rig.now, u64::MAX / 2, &mut rig.effects);
        let until = until.expect("it rests");
        let after = until - rig.now;
        assert_eq!(rig.effects(), [Effect::Refuse { ticket, after }]);
        rests.push(after);
        rig.ask(Trust::Good).expect_err("it rests");
        assert!(rig.opens().is_empty(), "no other is tried while it rests");
        assert!(rig.connections.withdraw(Ticket(rig.tickets)));
        rig.now = until;
    }
    assert!(rests.is_sorted(), "{rests:?}");
    assert!(rests[0] <= REST_MIN && rests[11] > REST_MAX / 2 && rests[11] <= REST_MAX);
}

#[test]
fn a_rest_that_is_over_opens_for_who_waits() {
    let mut rig = Rig::new(1);
    rig.ask(Trust::Good).expect_err("none is open");
    let [place] = rig.opens()[..] else { panic!("one is opened") };
    let until = rig.connections.failed(place, rig.now, 7, &mut rig.effects).expect("it rests");
    rig.effects();
    rig.ask(Trust::Good).expect_err("it rests");
    rig.now = until;
    rig.connections.tick(rig.now, &mut rig.effects);
    assert_eq!(rig.opens().len(), 1);
}

#[test]
fn a_failure_beside_an_open_connection_refuses_nobody() {
    let mut rig = Rig::new(2);
    rig.open_first(1);
    rig.ask(Trust::Good).expect("there is room");
    rig.ask(Trust::Good).expect_err("it is full");
    let [second] = rig.opens()[..] else { panic!("a second one is opened") };
    rig.connections.failed(second, rig.now, 7, &mut rig.effects);
    assert!(rig.effects().is_empty(), "who waits, waits for the first");
}

#[test]
fn a_connection_that_dies_at_once_again_and_again_is_not_opened_in_a_loop() {
    let mut rig = Rig::new(1);
    rig.ask(Trust::Good).expect_err("none is open");
    let mut opened = 0;
    for _ in 0..10 {
        for place in rig.opens() {
            opened += 1;
            rig.opened(place, 1);
            rig.effects();
            rig.ask(Trust::Good).expect_err("it is full");
            rig.connections.lost(place, rig.now, 7, &mut rig.effects);
        }
    }
    assert_eq!(opened, 2, "the third waits");
}

#[test]
fn a_silent_connection_is_asked_and_closed_if_it_stays_silent() {
    let mut rig = Rig::new(1);
    let place = rig.open_first(10);
    rig.ask(Trust::Good).expect("there is room");
    rig.pass(29);
    assert!(matches!(rig.connections.check(place, rig.now), Check::Sleep { .. }));
    rig.pass(1);
    assert!(matches!(rig.connections.check(place, rig.now), Check::Ping { .. }));
    rig.pass(5);
    rig.connections.pong(place, rig.now);
    rig.pass(30);
    assert!(matches!(rig.connections.check(place, rig.now), Check::Ping { .. }));
    rig.pass(10);
    assert_eq!(rig.connections.check(place, rig.now), Check::CloseSilent);
    rig.ask(Trust::Good).expect_err("it is closed");
}

#[test]
fn an_idle_connection_is_closed_and_opened_when_it_is_needed() {
    let mut rig = Rig::new(1);
    let place = rig.open_first(10);
    rig.pass(3600);
    assert_eq!(rig.connections.check(place, rig.now), Check::CloseIdle);
    rig.ask(Trust::Good).expect_err("it is closed");
    assert_eq!(rig.opens().len(), 1);
}

#[test]
fn who_has_gone_is_granted_nothing() {
    let mut rig = Rig::new(1);
    let ticket = rig.ask(Trust::Good).expect_err("none is open");
    assert!(rig.connections.withdraw(ticket));
    assert!(!rig.connections.withdraw(ticket));
    let [place] = rig.opens()[..] else { panic!("one is opened") };
    rig.opened(place, 10);
    assert!(rig.effects().is_empty());
}

/// A number from a seed (splitmix64).
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*seed ^ *seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Everything that can happen, in any order: nobody is granted twice or forgotten, and no limit is broken.
#[test]
fn whatever_happens_every_push_is_granted_or_refused_once() {
    for seed in 0..500 {
        chance_run(seed);
    }
}

fn chance_run(seed: u64) {
    use std::collections::{BTreeMap, BTreeSet};
    let mut rig = Rig::new(1 + (seed % 3) as usize);
    let mut chance = seed;
    let mut waiting: BTreeSet<Ticket> = BTreeSet::new();
    let mut flying: Vec<Place> = Vec::new();
    let mut opening: Vec<Place> = Vec::new();
    let mut limits: BTreeMap<Place, usize> = BTreeMap::new();
    for step in 0..400 {
        let pick = |chance: &mut u64, len: usize| (next(chance) % len as u64) as usize;
        let open: Vec<Place> = limits.keys().copied().collect();
        let is_ending = step > 300;
        match next(&mut chance) % 10 {
            0..=3 if !is_ending => {
                let trust = [Trust::Good, Trust::Unknown, Trust::Suspect][pick(&mut chance, 3)];
                match rig.ask(trust) {
                    Ok(place) => flying.push(place),
                    Err(ticket) => assert!(waiting.insert(ticket)),
                }
            }
            4 | 5 if !flying.is_empty() => {
                let place = flying.swap_remove(pick(&mut chance, flying.len()));
                let endings =
                    [Ending::Accepted, Ending::TokenRefused, Ending::Answered, Ending::Unanswered];
                rig.finished(place, endings[pick(&mut chance, 4)]);
            }
            6 if !opening.is_empty() => {
                let place = opening.swap_remove(pick(&mut chance, opening.len()));
                if !is_ending && next(&mut chance).is_multiple_of(3) {
                    rig.connections.failed(place, rig.now, step, &mut rig.effects);
                } else {
                    limits.insert(place, 5);
                    rig.opened(place, 5);
                }
            }
            7 if !open.is_empty() => {
                let place = open[pick(&mut chance, open.len())];
                let limit = if is_ending { 5 } else { pick(&mut chance, 6) };
                limits.insert(place, limit);
                rig.limited(place, limit);
            }
            8 if !open.is_empty() && !is_ending => {
                let place = open[pick(&mut chance, open.len())];
                limits.remove(&place);
                if next(&mut chance).is_multiple_of(2) {
                    rig.connections.going_away(place, rig.now, &mut rig.effects);
                } else {
                    rig.connections.lost(place, rig.now, step, &mut rig.effects);
                }
            }
            _ => {
                rig.pass(1);
                rig.connections.tick(rig.now, &mut rig.effects);
            }
        }
        for effect in rig.effects() {
            match effect {
                Effect::Open(place) => opening.push(place),
                Effect::Grant { ticket, place } => {
                    assert!(waiting.remove(&ticket), "seed {seed}: granted twice");
                    flying.push(place);
                    let limit = limits.get(&place).expect("a grant names an open connection");
                    let count = flying.iter().filter(|other| **other == place).count();
                    assert!(count <= *limit, "seed {seed}: {count} over {limit}");
                }
                Effect::Refuse { ticket, .. } => {
                    assert!(waiting.remove(&ticket), "seed {seed}: refused twice");
                }
            }
        }
    }
    // What still waits is granted when everything goes well from here on.
    for _ in 0..500 {
        if waiting.is_empty() {
            return;
        }
        for place in opening.drain(..) {
            limits.insert(place, 5);
            rig.opened(place, 5);
        }
        for place in limits.keys().copied().collect::<Vec<_>>() {
            rig.limited(place, 5);
        }
        for place in flying.drain(..) {
            rig.finished(place, Ending::Accepted);
        }
        rig.pass(31);
        rig.connections.tick(rig.now, &mut rig.effects);
        for effect in rig.effects() {
            match effect {
                Effect::Open(place) => opening.push(place),
                Effect::Grant { ticket, place } => {
                    assert!(waiting.remove(&ticket));
                    flying.push(place);
                }
                Effect::Refuse { ticket, .. } => assert!(waiting.remove(&ticket)),
            }
        }
    }
    panic!("seed {seed}: {waiting:?} still wait: {}", rig.connections);
}
