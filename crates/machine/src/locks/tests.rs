use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::encoding::Reader;
use crate::limits::{LOCK_LEASE_MS_MAX, LOCK_LEASE_MS_MIN, LOCK_VALUE_BYTES_MAX, NAME_BYTES_MAX};

const V: &str = "/";
const START: u64 = 1_700_000_000_000;

/// A group's locks, and the next entry.
#[derive(Default)]
struct Group {
    locks: Locks,
    index: u64,
    time_ms: u64,
}

impl Group {
    fn new() -> Self {
        let mut group = Self { time_ms: START, ..Self::default() };
        let heard = None;
        assert_eq!(group.apply(LockCommand::BeginTerm { term: 1, heard }), LockReply::Done);
        group
    }

    /// Each command in an entry of its own.
    fn apply(&mut self, command: LockCommand) -> LockReply {
        self.apply_all([command]).remove(0)
    }

    fn apply_all(&mut self, commands: impl IntoIterator<Item = LockCommand>) -> Vec<LockReply> {
        self.index += 1;
        let (index, time_ms) = (self.index, self.time_ms);
        let commands = (0..).zip(commands);
        commands
            .map(|(nth, command)| self.locks.apply(Place { index, nth, time_ms }, command))
            .collect()
    }

    fn acquire(&mut self, name: &str, owner: &str, lease_ms: u64) -> LockReply {
        self.apply(acquire(name, owner, lease_ms))
    }

    fn token(&mut self, name: &str, owner: &str, lease_ms: u64) -> u64 {
        match self.acquire(name, owner, lease_ms) {
            LockReply::Acquired { token, .. } => token,
            other => panic!("{owner} did not get {name}: {other:?}"),
        }
    }

    fn put(&mut self, by: u128, expected: Option<u64>, value: &[u8]) -> LockReply {
        self.apply(put(by, expected, None, Some(value)))
    }

    fn is_held(&self, name: &str) -> bool {
        self.locks.view(V, name, self.time_ms).holder.is_some()
    }

    /// As a replica has it that got a snapshot.
    fn restored(&self) -> Locks {
        let bytes = encoded(&self.locks);
        let mut reader = Reader::new(&bytes, "test");
        let restored = Locks::read(&mut reader).expect("our own bytes");
        assert_eq!(reader.end(), Ok(()));
        restored
    }

    /// What is derived is what a replica derives that reads the rest.
    fn check(&self) {
        let restored = self.restored();
        assert_eq!(encoded(&restored), encoded(&self.locks));
        assert_eq!((restored.count(), &restored.ends), (self.locks.count(), &self.locks.ends));
        let bytes =
            |locks: &Locks| -> Vec<usize> { locks.vhosts.values().map(|it| it.bytes).collect() };
        assert_eq!(bytes(&restored), bytes(&self.locks));
    }
}

fn encoded(locks: &Locks) -> Vec<u8> {
    let mut bytes = Vec::new();
    locks.encode(&mut bytes);
    bytes
}

fn acquire(name: &str, owner: &str, lease_ms: u64) -> LockCommand {
    LockCommand::Acquire { vhost: V.into(), name: name.into(), owner: owner.into(), lease_ms }
}

fn renew(name: &str, token: u64, lease_ms: u64) -> LockCommand {
    LockCommand::Renew { vhost: V.into(), name: name.into(), token, lease_ms }
}

fn release(name: &str, token: u64) -> LockCommand {
    LockCommand::Release { vhost: V.into(), name: name.into(), token }
}

fn put(by: u128, expected: Option<u64>, token: Option<u64>, value: Option<&[u8]>) -> LockCommand {
    let (vhost, name) = (V.into(), "job".into());
    LockCommand::Put { vhost, name, by, expected, token, value: value.map(Into::into) }
}

#[test]
fn nobody_gets_a_lock_before_the_lease_of_another_is_over() {
    let mut group = Group::new();
    let first = group.token("job", "ann", 10_000);
    let LockReply::Held(view) = group.acquire("job", "bob", 10_000) else { panic!() };
    let holder = view.holder.expect("ann has it");
    assert_eq!((&*holder.owner, holder.token), ("ann", first));
    assert!((10_000..=10_001).contains(&holder.left_ms));
    group.time_ms += 10_000;
    assert!(matches!(group.acquire("job", "bob", 10_000), LockReply::Held(_)), "not a ms early");
    group.time_ms += 1;
    let second = group.token("job", "bob", 10_000);
    assert!(second > first);
    let late = group.apply(renew("job", first, 10_000));
    assert!(matches!(late, LockReply::NotHeld(LockView { holder: Some(_), .. })), "{late:?}");
    group.check();
}

#[test]
fn who_asks_again_has_the_lock_under_the_same_token() {
    let mut group = Group::new();
    let token = group.token("job", "ann", 10_000);
    group.time_ms += 5_000;
    let again = group.acquire("job", "ann", 10_000);
    assert_eq!(again, LockReply::Acquired { token, lease_ms: 10_001, is_new: false });
    group.time_ms += 9_000;
    assert!(group.is_held("job"), "its lease began anew");
    // A shorter lease takes back nothing of what was promised.
    let shorter = group.apply(renew("job", token, 1_000));
    assert_eq!(shorter, LockReply::Acquired { token, lease_ms: 1_001, is_new: false });
    let longer = group.apply(renew("job", token, 60_000));
    assert_eq!(longer, LockReply::Acquired { token, lease_ms: 60_001, is_new: false });
    let shorter = group.apply(renew("job", token, 1_000));
    assert_eq!(shorter, LockReply::Acquired { token, lease_ms: 60_001, is_new: false });
    group.check();
}

#[test]
fn tokens_of_one_entry_differ_and_grow() {
    let mut group = Group::new();
    let index = group.index + 1;
    let first = index * PLACES;
    let replies = group.apply_all([
        acquire("job", "ann", 1_000),
        release("job", first),
        acquire("job", "bob", 1_000),
        release("job", first),
    ]);
    assert!(matches!(replies[0], LockReply::Acquired { token, .. } if token == first));
    assert_eq!(replies[1], LockReply::Done);
    assert!(matches!(replies[2], LockReply::Acquired { token, .. } if token == first + 2));
    assert!(matches!(replies[3], LockReply::NotHeld(_)), "a former token frees nothing");
    assert!(group.is_held("job"));
}

#[test]
fn a_name_without_holder_and_value_takes_no_room() {
    let mut group = Group::new();
    let token = group.token("job", "ann", 1_000);
    assert_eq!(group.apply(release("job", token)), LockReply::Done);
    assert_eq!(group.locks.count(), (0, 0));
    group.token("job", "ann", 1_000);
    group.time_ms += 60_000;
    assert_eq!(
        group.apply(release("other", 1)),
        LockReply::NotHeld(group.locks.view(V, "other", 0))
    );
    assert_eq!(group.locks.count(), (0, 0), "its lease was over");
    group.check();
}

#[test]
fn a_value_is_written_if_its_version_is_the_expected_one() {
    let mut group = Group::new();
    let LockReply::Put { version: first } = group.put(1, Some(0), b"one") else { panic!() };
    let LockReply::Conflict(view) = group.put(2, Some(0), b"two") else { panic!() };
    assert_eq!(view.value, Some(LockValue { version: first, bytes: b"one".to_vec() }));
    let LockReply::Put { version: second } = group.put(3, Some(first), b"two") else { panic!() };
    assert!(second > first);
    // The same question again, as a producer asks a new leader.
    assert_eq!(group.put(3, Some(first), b"two"), LockReply::Put { version: second });
    assert_eq!(group.apply(put(4, Some(second), None, None)), LockReply::Put { version: 0 });
    assert_eq!(group.locks.count(), (0, 0), "nothing is left of it");
    let LockReply::Put { version: third } = group.put(5, None, b"three") else { panic!() };
    assert!(third > second, "versions grow, whatever was deleted");
    group.check();
}

#[test]
fn a_value_can_be_tied_to_holding_the_lock() {
    let mut group = Group::new();
    let token = group.token("job", "ann", 10_000);
    let written = group.apply(put(1, None, Some(token), Some(b"by ann")));
    assert!(matches!(written, LockReply::Put { .. }));
    group.time_ms += 10_001;
    let late = group.apply(put(2, None, Some(token), Some(b"by ann, late")));
    assert!(matches!(late, LockReply::NotHeld(_)), "{late:?}");
    let view = group.locks.view(V, "job", group.time_ms);
    assert_eq!((view.holder, view.value.map(|it| it.bytes)), (None, Some(b"by ann".to_vec())));
}

#[test]
fn a_leader_that_heard_the_time_gives_a_second_more_and_any_other_a_whole_lease() {
    let at_end = |heard: Option<u64>, jump_ms: u64| {
        let mut group = Group::new();
        group.token("job", "ann", 10_000);
        group.time_ms += 9_000 + jump_ms;
        group.apply(LockCommand::BeginTerm { term: 5, heard });
        group.check();
        let left = group.locks.held_until(V, "job").expect("held") - group.time_ms;
        (left, group.restored().held_until(V, "job").is_some())
    };
    let mut group = Group::new();
    group.token("job", "ann", 10_000);
    group.time_ms += 11_001;
    group.apply(LockCommand::BeginTerm { term: 5, heard: Some(1) });
    assert_eq!(
        group.locks.count(),
        (0, 0),
        "it was over for a second, whatever the new leader's time is"
    );
    assert_eq!(at_end(Some(1), 900), (10_001 + 1_000 - 9_900, true));
    // It has the time from a leader that never began its term here, or from nobody.
    assert_eq!(at_end(Some(3), 900), (10_001, true));
    assert_eq!(at_end(None, 3_600_000), (10_001, true), "though its clock is an hour ahead");
}

#[test]
fn what_is_out_of_bounds_is_refused_with_its_reason() {
    let mut group = Group::new();
    let long = "x".repeat(NAME_BYTES_MAX + 1);
    for (name, owner) in [("", "ann"), ("job", ""), (&long, "ann"), ("job", &long), ("a\0b", "ann")]
    {
        assert_eq!(group.acquire(name, owner, 1_000), LockReply::Refused(LockRefusal::Name));
    }
    for lease_ms in [0, LOCK_LEASE_MS_MIN - 1, LOCK_LEASE_MS_MAX + 1, u64::MAX] {
        assert_eq!(group.acquire("job", "ann", lease_ms), LockReply::Refused(LockRefusal::Lease));
    }
    let value = [0; LOCK_VALUE_BYTES_MAX + 1];
    assert_eq!(group.put(1, None, &value), LockReply::Refused(LockRefusal::Value));
    assert!(matches!(group.put(1, None, &value[1..]), LockReply::Put { .. }));
    assert_eq!(group.locks.count().0, 1);
}

#[test]
fn a_vhost_has_so_many_locks_and_so_many_bytes() {
    let mut group = Group::new();
    for nth in 0..LOCKS_PER_VHOST_MAX {
        group.token(&nth.to_string(), "ann", LOCK_LEASE_MS_MAX);
    }
    let refused = LockReply::Refused(LockRefusal::TooMany);
    assert_eq!(group.acquire("one more", "ann", 1_000), refused);
    assert!(matches!(group.acquire("7", "ann", 1_000), LockReply::Acquired { is_new: false, .. }));
    let elsewhere = |vhost: &str, name: String| LockCommand::Acquire {
        vhost: vhost.into(),
        name,
        owner: "ann".into(),
        lease_ms: LOCK_LEASE_MS_MAX,
    };
    let other = group.apply(elsewhere("other", "one".into()));
    assert!(matches!(other, LockReply::Acquired { .. }), "other vhosts have room of their own");
    group.check();

    group.apply(LockCommand::Forget { vhost: V.into() });
    assert_eq!(group.locks.count().0, 1);
    let value = [1; LOCK_VALUE_BYTES_MAX];
    let mut written = 0;
    let refusal = loop {
        let (vhost, name, by) = (V.into(), written.to_string(), written);
        let value = Some(value[..].into());
        let command = LockCommand::Put { vhost, name, by, expected: None, token: None, value };
        match group.apply(command) {
            LockReply::Put { .. } => written += 1,
            other => break other,
        }
    };
    assert_eq!(refusal, LockReply::Refused(LockRefusal::NoRoom));
    let most = LOCK_BYTES_PER_VHOST_MAX / LOCK_VALUE_BYTES_MAX;
    assert!((most * 9 / 10..=most).contains(&(written as usize)), "{written}");
    group.check();
}

#[test]
fn all_vhosts_of_a_group_together_have_so_many_locks() {
    let mut group = Group::new();
    let vhosts = LOCKS_MAX / LOCKS_PER_VHOST_MAX;
    for vhost in 0..vhosts {
        let commands = (0..LOCKS_PER_VHOST_MAX).map(|nth| LockCommand::Acquire {
            vhost: vhost.to_string(),
            name: nth.to_string(),
            owner: "ann".into(),
            lease_ms: LOCK_LEASE_MS_MAX,
        });
        let replies = group.apply_all(commands);
        assert!(replies.iter().all(|it| matches!(it, LockReply::Acquired { .. })));
    }
    let refused = LockReply::Refused(LockRefusal::TooMany);
    assert_eq!(group.acquire("one more", "ann", 1_000), refused);
}

#[test]
fn locks_are_listed_by_name_from_one_on() {
    let mut group = Group::new();
    for name in ["b", "a", "c"] {
        group.token(name, "ann", 10_000);
    }
    group.token("short", "ann", 1_000);
    group.time_ms += 5_000;
    let names = |behind: &str| -> Vec<String> {
        group.locks.list(V, behind, group.time_ms).map(|view| view.name).collect()
    };
    assert_eq!(names(""), ["a", "b", "c"], "what is over is not shown");
    assert_eq!(names("a"), ["b", "c"]);
    assert_eq!(group.locks.list("other", "", 0).count(), 0);
}

#[test]
fn commands_and_replies_come_back_from_their_bytes() {
    let vhost = || "v".to_owned();
    let commands = [
        LockCommand::BeginTerm { term: 7, heard: None },
        LockCommand::BeginTerm { term: 7, heard: Some(0) },
        acquire("job", "ann", 1_000),
        renew("job", 9, 1_000),
        release("job", 9),
        put(1 << 100, None, None, None),
        put(2, Some(0), Some(3), Some(b"")),
        LockCommand::Forget { vhost: vhost() },
        LockCommand::Expire,
    ];
    for command in commands {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        assert_eq!(LockCommand::decode(&bytes), Ok(command));
        for cut in 0..bytes.len() {
            assert!(LockCommand::decode(&bytes[..cut]).is_err());
        }
    }
    let holder = Some(LockHolder { owner: "ann".into(), token: 1, left_ms: 2 });
    let value = Some(LockValue { version: 3, bytes: vec![4] });
    let view = LockView { name: "job".into(), holder, value };
    let free = LockView { name: "free".into(), holder: None, value: None };
    let replies = [
        LockReply::Acquired { token: 1, lease_ms: 2, is_new: true },
        LockReply::Held(view.clone()),
        LockReply::NotHeld(free.clone()),
        LockReply::Done,
        LockReply::Put { version: 3 },
        LockReply::Conflict(view.clone()),
        LockReply::Is(free.clone()),
        LockReply::List { locks: vec![view, free], has_more: true },
    ];
    let refusals = (0..=u8::MAX).filter_map(LockRefusal::from_number).map(LockReply::Refused);
    for reply in replies.into_iter().chain(refusals) {
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        assert_eq!(LockReply::decode(&bytes), Ok(reply));
        for cut in 0..bytes.len() {
            assert!(LockReply::decode(&bytes[..cut]).is_err());
        }
    }
}

/// What a random history does next.
#[derive(Clone, Debug)]
enum Step {
    Acquire {
        name: u8,
        owner: u8,
        lease_ms: u64,
    },
    /// By whoever was promised the lock last.
    Renew {
        name: u8,
        lease_ms: u64,
    },
    Release {
        name: u8,
    },
    Put {
        name: u8,
    },
    /// Time passes.
    Wait {
        ms: u64,
    },
    /// Another leads. Its time is ahead by less than a second, if it heard the time; otherwise by anything.
    Lead {
        hears: bool,
        ahead_ms: u64,
    },
    Restore,
}

fn step() -> impl Strategy<Value = Step> {
    let (name, lease) = (0u8..3, 1_000u64..5_000);
    prop_oneof![
        4 => (name.clone(), 0u8..3, lease.clone())
            .prop_map(|(name, owner, lease_ms)| Step::Acquire { name, owner, lease_ms }),
        2 => (name.clone(), lease).prop_map(|(name, lease_ms)| Step::Renew { name, lease_ms }),
        1 => name.clone().prop_map(|name| Step::Release { name }),
        1 => name.prop_map(|name| Step::Put { name }),
        3 => (0u64..3_000).prop_map(|ms| Step::Wait { ms }),
        1 => (any::<bool>(), 0u64..100_000)
            .prop_map(|(hears, ahead_ms)| Step::Lead { hears, ahead_ms }),
        1 => Just(Step::Restore),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Time as it is, and the group's, which new leaders put ahead: promises are counted in the former.
    #[test]
    fn no_promise_is_broken_and_tokens_grow(steps in proptest::collection::vec(step(), 1..60)) {
        let mut group = Group::new();
        let (mut true_ms, mut ahead_ms, mut term) = (START, 0, 1);
        // Of each name: who was promised it, under which token, until when.
        let mut promised: BTreeMap<u8, (u8, u64, u64)> = BTreeMap::new();
        let mut last_token = 0;
        for (by, step) in (1..).zip(steps) {
            group.time_ms = group.time_ms.max(true_ms + ahead_ms);
            match step {
                Step::Acquire { name, owner, lease_ms } => {
                    let reply = group.acquire(&name.to_string(), &owner.to_string(), lease_ms);
                    let LockReply::Acquired { token, is_new, .. } = reply else { continue };
                    let until_ms = true_ms + lease_ms;
                    if is_new {
                        prop_assert!(token > last_token);
                        last_token = token;
                        if let Some((_, _, until_ms)) = promised.get(&name) {
                            prop_assert!(*until_ms <= true_ms, "somebody else's lease runs");
                        }
                        promised.insert(name, (owner, token, until_ms));
                    } else {
                        let known = promised.get_mut(&name).expect("it was acquired");
                        prop_assert_eq!((known.0, known.1), (owner, token));
                        known.2 = known.2.max(until_ms);
                    }
                }
                Step::Renew { name, lease_ms } => {
                    let Some(known) = promised.get_mut(&name) else { continue };
                    let reply = group.apply(renew(&name.to_string(), known.1, lease_ms));
                    match reply {
                        LockReply::Acquired { .. } => known.2 = known.2.max(true_ms + lease_ms),
                        _ => prop_assert!(known.2 <= true_ms, "its lease runs"),
                    }
                }
                Step::Release { name } => {
                    let Some((_, token, _)) = promised.remove(&name) else { continue };
                    group.apply(release(&name.to_string(), token));
                    prop_assert!(!group.is_held(&name.to_string()));
                }
                Step::Put { name } => {
                    let (vhost, name) = (V.to_owned(), name.to_string());
                    let value = Some(b"value"[..].into());
                    let (expected, token) = (None, None);
                    group.apply(LockCommand::Put { vhost, name, by, expected, token, value });
                }
                Step::Wait { ms } => true_ms += ms,
                Step::Lead { hears, ahead_ms: more } => {
                    ahead_ms += if hears { more % LOCK_TERM_MS } else { more };
                    group.time_ms = group.time_ms.max(true_ms + ahead_ms);
                    let heard = hears.then_some(term);
                    term += 1;
                    group.apply(LockCommand::BeginTerm { term, heard });
                }
                Step::Restore => group.locks = group.restored(),
            }
            group.check();
        }
    }
}
