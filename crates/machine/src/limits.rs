//! Every bound of this crate, with its unit. Each has a test that reaches it.

/// Bytes of a name: vhost, user, exchange, queue, routing key. UTF-8, no NUL.
pub const NAME_BYTES_MAX: usize = 255;
/// Highest number of a node: a session's number carries its node in 16 bits.
pub const NODE_ID_MAX: u64 = u16::MAX as u64;
/// Nodes of a cluster.
pub const NODES_MAX: usize = 64;
/// Nodes that keep a group of queues, where there are as many.
pub const REPLICAS: usize = 3;
/// The same, where an operator wishes more.
pub const REPLICAS_MAX: usize = 5;
/// Bytes of a node's address.
pub const ADDRESS_BYTES_MAX: usize = 255;
/// Groups of queues of a cluster.
pub const GROUPS_MAX: u32 = 4_096;
/// Vhosts of a cluster.
pub const VHOSTS_MAX: usize = 1_000;
/// Users of a cluster.
pub const USERS_MAX: usize = 10_000;
/// Exchanges of a cluster, the predeclared ones included.
pub const EXCHANGES_MAX: usize = 10_000;
/// Queues of a cluster.
pub const QUEUES_MAX: usize = 1_000_000;
/// Partitions of a stream.
pub const PARTITIONS_MAX: u16 = 256;
/// Deleted queues that are remembered for the dead letters that they may leave behind.
pub const DEPARTED_QUEUES_MAX: usize = 1_024;
/// Bindings of one source exchange.
pub const BINDINGS_PER_SOURCE_MAX: usize = 1_000_000;
/// Bindings of one headers exchange: in the worst case each message is compared with all of them.
pub const HEADERS_BINDINGS_MAX: usize = 100_000;
/// What one publish may cost in routing: exchanges, words and bindings looked at, but for those of headers exchanges,
/// whose number is bounded.
pub const ROUTE_STEPS_MAX: u32 = 10_000;
/// Bytes of one table of arguments, as this crate encodes it.
pub const ARGUMENTS_BYTES_MAX: usize = 256 * 1024;
/// Bytes of one table of arguments that do not count against those of its vhost and of the catalog.
pub const ARGUMENTS_BYTES_FREE: usize = 256;
/// Bytes of all tables of arguments in a vhost, without what is free of each.
pub const VHOST_ARGUMENTS_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Bytes of all tables of arguments of a cluster, without what is free of each.
pub const CATALOG_ARGUMENTS_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Entries of one table of arguments, nested ones included.
pub const ARGUMENT_ENTRIES_MAX: usize = 16_384;
/// How deep tables and arrays may stand in each other.
pub const VALUE_DEPTH_MAX: usize = 64;
/// How deep they may stand when read back: more than may be written, so that what was accepted once
/// stays readable.
pub const VALUE_DEPTH_READ_MAX: usize = 64;
/// Policies of a vhost, and as many of the operator's.
pub const POLICIES_MAX: usize = 200;
/// Topic permissions of a user, in all vhosts.
pub const TOPIC_PERMISSIONS_MAX: usize = 1_000;
/// Bytes of what operators say of a vhost.
pub const VHOST_DESCRIPTION_BYTES_MAX: usize = 1_024;
/// Bytes of a permission's or policy's regular expression as text.
pub const PATTERN_BYTES_MAX: usize = 1_024;
/// Bytes of a permission's or policy's regular expression when compiled.
pub const PATTERN_COMPILED_BYTES_MAX: usize = 256 * 1024;
/// Tags of a user or vhost.
pub const TAGS_MAX: usize = 32;
/// Bytes of a stored password hash.
pub const PASSWORD_HASH_BYTES_MAX: usize = 512;

/// Exchanges that are shown on the way of a message that is explained.
pub const EXPLAINED_HOPS_MAX: usize = 100;
/// Bindings that are shown of each of them.
pub const EXPLAINED_BINDINGS_MAX: usize = 500;
/// Bindings that are looked at one by one for the whole explanation.
pub const EXPLAINED_LOOKS_MAX: usize = 20_000;
/// Records of the audit trail: the newest.
pub const AUDIT_RECORDS_MAX: usize = 10_000;
/// Bytes of the audit trail, as this crate encodes it.
pub const AUDIT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of what an event says beside names. What is longer is left out.
pub const EVENT_DETAILS_BYTES_MAX: usize = 4 * 1024;

/// How long a purge can be undone at most, ms: ten minutes. So long its messages take up the space that they took.
pub const UNDO_MS_MAX: u64 = 600_000;

/// Longest time that an argument may name, ms: ten years, as in RabbitMQ.
pub const TIME_MS_MAX: u64 = 315_360_000_000;
/// Keys of messages that a queue may be told to remember.
pub const DEDUP_ENTRIES_MAX: u32 = 1_000_000;
/// Keys of messages that a queue remembers where it is not told how many.
pub const DEDUP_ENTRIES_DEFAULT: u32 = 100_000;
/// How long a queue remembers keys of messages where it is not told how long, ms.
pub const DEDUP_MS_DEFAULT: u64 = 60_000;

/// Messages or bytes that a rate may name, in its time.
pub const RATE_COUNT_MAX: u64 = 1_000_000_000_000;
/// Longest time of a rate, ms: an hour.
pub const RATE_MS_MAX: u64 = 3_600_000;
/// Messages or bytes that may go at once, whatever the rate.
pub const BURST_MAX: u64 = RATE_COUNT_MAX;

/// Queues that one enqueue command names; more become more commands.
pub const QUEUES_PER_ENQUEUE_MAX: usize = u16::MAX as usize;
/// Commands for other queues inside one run of a queue: what a reader of the run skips.
pub const FOREIGN_COMMANDS_MAX: u32 = 8;
/// Ranges of settled messages put into one batch.
pub const SETTLED_RANGES_PER_BATCH_MAX: usize = 16 * 1024;
/// Dead messages of one priority level that are out with the dead-letter worker at a time.
pub const LEAVING_OUT_MAX: u64 = 4_096;
/// Dead messages in one run that the dead-letter worker is given.
pub const LEAVING_RUN_MAX: u32 = 256;
/// Runs that expire, and messages that fall due, in one level in one step; more come in the next.
pub const TIMED_RUNS_MAX: usize = 4_096;
/// How long room is kept for messages that were admitted and do not come, ms.
pub const ADMITTED_MS_MAX: u64 = 10_000;
/// How long a partition waits for its consumer to settle what it holds, before another is served.
pub const DRAIN_MS_MAX: u64 = 10_000;
/// How far the mark of what was delivered runs ahead of deliveries: messages that a change of leader
/// flags as redelivered without need.
pub const DELIVERED_WINDOW_MAX: u64 = 256 * 1024;
/// Credit of consumers that the mark runs ahead for from the start; more it learns.
pub const DELIVERED_CREDIT_MAX: u64 = 1_024;
/// A window that lasts so long, ms, is longer than it needs to be.
pub const DELIVERED_WINDOW_MS: u64 = 1_000;
/// Messages given to one consumer in one turn while others of its standing wait for theirs.
pub const TURN_MESSAGES_MAX: u32 = 16;
/// Ready messages per waiting consumer up to which turns are single messages.
pub const SINGLE_TURNS_PER_CONSUMER: u64 = 64;
/// Sequence numbers and other counts stay below this, whatever a snapshot says: adding to them never
/// overflows.
pub const SEQ_MAX: u64 = 1 << 62;

/// Points at which a stream knows its time and bytes: 32 bytes each. With more, every second one goes.
pub const STREAM_POINTS_MAX: usize = 4_096;
/// A stream's points are so far apart in the beginning, in bytes of messages.
pub const STREAM_STRIDE_BYTES: u64 = 64 * 1024;
/// The same in time, ms: the next is made by whichever comes first.
pub const STREAM_STRIDE_MS: u64 = 1_000;
/// How often a stream looks for messages that have become too old, ms.
pub const STREAM_AGE_MS: u64 = 1_000;

/// Patterns of a subscription's filter, or values of the header that it looks at.
pub const FILTER_WORDS_MAX: usize = 64;
/// Bytes of them, with the header's name.
pub const FILTER_BYTES_MAX: usize = 1024;
/// Messages of which a filter, or for their keys, is asked together.
pub const SIFTED_MESSAGES_MAX: u64 = 4096;
/// Messages of a queue with order by key that wait behind others of their keys, and keys that wait for their rate: then
/// nothing behind these is looked at.
pub const BEHIND_KEYS_MAX: usize = 65_536;
/// The weight of a consumer among others of the same partitions.
pub const CONSUMER_WEIGHT_MAX: u16 = 1000;
/// Keys of a queue with a rate for each whose tokens are counted: another one waits until one has all of its own.
pub const KEY_BUCKETS_MAX: usize = 65_536;

/// How often a stream looks how far its subscriptions are, while retention waits for them, ms.
pub const HOLD_MS: u64 = 250;

/// Locks of a vhost in one group: names that are held or have a value.
pub const LOCKS_PER_VHOST_MAX: usize = 10_000;
/// Locks of all vhosts in one group.
pub const LOCKS_MAX: usize = 100_000;
/// Bytes of the locks of a vhost in one group: names, owners, values and [`LOCK_BYTES`] for each.
pub const LOCK_BYTES_PER_VHOST_MAX: usize = 8 * 1024 * 1024;
/// The same of all vhosts.
pub const LOCK_BYTES_MAX: usize = 64 * 1024 * 1024;
/// What a lock weighs besides its name, owner and value.
pub const LOCK_BYTES: usize = 256;
/// Bytes of the value of a lock.
pub const LOCK_VALUE_BYTES_MAX: usize = 4 * 1024;
/// How short and how long a lease may be, ms.
pub const LOCK_LEASE_MS_MIN: u64 = 1_000;
pub const LOCK_LEASE_MS_MAX: u64 = 86_400_000;
/// What leases get more when a new leader begins that heard the time from the one before it, ms: its time may be ahead
/// by less.
pub const LOCK_TERM_MS: u64 = 1_000;
/// Groups of the first node over which locks are spread, at most.
pub const LOCK_SLOTS: u32 = 256;
/// Locks of one list.
pub const LOCKS_LISTED_MAX: usize = 500;

/// Messages of a queue that are looked at together, by somebody who takes none.
pub const PEEKED_MESSAGES_MAX: usize = 100;
/// Messages whose delay is over that such a look passes over: more come in the next.
pub const PEEKED_STEPS_MAX: usize = 10_000;

/// Consumers and holders of a queue that are described.
pub const DESCRIBED_HOLDERS_MAX: usize = 100;

const _: () = assert!(ARGUMENTS_BYTES_MAX <= VHOST_ARGUMENTS_BYTES_MAX);
const _: () = assert!(VHOST_ARGUMENTS_BYTES_MAX <= CATALOG_ARGUMENTS_BYTES_MAX);
const _: () =
    assert!(EVENT_DETAILS_BYTES_MAX + 8 * NAME_BYTES_MAX <= AUDIT_BYTES_MAX, "a record has room");
const _: () =
    assert!(LOCK_BYTES + 2 * NAME_BYTES_MAX + LOCK_VALUE_BYTES_MAX <= LOCK_BYTES_PER_VHOST_MAX);
const _: () = assert!(HEADERS_BINDINGS_MAX <= BINDINGS_PER_SOURCE_MAX);
const _: () = assert!(VALUE_DEPTH_MAX <= VALUE_DEPTH_READ_MAX, "what is written must be readable");
const _: () = assert!(QUEUES_PER_ENQUEUE_MAX <= u16::MAX as usize, "the count is a u16 in the log");
