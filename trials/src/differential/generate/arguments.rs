//! Arguments of queues, options of messages, keys, and requests that are refused.

use amqp::FieldValue;

use super::super::program::{Operation, Verb};
use super::{Generator, QUEUES};

/// Long enough that nothing expires by it.
const ENDLESS_MS: i32 = 600_000;
/// Short enough to be waited for.
const SHORT_MS: i32 = 40;
/// How long a queue lives unused. Every step of a program uses all of its queues, so this is how long a
/// step may take on a busy machine.
const UNUSED_MS: i32 = 4000;

const KEYS: [&str; 6] = ["a", "b", "a.b", "a.b.c", "", "a..b"];
const PATTERNS: [&str; 8] = ["a", "a.*", "#", "*.b", "a.#", "*", "", "a.#.c"];

impl Generator {
    /// Durability, ownership and arguments of a queue.
    pub(super) fn queue_options(&mut self, mut operation: Operation) -> Operation {
        let is_quorum = self.about.quorum && self.random.chance(70);
        if is_quorum || self.random.chance(55) {
            operation = operation.flag("durable");
        }
        if self.about.returns && self.random.chance(if is_quorum { 2 } else { 8 }) {
            operation = operation.flag("exclusive");
        }
        if self.random.chance(if is_quorum { 2 } else { 8 }) {
            operation = operation.flag("auto-delete");
        }
        if is_quorum {
            operation = operation.with("x-queue-type", "quorum");
            // Without a limit RabbitMQ 3.10 puts what comes back behind everything else.
            operation = operation.with("x-delivery-limit", self.random.pick(&[0, 1, 2]));
        } else if self.random.chance(5) {
            operation = operation.with("x-queue-type", "classic");
        }
        if self.about.ttl && self.random.chance(45) {
            let ttl = if self.about.time { SHORT_MS } else { 0 };
            operation = operation.with("x-message-ttl", self.random.pick(&[ttl, ttl, ENDLESS_MS]));
        }
        if self.about.expires && self.random.chance(60) {
            // A quorum queue of RabbitMQ looks at it every five seconds.
            let short = if is_quorum { ENDLESS_MS } else { UNUSED_MS };
            operation = operation.with("x-expires", self.random.pick(&[short, ENDLESS_MS]));
        }
        let may_limit = !(is_quorum && self.about.returns);
        if self.about.limits && may_limit && self.random.chance(70) {
            operation = self.limits(operation, is_quorum);
        }
        if self.about.dead_letters && self.random.chance(75) {
            operation = self.dead_letters(operation);
        }
        if self.about.priorities && self.random.chance(if is_quorum { 3 } else { 65 }) {
            operation = operation.with("x-max-priority", self.random.pick(&[1, 2, 5, 10, 255]));
        }
        if self.about.single_active && self.random.chance(70) {
            operation = operation.with("x-single-active-consumer", self.random.chance(90));
        }
        // A lazy queue of RabbitMQ forgets `original-expiration`.
        if self.random.chance(8) && !is_quorum && !self.about.ttl {
            operation = operation.with("x-queue-mode", self.random.pick(&["lazy", "default"]));
        }
        if self.random.chance(3) && !is_quorum {
            operation = operation.with("x-queue-version", self.random.pick(&[1, 2]));
        }
        if self.about.mistakes && self.random.chance(25) {
            operation = self.bad_argument(operation);
        }
        operation
    }

    fn limits(&mut self, mut operation: Operation, is_quorum: bool) -> Operation {
        if self.random.chance(75) {
            // With a length of 0 a quorum queue delivers only the first of a burst, and what expires
            // at once is too much at once, too.
            let least = if is_quorum || self.about.ttl { 1 } else { 0 };
            operation = operation.with("x-max-length", self.random.pick(&[least, 1, 1, 2, 3]));
        } else {
            let few = if is_quorum || self.about.ttl { 25 } else { 0 };
            let bytes = self.random.pick(&[few, few.max(5), few.max(10), 25]);
            operation = operation.with("x-max-length-bytes", bytes);
        }
        // A quorum queue tells its publishers late that it is full, so what it refuses is open.
        let may_refuse = self.about.refusals && operation.word(0) == "q1" && !is_quorum;
        if may_refuse && self.random.chance(85) {
            let overflow = self.random.pick(&["reject-publish", "reject-publish-dlx"]);
            operation = operation.with("x-overflow", overflow);
        } else if self.random.chance(25) {
            operation = operation.with("x-overflow", "drop-head");
        }
        operation
    }

    fn dead_letters(&mut self, mut operation: Operation) -> Operation {
        let by_name = self.about.refusals || self.random.chance(45);
        let exchange = match self.random.below(20) {
            0 => "e9",
            _ if by_name => "",
            _ => self.exchange().0,
        };
        operation = operation.with("x-dead-letter-exchange", exchange);
        if by_name {
            let targets = if self.about.refusals { &QUEUES[1..] } else { &QUEUES[..] };
            operation = operation.with("x-dead-letter-routing-key", self.random.pick(targets));
        } else if self.random.chance(30) {
            operation = operation.with("x-dead-letter-routing-key", self.random.pick(&KEYS));
        }
        operation
    }

    /// An argument that a broker refuses, or takes with a doubtful value.
    fn bad_argument(&mut self, operation: Operation) -> Operation {
        let name = self.random.pick(&[
            "x-message-ttl",
            "x-expires",
            "x-max-length",
            "x-max-length-bytes",
            "x-max-priority",
            "x-delivery-limit",
            "x-overflow",
            "x-queue-version",
            "x-queue-type",
            "x-single-active-consumer",
            "x-dead-letter-exchange",
            "x-dead-letter-routing-key",
            "x-dead-letter-strategy",
            "x-quorum-initial-group-size",
            "x-max-in-memory-length",
            "x-unknown",
        ]);
        let value = self.random.pick(&[
            FieldValue::I32(-1),
            FieldValue::I32(0),
            FieldValue::I32(256),
            FieldValue::I64(99_999_999_999),
            FieldValue::I16(7),
            FieldValue::from("zzz"),
            FieldValue::from("40"),
            FieldValue::from(""),
            FieldValue::Bool(true),
            FieldValue::F64(1.5),
            FieldValue::Void,
        ]);
        // A short life would be a matter of speed.
        let value = match value {
            FieldValue::I32(256) | FieldValue::I16(7) if name == "x-expires" => FieldValue::I32(0),
            FieldValue::I32(256) | FieldValue::I16(7) if name == "x-message-ttl" => {
                FieldValue::I64(600_000)
            }
            value => value,
        };
        let mut operation = operation;
        operation.options.retain(|(option, _)| option != name);
        operation.with(name, value)
    }

    pub(super) fn publish_options(&mut self, mut operation: Operation, kind: &str) -> Operation {
        if self.random.chance(35) {
            operation = operation.with("n", self.random.pick(&[2, 2, 3, 4]));
        }
        if self.random.chance(40) {
            operation = operation.flag("persistent");
        }
        if self.random.chance(20) {
            operation = operation.flag("mandatory");
        }
        // A priority queue of RabbitMQ counts what expired behind a higher priority.
        if self.about.ttl && !self.about.priorities && self.random.chance(35) {
            let ttl = if self.about.time { "40" } else { "0" };
            operation = operation.with("expiration", self.random.pick(&[ttl, ttl, "600000"]));
        }
        if self.random.chance(if self.about.priorities { 60 } else { 5 }) {
            operation = operation.with("priority", self.random.pick(&[0, 1, 2, 5, 200]));
        }
        if self.random.chance(if self.about.limits { 30 } else { 5 }) {
            operation = operation.with("bytes", self.random.pick(&[4, 8, 20]));
        }
        // Keys of a BCC are not used again for dead letters.
        let names = if self.about.dead_letters { &["CC"][..] } else { &["CC", "BCC"] };
        for name in names {
            if self.random.chance(if self.about.routing { 10 } else { 3 }) {
                let keys = [self.random.pick(&QUEUES), self.random.pick(&KEYS)];
                let keys = keys.into_iter().map(FieldValue::from).collect::<Vec<_>>();
                let count = self.random.between(1, 2) as usize;
                operation = operation.with(name, keys[..count].to_vec());
            }
        }
        if kind == "headers" || self.random.chance(8) {
            operation = operation.with("h.kind", self.random.pick(&[1, 2]));
            if self.random.chance(40) {
                operation = operation.with("h.color", self.random.pick(&["red", "blue"]));
            }
        }
        if self.random.chance(6) {
            operation = operation.with("message-id", "id-1");
        }
        if self.random.chance(3) {
            operation = operation.with("type", "order").with("content-type", "text/plain");
        }
        operation
    }

    pub(super) fn binding_key(&mut self, kind: &str) -> &'static str {
        match kind {
            "topic" => self.random.pick(&PATTERNS),
            _ => self.routing_key(kind),
        }
    }

    pub(super) fn routing_key(&mut self, kind: &str) -> &'static str {
        match kind {
            "direct" if self.random.chance(75) => self.random.pick(&KEYS[..2]),
            _ if self.random.chance(8) => self.queue(),
            _ => self.random.pick(&KEYS),
        }
    }

    /// Arguments by which a headers exchange routes.
    pub(super) fn match_arguments(&mut self, mut operation: Operation) -> Operation {
        if self.random.chance(80) {
            let ways = ["all", "any", "all-with-x", "any-with-x"];
            operation = operation.with("x-match", self.random.pick(&ways));
        }
        let kind = [FieldValue::I32(1), FieldValue::I64(1), FieldValue::Void];
        operation = operation.with("h.kind", self.random.pick(&kind));
        if self.random.chance(50) {
            operation = operation.with("h.color", self.random.pick(&["red", "blue"]));
        }
        operation
    }

    /// A request that is refused, most of the time.
    pub(super) fn mistake(&mut self) {
        if !self.about.mistakes {
            return;
        }
        let channel = self.channel();
        let (queue, exchange) = (self.queue(), self.exchange().0);
        let operation = match self.random.below(20) {
            0 => Operation::new(Verb::Ack, channel, &["99"]),
            1 => Operation::new(Verb::Ack, channel, &["again"]),
            2 => Operation::new(Verb::Nack, channel, &["99"]).flag("requeue"),
            3 => Operation::new(Verb::Get, channel, &["q9"]).flag("no-ack"),
            4 => Operation::new(Verb::Consume, channel, &["c0", "q9"]),
            5 => Operation::new(Verb::Consume, channel, &["c1", queue]),
            6 => Operation::new(Verb::Bind, channel, &[queue, "e9", "a"]),
            7 => Operation::new(Verb::Bind, channel, &["q9", exchange, "a"]),
            8 => Operation::new(Verb::Publish, channel, &["e9", "a"]),
            9 => Operation::new(Verb::Publish, channel, &["", queue]).with("expiration", "zz"),
            10 => Operation::new(Verb::Publish, channel, &["", queue]).with("expiration", "-1"),
            11 => Operation::new(Verb::Publish, channel, &["", queue]).with("CC", "a"),
            12 => Operation::new(Verb::Publish, channel, &["", queue]).with("user-id", "nobody"),
            13 => Operation::new(Verb::Exchange, channel, &["e2", "zzz"]),
            14 => Operation::new(Verb::Recover, channel, &[]).flag("no-requeue"),
            15 => Operation::new(Verb::DeleteExchange, channel, &["amq.direct"]),
            16 => Operation::new(Verb::Queue, channel, &["amq.q1"]),
            17 => Operation::new(Verb::Exchange, channel, &[exchange, "headers"]),
            18 if !self.about.quorum => {
                Operation::new(Verb::Consume, channel, &["c8", queue]).flag("exclusive")
            }
            _ => Operation::new(Verb::Commit, channel, &[]),
        };
        self.push(operation);
    }
}
