//! Programs from seeds: the same seed is the same program on every machine.
//!
//! Chance first chooses what a program is about, so that arguments that belong together meet often:
//! a program about limits and dead letters has a few queues with both, one about time has messages
//! that expire. Times to live are 0, short (and then waited for) or as good as endless, so that what
//! expires is never a matter of speed.

mod arguments;
mod random;
mod rights;

use amqp::FieldValue;

use super::program::{Operation, Program, Verb};
use random::Random;

/// Operations after those that declare and bind, at least and at most.
const SIZE: (u64, u64) = (4, 15);
const QUEUES: [&str; 4] = ["q1", "q2", "q3", "q4"];
const EXCHANGES: [&str; 3] = ["e1", "e2", "e3"];
const CHANNELS: [u16; 3] = [1, 2, 3];
/// A pause after which a queue that expires while it is unused is gone.
const UNUSED_MS: u32 = 6000;

/// The program of a seed.
pub(super) fn program(seed: u64) -> Program {
    let mut random = Random::new(seed);
    let about = About::draw(&mut random);
    let mut generator = Generator {
        random,
        about,
        program: Program::default(),
        queues: Vec::new(),
        exchanges: Vec::new(),
        consumers: Vec::new(),
        consumed: 0,
        getters: Vec::new(),
    };
    generator.set_up();
    let declared = generator.program.0.len() as u64;
    let size = declared + generator.random.between(SIZE.0, SIZE.1);
    while (generator.program.0.len() as u64) < size {
        generator.go_on();
    }
    let Generator { mut program, about, .. } = generator;
    rights::add(seed, about, &mut program, declared as usize);
    program
}

/// What a program is about.
#[derive(Clone, Copy, Debug)]
struct About {
    /// Messages expire while it runs.
    time: bool,
    /// Messages or queues with times to live, of 0 or without an end.
    ttl: bool,
    quorum: bool,
    limits: bool,
    /// Queues that refuse what is too much: only `q1`, to which no dead letters go.
    refusals: bool,
    dead_letters: bool,
    priorities: bool,
    single_active: bool,
    /// Requests that are refused.
    mistakes: bool,
    transactions: bool,
    /// Queues that go when they are not used.
    expires: bool,
    routing: bool,
    /// Messages go back to their queues, asked for or because a channel ends by a mistake. Who of
    /// several consumers gets them then is open, so there is one for each queue.
    returns: bool,
    /// A prefetch for a channel together. RabbitMQ then holds consumers without acks back, too.
    shared_prefetch: bool,
}

impl About {
    fn draw(random: &mut Random) -> About {
        let quorum = random.chance(12);
        let limits = random.chance(35);
        let refusals = limits && random.chance(50);
        let time = !refusals && random.chance(25);
        let mut about = About {
            time,
            ttl: time || (!refusals && random.chance(30)),
            quorum,
            limits,
            refusals,
            dead_letters: random.chance(55),
            priorities: random.chance(25),
            single_active: random.chance(18),
            mistakes: false,
            transactions: random.chance(5),
            expires: !time && random.chance(5),
            routing: random.chance(45),
            returns: random.chance(65),
            shared_prefetch: !quorum && random.chance(25),
        };
        // A mistake closes a channel, which gives back what it holds.
        about.mistakes = !quorum && about.returns && random.chance(35);
        about
    }
}

/// Adds an operation, or a few that belong together.
type Make = fn(&mut Generator);

struct Generator {
    random: Random,
    about: About,
    program: Program,
    queues: Vec<&'static str>,
    /// Names and types.
    exchanges: Vec<(&'static str, &'static str)>,
    /// Tag, channel and queue.
    consumers: Vec<(String, u16, String)>,
    consumed: u32,
    /// Channels that may hold what they got.
    getters: Vec<u16>,
}

impl Generator {
    /// Exchanges, queues and bindings.
    fn set_up(&mut self) {
        if self.random.chance(60) {
            self.push(Operation::new(Verb::Confirm, 1, &[]));
        }
        let exchanges = if self.about.routing || self.about.dead_letters {
            self.random.between(1, 3)
        } else {
            self.random.between(0, 1)
        };
        for _ in 0..exchanges {
            self.declare_exchange();
        }
        for _ in 0..self.random.between(1, if self.about.dead_letters { 4 } else { 3 }) {
            self.declare_queue();
        }
        for _ in 0..self.random.between(exchanges, exchanges * 2) {
            self.bind();
        }
    }

    /// One operation more, or a few that belong together.
    fn go_on(&mut self) {
        const WEIGHTS: [(u64, Make); 22] = [
            (30, Generator::publish),
            (9, Generator::get),
            (11, Generator::consume),
            (4, Generator::cancel),
            (11, Generator::ack),
            (9, Generator::nack),
            (7, Generator::reject),
            (3, Generator::recover),
            (2, Generator::purge),
            (2, Generator::delete_queue),
            (2, Generator::delete_exchange),
            (3, Generator::redeclare),
            (2, Generator::declare_queue),
            (2, Generator::declare_exchange),
            (2, Generator::passive),
            (3, Generator::bind),
            (2, Generator::unbind),
            (5, Generator::qos),
            (2, Generator::close),
            (1, Generator::disconnect),
            (3, Generator::mistake),
            (2, Generator::special),
        ];
        let total = WEIGHTS.iter().map(|(weight, _)| weight).sum();
        let mut drawn = self.random.below(total);
        for (weight, make) in WEIGHTS {
            if drawn < weight {
                return make(self);
            }
            drawn -= weight;
        }
    }

    fn push(&mut self, operation: Operation) {
        self.program.0.push(operation);
    }

    fn channel(&mut self) -> u16 {
        // Most of it happens on one channel: otherwise little of it meets.
        if self.random.chance(60) { 1 } else { self.random.pick(&CHANNELS) }
    }

    fn queue(&mut self) -> &'static str {
        if self.queues.is_empty() || (self.about.returns && self.random.chance(3)) {
            return self.random.pick(&QUEUES);
        }
        self.random.pick(&self.queues.clone())
    }

    fn exchange(&mut self) -> (&'static str, &'static str) {
        if self.exchanges.is_empty() || (self.about.returns && self.random.chance(3)) {
            let kind = self.random.pick(&["direct", "topic"]);
            return (self.random.pick(&EXCHANGES), kind);
        }
        self.random.pick(&self.exchanges.clone())
    }

    fn declare_exchange(&mut self) {
        let is_new = |name: &&str| !self.exchanges.iter().any(|(known, _)| known == name);
        let unused = EXCHANGES.into_iter().find(is_new);
        let name = unused.unwrap_or_else(|| self.random.pick(&EXCHANGES));
        let kind = self.random.pick(&["direct", "fanout", "topic", "topic", "headers", "direct"]);
        let mut operation = Operation::new(Verb::Exchange, self.channel(), &[name, kind]);
        if self.random.chance(50) {
            operation = operation.flag("durable");
        }
        if self.random.chance(10) {
            operation = operation.flag("auto-delete");
        }
        if self.about.returns && self.random.chance(8) {
            operation = operation.flag("internal");
        }
        if self.random.chance(25) {
            let other = self.random.pick(&EXCHANGES);
            operation = operation.with("alternate-exchange", other);
        }
        self.exchanges.retain(|(known, _)| *known != name);
        self.exchanges.push((name, kind));
        self.push(operation);
    }

    fn declare_queue(&mut self) {
        let unused: Vec<&str> =
            QUEUES.into_iter().filter(|name| !self.queues.contains(name)).collect();
        let name = if unused.is_empty() { "q1" } else { unused[0] };
        let operation = Operation::new(Verb::Queue, self.channel(), &[name]);
        let operation = self.queue_options(operation);
        if !self.queues.contains(&name) {
            self.queues.push(name);
        }
        self.push(operation);
    }

    /// Declares again what is there: as it was, or with something changed.
    fn redeclare(&mut self) {
        let declared: Vec<Operation> = self
            .program
            .0
            .iter()
            .filter(|operation| matches!(operation.verb, Verb::Queue | Verb::Exchange))
            .cloned()
            .collect();
        if declared.is_empty() || !self.about.returns {
            return;
        }
        let mut again = self.random.pick(&declared);
        again.channel = self.channel();
        if self.random.chance(70) && !again.options.is_empty() {
            let index = self.random.below(again.options.len() as u64) as usize;
            again.options.remove(index);
        } else if again.verb == Verb::Queue && self.random.chance(70) {
            again =
                self.queue_options(Operation::new(Verb::Queue, again.channel, &[again.word(0)]));
        }
        self.push(again);
    }

    fn passive(&mut self) {
        if !self.about.returns {
            return;
        }
        let channel = self.channel();
        let operation = if self.random.chance(70) {
            Operation::new(Verb::Queue, channel, &[self.queue()])
        } else {
            Operation::new(Verb::Exchange, channel, &[self.exchange().0, "direct"])
        };
        self.push(operation.flag("passive"));
    }

    fn bind(&mut self) {
        if self.exchanges.is_empty() && !self.about.returns {
            return;
        }
        let (source, kind) = self.exchange();
        let channel = self.channel();
        let key = self.binding_key(kind);
        let operation = if self.exchanges.len() > 1 && self.random.chance(20) {
            let destination = self.exchange().0;
            Operation::new(Verb::BindExchange, channel, &[destination, source, key])
        } else {
            Operation::new(Verb::Bind, channel, &[self.queue(), source, key])
        };
        let operation = if kind == "headers" { self.match_arguments(operation) } else { operation };
        self.push(operation);
    }

    /// Undoes a binding, most often one that there is.
    fn unbind(&mut self) {
        let is_bind =
            |operation: &&Operation| matches!(operation.verb, Verb::Bind | Verb::BindExchange);
        let bound: Vec<Operation> = self.program.0.iter().filter(is_bind).cloned().collect();
        if bound.is_empty() {
            return;
        }
        let mut operation = self.random.pick(&bound);
        operation.verb = match operation.verb {
            Verb::BindExchange => Verb::UnbindExchange,
            _ => Verb::Unbind,
        };
        operation.channel = self.channel();
        self.push(operation);
    }

    fn publish(&mut self) {
        let channel = self.channel();
        let (exchange, key, kind) = if self.exchanges.is_empty() || self.random.chance(50) {
            ("", self.queue(), "")
        } else {
            let (exchange, kind) = self.exchange();
            (exchange, self.routing_key(kind), kind)
        };
        let operation = Operation::new(Verb::Publish, channel, &[exchange, key]);
        let operation = self.publish_options(operation, kind);
        self.push(operation);
    }

    fn get(&mut self) {
        if self.about.quorum && self.about.single_active {
            return;
        }
        let channel = self.channel();
        let mut operation = Operation::new(Verb::Get, channel, &[self.queue()]);
        // What comes back to a quorum queue waits in the order of its return, which is not compared.
        // So does what comes back to a full queue from two takers.
        if self.about.quorum || self.about.limits || self.random.chance(25) {
            operation = operation.flag("no-ack");
        } else {
            self.getters.push(channel);
        }
        self.push(operation);
    }

    fn consume(&mut self) {
        let channel = self.channel();
        let queue = self.queue();
        let is_taken = self.consumers.iter().any(|(_, _, taken)| taken == queue);
        let is_alone = self.about.quorum || self.about.returns;
        if is_alone && is_taken && !self.is_single_active(queue) {
            return;
        }
        // A quorum queue of RabbitMQ 3.10 gives too much credit back at the limit of deliveries.
        if self.random.chance(50) && !self.about.quorum {
            let count = self.random.pick(&["1", "1", "2", "3"]);
            self.push(Operation::new(Verb::Qos, channel, &[count]));
        }
        self.consumed += 1;
        let tag = format!("c{}", self.consumed);
        let mut operation = Operation::new(Verb::Consume, channel, &[&tag, queue]);
        if self.random.chance(20) && !self.about.shared_prefetch {
            operation = operation.flag("no-ack");
        }
        if self.about.returns && self.random.chance(5) && !self.about.quorum {
            operation = operation.flag("exclusive");
        }
        if self.random.chance(if self.about.priorities { 40 } else { 8 }) {
            let priority = self.random.pick(&[1, 5, -1, 10]);
            operation = operation.with("x-priority", priority);
        }
        self.consumers.push((tag, channel, queue.to_owned()));
        self.push(operation);
    }

    fn is_single_active(&self, queue: &str) -> bool {
        let single = Some(&FieldValue::Bool(true));
        let declared = self
            .program
            .0
            .iter()
            .find(|operation| operation.verb == Verb::Queue && operation.word(0) == queue);
        declared.is_some_and(|queue| queue.option("x-single-active-consumer") == single)
    }

    fn cancel(&mut self) {
        // A classic queue of RabbitMQ does not serve the next active consumer before anything else
        // happens.
        if self.about.quorum || self.about.single_active {
            return;
        }
        let Some((tag, channel)) = self.consumer() else { return };
        self.push(Operation::new(Verb::Cancel, channel, &[&tag]));
    }

    fn consumer(&mut self) -> Option<(String, u16)> {
        if self.consumers.is_empty() {
            return None;
        }
        let (tag, channel, _) = self.random.pick(&self.consumers.clone());
        Some((tag, channel))
    }

    /// A delivery that somebody may hold: which, and on what channel.
    fn which(&mut self) -> Option<(String, u16)> {
        let place = self.random.pick(&["first", "first", "last"]);
        if self.random.chance(8) {
            return Some(("all".to_owned(), self.channel()));
        }
        if self.getters.is_empty() || (!self.consumers.is_empty() && self.random.chance(65)) {
            let (tag, channel) = self.consumer()?;
            return Some((format!("{tag}.{place}"), channel));
        }
        let channel = self.random.pick(&self.getters.clone());
        Some((format!("got.{place}"), channel))
    }

    fn ack(&mut self) {
        let Some((which, channel)) = self.which() else { return };
        let operation = Operation::new(Verb::Ack, channel, &[&which]);
        let operation = if self.random.chance(25) { operation.flag("multiple") } else { operation };
        self.push(operation);
    }

    fn nack(&mut self) {
        let Some((which, channel)) = self.which() else { return };
        let mut operation = Operation::new(Verb::Nack, channel, &[&which]);
        if self.random.chance(40) {
            operation = operation.flag("multiple");
        }
        if self.about.returns && self.random.chance(55) {
            operation = operation.flag("requeue");
        }
        self.push(operation);
    }

    fn reject(&mut self) {
        let Some((which, channel)) = self.which() else { return };
        if which == "all" {
            return;
        }
        let operation = Operation::new(Verb::Reject, channel, &[&which]);
        let is_back = self.about.returns && self.random.chance(50);
        let operation = if is_back { operation.flag("requeue") } else { operation };
        self.push(operation);
    }

    fn recover(&mut self) {
        if !self.about.returns {
            return;
        }
        let operation = Operation::new(Verb::Recover, self.channel(), &[]);
        self.push(operation);
    }

    fn purge(&mut self) {
        let operation = Operation::new(Verb::Purge, self.channel(), &[self.queue()]);
        self.push(operation);
    }

    fn delete_queue(&mut self) {
        if !self.about.returns {
            return;
        }
        let mut operation = Operation::new(Verb::DeleteQueue, self.channel(), &[self.queue()]);
        // Quorum queues of RabbitMQ do not know conditions.
        let has_conditions = !self.about.quorum;
        if has_conditions && self.random.chance(30) {
            operation = operation.flag("if-unused");
        }
        if has_conditions && self.random.chance(30) {
            operation = operation.flag("if-empty");
        }
        self.push(operation);
    }

    fn delete_exchange(&mut self) {
        if !self.about.returns {
            return;
        }
        let mut operation =
            Operation::new(Verb::DeleteExchange, self.channel(), &[self.exchange().0]);
        if self.random.chance(40) {
            operation = operation.flag("if-unused");
        }
        self.push(operation);
    }

    fn qos(&mut self) {
        if self.about.quorum {
            return;
        }
        let count = self.random.pick(&["0", "1", "2", "3"]);
        let mut operation = Operation::new(Verb::Qos, self.channel(), &[count]);
        if self.about.shared_prefetch && self.random.chance(60) {
            operation = operation.flag("global");
        }
        self.push(operation);
    }

    fn close(&mut self) {
        if self.about.quorum || !self.about.returns {
            return;
        }
        let channel = self.channel();
        self.consumers.retain(|(_, at, _)| *at != channel);
        self.push(Operation::new(Verb::Close, channel, &[]));
    }

    fn disconnect(&mut self) {
        if self.about.quorum || !self.about.returns {
            return;
        }
        let channel = self.random.pick(&CHANNELS);
        self.consumers.retain(|(_, at, _)| (*at >= 3) != (channel >= 3));
        self.push(Operation::new(Verb::Disconnect, channel, &[]));
    }

    /// What only some programs have.
    fn special(&mut self) {
        if self.about.expires {
            let pause = UNUSED_MS.to_string();
            self.push(Operation::new(Verb::Pause, 1, &[&pause]));
        }
        if self.about.transactions {
            let channel = self.random.pick(&[2, 3]);
            self.push(Operation::new(Verb::Tx, channel, &[]));
            for _ in 0..self.random.between(1, 3) {
                self.go_on();
                if let Some(last) = self.program.0.last_mut() {
                    last.channel = channel;
                }
            }
            let end = if self.random.chance(70) { Verb::Commit } else { Verb::Rollback };
            self.push(Operation::new(end, channel, &[]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_one_program_and_its_script_is_the_same_program() {
        for seed in 0..500 {
            let made = program(seed);
            assert_eq!(made, program(seed));
            let script = made.to_string();
            assert_eq!(Program::parse(&script).unwrap(), made, "{script}");
        }
    }

    #[test]
    fn every_operation_comes_up_in_a_few_hundred_programs() {
        let mut verbs = Vec::new();
        for seed in 0..500 {
            for operation in program(seed).0 {
                if !verbs.contains(&operation.verb) {
                    verbs.push(operation.verb);
                }
            }
        }
        assert_eq!(verbs.len(), super::super::program::VERB_COUNT);
    }
}
