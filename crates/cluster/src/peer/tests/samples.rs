//! Messages of every kind, drawn by proptest.

use bytes::Bytes;
use machine::{
    Ask, AttachError, CatalogCommand, CloseError, ConsumerChange, ConsumerId, ConsumerSpec,
    Counters, Features, GroupId, HeldBack, HolderDescription, Loan, LockCommand, LockReply,
    MessageDescription, MessageState, NodeId, Outcome, PeekFilter, Position, QueueDescription,
    QueueId, QueueSettings, QueueStatus, Ranges, SessionId, StreamOffset, Version, Weight,
};
use proptest::collection::vec;
use proptest::prelude::*;
use raft::eraftpb::{self, ConfState, Entry, EntryType, MessageType, Snapshot, SnapshotMetadata};

use crate::described::{DescribedQueue, NotDescribed};
use crate::locked::{LockQuestion, LockResult, LockSpec, NotLocked};
use crate::peeked::{NotPeeked, PeekSpec, Peeked, PeekedMessage};
use crate::peer::message::{Attachment, Message, Part};
use crate::request::{Alarms, Answer, Delivery, Held, Request, Ticket};
use crate::withheld::{NotWithheld, WithheldCount, WithholdStep};

/// Any message that a node may send.
pub(super) fn message() -> impl Strategy<Value = Message> {
    let group = number().prop_map(|group| GroupId(group as u32));
    (group, number()).prop_flat_map(|(group, epoch)| {
        prop_oneof![
            raft().prop_map(move |message| Message::Raft { group, message }),
            vec(attachment(), 0..4).prop_map(move |attachments| Message::Join {
                group,
                epoch,
                attachments
            }),
            (session(), vec(request(group), 0..4)).prop_map(move |(session, requests)| {
                Message::Requests { group, epoch, session, requests }
            }),
            session().prop_map(move |session| Message::SessionGone { group, epoch, session }),
            (number(), number(), payload(), vec(held(), 0..3), any::<bool>()).prop_map(
                move |(boot, seq, commands, settles, needs_apply)| {
                    Message::NumberedBatch {
                        group,
                        epoch,
                        boot,
                        seq,
                        commands,
                        settles,
                        needs_apply,
                    }
                }
            ),
            vec((session(), answer(group)), 0..4).prop_map(move |answers| Message::Answers {
                group,
                epoch,
                answers
            }),
            (number(), number()).prop_map(move |(boot, seq)| Message::Committed {
                group,
                epoch,
                boot,
                seq
            }),
            Just(()).prop_map(move |()| Message::NotLeader { group, epoch }),
            (number(), number()).prop_map(move |(term, time_ms)| Message::Leads {
                group,
                term,
                time_ms
            }),
            vec(number().prop_map(NodeId), 0..5)
                .prop_map(move |nodes| Message::Reaches { group, nodes }),
            (number(), vec(number().prop_map(NodeId), 0..5))
                .prop_map(move |(term, voters)| Message::Voters { group, term, voters }),
            (number(), number(), any::<bool>()).prop_map(move |(index, chain, is_answer)| {
                Message::Digest { group, index, chain, is_answer }
            }),
            (number(), number(), number(), any::<bool>()).prop_map(
                move |(queue, number, messages, may_wait)| Message::Borrow {
                    group,
                    queue: QueueId(queue),
                    by: (GroupId(7), QueueId(number)),
                    ask: Ask { number, messages, bytes: queue, may_wait },
                }
            ),
            (number(), number(), number()).prop_map(move |(queue, number, messages)| {
                let loan = Loan { messages, bytes: queue, wait_ms: number };
                Message::Lent { group, queue: QueueId(queue), number, loan }
            }),
            (number(), number()).prop_map(|(boot, stamp)| Message::Renewed { boot, stamp }),
            (number(), payload()).prop_map(|(number, body)| Message::Question { number, body }),
            (number(), part()).prop_map(|(number, part)| Message::Told { number, part }),
            payload().prop_map(move |chunk| Message::Snapshot { group, chunk }),
            (number(), number()).prop_map(move |(index, bytes)| Message::SnapshotTaken {
                group,
                index,
                bytes
            }),
        ]
    })
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![payload().prop_map(Part::More), payload().prop_map(Part::Last), Just(Part::Refused),]
}

/// Small and large numbers alike.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0..200u64, any::<u64>(), Just(u64::MAX)]
}

/// What is copied, and what is referenced.
fn payload() -> impl Strategy<Value = Bytes> {
    prop_oneof![vec(any::<u8>(), 0..40), (0..9000usize).prop_map(|bytes| vec![7; bytes])]
        .prop_map(Bytes::from)
}

fn raft() -> impl Strategy<Value = eraftpb::Message> {
    let kind = prop::sample::select(vec![
        MessageType::MsgAppend,
        MessageType::MsgAppendResponse,
        MessageType::MsgRequestVote,
        MessageType::MsgRequestVoteResponse,
        MessageType::MsgSnapshot,
        MessageType::MsgHeartbeat,
        MessageType::MsgHeartbeatResponse,
        MessageType::MsgTransferLeader,
        MessageType::MsgTimeoutNow,
        MessageType::MsgReadIndex,
        MessageType::MsgReadIndexResp,
        MessageType::MsgRequestPreVote,
        MessageType::MsgRequestPreVoteResponse,
    ]);
    let numbers = prop::array::uniform10(number());
    let rest = (any::<bool>(), any::<i64>(), payload(), vec(entry(), 0..4));
    (kind, numbers, rest, prop::option::of(snapshot())).prop_map(
        |(msg_type, numbers, (reject, priority, context, entries), snapshot)| {
            let [to, from, term, log_term, index, commit, commit_term, ask, hint, old] = numbers;
            eraftpb::Message {
                msg_type,
                to,
                from,
                term,
                log_term,
                index,
                commit,
                commit_term,
                request_snapshot: ask,
                reject_hint: hint,
                deprecated_priority: old,
                reject,
                priority,
                context,
                entries: entries.into(),
                snapshot: snapshot.into(),
                ..eraftpb::Message::default()
            }
        },
    )
}

fn entry() -> impl Strategy<Value = Entry> {
    let kind = prop::sample::select(vec![
        EntryType::EntryNormal,
        EntryType::EntryConfChange,
        EntryType::EntryConfChangeV2,
    ]);
    (kind, number(), number(), payload(), payload(), any::<bool>()).prop_map(
        |(entry_type, term, index, data, context, sync_log)| Entry {
            entry_type,
            term,
            index,
            data,
            context,
            sync_log,
            ..Entry::default()
        },
    )
}

fn snapshot() -> impl Strategy<Value = Snapshot> {
    let conf_state =
        (prop::array::uniform4(vec(number(), 0..4)), any::<bool>()).prop_map(|(nodes, leave)| {
            let [voters, learners, voters_outgoing, learners_next] = nodes;
            ConfState {
                voters,
                learners,
                voters_outgoing,
                learners_next,
                auto_leave: leave,
                ..ConfState::default()
            }
        });
    let metadata =
        (number(), number(), prop::option::of(conf_state)).prop_map(|(index, term, conf_state)| {
            SnapshotMetadata {
                index,
                term,
                conf_state: conf_state.into(),
                ..SnapshotMetadata::default()
            }
        });
    (payload(), prop::option::of(metadata)).prop_map(|(data, metadata)| Snapshot {
        data,
        metadata: metadata.into(),
        ..Snapshot::default()
    })
}

fn session() -> impl Strategy<Value = SessionId> {
    number().prop_map(SessionId)
}

fn ticket() -> impl Strategy<Value = Ticket> {
    number().prop_map(Ticket)
}

fn queue() -> impl Strategy<Value = QueueId> {
    number().prop_map(QueueId)
}

fn consumer() -> impl Strategy<Value = ConsumerId> {
    (session(), number()).prop_map(|(session, number)| ConsumerId { session, number })
}

fn ranges() -> impl Strategy<Value = Ranges> {
    vec((0..1000u64, 1..50u64), 0..5)
        .prop_map(|parts| parts.into_iter().map(|(start, count)| start..start + count).collect())
}

/// As a queue tells of it.
fn spec() -> impl Strategy<Value = ConsumerSpec> {
    let start = prop::option::of(offset());
    (any::<u32>(), any::<bool>(), any::<bool>(), any::<i32>(), start, weight()).prop_map(
        |(credit, no_ack, exclusive, priority, start, weight)| ConsumerSpec {
            weight,
            credit,
            no_ack,
            exclusive,
            priority,
            start,
            generation: 0,
            is_paused: false,
        },
    )
}

fn weight() -> impl Strategy<Value = Weight> {
    any::<u16>().prop_map(|written| Weight::from_u16(written).unwrap_or_default())
}

fn change() -> impl Strategy<Value = ConsumerChange> {
    prop_oneof![
        any::<bool>().prop_map(ConsumerChange::Pause),
        weight().prop_map(ConsumerChange::Weigh)
    ]
}

/// As its session asks for it: elected with a generation, and paused, perhaps.
fn asked_spec() -> impl Strategy<Value = ConsumerSpec> {
    let generation = prop_oneof![Just(0), number()];
    (spec(), generation, any::<bool>()).prop_map(|(spec, generation, is_paused)| ConsumerSpec {
        generation,
        is_paused,
        ..spec
    })
}

fn offset() -> impl Strategy<Value = StreamOffset> {
    prop_oneof![
        prop::sample::select(vec![StreamOffset::First, StreamOffset::Last, StreamOffset::Next]),
        number().prop_map(StreamOffset::At),
        number().prop_map(StreamOffset::Since),
        number().prop_map(StreamOffset::Ago),
    ]
}

fn attachment() -> impl Strategy<Value = Attachment> {
    (queue(), consumer(), asked_spec(), any::<bool>(), ranges()).prop_map(
        |(queue, consumer, spec, is_attached, held)| Attachment {
            queue,
            consumer,
            spec,
            is_attached,
            held,
        },
    )
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop::sample::select(vec![
        Outcome::Done,
        Outcome::Rejected,
        Outcome::Purged,
        Outcome::Requeue,
        Outcome::Undelivered,
        Outcome::Expired,
        Outcome::Overflowed,
        Outcome::Exhausted,
        Outcome::DeadLettered,
        Outcome::Returned,
    ])
}

fn held() -> impl Strategy<Value = Held> {
    (queue(), consumer(), ranges(), outcome(), any::<u32>()).prop_map(
        |(queue, consumer, ranges, outcome, credit)| Held {
            queue,
            consumer,
            ranges,
            outcome,
            credit,
        },
    )
}

fn request(group: GroupId) -> impl Strategy<Value = Request> {
    let who = || (queue(), consumer());
    prop_oneof![
        (ticket(), ".{0,20}").prop_map(|(ticket, name)| Request::Catalog {
            ticket,
            command: CatalogCommand::CreateVhost { name }
        }),
        (ticket(), who(), asked_spec()).prop_map(move |(ticket, (queue, consumer), spec)| {
            Request::Attach { ticket, group, queue, consumer, spec }
        }),
        (ticket(), who(), any::<bool>()).prop_map(
            move |(ticket, (queue, consumer), takes_back)| Request::Detach {
                ticket,
                group,
                queue,
                consumer,
                takes_back,
            }
        ),
        (who(), any::<u32>()).prop_map(move |((queue, consumer), add)| Request::Credit {
            group,
            queue,
            consumer,
            add
        }),
        (who(), change()).prop_map(move |((queue, consumer), change)| {
            Request::ChangeConsumer { group, queue, consumer, change }
        }),
        (who(), ranges(), outcome(), any::<u32>()).prop_map(
            move |((queue, consumer), ranges, outcome, credit)| Request::Settle {
                group,
                queue,
                consumer,
                ranges,
                outcome,
                credit
            }
        ),
        (ticket(), who(), any::<bool>(), prop::option::of(position())).prop_map(
            move |(ticket, (queue, consumer), no_ack, at)| {
                Request::Get { ticket, group, queue, consumer, no_ack, at }
            }
        ),
        (ticket(), queue()).prop_map(move |(ticket, queue)| Request::Purge {
            ticket,
            group,
            queue
        }),
        (ticket(), queue(), prop::option::of(any::<u32>())).prop_map(
            move |(ticket, queue, undo_ms)| {
                let purge = |undo_ms| WithholdStep::Purge { undo_ms };
                let step = undo_ms.map_or(WithholdStep::Undo, purge);
                Request::Withhold { ticket, group, queue, step }
            }
        ),
        (ticket(), queue()).prop_map(move |(ticket, queue)| Request::Status {
            ticket,
            group,
            queue
        }),
        (ticket(), queue()).prop_map(move |(ticket, queue)| Request::Describe {
            ticket,
            group,
            queue
        }),
        (ticket(), queue(), peek_spec()).prop_map(move |(ticket, queue, spec)| {
            Request::Peek { ticket, group, queue, spec: Box::new(spec) }
        }),
        (ticket(), lock_spec()).prop_map(move |(ticket, spec)| Request::Lock {
            ticket,
            group,
            spec: Box::new(spec)
        }),
        (ticket(), queue(), vec(any::<u32>(), 0..5)).prop_map(move |(ticket, queue, sizes)| {
            Request::Admit { ticket, group, queue, sizes }
        }),
        (ticket(), queue(), any::<bool>(), any::<bool>()).prop_map(
            move |(ticket, queue, if_unused, if_empty)| Request::CloseQueue {
                ticket,
                group,
                queue,
                if_unused,
                if_empty
            }
        ),
        ticket().prop_map(|ticket| Request::EndSession { ticket }),
    ]
}

fn delivery(group: GroupId) -> impl Strategy<Value = Delivery> {
    let queues = (queue(), queue(), any::<bool>());
    (queues, consumer(), number(), any::<(u32, u32)>(), any::<bool>(), payload()).prop_map(
        move |(queues, consumer, first_seq, (count, returns), redelivered, bytes)| Delivery {
            group,
            queue: queues.0,
            store: if queues.2 { queues.1 } else { queues.0 },
            consumer,
            first_seq,
            count,
            redelivered,
            returns,
            bytes,
        },
    )
}

fn status() -> impl Strategy<Value = QueueStatus> {
    (prop::array::uniform12(number()), any::<u32>()).prop_map(|(numbers, consumers)| {
        let [ready, unsettled, delayed, leaving, enqueued, enqueued_bytes, rest @ ..] = numbers;
        let [settled, purged, dropped, dead_lettered, duplicates, checksum] = rest;
        let counters = Counters {
            enqueued,
            enqueued_bytes,
            settled,
            purged,
            dropped,
            dead_lettered,
            duplicates,
            passed_over: 0,
            checksum,
        };
        let held_back = HeldBack::default();
        QueueStatus { ready, unsettled, consumers, delayed, leaving, counters, held_back }
    })
}

fn holder() -> impl Strategy<Value = HolderDescription> {
    (consumer(), spec(), any::<u32>(), number(), any::<(bool, bool)>()).prop_map(
        |(consumer, spec, credit, held, (is_attached, is_active))| HolderDescription {
            consumer,
            spec,
            credit,
            held,
            is_attached,
            is_active,
        },
    )
}

fn withheld() -> impl Strategy<Value = Result<WithheldCount, NotWithheld>> {
    prop_oneof![
        (number(), number()).prop_map(|(count, until_ms)| Ok(WithheldCount { count, until_ms })),
        Just(Err(NotWithheld::NoQueue)),
        Just(Err(NotWithheld::NoLeader)),
        Just(Err(NotWithheld::Late)),
        any::<u16>().prop_map(|since| Err(NotWithheld::NotYet { since: Version(since) })),
    ]
}

fn described() -> impl Strategy<Value = Result<Box<DescribedQueue>, NotDescribed>> {
    let nodes = || vec(number().prop_map(NodeId), 0..4);
    let features = prop::option::of(any::<u64>().prop_map(|max| {
        let features = Features { max_length_bytes: Some(max), ..Features::default() };
        Box::new(features)
    }));
    let withheld = prop::option::of((number(), number()));
    let queue = (status(), number(), prop::option::of(number()), features, vec(holder(), 0..4));
    let queue = (queue, withheld);
    let queue = queue.prop_map(|((status, kept, ready_bytes, features, holders), withheld)| {
        // Books that cannot be are refused.
        let counters = Counters { enqueued: kept % 1000, ..Counters::default() };
        QueueDescription {
            status: QueueStatus { counters, ..status },
            kept,
            ready_bytes,
            settings: QueueSettings {
                is_durable: true,
                is_auto_delete: false,
                features,
                is_paused: false,
            },
            holder_count: holders.len() as u64,
            holders,
            active_since_ms: None,
            withheld,
        }
    });
    prop_oneof![
        (queue, number(), number(), nodes(), nodes()).prop_map(
            |(queue, leader, term, voters, learners)| {
                let leader = NodeId(leader);
                Ok(Box::new(DescribedQueue { queue, leader, term, voters, learners }))
            }
        ),
        Just(Err(NotDescribed::NoQueue)),
        Just(Err(NotDescribed::NoLeader)),
        Just(Err(NotDescribed::Late)),
        any::<u16>().prop_map(|since| Err(NotDescribed::NotYet { since: Version(since) })),
    ]
}

fn position() -> impl Strategy<Value = Position> {
    (any::<u8>(), number()).prop_map(|(priority, seq)| Position { priority, seq })
}

fn peek_spec() -> impl Strategy<Value = PeekSpec> {
    let filter = prop::sample::select(vec![
        PeekFilter::All,
        PeekFilter::Ready,
        PeekFilter::Held,
        PeekFilter::Delayed,
        PeekFilter::Dead,
    ]);
    (position(), filter, any::<(u32, u32)>(), payload()).prop_map(
        |(from, filter, (count, body_bytes_max), contains)| PeekSpec {
            from,
            filter,
            count,
            body_bytes_max,
            contains,
        },
    )
}

fn peeked_message() -> impl Strategy<Value = PeekedMessage> {
    let state = prop_oneof![
        Just(MessageState::Ready),
        consumer().prop_map(|by| MessageState::Held { by }),
        number().prop_map(|due_ms| MessageState::Delayed { due_ms }),
        outcome().prop_map(|reason| MessageState::Dead { reason }),
    ];
    let time = || prop::option::of(number());
    let description =
        (position(), state, time(), number()).prop_map(|(position, state, expires_ms, returns)| {
            MessageDescription { position, state, expires_ms, returns }
        });
    (description, time(), payload(), payload(), number()).prop_map(
        |(is, enqueued_ms, head, body, body_bytes)| PeekedMessage {
            is,
            enqueued_ms,
            head,
            body,
            body_bytes,
        },
    )
}

fn peeked() -> impl Strategy<Value = Result<Box<Peeked>, NotPeeked>> {
    prop_oneof![
        (vec(peeked_message(), 0..4), prop::option::of(position()), vec(any::<u64>(), 0..5))
            .prop_map(|(messages, next, ends)| Ok(Box::new(Peeked { messages, next, ends }))),
        prop::sample::select(vec![
            NotPeeked::NoQueue,
            NotPeeked::NoLeader,
            NotPeeked::Late,
            NotPeeked::Busy,
            NotPeeked::Unreadable,
        ])
        .prop_map(Err),
        any::<u16>().prop_map(|since| Err(NotPeeked::NotYet { since: Version(since) })),
    ]
}

fn lock_spec() -> impl Strategy<Value = LockSpec> {
    let texts = || ("[a-z/]{1,3}", "[a-z]{0,5}");
    let what = prop_oneof![
        (texts(), "[a-z]{1,5}", number()).prop_map(|((vhost, name), owner, lease_ms)| {
            LockQuestion::Do(LockCommand::Acquire { vhost, name, owner, lease_ms })
        }),
        (texts(), any::<u128>(), prop::option::of(vec(any::<u8>(), 0..9))).prop_map(
            |((vhost, name), by, value)| {
                let (expected, token, value) = (Some(1), None, value.map(Into::into));
                LockQuestion::Do(LockCommand::Put { vhost, name, by, expected, token, value })
            }
        ),
        (texts(), prop::option::of(number()))
            .prop_map(|((vhost, name), unlike)| LockQuestion::Read { vhost, name, unlike }),
        (texts(), any::<u32>()).prop_map(|((vhost, behind), count)| LockQuestion::List {
            vhost,
            behind,
            count
        }),
    ];
    (what, any::<u32>(), any::<bool>()).prop_map(|(what, wait_ms, is_again)| LockSpec {
        what,
        wait_ms,
        is_again,
    })
}

fn lock_result() -> impl Strategy<Value = LockResult> {
    let refused = vec![NotLocked::Busy, NotLocked::Unknown, NotLocked::NoLeader, NotLocked::Late];
    prop_oneof![
        number().prop_map(|version| Ok(Box::new(LockReply::Put { version }))),
        Just(()).prop_map(|()| Ok(Box::new(LockReply::Done))),
        prop::sample::select(refused).prop_map(Err),
        any::<u16>().prop_map(|since| Err(NotLocked::NotYet { since: Version(since) })),
    ]
}

fn answer(group: GroupId) -> impl Strategy<Value = Answer> {
    let attached = prop::sample::select(vec![
        Ok(()),
        Err(AttachError::NoQueue),
        Err(AttachError::ExclusiveUse),
        Err(AttachError::NotLeading),
    ]);
    let closed = prop_oneof![
        number().prop_map(Ok),
        prop::sample::select(vec![CloseError::NoQueue, CloseError::InUse, CloseError::NotEmpty])
            .prop_map(Err),
    ];
    prop_oneof![
        ticket().prop_map(|ticket| Answer::Appended { ticket }),
        ticket().prop_map(|ticket| Answer::AppendFailed { ticket }),
        (ticket(), attached).prop_map(|(ticket, result)| Answer::Attached {
            ticket,
            result,
            at: None
        }),
        (ticket(), number()).prop_map(|(ticket, at)| Answer::Attached {
            ticket,
            result: Ok(()),
            at: Some(at)
        }),
        ticket().prop_map(|ticket| Answer::Detached { ticket }),
        delivery(group).prop_map(Answer::Delivered),
        (ticket(), prop::option::of(delivery(group)), number())
            .prop_map(|(ticket, delivery, ready)| Answer::Got { ticket, delivery, ready }),
        (ticket(), number()).prop_map(|(ticket, count)| Answer::Purged { ticket, count }),
        (ticket(), withheld()).prop_map(|(ticket, result)| Answer::Withheld { ticket, result }),
        (ticket(), prop::option::of(status()))
            .prop_map(|(ticket, status)| Answer::Status { ticket, status }),
        (ticket(), described()).prop_map(|(ticket, result)| Answer::Described { ticket, result }),
        (ticket(), peeked()).prop_map(|(ticket, result)| Answer::Peeked { ticket, result }),
        (ticket(), lock_result()).prop_map(|(ticket, result)| Answer::Locked { ticket, result }),
        (ticket(), closed).prop_map(|(ticket, result)| Answer::Closed { ticket, result }),
        (queue(), consumer()).prop_map(|(queue, consumer)| Answer::Cancelled { queue, consumer }),
        (queue(), consumer(), number()).prop_map(|(queue, consumer, generation)| Answer::Elected {
            queue,
            consumer,
            generation
        }),
        (ticket(), vec(any::<u32>(), 0..5))
            .prop_map(|(ticket, refused)| Answer::Admitted { ticket, refused }),
        ticket().prop_map(|ticket| Answer::SessionEnded { ticket }),
        any::<(bool, bool)>().prop_map(|(memory, disk)| Answer::Alarms(Alarms { memory, disk })),
        Just(()).prop_map(|()| Answer::Stopping),
    ]
}
