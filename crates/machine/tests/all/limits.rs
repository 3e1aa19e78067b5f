//! Every limit is reached by a test.

use crate::world::World;
use machine::limits::*;
use machine::{
    Applied, Arguments, Batch, Bounds, Catalog, CatalogCommand, CatalogReply, ConsumerId,
    ConsumerSpec, Destination, Effect, EntryReader, ExchangeKind, GroupId, Kind, MembershipProblem,
    NoHeaders, NodeId, NodeInfo, Outcome, Pattern, QueueId, QueueMachine, QueueSettings, Ranges,
    Refusal, RouteError, SessionId, Value,
};

fn limit(kind: Kind, max: usize) -> CatalogReply {
    CatalogReply::Refused(Refusal::LimitReached { kind, max })
}

#[test]
fn there_are_at_most_so_many_vhosts_users_exchanges_and_queues() {
    let mut world = World::new();
    let vhost = |number| CatalogCommand::CreateVhost { name: format!("v{number}") };
    for number in 1..VHOSTS_MAX {
        assert_eq!(world.apply_unchecked(vhost(number)), CatalogReply::Done);
    }
    assert_eq!(world.apply_unchecked(vhost(0)), limit(Kind::Vhost, VHOSTS_MAX));
    let user = |number| CatalogCommand::PutUser {
        name: format!("u{number}"),
        password_hash: String::new(),
        tags: Vec::new(),
    };
    for number in 1..USERS_MAX {
        assert_eq!(world.apply_unchecked(user(number)), CatalogReply::Done);
    }
    assert_eq!(world.apply_unchecked(user(0)), limit(Kind::User, USERS_MAX));
    // The vhosts above brought seven exchanges each.
    for number in 7 * VHOSTS_MAX..EXCHANGES_MAX {
        let command = world.exchange(&format!("x{number}"), ExchangeKind::Direct, true);
        let made = CatalogReply::ExchangeDeclared { created: true };
        assert_eq!(world.apply_unchecked(command), made);
    }
    let one_more = world.exchange("x", ExchangeKind::Direct, true);
    assert_eq!(world.apply_unchecked(one_more), limit(Kind::Exchange, EXCHANGES_MAX));
    let queues = 1_000;
    world.catalog = world.catalog.with_bounds(Bounds { queues, ..Bounds::default() });
    for number in 0..queues {
        world.queue(&number.to_string());
    }
    assert_eq!(world.apply_unchecked(world.declare("q")), limit(Kind::Queue, queues));
    // What exists can still be declared.
    assert!(matches!(
        world.apply_unchecked(world.declare("0")),
        CatalogReply::QueueDeclared { created: false, .. }
    ));
}

#[test]
fn a_cluster_has_at_least_one_group_and_at_most_so_many() {
    assert_eq!(machine::Catalog::new(0).group_count(), 1);
    assert_eq!(machine::Catalog::new(u32::MAX).group_count(), GROUPS_MAX);
    let mut bytes = machine::Catalog::new(GROUPS_MAX).snapshot();
    assert!(machine::Catalog::restore(&bytes).is_ok());
    bytes[17..21].copy_from_slice(&(GROUPS_MAX + 1).to_le_bytes());
    assert!(machine::Catalog::restore(&bytes).is_err());
}

#[test]
fn a_source_has_at_most_so_many_bindings() {
    let mut world = World::new();
    let max = 1_000;
    let bounds = Bounds { bindings_per_source: max, ..Bounds::default() };
    world.catalog = world.catalog.with_bounds(bounds);
    world.queue("q");
    let bind = |number: usize| {
        World::bind("amq.direct", Destination::Queue("q".into()), &number.to_string())
    };
    for number in 0..max {
        assert_eq!(world.apply_unchecked(bind(number)), CatalogReply::Done);
    }
    assert_eq!(world.apply_unchecked(bind(max)), limit(Kind::Binding, max));
    // An equal one is not one more.
    assert_eq!(world.apply_unchecked(bind(0)), CatalogReply::Done);
}

#[test]
fn names_keys_and_tables_are_bounded() {
    let mut world = World::new();
    world.queue("q");
    let name = "n".repeat(NAME_BYTES_MAX);
    assert_eq!(world.catalog.check(&world.declare(&name)), Ok(()));
    let too_long = Refusal::InvalidName { kind: Kind::Queue, name: format!("{name}n") };
    assert_eq!(world.catalog.check(&world.declare(&format!("{name}n"))), Err(too_long));
    let bind = |key: &str| World::bind("amq.direct", Destination::Queue("q".into()), key);
    assert_eq!(world.catalog.check(&bind(&name)), Ok(()));
    assert!(world.catalog.check(&bind(&format!("{name}n"))).is_err());

    let with = |value| world.with_argument(world.declare("r"), "a", value);
    let refused = Err(Refusal::ArgumentsTooLarge);
    let nested = |depth: usize| {
        (1..depth).fold(Value::Void, |value, number| match number % 2 {
            0 => Value::Array(vec![value]),
            _ => Value::Table(Arguments::new().with("t", value)),
        })
    };
    assert_eq!(world.catalog.check(&with(nested(VALUE_DEPTH_MAX))), Ok(()));
    assert_eq!(world.catalog.check(&with(nested(VALUE_DEPTH_MAX + 1))), refused);
    let entries = |count| Value::Array(vec![Value::Void; count]);
    assert_eq!(world.catalog.check(&with(entries(ARGUMENT_ENTRIES_MAX - 1))), Ok(()));
    assert_eq!(world.catalog.check(&with(entries(ARGUMENT_ENTRIES_MAX))), refused);
    let bytes = |count| Value::Bytes(vec![0; count]);
    assert_eq!(world.catalog.check(&with(bytes(ARGUMENTS_BYTES_MAX - 14))), Ok(()));
    assert_eq!(world.catalog.check(&with(bytes(ARGUMENTS_BYTES_MAX))), refused);
}

#[test]
fn what_is_too_deep_to_be_accepted_can_still_be_read_up_to_a_bound() {
    let nested = |depth: usize| {
        let inner = Arguments::new();
        (1..depth).fold(inner, |inner, _| Arguments::new().with("t", Value::Table(inner)))
    };
    let read = |depth| {
        let mut bytes = Vec::new();
        nested(depth).encode(&mut bytes);
        Arguments::decode(&bytes)
    };
    assert_eq!(read(VALUE_DEPTH_READ_MAX), Ok(nested(VALUE_DEPTH_READ_MAX)));
    assert!(read(VALUE_DEPTH_READ_MAX + 2).is_err());
}

#[test]
fn users_and_patterns_are_bounded() {
    let world = World::new();
    let user = |hash: usize, tags: usize, tag: usize| CatalogCommand::PutUser {
        name: "ann".into(),
        password_hash: "h".repeat(hash),
        tags: vec!["t".repeat(tag); tags],
    };
    let fits = user(PASSWORD_HASH_BYTES_MAX, TAGS_MAX, NAME_BYTES_MAX);
    assert_eq!(world.catalog.check(&fits), Ok(()));
    for command in [
        user(PASSWORD_HASH_BYTES_MAX + 1, 0, 0),
        user(0, TAGS_MAX + 1, 0),
        user(0, 1, NAME_BYTES_MAX + 1),
    ] {
        assert!(matches!(world.catalog.check(&command), Err(Refusal::TooLarge { .. })));
    }
    assert!(Pattern::new(&"a".repeat(PATTERN_BYTES_MAX)).is_ok());
    assert!(Pattern::new(&"a".repeat(PATTERN_BYTES_MAX + 1)).is_err());
    // Short, but large when compiled.
    assert!(Pattern::new(r"\w{200}").is_err());
}

/// A binding of `amq.headers` to queue `q`.
fn headers_binding(is_bind: bool, arguments: Arguments) -> CatalogCommand {
    let destination = Destination::Queue("q".into());
    World::binding(is_bind, "amq.headers", destination, "", arguments, None)
}

#[test]
fn a_headers_exchange_has_at_most_so_many_bindings_and_no_publisher_pays_for_them() {
    let mut world = World::new();
    world.queue("q");
    let rule = |number: usize| {
        Arguments::new().with("kind", Value::Bool(true)).with("n", Value::I64(number as i64))
    };
    for number in 0..HEADERS_BINDINGS_MAX {
        let reply = world.apply_unchecked(headers_binding(true, rule(number)));
        assert_eq!(reply, CatalogReply::Done);
    }
    let one_more = headers_binding(true, rule(HEADERS_BINDINGS_MAX));
    assert_eq!(world.apply_unchecked(one_more), limit(Kind::Binding, HEADERS_BINDINGS_MAX));
    let mut targets = Vec::new();
    for (message, count) in [(rule(7), 1), (rule(HEADERS_BINDINGS_MAX), 0), (Arguments::new(), 0)] {
        let routed = world.catalog.route("/", "amq.headers", "", &message, &mut targets);
        assert_eq!((routed, targets.len()), (Ok(()), count));
    }
}

#[test]
fn arguments_of_a_vhost_and_of_the_cluster_hold_only_so_many_bytes() {
    let mut world = World::new();
    world.queue("q");
    let vhost_max = 100_000;
    let bounds =
        Bounds { vhost_arguments_bytes: vhost_max, arguments_bytes: 150_000, ..Bounds::default() };
    world.catalog = world.catalog.with_bounds(bounds);
    let large = |number| {
        let filler = Value::LongStr(vec![b'x'; 40_000]);
        Arguments::new().with("filler", filler).with("n", Value::I64(number))
    };
    let bind = |number| headers_binding(true, large(number));
    assert_eq!(world.apply_unchecked(bind(1)), CatalogReply::Done);
    let declare = world.with_argument(world.declare("r"), "x", Value::Bytes(vec![0; 40_000]));
    assert!(matches!(world.apply_unchecked(declare), CatalogReply::QueueDeclared { .. }));
    let what = "bytes of arguments in a vhost";
    let refused = Refusal::TooLarge { what, max: vhost_max };
    assert_eq!(world.apply_unchecked(bind(3)), CatalogReply::Refused(refused.clone()));
    assert_eq!(world.apply_unchecked(bind(1)), CatalogReply::Done, "it is there already");
    let small = Arguments::new().with("n", Value::I64(3));
    let small = world.apply_unchecked(headers_binding(true, small));
    assert_eq!(small, CatalogReply::Done, "ordinary ones always have room");

    // What a snapshot brings counts as well, and what goes makes room.
    let restored = machine::Catalog::restore(&world.catalog.snapshot()).unwrap();
    world.catalog = restored.with_bounds(bounds);
    assert_eq!(world.apply_unchecked(bind(3)), CatalogReply::Refused(refused));
    world.apply_unchecked(headers_binding(false, large(1)));
    assert_eq!(world.apply_unchecked(bind(3)), CatalogReply::Done);
    world.apply_unchecked(world.delete("r"));
    assert_eq!(world.apply_unchecked(bind(4)), CatalogReply::Done);

    // Another vhost has room of its own, as long as the cluster has.
    world.apply_unchecked(CatalogCommand::CreateVhost { name: "v".into() });
    let elsewhere = |name: &str| {
        let mut command = world.exchange(name, ExchangeKind::Fanout, true);
        if let CatalogCommand::DeclareExchange { vhost, arguments, .. } = &mut command {
            *vhost = "v".into();
            *arguments = large(0);
        }
        command
    };
    let (one, two) = (elsewhere("one"), elsewhere("two"));
    let made = CatalogReply::ExchangeDeclared { created: true };
    assert_eq!(world.apply_unchecked(one), made);
    let what = "bytes of arguments in the cluster";
    let refused = CatalogReply::Refused(Refusal::TooLarge { what, max: 150_000 });
    assert_eq!(world.apply_unchecked(two), refused);
}

#[test]
fn routing_one_message_takes_at_most_so_many_steps() {
    let mut world = World::new();
    let hub = world.exchange("hub", ExchangeKind::Fanout, true);
    world.apply_unchecked(hub);
    // One step for the hub, two for each exchange behind it.
    let name = |number: u32| format!("x{number}");
    for number in 0..ROUTE_STEPS_MAX / 2 {
        let behind = world.exchange(&name(number), ExchangeKind::Fanout, true);
        world.apply_unchecked(behind);
        world.apply_unchecked(World::bind("hub", Destination::Exchange(name(number)), ""));
    }
    let mut targets = Vec::new();
    let mut route = |world: &World| world.catalog.route("/", "hub", "", &NoHeaders, &mut targets);
    assert_eq!(route(&world), Err(RouteError::TooManySteps));
    world.apply_unchecked(World::delete_exchange(&name(0), false));
    assert_eq!(route(&world), Ok(()));
}

fn machine_with(queues: u64) -> QueueMachine {
    let mut machine = QueueMachine::new();
    machine.lead();
    machine.start_dispatch(&mut Vec::new());
    let mut batch = Batch::new();
    for queue in 1..=queues {
        batch.create_queue(QueueId(queue), &QueueSettings::default());
    }
    apply(&mut machine, batch);
    machine
}

fn apply(machine: &mut QueueMachine, batch: Batch) -> Vec<Effect> {
    let mut effects = Vec::new();
    let at = Applied { index: machine.applied_index() + 1, time_ms: 0 };
    machine.apply(at, &batch.stamp(0), &mut effects).expect("our own entry");
    effects
}

#[test]
fn a_message_for_more_queues_than_a_command_names_takes_more_commands() {
    let mut batch = Batch::new();
    let queues: Vec<QueueId> = (1..=QUEUES_PER_ENQUEUE_MAX as u64 + 1).map(QueueId).collect();
    batch.enqueue(&queues, &[b"h"], b"body");
    assert_eq!(batch.commands(), 2);
    let entry = batch.stamp(0);
    assert_eq!(EntryReader::new(&entry).unwrap().filter(Result::is_ok).count(), 2);
}

#[test]
fn a_run_is_broken_where_more_foreign_commands_come_in_between() {
    for (foreign, runs) in [(FOREIGN_COMMANDS_MAX, 1), (FOREIGN_COMMANDS_MAX + 1, 2)] {
        let mut machine = machine_with(2);
        let mut batch = Batch::new();
        batch.enqueue(&[QueueId(1)], &[], b"first");
        for _ in 0..foreign {
            batch.enqueue(&[QueueId(2)], &[], b"foreign");
        }
        batch.enqueue(&[QueueId(1)], &[], b"second");
        let effects = apply(&mut machine, batch);
        let ours = |effect: &&Effect| matches!(effect, Effect::Enqueued { queue: QueueId(1), .. });
        assert_eq!(effects.iter().filter(ours).count(), runs);
    }
}

#[test]
fn a_batch_takes_so_many_settled_ranges_and_the_rest_waits() {
    let count = SETTLED_RANGES_PER_BATCH_MAX as u64 + 10;
    let mut machine = machine_with(1);
    let mut batch = Batch::new();
    for _ in 0..2 * count {
        batch.enqueue(&[QueueId(1)], &[], b"");
    }
    apply(&mut machine, batch);
    let consumer = ConsumerId { session: SessionId(1), number: 1 };
    let spec = ConsumerSpec { credit: 2 * count as u32, ..Default::default() };
    let mut effects = Vec::new();
    machine.attach(QueueId(1), consumer, spec, &mut effects).unwrap();
    let every_other: Ranges = (1..=count).map(|number| 2 * number..2 * number + 1).collect();
    machine.settle(QueueId(1), consumer, &every_other, Outcome::Done, &mut effects);
    assert_eq!(machine.settled_waiting(), count);
    let mut batch = Batch::new();
    assert!(machine.take_settled(&mut batch));
    assert_eq!(machine.settled_waiting(), 10);
    assert!(machine.take_settled(&mut batch));
    assert!(!machine.take_settled(&mut batch));
    apply(&mut machine, batch);
    assert_eq!(machine.status(QueueId(1)).unwrap().counters.settled, count);
}

#[test]
fn sequence_numbers_of_a_snapshot_stay_below_their_bound() {
    let mut machine = machine_with(1);
    let mut batch = Batch::new();
    batch.enqueue(&[QueueId(1)], &[], b"x");
    batch.settle(QueueId(1), Outcome::Done, &Ranges::from(1..2));
    apply(&mut machine, batch);
    let snapshot = machine.snapshot();
    // At the end: next_seq, eight counters, no live ranges, no extras, the mark of what was delivered.
    let mark = snapshot.len() - 8;
    let next_seq = mark - 2 - 8 * 8 - 8;
    let with = |enqueued: u64| {
        let mut bytes = snapshot.clone();
        bytes[next_seq..next_seq + 8].copy_from_slice(&(enqueued + 1).to_le_bytes());
        bytes[next_seq + 8..next_seq + 16].copy_from_slice(&enqueued.to_le_bytes());
        bytes[next_seq + 24..next_seq + 32].copy_from_slice(&enqueued.to_le_bytes());
        QueueMachine::restore(&bytes).map(|machine| machine.next_seq(QueueId(1)))
    };
    assert_eq!(with(1), Ok(Some(2)));
    assert_eq!(with(SEQ_MAX), Ok(Some(SEQ_MAX + 1)));
    assert!(with(SEQ_MAX + 1).is_err());
    let with_mark = |to: u64| {
        let mut bytes = snapshot.clone();
        bytes[mark..].copy_from_slice(&to.to_le_bytes());
        QueueMachine::restore(&bytes).is_ok()
    };
    assert!(with_mark(SEQ_MAX) && !with_mark(SEQ_MAX + 1));
    let mut batch = Batch::new();
    batch.mark_delivered(QueueId(1), SEQ_MAX + 1);
    let at = Applied { index: 99, time_ms: 0 };
    assert!(machine.apply(at, &batch.stamp(0), &mut Vec::new()).is_err());
}

#[test]
fn nodes_their_numbers_and_their_addresses_are_bounded() {
    let mut world = World::new();
    let add = |number: u64, address: String| CatalogCommand::AddNode {
        node: NodeId(number),
        address,
        incarnation: 1,
    };
    let problem = |reply| match reply {
        CatalogReply::Refused(Refusal::Membership(problem)) => problem,
        other => panic!("{other:?}"),
    };
    for number in [0, NODE_ID_MAX + 1] {
        let expected = MembershipProblem::InvalidNode { node: NodeId(number) };
        assert_eq!(problem(world.apply(add(number, "a:1".into()))), expected);
    }
    let long = problem(world.apply(add(2, "a".repeat(ADDRESS_BYTES_MAX + 1))));
    assert!(matches!(long, MembershipProblem::InvalidAddress { .. }));
    let long = add(NODE_ID_MAX, "a".repeat(ADDRESS_BYTES_MAX));
    assert_eq!(world.apply(long), CatalogReply::Done);
    for number in 2..NODES_MAX as u64 {
        let added = world.apply_unchecked(add(number, format!("node-{number}:1")));
        assert_eq!(added, CatalogReply::Done);
    }
    assert_eq!(world.catalog.nodes().count(), NODES_MAX);
    let expected = MembershipProblem::TooManyNodes { max: NODES_MAX };
    assert_eq!(problem(world.apply(add(1_000, "node-1000:1".into()))), expected);
    let voters = (2..).map(NodeId);
    let group = GroupId(1);
    let (fit, many) = (REPLICAS, REPLICAS + 1);
    let set =
        |count| CatalogCommand::SetVoters { group, voters: voters.clone().take(count).collect() };
    assert_eq!(world.apply(set(fit)), CatalogReply::Done);
    assert_eq!(problem(world.apply(set(many))), MembershipProblem::InvalidVoters { group });
    let most = REPLICAS_MAX + 1;
    assert_eq!(problem(world.apply(set(most))), MembershipProblem::InvalidVoters { group });
    assert_eq!(world.apply(set(REPLICAS_MAX)), CatalogReply::Done);
    let many = Catalog::genesis(
        &[1, 2].map(|number| NodeInfo {
            node: NodeId(number),
            address: format!("node-{number}:1"),
            incarnation: 1,
        }),
        GROUPS_MAX,
    );
    assert_eq!(many.group_count(), GROUPS_MAX);
    world.catalog = many;
    world.apply(add(3, "node-3:1".into()));
    assert_eq!(world.catalog.group_count(), GROUPS_MAX);
}
