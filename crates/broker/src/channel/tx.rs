//! Transactions: publishes and acks that are done together at `tx.commit`.
//!
//! A commit is one atomic append for each group it touches. Over several groups it is not atomic:
//! AMQP 0-9-1 promises no more than that for several queues, and RabbitMQ not even for one.

use std::collections::BTreeSet;

use amqp::{Method, ReplyCode, tx as wire};
use bytes::BytesMut;
use cluster::{Answer, Held, Request};
use machine::{Batch, GroupId, Outcome, QueueId, Ranges};

use super::caller::Caller;
use super::unacked::{Run, Unacked};
use crate::attributes::Asked;
use crate::capacity::{Candidate, Then};
use crate::connection::client::Client;
use crate::connection::consumers::Consumers;
use crate::connection::tickets::Waiting;
use crate::connection::unfinished::Unfinished;
use crate::errors::{Failure, not_done, precondition, unknown_tag};
use crate::limits;
use crate::route_cache::Route;

/// What a channel has gathered since the last commit or rollback.
#[derive(Debug, Default)]
pub(crate) struct Tx {
    batches: Vec<(GroupId, Batch)>,
    /// `basic.return`s of the publishes, encoded.
    pub(crate) returns: BytesMut,
    settled: Vec<(Run, Outcome)>,
    /// Messages whose queues are asked for room at the commit.
    candidates: Vec<(GroupId, Candidate)>,
    candidate_bytes: usize,
    /// The queues of the candidates.
    candidate_queues: BTreeSet<QueueId>,
    /// Of the publishes, as counted among what is unfinished.
    pub(crate) bytes: usize,
}

impl Tx {
    /// Keeps a publish until the commit. What it takes counts as unfinished also if it is too much: the rollback that
    /// follows takes back the whole.
    pub(crate) fn store(
        &mut self,
        unfinished: &mut Unfinished,
        route: &Route,
        asked: &Asked,
        head: &[&[u8]],
        body: &[u8],
        levels: &mut Vec<QueueId>,
    ) -> Result<(), Failure> {
        // A changed policy may have made a queue take everything meanwhile: what is asked for first is not overtaken.
        let behind = match self.candidate_queues.is_empty() {
            true => None,
            false => route.asking(|queue| self.candidate_queues.contains(&queue)),
        };
        let route = behind.as_ref().unwrap_or(route);
        if let Some(key) = asked.cancels {
            for (group, queues) in route.queues() {
                self.batch(group).cancel_delayed(&queues, key);
            }
        } else {
            route.parts(asked, levels, |group, attributes, queues| {
                self.batch(group).enqueue_with(queues, attributes, head, body);
            });
            for target in route.guarded() {
                let message = Candidate::new(target, asked, head, body, Then::Append(None));
                self.candidate_bytes += message.bytes();
                self.candidate_queues.insert(target.queue);
                self.candidates.push((target.group, message));
            }
        }
        let bytes: usize = self.batches.iter().map(|(_, batch)| batch.bytes()).sum();
        let before = self.bytes;
        self.bytes = bytes + self.candidate_bytes + self.returns.len();
        unfinished.tx_bytes += self.bytes - before;
        if self.bytes > limits::TX_BYTES_MAX {
            return Err(too_large("bytes", limits::TX_BYTES_MAX));
        }
        Ok(())
    }

    /// Acks and rejects in a transaction: the deliveries are not out any more, unless it is rolled back.
    pub(crate) fn settle(
        &mut self,
        unacked: &mut Unacked,
        tag: u64,
        multiple: bool,
        outcome: Outcome,
    ) -> Result<(), Failure> {
        if self.settled.len() >= limits::TX_SETTLES_MAX {
            return Err(too_large("acks", limits::TX_SETTLES_MAX));
        }
        let settled = &mut self.settled;
        match (tag, multiple) {
            (0, true) => unacked.take_all(|run| settled.push((run, outcome))),
            (_, true) => {
                if !unacked.take_through(tag, |run| settled.push((run, outcome))) {
                    return Err(unknown_tag(tag));
                }
            }
            (_, false) => {
                let run = unacked.take(tag).ok_or_else(|| unknown_tag(tag))?;
                settled.push((run, outcome));
            }
        }
        Ok(())
    }

    /// Runs of deliveries that were settled since the last commit or rollback.
    pub(crate) fn settles(&self) -> usize {
        self.settled.len()
    }

    /// Forgets what was gathered: its acks are undone, what they were for is out again.
    pub(crate) fn roll_back(self, unacked: &mut Unacked, unfinished: &mut Unfinished) {
        unfinished.end_tx(self.bytes);
        for (run, _) in self.settled {
            unacked.give_back(run);
        }
    }

    /// `tx.commit`: hands the transaction over, or asks first whether there is room for its messages.
    pub(crate) fn commit(
        mut self,
        caller: &mut Caller<'_, '_>,
        consumers: &mut Consumers,
        unfinished: &mut Unfinished,
    ) -> Next {
        let candidates = std::mem::take(&mut self.candidates);
        if candidates.is_empty() {
            return self.hand_over(caller, consumers, unfinished, false);
        }
        let unanswered = candidates.len();
        for (group, candidate) in candidates {
            let candidate = Candidate { then: Then::Commit(caller.at), ..candidate };
            caller.requests.capacity.add(group, candidate);
        }
        Ok(Some(Pending::Reserve { tx: Box::new(self), unanswered, is_partial: false }))
    }

    /// Hands the transaction over. `is_partial`: some of its messages were refused.
    fn hand_over(
        self,
        caller: &mut Caller<'_, '_>,
        consumers: &mut Consumers,
        unfinished: &mut Unfinished,
        is_partial: bool,
    ) -> Next {
        let Self { batches, returns, settled, bytes, .. } = self;
        // From here on they count as sent and not logged.
        unfinished.end_tx(bytes);
        caller.step.out.bytes.extend_from_slice(&returns);
        let mut groups: Vec<(GroupId, Batch, GroupSettles)> = batches
            .into_iter()
            .map(|(group, batch)| (group, batch, GroupSettles::default()))
            .collect();
        for (run, outcome) in &settled {
            caller.counts.settled(run.count, *outcome);
            // To a stream it is credit, and nothing for the log.
            if !outcome.is_final() || caller.is_of_stream(run) {
                caller.settle(consumers, run, *outcome);
                continue;
            }
            consumers.settled(run.source.consumer, run.count, *outcome);
            caller.tell_settled(run, *outcome);
            let group = run.source.group;
            let place = groups.iter().position(|(known, _, _)| *known == group);
            let place = place.unwrap_or_else(|| {
                groups.push((group, Batch::new(), GroupSettles::default()));
                groups.len() - 1
            });
            groups[place].2.add(caller.client, run, *outcome);
        }
        let unanswered = groups.len();
        for (group, batch, settles) in groups {
            append(caller, group, batch, settles);
        }
        match unanswered {
            0 => committed(caller, is_partial),
            _ => Ok(Some(Pending::Commit { unanswered, failed: false, is_partial })),
        }
    }

    fn batch(&mut self, group: GroupId) -> &mut Batch {
        let place = match self.batches.iter().position(|(known, _)| *known == group) {
            Some(place) => place,
            None => {
                self.batches.push((group, Batch::new()));
                self.batches.len() - 1
            }
        };
        &mut self.batches[place].1
    }
}

/// What the channel waits for after `tx.commit`.
#[derive(Debug)]
pub(crate) enum Pending {
    /// Room for messages of the transaction.
    Reserve { tx: Box<Tx>, unanswered: usize, is_partial: bool },
    /// The transaction is handed over.
    Commit { unanswered: usize, failed: bool, is_partial: bool },
}

/// What is waited for next. None: all is done.
pub(crate) type Next = Result<Option<Pending>, Failure>;

impl Pending {
    /// A queue takes a message of the transaction, or does not. Hands the transaction over if it was the last.
    pub(crate) fn reserved(
        self,
        caller: &mut Caller<'_, '_>,
        consumers: &mut Consumers,
        unfinished: &mut Unfinished,
        group: GroupId,
        message: Option<&Candidate>,
    ) -> Next {
        let Self::Reserve { mut tx, unanswered, mut is_partial } = self else {
            return Ok(Some(self));
        };
        match message {
            Some(Candidate { level, attributes, head, body, .. }) => {
                tx.batch(group).enqueue_with(&[*level], attributes, &[head], body);
            }
            None => is_partial = true,
        }
        match unanswered - 1 {
            0 => tx.hand_over(caller, consumers, unfinished, is_partial),
            unanswered => Ok(Some(Self::Reserve { tx, unanswered, is_partial })),
        }
    }

    /// A part of the transaction is logged, or will not be.
    pub(crate) fn answered(self, caller: &mut Caller<'_, '_>, answer: &Answer) -> Next {
        let Self::Commit { unanswered, failed, is_partial } = self else {
            return Err(not_done("the change"));
        };
        let failed = failed || !matches!(answer, Answer::Appended { .. });
        match unanswered - 1 {
            0 if failed => Err(not_done("the transaction")),
            0 => committed(caller, is_partial),
            unanswered => Ok(Some(Self::Commit { unanswered, failed, is_partial })),
        }
    }
}

/// What could be done is done; the client is told if that was not all.
fn committed(caller: &mut Caller<'_, '_>, is_partial: bool) -> Next {
    if is_partial {
        return Err(precondition("partial tx completion"));
    }
    caller.send(&Method::TxCommitOk(wire::CommitOk));
    Ok(None)
}

/// One group's part of a transaction, in one append.
fn append(
    caller: &mut Caller<'_, '_>,
    group: GroupId,
    mut batch: Batch,
    GroupSettles { logged, held }: GroupSettles,
) {
    for (queue, outcome, ranges) in &logged {
        batch.settle(*queue, *outcome, ranges);
    }
    caller.requests.flush_appends(&mut caller.step.out.requests);
    let bytes = batch.bytes();
    caller.requests.appends.sent(bytes);
    caller.ask_as(Waiting::Commit { at: caller.at, bytes }, |ticket| Request::Append {
        group,
        ticket,
        batch,
        settles: held,
    });
}

fn too_large(what: &str, max: usize) -> Failure {
    let text = format!("a transaction holds more than {max} {what}");
    Failure::connection(ReplyCode::ResourceError, text)
}

/// Final outcomes of one group: what the log is told, and who held the messages.
#[derive(Debug, Default)]
struct GroupSettles {
    logged: Vec<(QueueId, Outcome, Ranges)>,
    held: Vec<Held>,
}

impl GroupSettles {
    fn add(&mut self, client: &Client, run: &Run, outcome: Outcome) {
        let range = run.first_seq..run.first_seq + u64::from(run.count);
        let source = run.source;
        let same = |(queue, known, _): &&mut (QueueId, Outcome, Ranges)| {
            *queue == source.queue && *known == outcome
        };
        match self.logged.iter_mut().find(same) {
            Some((_, _, ranges)) => _ = ranges.insert(range.clone()),
            None => self.logged.push((source.queue, outcome, Ranges::from(range.clone()))),
        }
        let consumer = client.consumer_id(source.consumer);
        let same = |held: &&mut Held| {
            (held.queue, held.consumer, held.outcome) == (source.queue, consumer, outcome)
        };
        match self.held.iter_mut().find(same) {
            Some(held) => _ = held.ranges.insert(range),
            None => self.held.push(Held {
                queue: source.queue,
                consumer,
                ranges: Ranges::from(range),
                outcome,
                // Its credit is given when the step ends, like any other.
                credit: 0,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::unacked::Source;
    use machine::Target;

    const GROUP: GroupId = GroupId(1);

    #[test]
    fn a_transaction_holds_only_so_many_bytes() {
        let plain = Target::plain(QueueId(7), GROUP);
        for target in [plain, Target { is_guarded: true, ..plain }] {
            let route = Route::of(&[target]);
            let body = vec![0; limits::TX_BYTES_MAX / 2];
            let (mut tx, mut unfinished) = (Tx::default(), Unfinished::default());
            let mut store = || {
                let asked = Asked::default();
                tx.store(&mut unfinished, &route, &asked, &[b"head"], &body, &mut Vec::new())
            };
            store().unwrap();
            assert_eq!(store().unwrap_err().error.code, ReplyCode::ResourceError);
            assert!(unfinished.bytes() > limits::TX_BYTES_MAX as u64);
            tx.roll_back(&mut Unacked::default(), &mut unfinished);
            assert_eq!(unfinished.bytes(), 0, "the channel's end takes back all of it");
        }
    }

    #[test]
    fn a_message_does_not_overtake_one_of_its_transaction_whose_queue_is_asked_first() {
        let plain = Target::plain(QueueId(7), GROUP);
        let (mut tx, mut unfinished) = (Tx::default(), Unfinished::default());
        let (guarded, other) =
            (Target { is_guarded: true, ..plain }, Target::plain(QueueId(8), GROUP));
        for (target, body) in [(guarded, b"1"), (plain, b"2"), (other, b"3")] {
            let (route, asked) = (Route::of(&[target]), Asked::default());
            tx.store(&mut unfinished, &route, &asked, &[b"head"], body, &mut Vec::new()).unwrap();
        }
        let of = |(_, message): &(GroupId, Candidate)| (message.level, message.body.to_vec());
        let candidates: Vec<_> = tx.candidates.iter().map(of).collect();
        assert_eq!(candidates, [(QueueId(7), b"1".to_vec()), (QueueId(7), b"2".to_vec())]);
        assert_eq!(tx.batches.len(), 1, "another queue is not asked");
    }

    #[test]
    fn a_transaction_holds_only_so_many_acks() {
        let mut tx = Tx::default();
        let mut unacked = Unacked::default();
        let source = Source { group: GROUP, queue: QueueId(7), consumer: 1 };
        let count = u32::try_from(limits::TX_SETTLES_MAX).unwrap() + 1;
        unacked.add(source, 1, count);
        for tag in 1..u64::from(count) {
            tx.settle(&mut unacked, tag, false, Outcome::Done).unwrap();
        }
        let refused = tx.settle(&mut unacked, count.into(), false, Outcome::Done).unwrap_err();
        assert_eq!(refused.error.code, ReplyCode::ResourceError);
    }
}
