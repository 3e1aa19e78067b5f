//! What a committed command does, the same on every replica.
//!
//! Two machines: [`Catalog`] (group 0: vhosts, users, exchanges, bindings, queues; routes messages)
//! and [`QueueMachine`] (all queues of a group: which messages are stored and open, who gets them next). Both are
//! pure: time and order come from the entry, nothing is read from outside, and `apply` is total on any
//! bytes. They know nothing of AMQP, Raft, clocks, chance or files. What a node sent as a numbered batch they
//! apply once, however often it stands in the log.
//!
//! ```
//! use machine::*;
//!
//! // A queue is declared in the catalog ...
//! let (node, session) = (NodeId(1), SessionId(7));
//! let mut catalog = Catalog::new(8);
//! let at = Applied { index: 1, time_ms: 0 };
//! let command = CatalogCommand::DeclareQueue {
//!     vhost: "/".into(),
//!     name: "orders".into(),
//!     durable: true,
//!     auto_delete: false,
//!     exclusive: false,
//!     server_named: false,
//!     arguments: Arguments::new(),
//!     by: SessionOwner { node, session },
//! };
//! let mut created = Vec::new();
//! let reply = catalog.apply(at, command, &mut created);
//! let CatalogReply::QueueDeclared { queue, group, created: true } = reply else { panic!() };
//!
//! // ... created in its group, and a message routed to it is one entry of that group's log.
//! let mut targets = Vec::new();
//! catalog.route("/", "", "orders", &NoHeaders, &mut targets).unwrap();
//! assert_eq!(targets, [Target::plain(queue, group)]);
//! let mut batch = Batch::new();
//! batch.create_queue(queue, &QueueSettings { is_durable: true, ..Default::default() });
//! batch.enqueue(&[queue], &[b"head"], b"body");
//! let entry = batch.stamp(0);
//!
//! // The leader hands it to a consumer with credit.
//! let mut queues = QueueMachine::new();
//! let mut effects = Vec::new();
//! queues.lead();
//! queues.start_dispatch(&mut effects);
//! queues.apply(at, &entry, &mut effects).unwrap();
//! let consumer = ConsumerId { session, number: 1 };
//! let spec = ConsumerSpec { credit: 10, ..Default::default() };
//! queues.attach(queue, consumer, spec, &mut effects).unwrap();
//! assert!(matches!(effects.last(), Some(Effect::Deliver { first_seq: 1, count: 1, .. })));
//! ```

mod catalog;
mod command;
mod encoding;
mod filter;
mod head;
mod ids;
pub mod limits;
mod locks;
mod message_key;
mod producers;
mod queue;
mod ranges;
mod scheduler;
mod settings;
mod value;
mod version;

pub use catalog::{
    Actor, AppliesTo, AuditRecord, Binding, BindingChange, Bounds, Catalog, CatalogCommand,
    CatalogEffect, CatalogReply, DeadLetter, Destination, Event, Exchange, ExchangeKind,
    ExchangeSpec, Explanation, Foreseen, Goal, Governed, Happened, HashBy, Hop, HopBinding, Kind,
    LimitChange, MembershipProblem, NodeInfo, NodeStatus, Partition, Pattern, Permissions, Policy,
    PolicyChange, PolicyKind, PolicyRules, PolicySpec, PublishedBy, Queue, QueueHome, QueuePause,
    QueueSpec, QueueType, Refusal, RouteError, Target, TopicPermissions, User, UserLimits,
    UserLimitsChange, Vhost, VhostLimits, VhostLimitsChange, VhostMetadata, explain, key_hash,
};
pub use command::{
    Attributes, Batch, Command, ENTRY_HEAD_BYTES, Enqueue, EntryReader, Messages,
    NUMBERED_HEAD_BYTES, Outcome, PurgeId, QUEUE_AT, QueueIds, Withholding, check_commands,
    for_queue_alone, queue_count,
};
pub use encoding::Corrupt;
pub use filter::{Filter, Matcher};
pub use ids::{Applied, ConsumerId, GroupId, NodeId, ProducerId, QueueId, SessionId, SessionOwner};
pub use locks::{LockCommand, LockHolder, LockRefusal, LockReply, LockValue, LockView, Locks};
pub use message_key::KeySource;
pub use queue::{
    Assignment, AttachError, Attached, Balance, Capacity, CloseError, ConsumerChange, ConsumerSpec,
    Counters, Effect, Front, GetReply, HeldBack, HolderDescription, MessageDescription,
    MessageState, PeekFilter, Position, QueueDescription, QueueMachine, QueuePeek, QueueStatus,
    Seqs, Sifted, StreamOffset, Weight, Withheld,
};
pub use ranges::Ranges;
pub use scheduler::loan::{Ask, Loan};
pub use settings::{
    Dedup, Features, Overflow, QueueSettings, Rate, Rates, Retention, Retry, Subscription,
    TokenHome,
};
pub use value::{Arguments, HashProperty, Headers, NoHeaders, Value, ValueView};
pub use version::Version;
