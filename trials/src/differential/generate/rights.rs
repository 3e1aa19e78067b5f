//! Policies, and a second user whose rights change: added to some programs, by a chance of its own, so that what else a
//! seed does stays as it was.
//!
//! A channel of RabbitMQ remembers what it was allowed until it is closed (`docs/differences.md`), so the user's channel is
//! closed before its rights change.

use super::super::program::{Operation, Program, Verb};
use super::random::Random;
use super::{About, QUEUES};

/// The channel of the second user.
pub(super) const USER_CHANNEL: u16 = 4;
/// Another stream than that of the program.
const STREAM: u64 = 0x5bd1_e995_9e37_79b9;
/// Long enough that nothing expires by it.
const ENDLESS_MS: i32 = 600_000;
/// Short enough to be waited for.
const SHORT_MS: i32 = 40;
/// On names.
const GRANTS: [&str; 10] =
    ["all", "all", "all", "", "q1", "q1|q2", "q", "e", "q|default", "e1|q|default"];
/// On routing keys.
const TOPICS: [&str; 6] = [".*", "", "^a", r"^a\.b$", "^(a|b)$", "^{username}"];

/// Adds them to the program of a seed, behind its first `declared` operations.
pub(super) fn add(seed: u64, about: About, program: &mut Program, declared: usize) {
    let mut random = Random::new(seed ^ STREAM);
    // Quorum queues of RabbitMQ hear of a policy at some time or other.
    if about.quorum {
        return;
    }
    if random.chance(35) {
        for _ in 0..random.between(1, 4) {
            let operation = policy(about, program, &mut random);
            insert(program, declared, vec![operation], &mut random);
        }
        settle_before_the_first_message(program);
    }
    // What is refused closes the channel, and gives back what it holds.
    if about.returns && random.chance(25) {
        add_user(program, declared, &mut random);
    }
}

/// Somewhere behind the operations that set up.
fn insert(program: &mut Program, declared: usize, operations: Vec<Operation>, random: &mut Random) {
    let place = random.between(declared.min(program.0.len()) as u64, program.0.len() as u64);
    let place = place as usize;
    program.0.splice(place..place, operations);
}

/// Millrace knows the bytes of messages that came while a limit on them was there, and no others; and what expires at
/// once expires there when those before it are gone (`docs/differences.md`). Policies of that kind come before the first
/// message, and stay.
fn settle_before_the_first_message(program: &mut Program) {
    let first = program.0.iter().position(|it| it.verb == Verb::Publish);
    let late = program.0.split_off(first.unwrap_or(program.0.len()));
    let is_policy = |it: &Operation| matches!(it.verb, Verb::Policy | Verb::DeletePolicy);
    let has_early = program.0.iter().any(|it| is_policy(it) && depends_on_what_waits(it));
    let stays = |it: &Operation| !is_policy(it) || !(has_early || depends_on_what_waits(it));
    program.0.extend(late.into_iter().filter(stays));
}

fn depends_on_what_waits(policy: &Operation) -> bool {
    let is_short = policy.number("message-ttl").is_some_and(|ttl| ttl < ENDLESS_MS.into());
    is_short || policy.option("max-length-bytes").is_some()
}

/// All that one of the channels does is done by the user.
fn add_user(program: &mut Program, declared: usize, random: &mut Random) {
    let channel = random.pick(&[1, 2, 2]);
    // Of what is predeclared nobody may delete anything: who may not do so either is told one of the two.
    let is_predeclared = |word: &String| word.starts_with("amq.");
    for operation in program.0.iter_mut().filter(|operation| operation.channel == channel) {
        if !operation.words.iter().any(is_predeclared) {
            operation.channel = USER_CHANNEL;
        }
    }
    let is_strict = random.chance(50);
    let first = grant(is_strict, random);
    for _ in 0..random.between(0, 2) {
        let close = Operation::new(Verb::Close, USER_CHANNEL, &[]);
        let grant = grant(true, random);
        insert(program, declared, vec![close, grant], random);
    }
    if random.chance(50) {
        for _ in 0..random.between(1, 2) {
            let close = Operation::new(Verb::Close, USER_CHANNEL, &[]);
            let change = if random.chance(85) {
                let exchange = random.pick(&super::EXCHANGES);
                let (write, read) = (random.pick(&TOPICS), random.pick(&TOPICS));
                Operation::new(Verb::Topics, USER_CHANNEL, &[exchange, write, read])
            } else {
                Operation::new(Verb::ClearTopics, USER_CHANNEL, &[])
            };
            insert(program, declared, vec![close, change], random);
        }
    }
    // Without it the user does not get in.
    program.0.insert(0, first);
}

fn grant(is_strict: bool, random: &mut Random) -> Operation {
    let mut draw = || if is_strict { random.pick(&GRANTS) } else { "all" };
    let (configure, write, read) = (draw(), draw(), draw());
    Operation::new(Verb::Grant, USER_CHANNEL, &[configure, write, read])
}

/// A policy is set, or goes.
fn policy(about: About, program: &Program, random: &mut Random) -> Operation {
    // No two of a kind have the same priority: which one counts then is open.
    let (name, priority) = random.pick(&[("p1", 1), ("p1", 1), ("p2", 5)]);
    let is_operator = random.chance(20);
    let flagged = |operation: Operation| {
        if is_operator { operation.flag("operator") } else { operation }
    };
    if random.chance(20) {
        return flagged(Operation::new(Verb::DeletePolicy, 1, &[name]));
    }
    let of_exchange = !is_operator && !about.mistakes && random.chance(12);
    if of_exchange {
        let subject = random.pick(&["e1", "e2", "e"]);
        let operation = Operation::new(Verb::Policy, 1, &[name, subject]);
        let operation = operation.with("alternate-exchange", random.pick(&super::EXCHANGES));
        return operation.with("priority", priority).with("to", "exchanges");
    }
    let subject = random.pick(&["q1", "q1", "q2", "q3", "q"]);
    let mut operation = flagged(Operation::new(Verb::Policy, 1, &[name, subject]));
    let set = |name: &str| program.0.iter().any(|it| it.option(name).is_some());
    // What waits behind a higher priority expires at another time, and what expires at once is not too much in the same
    // way (`docs/differences.md`).
    let may_expire = !about.priorities && !about.refusals && !about.limits && !set("overflow");
    let has_ttl = may_expire && random.chance(40);
    if has_ttl {
        let short = if about.time { SHORT_MS } else { 0 };
        operation = operation.with("message-ttl", random.pick(&[short, short, ENDLESS_MS]));
    }
    // What comes back to a full queue from two takers waits in the order of its return.
    let takes = |it: &Operation| it.verb == Verb::Get && !it.has("no-ack");
    let has_takers = about.returns && program.0.iter().any(takes);
    let may_be_short = !about.ttl && !set("message-ttl") && !has_takers;
    if !has_ttl && may_be_short && random.chance(75) {
        operation = match random.chance(75) {
            true => operation.with("max-length", random.pick(&[1, 1, 2, 3])),
            false => operation.with("max-length-bytes", random.pick(&[5, 10, 25])),
        };
        // Dead letters do not come to the first queue, which alone may refuse.
        let may_refuse = subject == "q1" && !about.dead_letters && !is_operator;
        if may_refuse && !set("x-overflow") && random.chance(40) {
            let overflow = random.pick(&["reject-publish", "reject-publish-dlx"]);
            operation = operation.with("overflow", overflow);
        }
    }
    // Dead letters go to a later queue, so that they come to an end.
    let later = QUEUES.iter().position(|queue| *queue == subject).map(|at| &QUEUES[at + 1..]);
    let later = later.filter(|_| !is_operator && !set("x-dead-letter-exchange"));
    if let Some(later) = later.filter(|later| !later.is_empty() && random.chance(50)) {
        operation = operation.with("dead-letter-exchange", "");
        operation = operation.with("dead-letter-routing-key", random.pick(later));
    }
    let has_rules = !operation.options.iter().all(|(name, _)| name == "operator");
    if !has_rules {
        operation = operation.with("max-length", 1_000_000);
    }
    operation = operation.with("priority", priority);
    operation.with("to", random.pick(&["queues", "queues", "all"]))
}
